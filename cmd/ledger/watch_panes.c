#include "cmd/ledger/plot.h"
#include "cmd/ledger/watch.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEWEST = 20,  /* steps of which means are shown */
    SETS_MAX = 5, /* held-out sets in the picture */
    SQL_SECONDS = 10,
    SQL_ROWS = 4096, /* a trainer records up to 64 ranks, each with some seven values */
};

/* ---------------------------------------------------------------- curves */

static bool ends_in_spread(const char *name)
{
    return tern_str_ends(name, "_min") || tern_str_ends(name, "_median") ||
           tern_str_ends(name, "_max");
}

/* Can the metric be shown alone?  The loss stands in the first picture. */
static bool is_shown(const char *name)
{
    return !show_rank_metric(name) && !show_is_mix(name) && !ends_in_spread(name) &&
           strcmp(name, "loss") != 0;
}

size_t watch_metrics(const struct watch_run *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->metrics.n; i++)
        n += is_shown(r->metrics.names[i]);
    return n;
}

const char *watch_metric_name(const struct watch_run *r, size_t which)
{
    for (size_t i = 0; which > 0 && i < r->metrics.n; i++)
        if (is_shown(r->metrics.names[i]) && --which == 0)
            return r->metrics.names[i];
    return NULL;
}

size_t watch_metric_number(const struct watch_run *r, const char *name)
{
    for (size_t n = watch_metrics(r); name && n > 0; n--)
        if (strcmp(watch_metric_name(r, n), name) == 0)
            return n;
    return 0;
}

struct picture {
    struct tern_report_line lines[1 + SETS_MAX];
    char *labels[1 + SETS_MAX];
    size_t n;
    struct tern_ledger_series series;
    double *sets; /* [2 SETS_MAX][evals.n]: steps and perplexities of each */
};

static double newest(const double *y, size_t n)
{
    return n ? y[n - 1] : NAN;
}

static void add_line(struct picture *p, char *label, const double *x, const double *y, size_t n,
                     char sign)
{
    p->labels[p->n] = label;
    p->lines[p->n] = (struct tern_report_line){
        .label = label, .x = x, .y = y, .n = n, .quantity = p->n > 0, .sign = sign};
    p->n++;
}

static void add_metric(struct picture *p, const struct watch_run *r, const char *name)
{
    struct tern_ledger_series *s = &p->series;

    if (tern_ledger_series(r->ledger, name, /* all= */ false, s, NULL) == 0 && s->n)
        add_line(p, tern_strf("%s: %.4g", name, newest(s->value, s->n)), s->step, s->value, s->n,
                 '\0');
}

/* The effective perplexities of each set, up to SETS_MAX of them. */
static int add_sets(struct picture *p, const struct watch_run *r, struct tern_err *err)
{
    const struct tern_ledger_rows *rows = &r->evals;
    const size_t room = rows->n + 1;
    size_t sets = 0;

    if (!(p->sets = tern_alloc(2 * SETS_MAX * room, sizeof *p->sets, "held-out sets", err)))
        return -1;
    for (size_t i = 0; i < rows->n && sets < SETS_MAX; i++) {
        const char *set = rows->evals[i].set;
        double *x = p->sets + 2 * sets * room, *y = x + room;
        size_t n = 0, before = 0;
        while (before < i && strcmp(rows->evals[before].set, set) != 0)
            before++;
        for (size_t k = i; before == i && k < rows->n; k++)
            if (rows->evals[k].effective && strcmp(rows->evals[k].set, set) == 0) {
                x[n] = (double)rows->evals[k].step;
                y[n++] = rows->evals[k].ppl_token;
            }
        if (n == 0)
            continue;
        add_line(p, tern_strf("perplexity on %s: %.4g", set, newest(y, n)), x, y, n,
                 tern_report_sign(sets));
        p->lines[p->n - 1].quantity = 1;
        sets++;
    }
    return 0;
}

static size_t lines_of(const struct tern_buf *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == '\n';
    return n;
}

/* As high as the place: the legend and the marks may take more lines than were asked for. */
static void put_picture(struct tern_buf *to, struct tern_report_plot *p, int rows)
{
    struct tern_buf b = {0};

    p->rows = rows;
    tern_report_plot(&b, p);
    if (lines_of(&b) > (size_t)rows) {
        p->rows = rows - ((int)lines_of(&b) - rows);
        tern_buf_clear(&b);
        tern_report_plot(&b, p);
    }
    tern_buf_add(to, b.data ? b.data : "", b.len);
    to->failed |= b.failed;
    tern_buf_free(&b);
}

