/* A run as the page of tern ledger report has it: its members are those of tern ledger list --json,
 * and
 *
 *     attempt_rows, goodput, cost   as in why, goodput and cost --json
 *     checkpoints, checkpoints_all  the newest as in show --json, with the time at which they were
 *                                   made, and how many there are
 *     checkpoint_steps              of those to resume from, for marks on curves
 *     mix                           the same, with the planned share of samples; null: not known
 *     tokens, seconds, node_hours   {step, total}: spent up to a step
 *     held_out                      [{set, points, step, tokens, seconds, node_hours, ppl, ...}]
 *     curves                        {metric: {points, step, value, ...}}
 *     recipe                        its text
 *
 * A curve has lists of one length: step, value (null where class is not 0), where it was thinned
 * low, high and count.  It has class only where one is not 0.  `points` is how many the ledger has.
 */
#include "cmd/ledger/report.h"

#include "core/report/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- curves */

/* With few digits those of a mean, which no user will compute with: pages stay small. */
static json_t *json_reals(const double *v, size_t n, bool few)
{
    json_t *list = json_array();
    char text[32];

    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, few ? "%.6g" : "%.17g", v[i]);
        json_array_append_new(list, isfinite(v[i]) ? json_real(strtod(text, NULL)) : json_null());
    }
    return list;
}

static json_t *json_steps(const double *v, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((json_int_t)v[i]));
    return list;
}

/* Sets in `j` the lists of values, under `name`, "NAME_low" and so on. */
static void set_values(json_t *j, const char *name, const struct tern_report_thin *t, bool thinned)
{
    char *low = tern_strf("%s_low", name), *high = tern_strf("%s_high", name),
         *class = tern_strf("%s_class", name);
    bool all_finite = true;

    json_object_set_new(j, name, json_reals(t->value, t->n, thinned));
    if (thinned) {
        json_object_set_new(j, low, json_reals(t->low, t->n, true));
        json_object_set_new(j, high, json_reals(t->high, t->n, true));
    }
    for (size_t i = 0; i < t->n; i++)
        all_finite &= t->class[i] == 0;
    json_t *classes = all_finite ? NULL : json_array();
    for (size_t i = 0; classes && i < t->n; i++)
        json_array_append_new(classes, json_integer(t->class[i]));
    if (classes)
        json_object_set_new(j, class, classes);
    free(low);
    free(high);
    free(class);
}

static void set_counts(json_t *j, const struct tern_report_thin *t)
{
    json_t *counts = json_array();

    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(counts, json_integer(t->count[i]));
    json_object_set_new(j, "count", counts);
}

static json_t *json_curve(const double *step, const double *value, size_t n, struct tern_err *err)
{
    struct tern_report_thin t = {0};

    if (tern_report_thin(step, value, n, REPORT_POINTS, &t, err) < 0)
        return NULL;
    json_t *j = json_object();
    json_object_set_new(j, "points", json_integer((json_int_t)n));
    json_object_set_new(j, "step", json_steps(t.x, t.n));
    set_values(j, "value", &t, n > REPORT_POINTS);
    if (n > REPORT_POINTS)
        set_counts(j, &t);
    tern_report_thin_free(&t);
    return j;
}

static json_t *json_curves(const struct show_facts *f, struct tern_err *err)
{
    static const char *const names[] = {
        "loss",          "lr",           "grad_norm",       "tokens_per_second",
        "data_seconds",  "comm_seconds", "forward_seconds", "backward_seconds",
        "update_seconds"};
    json_t *curves = json_object();

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tern_ledger_series s = {0};
        if (tern_ledger_series(f->ledger, names[i], /* all= */ false, &s, NULL) < 0)
            continue;
        json_t *curve = s.n ? json_curve(s.step, s.value, s.n, err) : NULL;
        const bool lost = s.n && !curve;
        if (curve)
            json_object_set_new(curves, names[i], curve);
        tern_ledger_series_free(&s);
        if (lost) {
            json_decref(curves);
            return NULL;
        }
    }
    return curves;
}

/* Some places of a sum, the last one among them: it is a straight line between two. */
static json_t *json_sum(const struct show_sum *s)
{
    json_t *steps = json_array(), *totals = json_array();
    const size_t n = s->n < REPORT_POINTS ? s->n : REPORT_POINTS;

    for (size_t k = 0; k < n; k++) {
        const size_t i = (k + 1) * s->n / n - 1;
        json_array_append_new(steps, json_integer((json_int_t)s->step[i]));
        json_array_append_new(totals, json_real(s->total[i]));
    }
    return json_pack("{s:o, s:o}", "step", steps, "total", totals);
}

/* ---------------------------------------------------------------- held-out sets */

static int by_step(const void *x, const void *y)
{
    const struct tern_ledger_eval *a = *(const struct tern_ledger_eval *const *)x,
                                  *b = *(const struct tern_ledger_eval *const *)y;

    return (a->step > b->step) - (a->step < b->step);
}

