/* tern ledger plot: curves in the terminal. */
#include "cmd/ledger/plot.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 6 };

/* The metrics of a run that share a picture. */
struct metrics {
    struct show_facts facts; /* where the axis asks for them */
    struct tern_ledger *ledger;
    struct plot_axis axis;
    char *const *names;
    struct tern_ledger_series series[MAX_LINES];
    struct tern_ledger_curve *curves[MAX_LINES]; /* in place of the series; NULL: there is none */
    struct tern_report_part *parts[MAX_LINES];   /* of a curve */
    bool lost;                                   /* a curve's part could not be read */
    size_t n;
};

/* ---------------------------------------------------------------- curves in parts */

static void drop_curves(struct metrics *m)
{
    for (size_t k = 0; k < m->n; k++) {
        tern_ledger_curve_free(m->curves[k]);
        m->curves[k] = NULL;
        free(m->parts[k]);
        m->parts[k] = NULL;
    }
}

/* One curve of the picture, which asks for the points of some of its parts. */
struct reader {
    struct metrics *metrics;
    struct tern_ledger_curve *curve;
};

static int read_part(void *self, size_t i, const double **ret_x, const double **ret_y,
                     size_t *ret_n)
{
    struct reader *r = self;
    int rc = tern_ledger_curve_read(r->curve, i, ret_x, ret_y, ret_n, NULL);

    r->metrics->lost |= rc < 0;
    return rc;
}

/* The line of curve `k`, by parts. */
static int set_parts(struct metrics *m, size_t k, struct tern_report_line *line,
                     struct reader *reader, struct tern_err *err)
{
    size_t n;
    const struct tern_ledger_part *from = tern_ledger_curve_parts(m->curves[k], &n);
    struct tern_report_part *to = tern_alloc(n, sizeof *to, "a curve", err);

    if (!to)
        return -1;
    m->parts[k] = to;
    for (size_t i = 0; i < n; i++) {
        const struct tern_ledger_part *p = &from[i];
        to[i] = (struct tern_report_part){.finite = p->finite,
                                          .x0 = (double)p->first_step,
                                          .x1 = (double)p->last_step,
                                          .first = p->first,
                                          .last = p->last,
                                          .low = p->low,
                                          .high = p->high,
                                          .broken_before = !p->finite || p->first_step != p->from,
                                          .broken_behind = !p->finite || p->last_step != p->to};
        line->n += p->points;
    }
    *reader = (struct reader){m, m->curves[k]};
    line->parts = to;
    line->n_parts = n;
    line->read = read_part;
    line->self = reader;
    return 0;
}

/* ---------------------------------------------------------------- pictures */

static int draw(struct metrics *m, struct tern_err *err)
{
    struct tern_report_line lines[MAX_LINES];
    struct reader readers[MAX_LINES];
    double *smooth[MAX_LINES] = {NULL};
    struct plot_marks marks = {0};
    struct tern_ledger_rows run = {0};
    char *title = NULL, smooth_words[40];
    int rc = -1;

    if (tern_ledger_runs(m->ledger, &run, err) < 0 ||
        plot_marks_add(&marks, m->ledger, &m->facts, &m->axis, /* row= */ 0, err) < 0)
        goto out;
    for (size_t k = 0; k < m->n; k++) {
        struct tern_ledger_series *s = &m->series[k];
        const double *y = plot_smoothed(s->value, s->n, &smooth[k]);
        for (size_t i = 0; m->axis.kind != SHOW_STEPS && i < s->n; i++)
            s->step[i] = plot_axis_at(&m->axis, &m->facts, s->step[i]);
        lines[k] = (struct tern_report_line){.label = m->names[k],
                                             .x = s->step,
                                             .y = y,
                                             .n = s->n,
                                             .quantity = (int)k,
                                             .sign = m->n > 1 ? tern_report_sign(k) : '\0'};
        if (m->curves[k] && set_parts(m, k, &lines[k], &readers[k], err) < 0)
            goto out;
    }
    title = tern_strf("%s  %s%s%s", run.n && run.runs[0].name ? run.runs[0].name : "",
                      m->n == 1 ? m->names[0] : "", plot_smooth_words(smooth_words),
                      plot.log_y ? "  (log)" : "");
    struct tern_report_plot p = {
        .title = title, .x_label = m->axis.label, .lines = lines, .n_lines = m->n};
    rc = plot_print(&p, &marks, err);
out:
    for (size_t k = 0; k < m->n; k++)
        free(smooth[k]);
    free(title);
    free(marks.marks);
    tern_ledger_rows_free(&run);
    return rc;
}

