/* Curves of few points. */
#include "core/report/page.h"

#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>

void tern_report_thin_free(struct tern_report_thin *t)
{
    free(t->x);
    free(t->value);
    free(t->low);
    free(t->high);
    free(t->count);
    free(t->class);
    *t = (struct tern_report_thin){0};
}

static uint8_t class_of(double v)
{
    return isnan(v) ? 1 : isinf(v) ? (v > 0 ? 2 : 3) : 0;
}

/* One more point for the part at the end; `finite` of it so far. */
static void add(struct tern_report_thin *t, double x, double y, uint32_t *finite)
{
    const size_t i = t->n - 1;
    const uint8_t class = class_of(y);

    t->x[i] = x;
    t->count[i]++;
    if (class > t->class[i])
        t->class[i] = class;
    if (class)
        return;
    if (++*finite == 1) {
        t->value[i] = t->low[i] = t->high[i] = y;
        return;
    }
    t->value[i] += (y - t->value[i]) / *finite;
    t->low[i] = fmin(t->low[i], y);
    t->high[i] = fmax(t->high[i], y);
}

int tern_report_thin(const double *x, const double *y, size_t n, size_t most,
                     struct tern_report_thin *ret_thin, struct tern_err *err)
{
    const size_t room = (n < most ? n : most) + 1;
    struct tern_report_thin t = {.x = tern_alloc(room, sizeof *t.x, "a curve", err),
                                 .value = tern_alloc(room, sizeof *t.value, "a curve", err),
                                 .low = tern_alloc(room, sizeof *t.low, "a curve", err),
                                 .high = tern_alloc(room, sizeof *t.high, "a curve", err),
                                 .count = tern_alloc(room, sizeof *t.count, "a curve", err),
                                 .class = tern_alloc(room, sizeof *t.class, "a curve", err)};
    const double width = n ? x[n - 1] - x[0] : 0;
    const size_t parts = most / 2;
    size_t part = 0;
    uint32_t finite = 0;

    if (!t.x || !t.value || !t.low || !t.high || !t.count || !t.class) {
        tern_report_thin_free(&t);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        size_t now = i;
        if (n > most) {
            now = width > 0 ? (size_t)((x[i] - x[0]) / width * (double)parts) : 0;
            now = now < parts ? now : parts - 1; /* the last point */
        }
        if (i == 0 || now != part) {
            part = now;
            finite = 0;
            t.value[t.n] = t.low[t.n] = t.high[t.n] = NAN;
            t.n++;
        }
        add(&t, x[i], y[i], &finite);
    }
    *ret_thin = t;
    return 0;
}
