#include "core/report/plot_scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void tern_report_range_add(struct tern_report_range *r, double v)
{
    r->lo = r->any && r->lo < v ? r->lo : v;
    r->hi = r->any && r->hi > v ? r->hi : v;
    r->any = true;
}

bool tern_report_height(bool log_y, double y, double *ret_height)
{
    if (!isfinite(y) || (log_y && y <= 0))
        return false;
    *ret_height = log_y ? log10(y) : y;
    return true;
}

/* ---------------------------------------------------------------- pieces of a line */

static void put(struct tern_report_walk *w, double x, double y)
{
    w->room_x[w->n] = x;
    w->room_y[w->n++] = y;
}

bool tern_report_walk_next(struct tern_report_walk *w)
{
    const struct tern_report_line *l = w->line;

    if (w->at == (l->parts ? l->n_parts : 1))
        return false;
    const struct tern_report_part *p = l->parts ? &l->parts[w->at] : NULL;
    const size_t i = w->at++;
    const bool whole = p && (p->finite == 0 || ((!w->log_y || p->low > 0) &&
                                                (!w->one || w->one(w->canvas, p->x0, p->x1))));
    w->x = w->room_x;
    w->y = w->room_y;
    w->n = 0;
    if (!p) {
        w->x = l->x;
        w->y = l->y;
        w->n = l->n;
    } else if (!whole) {
        w->failed |= l->read(l->self, i, &w->x, &w->y, &w->n) < 0;
    } else {
        if (p->broken_before)
            put(w, p->x0, NAN);
        if (p->finite) {
            put(w, p->x0, p->first);
            put(w, p->x0, p->low);
            put(w, p->x0, p->high);
            put(w, p->x1, p->last);
        }
        if (p->broken_behind)
            put(w, p->x1, NAN);
    }
    return !w->failed;
}

struct tern_report_range tern_report_heights(const struct tern_report_line *l, bool log_y)
{
    struct tern_report_walk w = {.line = l, .log_y = log_y};
    struct tern_report_range r = {0};

    while (tern_report_walk_next(&w))
        for (size_t i = 0; i < w.n; i++) {
            double y;
            if ((l->level || isfinite(w.x[i])) && tern_report_height(log_y, w.y[i], &y))
                tern_report_range_add(&r, y);
        }
    return r;
}

struct tern_report_range tern_report_places(const struct tern_report_line *l, bool log_y)
{
    struct tern_report_walk w = {.line = l, .log_y = log_y};
    struct tern_report_range r = {0};

    while (tern_report_walk_next(&w))
        for (size_t i = 0; i < w.n; i++) {
            double y;
            if (isfinite(w.x[i]) && tern_report_height(log_y, w.y[i], &y))
                tern_report_range_add(&r, w.x[i]);
        }
    return r;
}

/* ---------------------------------------------------------------- two scales */

/* A quantity of the picture, with the range of all its lines. */
struct quantity {
    int id;
    struct tern_report_range range;
};

static int by_low(const void *x, const void *y)
{
    const struct quantity *a = x, *b = y;

    return a->range.lo != b->range.lo ? (a->range.lo > b->range.lo ? 1 : -1) : a->id - b->id;
}

/* The share of the height that the flattest of q [n] has where they share one scale.  A constant
 * one is flat on any scale, and does not count. */
static double least_share(const struct quantity *q, size_t n)
{
    struct tern_report_range all = {0};
    double least = 1;

    for (size_t i = 0; i < n; i++) {
        tern_report_range_add(&all, q[i].range.lo);
        tern_report_range_add(&all, q[i].range.hi);
    }
    for (size_t i = 0; i < n; i++) {
        double span = q[i].range.hi - q[i].range.lo;
        if (span > 0)
            least = fmin(least, span / (all.hi - all.lo));
    }
    return least;
}

static size_t find_quantities(const struct tern_report_plot *p, struct quantity *ret_q)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_lines; i++) {
        const struct tern_report_range r = tern_report_heights(&p->lines[i], p->log_y);
        size_t k = 0;
        while (k < n && ret_q[k].id != p->lines[i].quantity)
            k++;
        if (!r.any)
            continue;
        if (k == n)
            ret_q[n++] = (struct quantity){.id = p->lines[i].quantity};
        tern_report_range_add(&ret_q[k].range, r.lo);
        tern_report_range_add(&ret_q[k].range, r.hi);
    }
    return n;
}

