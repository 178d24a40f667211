/* tern ledger compare: how the recipes of runs differ, what they cost, and how good they are where
 * they have done equally much. */
#include "cmd/ledger/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tern_opt_list wanted;
static double usd_hour;

/* ---------------------------------------------------------------- reading */

static int add_metric(struct compare *c, const char *name, bool held_out, struct tern_err *err)
{
    for (size_t i = 0; i < c->n_metrics; i++)
        if (strcmp(c->metrics[i].name, name) == 0 && c->metrics[i].held_out == held_out)
            return 0;
    if (c->n_metrics == COMPARE_METRICS_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "more than %d metrics and held-out sets: choose some with -m",
                            COMPARE_METRICS_MAX);
    if ((c->n_metrics & (c->n_metrics - 1)) == 0) { /* full at each power of two */
        const size_t room = c->n_metrics ? 2 * c->n_metrics : 1;
        struct compare_metric *more = realloc(c->metrics, room * sizeof *more);
        if (!more)
            return tern_err_set(err, TERN_TEMPFAIL, "no memory for the names of metrics");
        c->metrics = more;
    }
    c->metrics[c->n_metrics++] =
        (struct compare_metric){.name = tern_strdup(name), .held_out = held_out};
    return 0;
}

static void label_metrics(struct compare *c)
{
    for (size_t k = 0; k < c->n_metrics; k++) {
        struct compare_metric *m = &c->metrics[k];
        bool twice = false;
        for (size_t i = 0; i < c->n_metrics && m->held_out; i++)
            twice |= i != k && strcmp(c->metrics[i].name, m->name) == 0;
        m->label = tern_strf("%s%s", m->name, twice ? " (held-out)" : "");
    }
}

/* The error of a name that no run has tells the nearest. */
static int no_metric(const struct compare *c, const char *name, struct tern_err *err)
{
    enum { NAMES_MAX = 4096 };
    struct tern_ledger_rows all = {0};
    const char **names = tern_alloc(NAMES_MAX, sizeof *names, "names", err);
    size_t n = 0;

    if (!names || tern_ledger_metrics(c->runs[0].facts.ledger, &all, err) < 0) {
        free(names);
        return -1;
    }
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->runs[i].evals.n && n < NAMES_MAX / 2; k++)
            names[n++] = c->runs[i].evals.evals[k].set;
    for (size_t k = 0; k < all.n && n < NAMES_MAX; k++)
        names[n++] = all.names[k];
    char *hint = show_did_you_mean(name, names, n);
    tern_err_set(err, TERN_USAGE, "no metric and no held-out set of these runs is '%.100s'%s", name,
                 hint);
    free(hint);
    free(names);
    tern_ledger_rows_free(&all);
    return -1;
}

static int want_metric(struct compare *c, const char *name, struct tern_err *err)
{
    bool there = false;

    if (compare_has_set(c, name))
        return add_metric(c, name, true, err);
    for (size_t i = 0; i < c->n && !there; i++) {
        struct tern_ledger_rows all = {0};
        if (tern_ledger_metrics(c->runs[i].facts.ledger, &all, err) < 0)
            return -1;
        for (size_t k = 0; k < all.n && !there; k++)
            there = strcmp(all.names[k], name) == 0;
        tern_ledger_rows_free(&all);
    }
    if (!there)
        return no_metric(c, name, err);
    return add_metric(c, name, false, err);
}

/* The loss, and every held-out set of any run. */
static int add_usual(struct compare *c, struct tern_err *err)
{
    int rc = add_metric(c, "loss", false, err);

    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->runs[i].evals.n && rc == 0; k++)
            rc = add_metric(c, c->runs[i].evals.evals[k].set, true, err);
    return rc;
}

static int choose_metrics(struct compare *c, struct tern_err *err)
{
    for (size_t i = 0; i < wanted.n; i++)
        if (want_metric(c, wanted.values[i], err) < 0)
            return -1;
    if (wanted.n == 0 && add_usual(c, err) < 0)
        return -1;
    label_metrics(c);
    for (size_t i = 0; i < c->n; i++) {
        struct compare_run *r = &c->runs[i];
        r->series = tern_alloc(c->n_metrics + 1, sizeof *r->series, "curves", err);
        if (!r->series)
            return -1;
        for (size_t k = 0; k < c->n_metrics; k++)
            if (!c->metrics[k].held_out)
                tern_ledger_series(r->facts.ledger, c->metrics[k].name, /* all= */ false,
                                   &r->series[k], NULL);
    }
    return 0;
}

