/* tern ledger plot --held-out: perplexities of several runs on their held-out sets. */
#include "cmd/ledger/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CURVES_MAX = 24, SETS_MAX = 24 };

/* A run's results on one set. */
struct curve {
    const struct compare_run *run;
    size_t set;
    double *x, *y;
    const struct tern_ledger_eval **from; /* [n] */
    size_t n;
    const double *drawn; /* y, or what smoothing made of it */
    double *smooth;
    char *label;
};

struct held_out {
    struct compare runs, baseline;
    struct plot_axis axis;
    const char *sets[SETS_MAX];
    size_t n_sets;
    struct curve curves[CURVES_MAX]; /* those of the baseline last, a point each */
    size_t n_curves, n_baseline;
    struct plot_marks marks;
};

/* ---------------------------------------------------------------- reading */

static int no_set(const struct compare *c, const char *name, struct tern_err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++)
        n += c->runs[i].evals.n;
    const char **names = tern_alloc(n + 1, sizeof *names, "names", err);
    if (!names)
        return -1;
    n = 0;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->runs[i].evals.n; k++)
            names[n++] = c->runs[i].evals.evals[k].set;
    char *hint = show_did_you_mean(name, names, n);
    tern_err_set(err, TERN_USAGE, "no held-out set of these runs is '%.100s'%s", name, hint);
    free(hint);
    free(names);
    return -1;
}

static int add_set(struct held_out *h, const char *name, struct tern_err *err)
{
    for (size_t k = 0; k < h->n_sets; k++)
        if (strcmp(h->sets[k], name) == 0)
            return 0;
    if (h->n_sets == SETS_MAX)
        return tern_err_set(err, TERN_USAGE, "more than %d held-out sets: choose some with --set",
                            SETS_MAX);
    h->sets[h->n_sets++] = name;
    return 0;
}

/* Those of --set, else all that the runs were evaluated on. */
static int choose_sets(struct held_out *h, struct tern_err *err)
{
    const struct compare *c = &h->runs;

    for (size_t i = 0; i < plot.sets.n; i++)
        if (!compare_has_set(c, plot.sets.values[i]))
            return no_set(c, plot.sets.values[i], err);
        else if (add_set(h, plot.sets.values[i], err) < 0)
            return -1;
    for (size_t i = 0; plot.sets.n == 0 && i < c->n; i++)
        for (size_t k = 0; k < c->runs[i].evals.n; k++)
            if (add_set(h, c->runs[i].evals.evals[k].set, err) < 0)
                return -1;
    return h->n_sets ? 0
                     : tern_err_set(err, TERN_USAGE,
                                    "no held-out set was evaluated in %s. 'tern eval RUN "
                                    "--checkpoints all' does that for checkpoints that are there.",
                                    c->n > 1 ? "these runs" : "this run");
}

static double perplexity(const struct tern_ledger_eval *e)
{
    return plot.a_byte ? e->ppl_byte : e->ppl_token;
}

/* The run's results on the set, in order of step; `newest`: the last of them alone. */
static int add_curve(struct held_out *h, const struct compare_run *r, size_t set, bool newest,
                     struct tern_err *err)
{
    if (h->n_curves == CURVES_MAX)
        return tern_err_set(err, TERN_USAGE, "more than %d curves: choose sets with --set",
                            CURVES_MAX);
    struct curve *c = &h->curves[h->n_curves];
    *c = (struct curve){.run = r, .set = set};
    c->x = tern_alloc(r->evals.n + 1, sizeof *c->x, "a curve", err);
    c->y = tern_alloc(r->evals.n + 1, sizeof *c->y, "a curve", err);
    c->from = tern_alloc(r->evals.n + 1, sizeof *c->from, "a curve", err);
    h->n_curves++; /* is freed with the others */
    if (!c->x || !c->y || !c->from)
        return -1;
    for (size_t i = 0; i < r->evals.n; i++) {
        const struct tern_ledger_eval *e = &r->evals.evals[i];
        if (strcmp(e->set, h->sets[set]) != 0 || !(e->effective || (plot.all && !newest)))
            continue;
        c->n -= newest && c->n;
        c->x[c->n] = plot_axis_at(&h->axis, &r->facts, (double)e->step);
        c->y[c->n] = perplexity(e);
        c->from[c->n++] = e;
    }
    c->drawn = plot_smoothed(c->y, c->n, &c->smooth);
    if (c->n == 0) {
        h->n_curves--;
        free(c->x);
        free(c->y);
        free(c->from);
        free(c->smooth);
    }
    return 0;
}