static int curves(struct tern_buf *to, const struct watch_run *r, const struct watch_place *p,
                  struct tern_err *err)
{
    static const struct plot_axis steps = {SHOW_STEPS, "step", 1};
    const char *metric = watch_metric_name(r, p->metric);
    struct picture c = {0};
    struct plot_marks marks = {0};
    int rc = -1;

    add_metric(&c, r, metric ? metric : "loss");
    if ((!metric && add_sets(&c, r, err) < 0) ||
        plot_marks_add(&marks, r->ledger, NULL, &steps, /* row= */ 0, err) < 0)
        goto out;
    struct tern_report_plot all = {
        .x_label = steps.label,
        .columns = p->columns,
        .utf8 = p->utf8,
        .color = p->color,
        .log_y = p->log_y,
        .lines = c.lines,
        .n_lines = c.n,
        .marks = marks.marks,
        .n_marks = marks.n,
        .mark_help = "R restart, C checkpoint",
    };
    if (c.n)
        put_picture(to, &all, p->rows);
    else
        tern_buf_puts(to, "  no loss and no held-out perplexity is recorded yet\n");
    rc = 0;
out:
    for (size_t i = 0; i < c.n; i++)
        free(c.labels[i]);
    tern_ledger_series_free(&c.series);
    free(c.sets);
    free(marks.marks);
    return rc;
}

/* ---------------------------------------------------------------- values of the newest steps */

/* Means of what the newest `n` steps recorded, a row a metric: its name, the mean.  `names`: in
 * SQL, which metrics. */
static int read_means(const struct watch_run *r, int n, const char *names,
                      struct tern_ledger_table *ret_means, struct tern_err *err)
{
    char *sql =
        tern_strf("SELECT name, avg(value) FROM step WHERE step > %" PRId64 " AND %s GROUP BY name",
                  r->run->last_step - n, names);
    int rc = tern_ledger_sql(r->ledger, sql, SQL_ROWS, SQL_SECONDS, ret_means, err);

    free(sql);
    return rc;
}

static double mean_of(const struct tern_ledger_table *t, const char *name)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->cells[2 * i].text && strcmp(t->cells[2 * i].text, name) == 0)
            return t->cells[2 * i + 1].kind == TERN_LEDGER_NULL ? NAN : t->cells[2 * i + 1].real;
    return NAN;
}

/* The steps of those means, as words. */
static char *newest_steps(const struct watch_run *r)
{
    const int64_t last = r->run->last_step, from = last > NEWEST ? last - NEWEST + 1 : 1;

    return from < last ? tern_strf("steps %" PRId64 " to %" PRId64, from, last)
                       : tern_strf("step %" PRId64, last);
}

static const char of_step[] = "name IN ('step_seconds', 'data_seconds', 'forward_seconds',"
                              " 'backward_seconds', 'compute_seconds', 'comm_seconds',"
                              " 'update_seconds', 'checkpoint_stall_seconds')";

/* ---------------------------------------------------------------- phases */

static const struct phase {
    const char *name, *metric;
} phases[] = {
    {"data wait", "data_seconds"},     {"compute", "compute_seconds"},
    {"forward", "forward_seconds"},    {"backward", "backward_seconds"},
    {"communication", "comm_seconds"}, {"update", "update_seconds"},
};
enum { PHASES = sizeof phases / sizeof *phases };

static char *put_seconds(char to[16], double v)
{
    to[0] = '\0';
    if (isfinite(v))
        snprintf(to, 16, "%.*f", v < 0.1 ? 4 : v < 10 ? 3 : 1, v);
    return to;
}

/* `share`: of a step, NAN where it is none of its parts. */
static void put_phase(struct tern_buf *to, const char *name, double now, double mean, double share,
                      const struct watch_place *p)
{
    enum { LEFT = 46 };
    char a[16], b[16];
    const double part = share > 1 ? 1 : share > 0 ? share : 0;

    tern_buf_printf(to, "  %-15s %9s %9s", name, put_seconds(a, now), put_seconds(b, mean));
    if (isfinite(share)) {
        tern_buf_printf(to, "  %5.1f  ", 100 * share);
        for (int n = (int)lround(part * (p->columns - LEFT)); n > 0; n--)
            tern_buf_puts(to, p->utf8 ? "█" : "#");
    }
    tern_buf_puts(to, "\n");
}