static int read_runs(struct compare *c, int n, char **args, struct tern_err *err)
{
    if (compare_read(c, n, args, err) < 0)
        return -1;
    compare_group(c);
    return choose_metrics(c, err);
}

/* ---------------------------------------------------------------- tables */

/* A field a column, whose number is not known before; the first is a name.  Names of runs and sets
 * are any texts, and may be alike: a column is never looked for by its name. */
struct columns {
    struct tern_report_field fields[COMPARE_RUNS_MAX + 1];
    bool cut[COMPARE_RUNS_MAX + 1];
    size_t n;
};

/* A number is never cut. */
static void add_column(struct columns *c, const char *name, bool right)
{
    c->cut[c->n] = !right;
    c->fields[c->n++] = (struct tern_report_field){name, "", right};
}

/* Five digits, of a greater number all before the point: 123456, never 1.2346e+05. */
static const char *short_number(char to[32], double v)
{
    snprintf(to, 32, fabs(v) >= 99999.5 && fabs(v) < 1e15 ? "%.0f" : "%.5g", v);
    return to;
}

static void cell_number(struct show_cells *t, double v)
{
    char text[32];

    if (!isfinite(v))
        show_cell_text(t, isnan(v) ? NULL : v > 0 ? "inf" : "-inf");
    else if (show.parsable)
        show_cell_text(t, tern_str_exact(text, sizeof text, v));
    else
        show_cell_text(t, short_number(text, v));
}

static int print_differences(const struct compare *c, struct tern_err *err)
{
    struct columns columns = {0};
    size_t n;
    struct compare_difference *d = compare_differences(c, &n);
    int rc = 0;

    printf("recipes\n");
    if (n == 0) {
        printf("no difference\n");
    } else {
        add_column(&columns, "key", false);
        for (size_t i = 0; i < c->n; i++)
            add_column(&columns, c->runs[i].label, false);
        struct show_cells t = {.fields = columns.fields, .n_fields = columns.n};
        for (size_t k = 0; k < n; k++) {
            show_cell_text(&t, d[k].key);
            for (size_t i = 0; i < c->n; i++)
                show_cell_text(&t, d[k].values[i]);
        }
        rc = show_table_all(&t, columns.cut, err);
    }
    free(d);
    return rc;
}

enum cost { STEPS, TRAINABLE, PARAMETERS, ROWS, RECORDS, MINUTES, NODE_HOURS, USD, N_COSTS };
static const struct {
    const char *name, *key;
} costs[N_COSTS] = {{"steps", "steps"},
                    {"trainable", "trainable_parameters"},
                    {"parameters", "parameters"},
                    {"rows/s", "rows_per_second"},
                    {"records/s", "records_per_second"},
                    {"minutes", "training_minutes"},
                    {"node-h", "node_hours"},
                    {"usd", "usd"}};

static double cost_of(const struct compare_run *r, enum cost what)
{
    const struct show_facts *f = &r->facts;
    const double v[N_COSTS] = {[STEPS] = f->run->last_step >= 0 ? (double)f->run->last_step : NAN,
                               [TRAINABLE] = f->trainable,
                               [PARAMETERS] = f->parameters,
                               [ROWS] = f->rows_per_s,
                               [RECORDS] = f->records_per_s,
                               [MINUTES] = f->timed ? f->training_s / 60 : NAN,
                               [NODE_HOURS] = f->node_hours,
                               [USD] = f->node_hours * usd_hour};

    return v[what];
}

/* A number of a table of costs, for people. */
static void cell_cost(struct show_cells *t, enum cost what, double v)
{
    char text[32];

    if (isnan(v) || show.parsable || (what != TRAINABLE && what != PARAMETERS && what < NODE_HOURS))
        cell_number(t, v);
    else if (what >= NODE_HOURS)
        show_cell(t, "%.2f", v);
    else
        show_cell_text(t, tern_str_count(text, sizeof text, (uint64_t)v));
}

/* "12.3 +-0.4" of a group. */
static void cell_spread(struct show_cells *t, struct compare_spread s)
{
    const bool great = fabs(s.mean) >= 9999.5 && fabs(s.mean) < 1e15;
    const char *sign = tern_report_utf8() ? "\xc2\xb1" : "+-";
    char text[32];

    if (s.n == 0)
        show_cell_text(t, NULL);
    else if (s.n == 1)
        show_cell_text(t, short_number(text, s.mean));
    else if (great)
        show_cell(t, "%.0f%s%.0f", s.mean, sign, s.deviation);
    else
        show_cell(t, "%.4g%s%.1g", s.mean, sign, s.deviation);
}