bool tern_report_scales(const struct tern_report_plot *p, uint8_t *ret_right)
{
    static const double flat = 1.0 / 8;
    struct quantity *q = calloc(p->n_lines + 1, sizeof *q);
    size_t n = q ? find_quantities(p, q) : 0, cut = 0;
    double best = 0;

    if (n > 1)
        qsort(q, n, sizeof *q, by_low);
    for (size_t k = 1; k < n; k++) {
        double share = fmin(least_share(q, k), least_share(q + k, n - k));
        cut = share > best ? k : cut;
        best = fmax(best, share);
    }
    bool two = n > 1 && least_share(q, n) < flat && best > 2 * least_share(q, n);
    for (size_t i = 0; i < p->n_lines; i++) {
        ret_right[i] = 0;
        for (size_t k = cut; two && k < n; k++)
            ret_right[i] |= q[k].id == p->lines[i].quantity;
    }
    /* The first line has the scale at the left. */
    for (size_t i = p->n_lines; two && ret_right[0] && i-- > 0;)
        ret_right[i] = !ret_right[i];
    free(q);
    return two;
}

/* ---------------------------------------------------------------- ticks */

/* Steps of 1, 2 or 5 times a power of ten, at most `max` of them in [lo, hi]. */
static double tick_step(double lo, double hi, int max)
{
    double raw = (hi - lo) / max;
    double power = pow(10, floor(log10(raw)));
    double m = raw / power;

    return power * (m <= 1.0000001 ? 1 : m <= 2.0000001 ? 2 : m <= 5.0000001 ? 5 : 10);
}

int tern_report_ticks(double lo, double hi, int max, double to[TERN_REPORT_TICKS])
{
    int n = 0;

    if (!(hi > lo)) {
        to[0] = lo;
        return 1;
    }
    double step = tick_step(lo, hi, max);
    for (double i = ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9 && n < TERN_REPORT_TICKS;
         i++)
        to[n++] = i * step;
    return n;
}

/* The logarithms of `per` values of each `every`-th decade: 1, 2, 5; or 1, 3; or 1. */
static int decade_ticks(double lo, double hi, int per, int every, double to[TERN_REPORT_TICKS])
{
    static const double in_decade[][3] = {{1}, {1, 3}, {1, 2, 5}};
    int n = 0;

    for (double d = floor(lo); d <= ceil(hi) && n < TERN_REPORT_TICKS; d++)
        for (int k = 0; k < per && n < TERN_REPORT_TICKS; k++) {
            double at = d + log10(in_decade[per - 1][k]);
            if (fmod(fabs(d), every) == 0 && at >= lo - 1e-9 && at <= hi + 1e-9)
                to[n++] = at;
        }
    return n;
}

int tern_report_log_ticks(double lo, double hi, int max, double to[TERN_REPORT_TICKS])
{
    int n, every = 1;

    if (hi - lo < 1) { /* less than a decade: round values, which lie almost evenly */
        n = tern_report_ticks(pow(10, lo), pow(10, hi), max, to);
        for (int i = 0; i < n; i++)
            to[i] = log10(to[i]);
        return n;
    }
    for (int per = 3; per > 1; per--)
        if (per * (hi - lo) + 1 <= max)
            return decade_ticks(lo, hi, per, 1, to);
    while ((hi - lo) / every + 1 > (max > 2 ? max : 2)) /* one alone is no scale */
        every++;
    return decade_ticks(lo, hi, 1, every, to);
}

void tern_report_tick_label(char *to, size_t n, double v)
{
    double a = fabs(v);

    if (a >= 1e6 && a < 1e12)
        snprintf(to, n, a >= 1e9 ? "%.4gG" : "%.4gM", a >= 1e9 ? v / 1e9 : v / 1e6);
    else if (a >= 1e4 && a < 1e6)
        snprintf(to, n, "%.5gk", v / 1e3);
    else
        snprintf(to, n, "%.4g", a < 1e-300 ? 0 : v);
}

/* ---------------------------------------------------------------- smoothing */

void tern_report_smooth(double *to, const double *from, size_t n, size_t window)
{
    const size_t side = window / 2;

    for (size_t i = 0; i < n; i++) {
        size_t reach = side, counted = 0;
        double sum = 0;
        reach = i < reach ? i : reach;
        reach = n - 1 - i < reach ? n - 1 - i : reach;
        for (size_t k = i - reach; k <= i + reach; k++) {
            sum += isfinite(from[k]) ? from[k] : 0;
            counted += isfinite(from[k]) != 0;
        }
        to[i] = isfinite(from[i]) ? sum / (double)counted : from[i];
    }
}