/* As drawn: x is the place of the step on the axis. */
static int print_json(const struct metrics *m, struct tern_err *err)
{
    json_t *top = json_object();

    for (size_t k = 0; k < m->n; k++) {
        const struct tern_ledger_series *s = &m->series[k];
        json_t *points = json_array();
        for (size_t i = 0; i < s->n; i++) {
            json_t *p = json_object();
            json_object_set_new(p, "step", json_integer((json_int_t)s->step[i]));
            show_json_number(p, "x", plot_axis_at(&m->axis, &m->facts, s->step[i]));
            tern_json_set_real(p, "value", "class", s->value[i]);
            json_object_set_new(p, "attempt", json_integer(s->attempt[i]));
            json_object_set_new(p, "time", show_json_time(s->wall_ns[i]));
            json_array_append_new(points, p);
        }
        char *key = show_json_key(m->names[k]);
        json_object_set_new(top, key, points);
        free(key);
    }
    return show_json(top, err);
}

/* The error of an unknown name lists the known ones. */
static int name_metrics(struct tern_ledger *l, struct tern_err *err)
{
    struct tern_ledger_rows m = {0};
    struct tern_buf b = {0};

    if (tern_ledger_metrics(l, &m, NULL) == 0 && err && m.n) {
        for (size_t i = 0; i < m.n && i < 20; i++)
            tern_buf_printf(&b, " %s", m.names[i]);
        char *text = tern_strdup(err->text);
        tern_err_set(err, err->code, "%s. There are:%s%s", text, b.data, m.n > 20 ? " ..." : "");
        free(text);
    }
    tern_buf_free(&b);
    tern_ledger_rows_free(&m);
    return -1;
}

/* The ledger of the run that is named; the sums of its steps where the axis asks for them. */
static int open_run(struct metrics *m, const char *typed, struct tern_err *err)
{
    if (plot_axis_parse(&m->axis, err) < 0)
        return -1;
    if (m->axis.kind == SHOW_STEPS)
        return (m->ledger = show_open_run(typed, err)) ? 0 : -1;
    if (show_facts_read(typed, &m->facts, err) < 0)
        return -1;
    m->ledger = m->facts.ledger;
    return plot_axis_read(&m->axis, &m->facts, err);
}

/* Does the picture need no point but by its place and height? */
static bool by_parts(const struct metrics *m)
{
    return !plot.all && plot.smooth <= 1 && m->axis.kind == SHOW_STEPS && !show.json;
}

static int read_metrics(struct metrics *m, bool by_parts, struct tern_err *err)
{
    for (size_t k = 0; k < m->n; k++) {
        tern_ledger_series_free(&m->series[k]);
        if ((!by_parts || tern_ledger_curve_open(m->ledger, m->names[k], &m->curves[k]) != 0) &&
            tern_ledger_series(m->ledger, m->names[k], plot.all, &m->series[k], err) < 0)
            return name_metrics(m->ledger, err);
    }
    return 0;
}