/* "mean of 3: NAME" of the first of the group. */
static void cell_group(struct show_cells *t, const struct compare *c, int group)
{
    size_t n = 0, first = c->n;

    for (size_t i = 0; i < c->n; i++)
        if (c->runs[i].group == group) {
            first = first == c->n ? i : first;
            n++;
        }
    show_cell(t, "mean of %zu: %s", n, c->runs[first].label);
}

/* A column that says the same of every run stands in the heading. */
static bool same_for_all(const struct compare *c, enum cost what)
{
    for (size_t i = 1; i < c->n; i++)
        if (cost_of(&c->runs[i], what) != cost_of(&c->runs[0], what))
            return false;
    return true;
}

static int print_costs(const struct compare *c, struct tern_err *err)
{
    struct columns columns = {0};
    enum cost shown[N_COSTS];
    char count[32];

    if (same_for_all(c, PARAMETERS))
        printf("\nsize, speed and cost (%s parameters)\n",
               tern_str_count(count, sizeof count, (uint64_t)cost_of(&c->runs[0], PARAMETERS)));
    else
        printf("\nsize, speed and cost\n");
    add_column(&columns, "run", false);
    for (enum cost k = 0; k < N_COSTS; k++)
        if ((k != USD || !isnan(usd_hour)) && (k != PARAMETERS || !same_for_all(c, k))) {
            shown[columns.n - 1] = k;
            add_column(&columns, costs[k].name, true);
        }
    struct show_cells t = {.fields = columns.fields, .n_fields = columns.n};
    for (size_t i = 0; i < c->n; i++) {
        show_cell_text(&t, c->runs[i].label);
        for (size_t k = 0; k + 1 < columns.n; k++)
            cell_cost(&t, shown[k], cost_of(&c->runs[i], shown[k]));
    }
    for (int g = 0; g < c->n_groups; g++) {
        cell_group(&t, c, g);
        for (size_t k = 0; k + 1 < columns.n; k++) {
            double values[COMPARE_RUNS_MAX];
            for (size_t i = 0; i < c->n; i++)
                values[i] = cost_of(&c->runs[i], shown[k]);
            const struct compare_spread spread = compare_spread(c, g, values);
            if (shown[k] >= ROWS && shown[k] < NODE_HOURS)
                cell_spread(&t, spread);
            else
                cell_cost(&t, shown[k], spread.mean);
        }
    }
    return show_table_all(&t, columns.cut, err);
}

/* The metrics [from, to) at that place, a row each run and group. */
static int print_values(const struct compare *c, const struct compare_place *p, size_t from,
                        size_t to, struct tern_err *err)
{
    struct columns columns = {0};
    char text[32];

    add_column(&columns, "run", false);
    add_column(&columns, "step", true);
    for (size_t k = from; k < to; k++)
        add_column(&columns, c->metrics[k].label, true);
    struct show_cells t = {.fields = columns.fields, .n_fields = columns.n};
    double(*values)[COMPARE_RUNS_MAX] = tern_alloc(to - from + 1, sizeof *values, "values", err);
    if (!values)
        return -1;
    for (size_t i = 0; i < c->n; i++) {
        show_cell_text(&t, c->runs[i].label);
        show_cell_int(&t, (int64_t)p->step[i], -1);
        for (size_t k = from; k < to; k++) {
            double step, v = compare_value(&c->runs[i], &c->metrics[k], k, p->step[i], &step);
            values[k - from][i] = v;
            if (isfinite(v) && step != p->step[i] && !show.parsable)
                show_cell(&t, "%s@%.0f", short_number(text, v), step);
            else
                cell_number(&t, v);
        }
    }
    for (int g = 0; g < c->n_groups; g++) {
        cell_group(&t, c, g);
        show_cell_text(&t, NULL);
        for (size_t k = from; k < to; k++)
            cell_spread(&t, compare_spread(c, g, values[k - from]));
    }
    free(values);
    return show_table_all(&t, columns.cut, err);
}

static int print_place(const struct compare *c, enum compare_axis axis, struct tern_err *err)
{
    static const char *const missing[COMPARE_AXES] = {
        "a run has no steps", "a run has no metric 'tokens'", "a run has no metric 'step_seconds'"};
    enum { A_TABLE = TERN_REPORT_MAX_COLUMNS - 2 }; /* beside run and step */
    struct compare_place p;
    char text[32];
    int rc = 0;

    compare_find_place(c, axis, &p);
    if (isnan(p.limit))
        return printf("\nat equal %s: %s\n", compare_axis_names[axis], missing[axis]) < 0 ? -1 : 0;
    if (axis == COMPARE_SECONDS && p.limit < 999999.5)
        snprintf(text, sizeof text, "%.6g", p.limit);
    else
        tern_str_count(text, sizeof text, (uint64_t)p.limit);
    for (size_t from = 0; from < c->n_metrics && rc == 0; from += A_TABLE) {
        const size_t left = c->n_metrics - from;
        printf("\nat equal %s: %s%s\n", compare_axis_names[axis], text, from ? " (more)" : "");
        rc = print_values(c, &p, from, from + (left < A_TABLE ? left : A_TABLE), err);
    }
    return rc;
}