/* What was spent up to each step. */
static json_t *json_places(const struct show_facts *f, enum show_axis axis, const double *step,
                           size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        const double spent = show_facts_at(f, axis, step[i]);
        json_array_append_new(list, isfinite(spent) ? json_real(spent) : json_null());
    }
    return list;
}

static void set_known(json_t *j, const char *key, json_t *value)
{
    if (value)
        json_object_set_new(j, key, value);
}

/* The first, the least and the last finite value; NULL: there is none. */
static json_t *json_ends(const double *step, const double *value, size_t n)
{
    size_t first = n, best = n, last = n;

    for (size_t i = 0; i < n; i++) {
        if (!isfinite(value[i]))
            continue;
        first = first == n ? i : first;
        best = best == n || value[i] < value[best] ? i : best;
        last = i;
    }
    return first == n
               ? NULL
               : json_pack("{s:I, s:f, s:I, s:f, s:I, s:f}", "first_step", (json_int_t)step[first],
                           "first", value[first], "best_step", (json_int_t)step[best], "best",
                           value[best], "last_step", (json_int_t)step[last], "last", value[last]);
}

/* Of `list`, [n] evaluations of one set in order of step. */
static json_t *json_set(const struct show_facts *f, const struct tern_ledger_eval *const *list,
                        size_t n, struct tern_err *err)
{
    struct tern_report_thin token = {0}, byte = {0};
    double *v = tern_alloc(3 * n, sizeof *v, "a held-out set", err);
    json_t *j = NULL;

    for (size_t i = 0; v && i < n; i++) {
        v[i] = (double)list[i]->step;
        v[n + i] = list[i]->ppl_token;
        v[2 * n + i] = list[i]->ppl_byte;
    }
    if (v && tern_report_thin(v, v + n, n, REPORT_POINTS, &token, err) == 0 &&
        tern_report_thin(v, v + 2 * n, n, REPORT_POINTS, &byte, err) == 0) {
        j = json_object();
        json_object_set_new(j, "set", show_json_text(list[0]->set));
        json_object_set_new(j, "points", json_integer((json_int_t)n));
        json_object_set_new(j, "step", json_steps(token.x, token.n));
        json_object_set_new(j, "tokens", json_places(f, SHOW_TOKENS, token.x, token.n));
        json_object_set_new(j, "seconds", json_places(f, SHOW_SECONDS, token.x, token.n));
        json_object_set_new(j, "node_hours", json_places(f, SHOW_NODE_HOURS, token.x, token.n));
        set_values(j, "ppl", &token, n > REPORT_POINTS);
        if (list[0]->bytes > 0)
            set_values(j, "ppl_byte", &byte, n > REPORT_POINTS);
        if (n > REPORT_POINTS)
            set_counts(j, &token);
        set_known(j, "ppl_ends", json_ends(v, v + n, n));
        set_known(j, "ppl_byte_ends", json_ends(v, v + 2 * n, n));
        json_object_set_new(j, "set_tokens", json_integer(list[n - 1]->tokens));
        json_object_set_new(j, "set_bytes", show_json_int(list[n - 1]->bytes, 0));
    }
    tern_report_thin_free(&token);
    tern_report_thin_free(&byte);
    free(v);
    return j;
}

/* Moves the effective evaluations of the first set in `left` to `list`; returns their number. */
static size_t take_set(const struct tern_ledger_eval **left, size_t *n_left,
                       const struct tern_ledger_eval **list)
{
    const char *set = left[0]->set;
    size_t n = 0, kept = 0;

    for (size_t i = 0; i < *n_left; i++)
        if (strcmp(left[i]->set, set) == 0)
            list[n++] = left[i];
        else
            left[kept++] = left[i];
    *n_left = kept;
    qsort(list, n, sizeof *list, by_step);
    return n;
}

static json_t *json_held_out(const struct show_facts *f, struct tern_err *err)
{
    struct tern_ledger_rows rows = {0};
    const struct tern_ledger_eval **left = NULL, **list = NULL;
    json_t *sets = NULL;
    size_t n = 0;

    if (tern_ledger_evals(f->ledger, &rows, err) < 0)
        return NULL;
    left = tern_alloc(rows.n + 1, sizeof *left, "evaluations", err);
    list = tern_alloc(rows.n + 1, sizeof *list, "evaluations", err);
    if (!left || !list)
        goto out;
    for (size_t i = 0; i < rows.n; i++)
        if (rows.evals[i].effective)
            left[n++] = &rows.evals[i];
    sets = json_array();
    while (n > 0 && json_array_size(sets) < REPORT_CHECKPOINTS) {
        const size_t of_set = take_set(left, &n, list);
        json_t *set = json_set(f, list, of_set, err);
        if (!set) {
            json_decref(sets);
            sets = NULL;
            goto out;
        }
        json_array_append_new(sets, set);
    }
out:
    free(left);
    free(list);
    tern_ledger_rows_free(&rows);
    return sets;
}