static int read_all(struct held_out *h, int n, char **args, struct tern_err *err)
{
    static char *newest[] = {NULL};

    if (plot_axis_parse(&h->axis, err) < 0 ||
        compare_read(&h->runs, n ? n : 1, n ? args : newest, err) < 0 || choose_sets(h, err) < 0)
        return -1;
    for (size_t i = 0; i < h->runs.n; i++) {
        struct compare_run *r = &h->runs.runs[i];
        if (plot_axis_read(&h->axis, &r->facts, err) < 0 ||
            plot_marks_add(&h->marks, r->facts.ledger, &r->facts, &h->axis, i, err) < 0)
            return -1;
        for (size_t k = 0; k < h->n_sets; k++)
            if (add_curve(h, r, k, /* newest= */ false, err) < 0)
                return -1;
    }
    if (!plot.baseline)
        return 0;
    char *name = (char *)plot.baseline;
    const size_t before = h->n_curves;
    if (compare_read(&h->baseline, 1, &name, err) < 0)
        return -1;
    for (size_t k = 0; k < h->n_sets; k++)
        if (add_curve(h, &h->baseline.runs[0], k, /* newest= */ true, err) < 0)
            return -1;
    h->n_baseline = h->n_curves - before;
    return h->n_baseline ? 0
                         : tern_err_set(err, TERN_USAGE,
                                        "--baseline %.100s: that run was not evaluated on %s%s%s",
                                        plot.baseline, h->n_sets > 1 ? "any of these sets" : "'",
                                        h->n_sets > 1 ? "" : h->sets[0], h->n_sets > 1 ? "" : "'");
}

/* ---------------------------------------------------------------- drawing */

/* "RUN SET: 9.49": of run and set what the title does not say, and the newest value. */
static char *label(const struct held_out *h, const struct curve *c, bool baseline)
{
    const bool run = h->n_baseline > 0 || h->runs.n > 1, set = h->n_sets > 1;

    return tern_strf("%s%s%s%s: %.4g", baseline ? "baseline " : "", run ? c->run->label : "",
                     run && set ? " " : "", set ? h->sets[c->set] : "", c->y[c->n - 1]);
}

static char *title(const struct held_out *h)
{
    char smooth[40];

    return tern_strf("%s%sperplexity a %s%s%s%s%s", h->runs.n == 1 ? h->runs.runs[0].label : "",
                     h->runs.n == 1 ? "  " : "", plot.a_byte ? "byte" : "token",
                     h->n_sets == 1 ? " on " : "", h->n_sets == 1 ? h->sets[0] : "",
                     plot_smooth_words(smooth), plot.log_y ? "  (log)" : "");
}

static int draw(struct held_out *h, struct tern_err *err)
{
    struct tern_report_line lines[CURVES_MAX];
    const char *rows[COMPARE_RUNS_MAX];
    char *text = title(h);

    for (size_t i = 0; i < h->n_curves; i++) {
        struct curve *c = &h->curves[i];
        const bool baseline = i >= h->n_curves - h->n_baseline;
        c->label = label(h, c, baseline);
        lines[i] = (struct tern_report_line){.label = c->label,
                                             .x = c->x,
                                             .y = c->drawn,
                                             .n = c->n,
                                             .quantity = (int)c->set,
                                             .sign = baseline ? '\0' : tern_report_sign(i),
                                             .level = baseline};
    }
    for (size_t i = 0; i < h->runs.n; i++)
        rows[i] = h->runs.runs[i].label;
    struct tern_report_plot p = {.title = text,
                                 .x_label = h->axis.label,
                                 .lines = lines,
                                 .n_lines = h->n_curves,
                                 .mark_labels = h->runs.n > 1 ? rows : NULL,
                                 .n_mark_rows = h->runs.n};
    int rc = plot_print(&p, &h->marks, err);
    free(text);
    return rc;
}

static json_t *json_points(const struct curve *c)
{
    json_t *points = json_array();

    for (size_t i = 0; i < c->n; i++) {
        const struct tern_ledger_eval *e = c->from[i];
        json_t *p =
            json_pack("{s:I, s:I}", "step", (json_int_t)e->step, "tokens", (json_int_t)e->tokens);
        json_object_set_new(p, "x", isfinite(c->x[i]) ? json_real(c->x[i]) : json_null());
        tern_json_set_real(p, "value", "class", c->y[i]);
        json_object_set_new(p, "attempt", json_integer(e->attempt));
        json_object_set_new(p, "time", show_json_time(e->wall_ns));
        json_array_append_new(points, p);
    }
    return points;
}

static int print_json(const struct held_out *h, struct tern_err *err)
{
    json_t *top = json_array();

    for (size_t i = 0; i < h->n_curves; i++) {
        const struct curve *c = &h->curves[i];
        json_t *j = json_object();
        json_object_set_new(j, "id", json_string(c->run->facts.id));
        json_object_set_new(j, "name", show_json_text(c->run->facts.run->name));
        json_object_set_new(j, "set", show_json_text(h->sets[c->set]));
        json_object_set_new(j, "baseline", json_boolean(i >= h->n_curves - h->n_baseline));
        json_object_set_new(j, "against", json_string(plot.against));
        json_object_set_new(j, "points", json_points(c));
        json_array_append_new(top, j);
    }
    return show_json(top, err);
}

int plot_held_out(int n_args, char **args, struct tern_err *err)
{
    struct held_out *h = tern_alloc(1, sizeof *h, "curves", err);

    if (!h)
        return -1;
    int rc = read_all(h, n_args, args, err);
    if (rc == 0)
        rc = show.json ? print_json(h, err) : draw(h, err);
    for (size_t i = 0; i < h->n_curves; i++) {
        free(h->curves[i].x);
        free(h->curves[i].y);
        free(h->curves[i].from);
        free(h->curves[i].smooth);
        free(h->curves[i].label);
    }
    free(h->marks.marks);
    compare_free(&h->runs);
    compare_free(&h->baseline);
    free(h);
    return rc;
}