static int plot_metrics(int n_args, char **args, struct tern_err *err)
{
    static char *loss[] = {"loss"};
    struct metrics m = {.names = n_args > 1 ? args + 1 : loss,
                        .n = n_args > 1 ? (size_t)n_args - 1 : 1};
    int rc = open_run(&m, n_args ? args[0] : NULL, err);

    if (rc == 0)
        rc = read_metrics(&m, by_parts(&m), err);
    if (rc == 0)
        rc = show.json ? print_json(&m, err) : draw(&m, err);
    if (rc < 0 && m.lost) { /* nothing was printed */
        drop_curves(&m);
        rc = read_metrics(&m, /* by_parts= */ false, err);
        if (rc == 0)
            rc = draw(&m, err);
    }
    drop_curves(&m);
    for (size_t k = 0; k < m.n; k++)
        tern_ledger_series_free(&m.series[k]);
    if (m.ledger != m.facts.ledger)
        tern_ledger_close(m.ledger);
    show_facts_free(&m.facts);
    return rc;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    plot_smooth_odd();
    if (plot.held_out)
        return plot_held_out(n_args, args, err);
    if (plot.baseline || plot.sets.n || plot.a_byte)
        return tern_err_set(
            err, TERN_USAGE,
            "--baseline, --set and --byte are about held-out sets: give --held-out");
    if (n_args > 1 + MAX_LINES)
        return tern_err_set(err, TERN_USAGE, "more than %d metrics in one picture", MAX_LINES);
    return plot_metrics(n_args, args, err);
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"held-out", 'H', TERN_OPT_FLAG, .to.flag = &plot.held_out,
     .help = "perplexities on held-out sets; every argument is a RUN"},
    {"set", 0, TERN_OPT_LIST, "NAME", .to.list = &plot.sets,
     .help = "with --held-out, this set (again for more); default: all"},
    {"byte", 0, TERN_OPT_FLAG, .to.flag = &plot.a_byte,
     .help = "perplexity a byte, which models of different tokenizers have in common"},
    {"baseline", 0, TERN_OPT_TEXT, "RUN", .to.text = &plot.baseline,
     .help = "the newest results of this run as dashes across the picture"},
    {"against", 0, TERN_OPT_TEXT, "AXIS", "steps", .to.text = &plot.against,
     .help = "steps, tokens, seconds (of training steps) or dollars (of all attempts so far)"},
    SHOW_OPT_PRICE,
    {"log", 0, TERN_OPT_FLAG, .to.flag = &plot.log_y, .help = "logarithmic values"},
    {"smooth", 0, TERN_OPT_INT, "N", .to.integer = &plot.smooth,
     .help = "draw means of N values, an odd number: each with as many before as behind it"},
    {"all", 0, TERN_OPT_FLAG, .to.flag = &plot.all,
     .help = "also values that a later attempt superseded"},
    {"ascii", 0, TERN_OPT_FLAG, .to.flag = &plot.ascii, .help = "no braille (also without UTF-8)"},
    {"rows", 0, TERN_OPT_INT, "N", .to.integer = &plot.rows,
     .help = "lines of the picture (default: half the terminal, at least 20)"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "print the points as JSON"},
    {0},
};

const struct tern_cmd ledger_plot = {
    .name = "plot",
    .args = "[RUN [METRIC...]] | --held-out [RUN...]",
    .summary = "draw metrics of a run, or held-out perplexities of runs",
    .about =
        "Without METRIC the training loss; up to 6 share one picture. Every column keeps its "
        "smallest and largest value. Below the axis R marks restarts, C checkpoints. --held-out "
        "draws the perplexities that runs and 'tern eval RUN --checkpoints' recorded, a curve a "
        "run "
        "and set; the legend gives each one's newest value. Where a metric or set would lie flat "
        "on the others' scale, a second scale stands at the right.",
    .examples = "  tern ledger plot latest\n"
                "  tern ledger plot pubmed-cpt grad_norm --log\n"
                "  tern ledger plot cpt lora --held-out --against tokens --baseline base\n",
    .opts = opts,
    .args_max = -1,
    .run = run,
};