/* ---------------------------------------------------------------- the rest */

static bool is_marked(const struct tern_ledger_checkpoint *c)
{
    return c->effective && c->state &&
           (strcmp(c->state, "published") == 0 || strcmp(c->state, "verified") == 0 ||
            strcmp(c->state, "foreign") == 0);
}

/* Steps of checkpoints that can be resumed from; of very many each second, third, ... from the
 * newest back. */
static json_t *json_marks(const struct tern_ledger_rows *rows)
{
    json_t *list = json_array();
    size_t left = 0;

    for (size_t i = 0; i < rows->n; i++)
        left += is_marked(&rows->checkpoints[i]);
    const size_t every = (left + REPORT_CHECKPOINTS - 1) / REPORT_CHECKPOINTS;
    for (size_t i = 0; i < rows->n; i++)
        if (is_marked(&rows->checkpoints[i]) && --left % every == 0)
            json_array_append_new(list, json_integer(rows->checkpoints[i].step));
    return list;
}

static int set_checkpoints(json_t *j, const struct show_facts *f, struct tern_err *err)
{
    struct tern_ledger_rows rows = {0};
    json_t *list = json_array();

    if (tern_ledger_checkpoints_made(f->ledger, &rows, err) < 0) {
        json_decref(list);
        return -1;
    }
    for (size_t i = rows.n > REPORT_CHECKPOINTS ? rows.n - REPORT_CHECKPOINTS : 0; i < rows.n; i++)
        json_array_append_new(list, show_json_checkpoint(&rows.checkpoints[i]));
    json_object_set_new(j, "checkpoints", list);
    json_object_set_new(j, "checkpoint_steps", json_marks(&rows));
    json_object_set_new(j, "checkpoints_all", json_integer((json_int_t)rows.n));
    tern_ledger_rows_free(&rows);
    return 0;
}

/* Is it the set at data.train[i]?  The trainer may know it by a longer path, or by its end. */
static bool same_path(const char *a, const char *b)
{
    const size_t m = strlen(a), n = strlen(b);

    return m < n ? tern_str_ends(b, a) && b[n - m - 1] == '/'
                 : tern_str_ends(a, b) && (m == n || a[m - n - 1] == '/');
}

/* The share of samples that the recipe plans for the set at `path`; NAN: it does not tell. */
static double planned(const struct show_recipe *r, const char *path)
{
    double all = 0, own = NAN;

    for (size_t i = 0;; i++) {
        char *key = tern_strf("data.train[%zu].path", i);
        const char *at = show_recipe_get(r, key);
        free(key);
        if (!at)
            break;
        key = tern_strf("data.train[%zu].weight", i);
        const char *text = show_recipe_get(r, key);
        double weight = 1;
        free(key);
        if (text && tern_str_real(text, 0, 1e9, &weight) < 0)
            return NAN;
        all += weight;
        if (same_path(path, at))
            own = weight;
    }
    return own / all;
}

static int set_mix(json_t *j, const struct show_facts *f, struct tern_err *err)
{
    struct tern_ledger_rows metrics = {0};
    size_t i;
    json_t *set;

    if (tern_ledger_metrics(f->ledger, &metrics, err) < 0)
        return -1;
    json_t *mix = show_json_mix(f->ledger, &metrics);
    json_array_foreach(mix, i, set) show_json_number(
        set, "planned", planned(&f->recipe, json_string_value(json_object_get(set, "set"))));
    json_object_set_new(j, "mix", mix);
    tern_ledger_rows_free(&metrics);
    return 0;
}

int report_run(const struct show_facts *f, double usd_hour, json_t **ret_run, struct tern_err *err)
{
    json_t *j = show_json_run(f->run), *attempts = NULL;
    json_t *curves = json_curves(f, err);
    json_t *held_out = curves ? json_held_out(f, err) : NULL;

    if (!held_out || show_json_attempts(f, REPORT_EVIDENCE, &attempts, err) < 0 ||
        set_checkpoints(j, f, err) < 0 || set_mix(j, f, err) < 0) {
        json_decref(j);
        json_decref(curves);
        json_decref(held_out);
        json_decref(attempts);
        return -1;
    }
    json_object_set_new(j, "attempt_rows", attempts);
    json_object_set_new(j, "curves", curves);
    json_object_set_new(j, "held_out", held_out);
    json_object_set_new(j, "tokens", json_sum(&f->tokens));
    json_object_set_new(j, "seconds", json_sum(&f->seconds));
    json_object_set_new(j, "node_hours", json_sum(&f->node_hours_sum));
    json_object_set_new(j, "goodput", show_json_goodput(f));
    json_object_set_new(j, "cost", show_json_cost(f, usd_hour));
    show_json_number(j, "parameters", f->parameters);
    show_json_number(j, "trainable_parameters", f->trainable);
    json_object_set_new(j, "recipe", show_json_text(f->run->recipe));
    *ret_run = j;
    return 0;
}