static void put_phases(struct tern_buf *to, const struct tern_ledger_table *now,
                       const struct tern_ledger_table *mean, const struct watch_place *p)
{
    const double step = mean_of(mean, "step_seconds");
    const bool parts = isfinite(mean_of(mean, "forward_seconds"));
    double rest_now = mean_of(now, "step_seconds"), rest = step;

    tern_buf_printf(to, "  %-15s %9s %9s  %5s\n", "phase", "newest", "mean", "share");
    for (size_t i = 0; i < PHASES; i++) {
        const double v = mean_of(mean, phases[i].metric), at = mean_of(now, phases[i].metric);
        if (!isfinite(v) || (parts && strcmp(phases[i].name, "compute") == 0))
            continue;
        put_phase(to, phases[i].name, at, v, v / step, p);
        rest -= v;
        rest_now -= at;
    }
    if (rest < step)
        put_phase(to, "other", fmax(0, rest_now), fmax(0, rest), fmax(0, rest) / step, p);
    put_phase(to, "step", mean_of(now, "step_seconds"), step, NAN, p);
    tern_buf_puts(to, "\n  Communication has the wait for other ranks in it.\n");
}

static void put_stalls(struct tern_buf *to, const struct watch_run *r)
{
    struct tern_ledger_series s = {0};
    double sum = 0;

    if (tern_ledger_series(r->ledger, "checkpoint_stall_seconds", /* all= */ false, &s, NULL) ==
            0 &&
        s.n) {
        for (size_t i = 0; i < s.n; i++)
            sum += s.value[i];
        tern_buf_printf(to,
                        "  Checkpoint of step %.0f: training stood still %.3f s (mean of %zu: %.3f "
                        "s).\n",
                        s.step[s.n - 1], newest(s.value, s.n), s.n, sum / (double)s.n);
    }
    tern_ledger_series_free(&s);
}

static int show_phases(struct tern_buf *to, const struct watch_run *r, const struct watch_place *p,
                       struct tern_err *err)
{
    struct tern_ledger_table now = {0}, mean = {0};
    int rc = -1;

    if (read_means(r, 1, of_step, &now, err) < 0 || read_means(r, NEWEST, of_step, &mean, err) < 0)
        goto out;
    if (isfinite(mean_of(&mean, "step_seconds"))) {
        char *steps = newest_steps(r);
        tern_buf_printf(to, "  seconds of a step on rank 0; the mean is that of %s\n\n", steps);
        put_phases(to, &now, &mean, p);
        put_stalls(to, r);
        free(steps);
    } else {
        tern_buf_puts(to, "  the trainer records no step_seconds: its phases are not known\n");
    }
    rc = 0;
out:
    tern_ledger_table_free(&now);
    tern_ledger_table_free(&mean);
    return rc;
}

/* ---------------------------------------------------------------- ranks */

enum { RANK, BUSY, DATA, FORWARD, BACKWARD, UPDATE, COMM, STEP, OVER, RANK_FIELDS };
static const struct tern_report_field rank_fields[RANK_FIELDS] = {
    [RANK] = {"rank", "its number", true},
    [BUSY] = {"busy", "seconds of a step that it did not wait for others", true},
    [DATA] = {"data", "waiting for samples", true},
    [FORWARD] = {"forward", "computing the loss", true},
    [BACKWARD] = {"backward", "computing gradients", true},
    [UPDATE] = {"update", "updating weights", true},
    [COMM] = {"comm", "communication, and waiting for others", true},
    [STEP] = {"step", "of the whole step", true},
    [OVER] = {"over", "busy, over the median rank", true},
};
static const char *const rank_metrics[RANK_FIELDS] = {
    [DATA] = "data_seconds",     [FORWARD] = "forward_seconds", [BACKWARD] = "backward_seconds",
    [UPDATE] = "update_seconds", [COMM] = "comm_seconds",       [STEP] = "step_seconds",
};

struct rank {
    double values[RANK_FIELDS]; /* NAN: not recorded */
};

/* The slowest first. */
static int by_busy(const void *x, const void *y)
{
    const struct rank *a = x, *b = y;

    return a->values[BUSY] != b->values[BUSY]
               ? (a->values[BUSY] < b->values[BUSY] ? 1 : -1)
               : (a->values[RANK] > b->values[RANK]) - (a->values[RANK] < b->values[RANK]);
}

