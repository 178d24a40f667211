#include "core/train/guard.h"

#include <math.h>
#include <stdio.h>

void tern_train_guard_init(struct tern_train_guard *g, const struct tern_recipe *r)
{
    *g = (struct tern_train_guard){
        .spike = r->optimizer.guard.spike,
        .window = (int)r->optimizer.guard.window,
        .stop_after = (int)r->optimizer.guard.stop_after,
    };
}

struct spread {
    double mean, sd;
};

/* Anew each time: a few hundred additions, and no error that adds up. */
static struct spread spread_of(const double *w, int n)
{
    double mean = 0, squares = 0;

    for (int i = 0; i < n; i++)
        mean += w[i] / n;
    for (int i = 0; i < n; i++)
        squares += (w[i] - mean) * (w[i] - mean);
    return (struct spread){mean, sqrt(squares / n)};
}

/* Is `x` a spike?  It enters the window in any case. */
static bool enter(struct tern_train_guard *g, double *w, double x, const char *name,
                  char why[TERN_TRAIN_WHY])
{
    bool spike = false;

    if (g->seen >= (uint64_t)g->window) {
        struct spread s = spread_of(w, g->window);
        double limit = s.mean + g->spike * s.sd;
        spike = s.sd > 0 && x > limit; /* values without a spread tell nothing of what is usual */
        if (spike) {
            snprintf(why, TERN_TRAIN_WHY,
                     "%s %.6g is %.1f standard deviations above the mean of the %d steps before, "
                     "%.6g",
                     name, x, (x - s.mean) / s.sd, g->window, s.mean);
            x = limit;
        }
    }
    w[g->seen % (uint64_t)g->window] = x;
    return spike;
}

static bool spikes(struct tern_train_guard *g, double loss, double norm, char why[TERN_TRAIN_WHY])
{
    if (g->spike <= 0)
        return false;
    bool by_norm = enter(g, g->norm, norm, "gradient norm", why);
    bool by_loss = enter(g, g->loss, loss, "loss", why);
    g->seen++;
    return by_norm || by_loss;
}

bool tern_train_guard_judge(struct tern_train_guard *g, double loss, double norm,
                            char why[TERN_TRAIN_WHY])
{
    bool finite = isfinite(loss) && isfinite(norm);

    g->not_finite = !finite;
    if (!finite)
        snprintf(why, TERN_TRAIN_WHY, "loss %g, gradient norm %g: not finite", loss, norm);
    if (finite && !spikes(g, loss, norm, why)) {
        g->in_a_row = 0;
        return true;
    }
    g->skipped++;
    g->in_a_row++;
    return false;
}

bool tern_train_guard_is_over(const struct tern_train_guard *g)
{
    return g->in_a_row >= g->stop_after;
}

void tern_train_guard_forget(struct tern_train_guard *g)
{
    g->seen = 0;
}

/* ------------------------------------------------------------------ checkpoints */

/* Oldest first. */
static json_t *values(const struct tern_train_guard *g, const double *w)
{
    const uint64_t window = (uint64_t)g->window, n = g->seen < window ? g->seen : window;
    json_t *list = json_array();

    for (uint64_t i = g->seen - n; i < g->seen; i++)
        json_array_append_new(list, json_real(w[i % window]));
    return list;
}

json_t *tern_train_guard_save(const struct tern_train_guard *g)
{
    json_t *j = json_pack("{s:I, s:i, s:b}", "skipped", (json_int_t)g->skipped, "in_a_row",
                          g->in_a_row, "not_finite", g->not_finite);

    if (g->spike > 0) {
        json_object_set_new(j, "loss", values(g, g->loss));
        json_object_set_new(j, "norm", values(g, g->norm));
    }
    return j;
}

void tern_train_guard_load(struct tern_train_guard *g, json_t *from)
{
    json_t *loss = json_object_get(from, "loss"), *norm = json_object_get(from, "norm");
    size_t n = json_array_size(loss), first = n > (size_t)g->window ? n - (size_t)g->window : 0;

    g->skipped = (uint64_t)json_integer_value(json_object_get(from, "skipped"));
    g->in_a_row = (int)json_integer_value(json_object_get(from, "in_a_row"));
    g->not_finite = json_is_true(json_object_get(from, "not_finite"));
    g->seen = 0;
    if (json_array_size(norm) != n)
        return;
    for (size_t i = first; i < n; i++, g->seen++) {
        g->loss[g->seen] = json_number_value(json_array_get(loss, i));
        g->norm[g->seen] = json_number_value(json_array_get(norm, i));
    }
}
