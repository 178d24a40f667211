/* tern ledger export: the values of runs, for other programs. */
#include "cmd/ledger/export.h"
#include "cmd/ledger/show.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/tensorboard/tensorboard.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool csv, superseded;
static struct tern_opt_list wanted;
static const char *tensorboard; /* DIR */
static const char *mlflow, *experiment;

struct out {
    json_t *runs; /* with --json */
    uint64_t n;   /* values */
};

static bool is_wanted(const char *metric)
{
    bool any = wanted.n == 0;

    for (size_t i = 0; i < wanted.n && !any; i++)
        any = fnmatch(wanted.values[i], metric, 0) == 0;
    return any;
}

/* A cell of CSV (RFC 4180).  A text that a spreadsheet would take for a formula begins with a '.
 * Programs get the bytes as they are; a terminal might obey some of them. */
static void put_text(const char *text)
{
    char *s = tern_strdup(text ? text : "");

    if (isatty(STDOUT_FILENO))
        tern_str_mask(s);
    putchar('"');
    if (*s && strchr("=+-@\t\r", *s))
        putchar('\'');
    for (const char *c = s; *c; c++) {
        if (*c == '"')
            putchar('"');
        putchar(*c);
    }
    putchar('"');
    free(s);
}

static const char *class_of(double v)
{
    return isnan(v) ? "nan" : isinf(v) ? (v > 0 ? "inf" : "-inf") : "";
}

static void put_row(const struct tern_ledger_run *r, const char *kind, const char *metric,
                    int64_t step, double value, uint32_t attempt, int64_t wall_ns)
{
    char exact[32], at[40];

    printf("%s,", r->id);
    put_text(r->name);
    printf(",%s,", kind);
    put_text(metric);
    printf(",%" PRIu32 ",%" PRId64 ",%s,%s\n", attempt, step,
           isfinite(value) ? tern_str_exact(exact, sizeof exact, value) : class_of(value),
           wall_ns ? tern_clock_iso8601(at, sizeof at, wall_ns) : "");
}

static void add_point(json_t *points, int64_t step, double value, uint32_t attempt, int64_t wall_ns)
{
    json_t *p = json_object();

    json_object_set_new(p, "step", json_integer(step));
    tern_json_set_real(p, "value", "class", value);
    json_object_set_new(p, "attempt", json_integer(attempt));
    json_object_set_new(p, "time", show_json_time(wall_ns));
    json_array_append_new(points, p);
}

static int export_metric(struct tern_ledger *l, const struct tern_ledger_run *r, const char *metric,
                         json_t *to, struct out *out, struct tern_err *err)
{
    struct tern_ledger_series s = {0};
    json_t *points = to ? json_array() : NULL;

    if (tern_ledger_series(l, metric, superseded, &s, err) < 0) {
        json_decref(points);
        return -1;
    }
    for (size_t i = 0; i < s.n; i++) {
        if (points)
            add_point(points, (int64_t)s.step[i], s.value[i], s.attempt[i], s.wall_ns[i]);
        else
            put_row(r, "metric", metric, (int64_t)s.step[i], s.value[i], s.attempt[i],
                    s.wall_ns[i]);
    }
    out->n += s.n;
    if (points) {
        char *key = show_json_key(metric);
        json_object_set_new(to, key, points);
        free(key);
    }
    tern_ledger_series_free(&s);
    return 0;
}

static void export_evals(const struct tern_ledger_rows *evals, const struct tern_ledger_run *r,
                         json_t *to, struct out *out)
{
    for (size_t i = 0; i < evals->n; i++) {
        const struct tern_ledger_eval *e = &evals->evals[i];
        if (!is_wanted(e->set) || (!e->effective && !superseded))
            continue;
        out->n++;
        if (!to) {
            put_row(r, "held_out", e->set, e->step, e->ppl_token, e->attempt, e->wall_ns);
            continue;
        }
        char *key = show_json_key(e->set);
        json_t *points = json_object_get(to, key);
        if (!points) {
            points = json_array();
            json_object_set_new(to, key, points);
        }
        free(key);
        add_point(points, e->step, e->ppl_token, e->attempt, e->wall_ns);
    }
}

static int export_run(struct tern_ledger *l, struct out *out, struct tern_err *err)
{
    struct tern_ledger_rows runs = {0}, metrics = {0}, evals = {0};
    int rc = tern_ledger_runs(l, &runs, err) < 0 || tern_ledger_metrics(l, &metrics, err) < 0 ||
                     tern_ledger_evals(l, &evals, err) < 0
                 ? -1
                 : 0;

    if (rc == 0 && runs.n) {
        json_t *j = out->runs ? show_json_run(&runs.runs[0]) : NULL;
        json_t *values = j ? json_object() : NULL, *held = j ? json_object() : NULL;
        for (size_t i = 0; rc == 0 && i < metrics.n; i++)
            if (is_wanted(metrics.names[i]))
                rc = export_metric(l, &runs.runs[0], metrics.names[i], values, out, err);
        export_evals(&evals, &runs.runs[0], held, out);
        if (j) {
            json_object_set_new(j, "metrics", values);
            json_object_set_new(j, "held_out", held);
            json_array_append_new(out->runs, j);
        }
    }
    tern_ledger_rows_free(&runs);
    tern_ledger_rows_free(&metrics);
    tern_ledger_rows_free(&evals);
    return rc;
}