/* The rank of that number among `n`, else a new one behind them. */
static struct rank *rank_at(struct rank *ranks, size_t *n, double number)
{
    size_t i = 0;

    while (i < *n && ranks[i].values[RANK] != number)
        i++;
    for (int f = 0; i == *n && f < RANK_FIELDS; f++)
        ranks[i].values[f] = f == RANK ? number : NAN;
    *n += i == *n;
    return &ranks[i];
}

/* From the means of "rankN/..." [SQL_ROWS at most] those of the ranks, slowest first. */
static size_t collect_ranks(const struct tern_ledger_table *means, struct rank *ranks)
{
    static const int works[] = {DATA, FORWARD, BACKWARD, UPDATE};
    size_t n = 0;

    for (size_t i = 0; i < means->n_rows; i++) {
        const char *name = means->cells[2 * i].text;
        const size_t at = name ? show_rank_metric(name) : 0;
        if (!at || means->cells[2 * i + 1].kind == TERN_LEDGER_NULL)
            continue;
        for (int f = 0; f < RANK_FIELDS; f++)
            if (rank_metrics[f] && strcmp(name + at, rank_metrics[f]) == 0)
                rank_at(ranks, &n, strtod(name + 4, NULL))->values[f] =
                    means->cells[2 * i + 1].real;
    }
    for (size_t i = 0; i < n; i++) {
        double *v = ranks[i].values, busy = NAN;
        for (size_t k = 0; k < sizeof works / sizeof *works; k++)
            if (!isnan(v[works[k]]))
                busy = (isnan(busy) ? 0 : busy) + v[works[k]];
        v[BUSY] = isnan(busy) ? v[STEP] : busy;
        v[BUSY] = isnan(v[BUSY]) ? 0 : v[BUSY];
    }
    if (n)
        qsort(ranks, n, sizeof *ranks, by_busy);
    for (size_t i = 0; i < n; i++) {
        const double median = (ranks[n / 2].values[BUSY] + ranks[(n - 1) / 2].values[BUSY]) / 2;
        ranks[i].values[OVER] = median > 0 ? 100 * (ranks[i].values[BUSY] / median - 1) : NAN;
    }
    return n;
}

/* "rank,busy,...": the fields that a rank has. */
static char *rank_columns(const struct rank *ranks, size_t n)
{
    struct tern_buf b = {0};

    for (int f = 0; f < RANK_FIELDS; f++) {
        size_t i = 0;
        while (i < n && isnan(ranks[i].values[f]))
            i++;
        if (i < n)
            tern_buf_printf(&b, "%s%s", b.len ? "," : "", rank_fields[f].name);
    }
    return b.data;
}

static int put_ranks(struct tern_buf *to, const struct rank *ranks, size_t n, int columns,
                     struct tern_err *err)
{
    struct show_cells t = {.fields = rank_fields, .n_fields = RANK_FIELDS};
    char text[16];

    for (size_t i = 0; i < n; i++)
        for (int f = 0; f < RANK_FIELDS; f++) {
            const double v = ranks[i].values[f];
            if (f == RANK)
                show_cell(&t, "%.0f", v);
            else if (f == OVER && !isnan(v))
                show_cell(&t, "%+.1f %%", v);
            else
                show_cell_text(&t, put_seconds(text, v));
        }
    char *names = rank_columns(ranks, n);
    int rc = show_table_put(to, &t, names, "", columns, err);
    free(names);
    return rc;
}

/* "rank 3 (12 steps), rank 0 (8 steps)"; NULL: the trainer does not record it. */
static char *often_slowest(const struct watch_run *r)
{
    struct tern_ledger_table t = {0};
    struct tern_buf b = {0};
    char *sql = tern_strf("SELECT CAST(value AS INT), count(*) FROM step WHERE step > %" PRId64
                          " AND name = 'slowest_rank' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3",
                          r->run->last_step - NEWEST);

    if (tern_ledger_sql(r->ledger, sql, 3, SQL_SECONDS, &t, NULL) == 0)
        for (size_t i = 0; i < t.n_rows; i++)
            tern_buf_printf(&b, "%srank %" PRId64 " (%" PRId64 " steps)", i ? ", " : "",
                            t.cells[2 * i].integer, t.cells[2 * i + 1].integer);
    free(sql);
    tern_ledger_table_free(&t);
    return b.data;
}

