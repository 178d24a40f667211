/* Several runs at once: read, their labels, differences of recipes, groups, values at equal places.
 */
#include "cmd/ledger/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const compare_axis_names[COMPARE_AXES] = {"steps", "tokens", "seconds"};

/* ---------------------------------------------------------------- reading */

bool compare_has_set(const struct compare *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->runs[i].evals.n; k++)
            if (strcmp(c->runs[i].evals.evals[k].set, name) == 0)
                return true;
    return false;
}

static void label_runs(struct compare *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct show_facts *f = &c->runs[i].facts;
        bool twice = !f->run->name;
        for (size_t k = 0; k < c->n && !twice; k++)
            twice = k != i && c->runs[k].facts.run->name &&
                    strcmp(c->runs[k].facts.run->name, f->run->name) == 0;
        c->runs[i].label = twice ? tern_strf("%.12s", f->id) : tern_strf("%s", f->run->name);
    }
}

int compare_read(struct compare *c, int n, char **args, struct tern_err *err)
{
    if (n > COMPARE_RUNS_MAX)
        return tern_err_set(err, TERN_USAGE, "more than %d runs", COMPARE_RUNS_MAX);
    c->runs = tern_alloc((size_t)n, sizeof *c->runs, "runs", err);
    if (!c->runs)
        return -1;
    for (int i = 0; i < n; i++) {
        struct compare_run *r = &c->runs[c->n];
        if (show_facts_read(args[i], &r->facts, err) < 0)
            return -1;
        c->n++;
        if (tern_ledger_evals(r->facts.ledger, &r->evals, err) < 0)
            return -1;
    }
    label_runs(c);
    return 0;
}

void compare_free(struct compare *c)
{
    for (size_t i = 0; i < c->n; i++) {
        struct compare_run *r = &c->runs[i];
        show_facts_free(&r->facts);
        tern_ledger_rows_free(&r->evals);
        for (size_t k = 0; r->series && k < c->n_metrics; k++)
            tern_ledger_series_free(&r->series[k]);
        free(r->series);
        free(r->label);
    }
    for (size_t k = 0; k < c->n_metrics; k++) {
        free(c->metrics[k].name);
        free(c->metrics[k].label);
    }
    free(c->metrics);
    free(c->runs);
}

/* ---------------------------------------------------------------- recipes */

static bool counts(const char *key)
{
    return strcmp(key, "name") != 0 && strcmp(key, "checkpoint.dir") != 0 &&
           !tern_str_starts(key, "ledger.");
}

static int by_key(const void *x, const void *y)
{
    const struct compare_difference *a = x, *b = y;

    return strcmp(a->key, b->key);
}

static bool same_value(const char *a, const char *b)
{
    double x, y;

    if (!a || !b)
        return a == b;
    if (tern_str_real(a, -INFINITY, INFINITY, &x) == 0 &&
        tern_str_real(b, -INFINITY, INFINITY, &y) == 0)
        return x == y;
    return strcmp(a, b) == 0;
}

static bool differs(const struct compare *c, const char *key)
{
    const char *first = show_recipe_get(&c->runs[0].facts.recipe, key);

    for (size_t i = 1; i < c->n; i++)
        if (!same_value(first, show_recipe_get(&c->runs[i].facts.recipe, key)))
            return true;
    return false;
}

struct compare_difference *compare_differences(const struct compare *c, size_t *ret_n)
{
    size_t most = 0, n = 0;

    for (size_t i = 0; i < c->n; i++)
        most += c->runs[i].facts.recipe.n;
    struct compare_difference *d = tern_alloc(most + 1, sizeof *d, "differences", NULL);
    if (!d)
        abort();
    for (size_t i = 0; i < c->n; i++) {
        const struct show_recipe *r = &c->runs[i].facts.recipe;
        for (size_t k = 0; k < r->n; k++) {
            const char *key = r->settings[k].key;
            bool seen = false;
            for (size_t j = 0; j < i && !seen; j++)
                seen = show_recipe_get(&c->runs[j].facts.recipe, key);
            if (!seen && counts(key) && differs(c, key))
                d[n++].key = key;
        }
    }
    if (n)
        qsort(d, n, sizeof *d, by_key);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < c->n; i++)
            d[k].values[i] = show_recipe_get(&c->runs[i].facts.recipe, d[k].key);
    *ret_n = n;
    return d;
}