/* ---------------------------------------------------------------- JSON */

static json_t *json_run(const struct compare *c, size_t i)
{
    const struct compare_run *r = &c->runs[i];

    show.ledger = r->facts.home; /* where its state is looked for */
    json_t *j = show_json_run(r->facts.run);

    for (size_t k = 0; k < N_COSTS; k++)
        show_json_number(j, costs[k].key, cost_of(r, (enum cost)k));
    json_object_set_new(j, "group", show_json_int(r->group, -1));
    for (enum compare_axis a = 0; a < COMPARE_AXES; a++) {
        struct compare_place p;
        compare_find_place(c, a, &p);
        char *key = tern_strf("at_equal_%s", compare_axis_names[a]);
        json_t *at = isnan(p.limit) ? json_null() : json_object();
        for (size_t k = 0; !isnan(p.limit) && k < c->n_metrics; k++) {
            double step;
            char *name = tern_strdup(c->metrics[k].label);
            tern_str_mask(name);
            show_json_number(at, name, compare_value(r, &c->metrics[k], k, p.step[i], &step));
            free(name);
        }
        json_object_set_new(j, key, at);
        free(key);
    }
    return j;
}

static int print_json(const struct compare *c, struct tern_err *err)
{
    json_t *j = json_object(), *runs = json_array(), *recipe = json_object(),
           *limits = json_object();
    size_t n;
    struct compare_difference *d = compare_differences(c, &n);

    for (size_t k = 0; k < n; k++) {
        json_t *values = json_array();
        for (size_t i = 0; i < c->n; i++)
            json_array_append_new(values, show_json_text(d[k].values[i]));
        char *key = tern_strdup(d[k].key);
        tern_str_mask(key);
        json_object_set_new(recipe, key, values);
        free(key);
    }
    free(d);
    for (size_t i = 0; i < c->n; i++)
        json_array_append_new(runs, json_run(c, i));
    for (enum compare_axis a = 0; a < COMPARE_AXES; a++) {
        struct compare_place p;
        compare_find_place(c, a, &p);
        show_json_number(limits, compare_axis_names[a], p.limit);
    }
    json_object_set_new(j, "recipe", recipe);
    json_object_set_new(j, "equal", limits);
    json_object_set_new(j, "runs", runs);
    return show_json(j, err);
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct compare c = {0};
    int rc = -1;

    if (show_price(&usd_hour, err) == 0)
        rc = read_runs(&c, n_args, args, err);
    if (rc == 0 && show.json)
        rc = print_json(&c, err);
    else if (rc == 0) {
        rc = print_differences(&c, err);
        if (rc == 0)
            rc = print_costs(&c, err);
        for (enum compare_axis a = 0; a < COMPARE_AXES && rc == 0; a++)
            rc = print_place(&c, a, err);
    }
    compare_free(&c);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"metric", 'm', TERN_OPT_LIST, "NAME", .to.list = &wanted,
     .help = "this metric or held-out set (again for more); default: loss and all held-out sets"},
    SHOW_OPT_PRICE,
    SHOW_OPT_STYLE,
    {0},
};

const struct tern_cmd ledger_compare = {
    .name = "compare",
    .args = "RUN RUN...",
    .summary = "compare runs: recipes, size, speed, cost, and metrics at equal places",
    .about = "First the keys of the recipes that differ. Then parameters of the whole model, and "
             "those that are trained. Then samples a second, as rows of batch.seq_len, and as the "
             "records of the training sets behind them. Then minutes of training steps that count, "
             "and node-hours with their price. At last metrics, and perplexities a token of "
             "held-out sets, at equal steps, tokens and seconds of training. They are taken where "
             "each run has done as much as the one that has done least. 20.1@300 is the value of "
             "an earlier step, 300. Runs that differ in data.seed alone (and in launch.) have a "
             "row with their mean and standard deviation.",
    .examples = "  tern ledger compare cpt lora\n"
                "  tern ledger compare seed-1 seed-2 seed-3 -m general\n",
    .opts = opts,
    .args_min = 2,
    .args_max = -1,
    .run = run,
};