static int export_events(struct tern_ledger *l, struct tern_err *err)
{
    char *folder;
    uint64_t n;

    if (tern_tensorboard_export(l, tensorboard, &folder, &n, err) < 0)
        return -1;
    tern_info("%s: %" PRIu64 " values", folder, n);
    free(folder);
    return 0;
}

/* As MLflow's own client finds it. */
static const char *experiment_name(void)
{
    const char *other = getenv("MLFLOW_EXPERIMENT_NAME");

    return experiment && *experiment ? experiment : other && *other ? other : "tern";
}

static int check_format(struct tern_err *err)
{
    if (csv + show.json + (tensorboard != NULL) + (mlflow != NULL) != 1)
        return tern_err_set(err, TERN_USAGE,
                            "give one of --csv, --json, --tensorboard and --mlflow");
    if ((tensorboard || mlflow) && (wanted.n || superseded))
        return tern_err_set(err, TERN_USAGE, "%s: %s goes with --csv and --json",
                            tensorboard ? "--tensorboard writes all values"
                                        : "--mlflow sends the values that hold, of all metrics",
                            wanted.n ? "--metric" : "--all");
    return 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    int n = n_args ? n_args : 1, rc = 0;
    struct out out = {0};

    if (check_format(err) < 0)
        return -1;
    if (show_need_ledger(err) < 0)
        return -1;
    const char *const named = show.ledger;
    out.runs = show.json ? json_array() : NULL;
    for (int i = 0; rc == 0 && i < n; i++) {
        struct tern_ledger *l = show_open_run(n_args ? args[i] : NULL, err);
        if (l && csv && i == 0)
            puts("run,name,kind,metric,attempt,step,value,time");
        rc = !l            ? -1
             : tensorboard ? export_events(l, err)
             : mlflow      ? export_mlflow(l, mlflow, experiment_name(), err)
                           : export_run(l, &out, err);
        tern_ledger_close(l);
        show_forget_home(named);
    }
    if (rc == 0 && wanted.n && out.n == 0)
        rc = tern_err_set(err, TERN_USAGE,
                          "no metric or held-out set of these runs fits --metric '%.100s'. "
                          "'tern ledger show RUN --metrics' lists them.",
                          wanted.values[0]);
    if (rc == 0 && out.runs)
        rc = show_json(json_incref(out.runs), err);
    json_decref(out.runs);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"csv", 0, TERN_OPT_FLAG, .to.flag = &csv, .help = "as CSV, a line a value"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "as JSON, a list of runs"},
    {"tensorboard", 0, TERN_OPT_TEXT, "DIR", .to.text = &tensorboard,
     .help = "as TensorBoard's event files, each run in a new folder under DIR"},
    {"mlflow", 0, TERN_OPT_TEXT, "URL", .to.text = &mlflow,
     .help = "to the MLflow tracking server there; again: what it lacks"},
    {"experiment", 0, TERN_OPT_TEXT, "NAME", .to.text = &experiment,
     .help = "with --mlflow: the experiment, made where it is not there; else "
             "MLFLOW_EXPERIMENT_NAME, or tern"},
    {"metric", 'm', TERN_OPT_LIST, "GLOB", .to.list = &wanted,
     .help = "only metrics and held-out sets of such names (again for more): 'loss', '*_seconds'"},
    {"all", 0, TERN_OPT_FLAG, .to.flag = &superseded,
     .help = "also values that a later attempt superseded"},
    {0},
};

const struct tern_cmd ledger_export = {
    .name = "export",
    .args = "[RUN...]",
    .summary = "write all metrics of runs for other programs",
    .about =
        "The first columns of the CSV (RFC 4180) are run, its id; name, in the recipe; and kind, "
        "metric or held_out. Then come metric, its name or that of the held-out set, attempt, "
        "step, value and time (ISO 8601). value is the perplexity a token of a held-out set, and "
        "nan, inf or -inf where it is no finite number. A name that a spreadsheet would take for a "
        "formula has a ' in front. In JSON each run has the members of tern ledger list --json, "
        "and metrics and held_out. These have by their names lists of step, value, class, attempt "
        "and time. value is null where class is 1 (NaN), 2 (infinity) or 3 (-infinity). For "
        "TensorBoard each attempt is a file, and one that went on from a checkpoint hides the "
        "later values of earlier ones. Held-out sets are held_out/SET/perplexity_token and "
        "perplexity_byte; values are float32. The recipe's ledger.tensorboard writes the same "
        "while a run goes on. Without RUN: the newest run.\n\nFor MLflow a run is a run with the "
        "tag tern.run_id. Its effective values are metrics, perplexities as above among them, and "
        "the keys of its recipe are params. A second export adds what the run has gained. Where a "
        "later attempt has done steps again that MLflow has, it is refused, since MLflow takes no "
        "value back. Credentials: MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
        "MLFLOW_TRACKING_TOKEN.",
    .examples = "  tern ledger export pubmed-cpt --csv -m loss > loss.csv\n"
                "  tern ledger export run-a run-b --json > runs.json\n"
                "  tern ledger export pubmed-cpt --tensorboard board\n"
                "  tern ledger export pubmed-cpt --mlflow https://mlflow.example.org\n",
    .opts = opts,
    .args_max = -1,
    .run = run,
};