/* Of many ranks the ledger has least, median and greatest of each phase alone. */
static void put_spread(struct tern_buf *to, const struct tern_ledger_table *means)
{
    static const char *const ends[] = {"_min", "_median", "_max"};

    tern_buf_printf(to, "  %-15s %9s %9s %9s\n", "phase", "least", "median", "greatest");
    for (size_t i = 0; i < PHASES; i++) {
        char text[3][16];
        double v[3];
        for (int k = 0; k < 3; k++) {
            char *name = tern_strf("%s%s", phases[i].metric, ends[k]);
            v[k] = mean_of(means, name);
            put_seconds(text[k], v[k]);
            free(name);
        }
        if (isfinite(v[2]))
            tern_buf_printf(to, "  %-15s %9s %9s %9s\n", phases[i].name, text[0], text[1], text[2]);
    }
}

static int ranks(struct tern_buf *to, const struct watch_run *r, const struct watch_place *p,
                 struct tern_err *err)
{
    struct tern_ledger_table means = {0};
    struct rank *list = tern_alloc(SQL_ROWS, sizeof *list, "ranks", err);
    char *steps = newest_steps(r), *slowest = often_slowest(r);
    int rc = -1;

    if (!list ||
        read_means(r, NEWEST, "(name GLOB 'rank[0-9]*/*_seconds' OR name GLOB '*_seconds_m[iea]*')",
                   &means, err) < 0)
        goto out;
    const size_t n = collect_ranks(&means, list);
    const bool spread = isfinite(mean_of(&means, "forward_seconds_max"));
    if (n || spread)
        tern_buf_printf(to, "  seconds of a step, means of %s%s\n", steps,
                        n ? "; the slowest rank first" : "");
    if (slowest)
        tern_buf_printf(to, "  the slowest of a step: %s\n", slowest);
    tern_buf_puts(to, n || spread ? "\n" : "");
    rc = n ? put_ranks(to, list, n, p->columns, err) : 0;
    if (n && rc == 0)
        tern_buf_puts(to,
                      "\n  busy: without waiting for others; over: more than the median rank\n");
    else if (spread)
        put_spread(to, &means);
    else if (rc == 0)
        tern_buf_puts(to, "  no values of single ranks are recorded (rankN/...): tern's trainer\n"
                          "  records them where a run has several ranks\n");
out:
    tern_ledger_table_free(&means);
    free(list);
    free(steps);
    free(slowest);
    return rc;
}

/* ---------------------------------------------------------------- events, checkpoints */

static void events(struct tern_buf *to, const struct watch_run *r, const struct watch_place *p)
{
    show_events(to, &r->events, p->columns);
    if (to->len == 0)
        tern_buf_puts(to, "  no event is recorded yet\n");
}

/* The newest first, as the others may be many. */
static int checkpoints(struct tern_buf *to, const struct watch_run *r, const struct watch_place *p,
                       struct tern_err *err)
{
    struct tern_ledger_checkpoint *c = r->checkpoints.checkpoints;
    struct tern_ledger_rows turned = {.n = r->checkpoints.n};
    int rc = -1;

    if (!(turned.checkpoints =
              tern_alloc(turned.n + 1, sizeof *turned.checkpoints, "checkpoints", err)))
        return -1;
    for (size_t i = 0; i < turned.n; i++)
        turned.checkpoints[i] = c[turned.n - 1 - i];
    tern_buf_puts(to, "attempts\n");
    if (show_attempts(to, &r->attempts, p->columns, err) == 0) {
        show_causes(to, &r->attempts, p->columns);
        tern_buf_puts(to, "\n");
        rc = show_checkpoints(to, &turned, p->columns, err);
        if (turned.n == 0)
            tern_buf_puts(to, "no checkpoint is recorded yet\n");
    }
    free(turned.checkpoints);
    return rc;
}

int watch_pane(struct tern_buf *to, enum watch_pane pane, const struct watch_run *r,
               const struct watch_place *p, struct tern_err *err)
{
    switch (pane) {
    case WATCH_CURVES:
        return curves(to, r, p, err);
    case WATCH_PHASES:
        return show_phases(to, r, p, err);
    case WATCH_RANKS:
        return ranks(to, r, p, err);
    case WATCH_EVENTS:
        events(to, r, p);
        return 0;
    default:
        return checkpoints(to, r, p, err);
    }
}