static bool same_but_seed(const struct show_recipe *a, const struct show_recipe *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const char *key = a->settings[i].key;
        if (counts(key) && !tern_str_starts(key, "launch.") && strcmp(key, "data.seed") != 0 &&
            !same_value(a->settings[i].value, show_recipe_get(b, key)))
            return false;
    }
    return a->n > 0;
}

void compare_group(struct compare *c)
{
    for (size_t i = 0; i < c->n; i++)
        c->runs[i].group = -1;
    for (size_t i = 0; i < c->n; i++) {
        for (size_t k = i + 1; k < c->n && c->runs[i].group < 0; k++) {
            const struct show_recipe *a = &c->runs[i].facts.recipe, *b = &c->runs[k].facts.recipe;
            if (same_but_seed(a, b) && same_but_seed(b, a))
                c->runs[i].group = c->n_groups++;
        }
        for (size_t k = i + 1; k < c->n && c->runs[i].group >= 0; k++) {
            const struct show_recipe *a = &c->runs[i].facts.recipe, *b = &c->runs[k].facts.recipe;
            if (same_but_seed(a, b) && same_but_seed(b, a))
                c->runs[k].group = c->runs[i].group;
        }
    }
}

struct compare_spread compare_spread(const struct compare *c, int group, const double *values)
{
    struct compare_spread s = {.mean = 0, .deviation = 0};

    for (size_t i = 0; i < c->n; i++)
        if (c->runs[i].group == group && isfinite(values[i])) {
            s.mean += values[i];
            s.n++;
        }
    s.mean = s.n ? s.mean / (double)s.n : NAN;
    for (size_t i = 0; i < c->n; i++)
        if (c->runs[i].group == group && isfinite(values[i]))
            s.deviation += (values[i] - s.mean) * (values[i] - s.mean);
    s.deviation = s.n > 1 ? sqrt(s.deviation / (double)(s.n - 1)) : NAN;
    return s;
}

/* ---------------------------------------------------------------- places */

static const struct show_sum *sum_of(const struct compare_run *r, enum compare_axis axis)
{
    return axis == COMPARE_TOKENS ? &r->facts.tokens : &r->facts.seconds;
}

void compare_find_place(const struct compare *c, enum compare_axis axis,
                        struct compare_place *ret_place)
{
    struct compare_place p = {.limit = INFINITY};

    for (size_t i = 0; i < c->n; i++) {
        const struct compare_run *r = &c->runs[i];
        const struct show_sum *s = sum_of(r, axis);
        double most = axis == COMPARE_STEPS
                          ? (r->facts.run->last_step >= 0 ? (double)r->facts.run->last_step : NAN)
                          : (s->n ? s->total[s->n - 1] : NAN);
        p.limit = isnan(most) || isnan(p.limit) ? NAN : fmin(p.limit, most);
    }
    for (size_t i = 0; i < c->n && !isnan(p.limit); i++)
        p.step[i] =
            axis == COMPARE_STEPS ? p.limit : show_sum_step(sum_of(&c->runs[i], axis), p.limit);
    *ret_place = p;
}

double compare_value(const struct compare_run *r, const struct compare_metric *m, size_t metric,
                     double step, double *ret_step)
{
    const struct tern_ledger_series *s = &r->series[metric];
    double value = NAN;

    *ret_step = -1;
    for (size_t i = 0; m->held_out && i < r->evals.n; i++) {
        const struct tern_ledger_eval *e = &r->evals.evals[i];
        if (e->effective && strcmp(e->set, m->name) == 0 && (double)e->step <= step &&
            (double)e->step >= *ret_step) {
            value = e->ppl_token;
            *ret_step = (double)e->step;
        }
    }
    for (size_t i = 0; !m->held_out && i < s->n && s->step[i] <= step; i++) {
        value = s->value[i];
        *ret_step = s->step[i];
    }
    return value;
}
