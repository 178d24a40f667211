/* tern ledger best: where a metric or a held-out set was at its best. */
#include "cmd/ledger/show.h"

#include "core/base/fs.h"
#include "core/base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool greatest;
static int64_t count;

static const struct tern_report_field fields[] = {
    {"value", "of the metric, or perplexity a token", true},
    {"step", "of that value", true},
    {"id", "the run's ULID", false},
    {"name", "its name in the recipe", false},
    {"state", "as in tern ledger list", false},
    {"checkpoint",
     "path of the checkpoint of that step; empty: there is none, or it was deleted, for which "
     "tables have (gone)",
     false},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

struct best {
    double value;
    int64_t step;
    char id[TERN_ULID_SIZE];
    char *name, *checkpoint;
    bool gone;  /* the step had a checkpoint */
    bool stays; /* retention keeps it: it is the best of a held-out set */
    const char *state;
};

struct found {
    struct best *v;
    size_t n;
    struct tern_ledger_rows names; /* of metrics and sets, of the last run without the wanted one */
};

static void add(struct found *f, struct best b)
{
    if ((f->n & (f->n - 1)) == 0) { /* full at each power of two */
        struct best *more = realloc(f->v, (f->n ? 2 * f->n : 1) * sizeof *more);
        if (!more)
            abort();
        f->v = more;
    }
    f->v[f->n++] = b;
}

/* Better values first; of equal ones the earlier run, the earlier step. */
static int by_value(const void *x, const void *y)
{
    const struct best *a = x, *b = y;
    double d = greatest ? b->value - a->value : a->value - b->value;
    int rc = (d > 0) - (d < 0);

    if (rc == 0)
        rc = strcmp(a->id, b->id);
    return rc ? rc : (a->step > b->step) - (a->step < b->step);
}

/* Values of one run as `points`: of a held-out set by that name, else of the metric. */
static int read_points(struct tern_ledger *l, const char *metric, struct found *points)
{
    struct tern_ledger_rows evals = {0};
    struct tern_ledger_series s = {0};

    if (tern_ledger_evals(l, &evals, NULL) == 0)
        for (size_t i = 0; i < evals.n; i++) {
            const struct tern_ledger_eval *e = &evals.evals[i];
            if (e->effective && strcmp(e->set, metric) == 0 && isfinite(e->ppl_token))
                add(points,
                    (struct best){.value = e->ppl_token, .step = e->step, .stays = !greatest});
        }
    tern_ledger_rows_free(&evals);
    if (points->n == 0 && tern_ledger_series(l, metric, /* all= */ false, &s, NULL) == 0)
        for (size_t i = 0; i < s.n; i++)
            if (isfinite(s.value[i]))
                add(points, (struct best){.value = s.value[i], .step = (int64_t)s.step[i]});
    tern_ledger_series_free(&s);
    return points->n ? 0 : 1;
}

/* Its folder of checkpoints is here, and it is not: in a ledger from elsewhere both are missing.  A
 * relative path may be from another folder. */
static bool is_removed(const char *path)
{
    char *dir = tern_fs_dirname(path);
    const bool is = *path == '/' && tern_fs_exists(dir) && !tern_fs_exists(path);

    free(dir);
    return is;
}

static char *checkpoint_of(const struct tern_ledger_rows *rows, int64_t step, bool *ret_gone)
{
    for (size_t i = rows->n; i-- > 0;) {
        const struct tern_ledger_checkpoint *c = &rows->checkpoints[i];
        if (c->step != step || !c->effective || !c->state)
            continue;
        const bool there = strcmp(c->state, "published") == 0 ||
                           strcmp(c->state, "verified") == 0 || strcmp(c->state, "foreign") == 0;
        if (there && !is_removed(c->path))
            return *ret_gone = false, tern_strdup(c->path);
        *ret_gone = *ret_gone || there || strcmp(c->state, "deleted") == 0;
    }
    return NULL;
}

/* The best of a run; all of its values in order where it is the only one. */
static int add_run(struct tern_ledger *l, const char *metric, bool only, struct found *all,
                   struct tern_err *err)
{
    struct tern_ledger_rows runs = {0}, checkpoints = {0};
    struct found points = {0};
    int rc =
        tern_ledger_runs(l, &runs, err) < 0 || tern_ledger_checkpoints(l, &checkpoints, err) < 0
            ? -1
            : 0;

    if (rc == 0 && runs.n && read_points(l, metric, &points) == 0) {
        qsort(points.v, points.n, sizeof *points.v, by_value);
        for (size_t i = 0; i < points.n && (only ? (int64_t)i < count : i == 0); i++) {
            struct best b = points.v[i];
            snprintf(b.id, sizeof b.id, "%s", runs.runs[0].id);
            b.name = runs.runs[0].name ? tern_strdup(runs.runs[0].name) : NULL;
            const char *state = show_state(&runs.runs[0]);
            b.state = state ? tern_strdup(state) : NULL; /* until the program ends */
            b.checkpoint = checkpoint_of(&checkpoints, b.step, &b.gone);
            add(all, b);
        }
    } else if (rc == 0) {
        tern_ledger_rows_free(&all->names);
        rc = tern_ledger_metrics(l, &all->names, err);
    }
    free(points.v);
    tern_ledger_rows_free(&runs);
    tern_ledger_rows_free(&checkpoints);
    return rc;
}

static int of_named(int n_args, char **args, struct found *all, struct tern_err *err)
{
    const char *const named = show.ledger;

    for (int i = 1; i < n_args; i++) {
        struct tern_ledger *l = show_open_run(args[i], err);
        int rc = l ? add_run(l, args[0], n_args == 2, all, err) : -1;
        tern_ledger_close(l);
        show_forget_home(named);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int of_all(const char *metric, struct found *all, struct tern_err *err)
{
    static struct tern_ledger_rows homes; /* until the program ends */
    struct tern_ledger_rows ids = {0};

    if (tern_ledger_homes(show.ledger, show.all, &homes, err) < 0)
        return -1;
    for (size_t h = 0; h < homes.n; h++) {
        show.ledger = homes.names[h];
        if (tern_ledger_ids(show.ledger, &ids, err) < 0)
            return -1;
        for (size_t i = 0; i < ids.n; i++) {
            struct tern_err why;
            struct tern_ledger *l = tern_ledger_open_run(show.ledger, ids.names[i], &why);
            if (!l || add_run(l, metric, false, all, &why) < 0)
                tern_warn("run %s is left out: %s", ids.names[i], why.text);
            tern_ledger_close(l);
        }
        tern_ledger_rows_free(&ids);
    }
    return 0;
}

static int none(const char *metric, const struct found *all, struct tern_err *err)
{
    char *hint = all->names.n ? show_did_you_mean(metric, all->names.names, all->names.n)
                              : tern_strdup(". 'tern ledger show RUN --metrics' lists them.");

    tern_err_set(err, TERN_USAGE, "no metric and no held-out set of these runs is '%.100s'%s",
                 metric, hint);
    free(hint);
    return -1;
}

static int print(const struct found *all, struct tern_err *err)
{
    struct show_cells t = {.fields = fields, .n_fields = N_FIELDS};
    json_t *j = show.json ? json_array() : NULL;
    char exact[32];

    for (size_t i = 0; i < all->n && (int64_t)i < count; i++) {
        const struct best *b = &all->v[i];
        if (j) {
            json_array_append_new(j, json_pack("{s:f, s:I, s:s, s:o, s:o, s:o}", "value", b->value,
                                               "step", (json_int_t)b->step, "id", b->id, "name",
                                               show_json_text(b->name), "state",
                                               show_json_text(b->state), "checkpoint",
                                               show_json_text(b->checkpoint)));
            continue;
        }
        if (show.parsable)
            show_cell_text(&t, tern_str_exact(exact, sizeof exact, b->value));
        else
            show_cell(&t, "%.6g", b->value);
        show_cell_int(&t, b->step, -1);
        show_cell_text(&t, b->id);
        show_cell_text(&t, b->name);
        show_cell_text(&t, b->state);
        show_cell_text(&t, b->gone && !show.parsable ? "(gone)" : b->checkpoint);
    }
    return j ? show_json(j, err)
             : show_table(&t, "value,step,id%-12,name,checkpoint", "name,checkpoint", err);
}

/* Retention knows the held-out sets, and not which metric a person looks at. */
static void tell_retention(const struct best *b)
{
    if (b->gone)
        tern_info("the checkpoint of step %" PRId64 " is gone", b->step);
    if (!b->checkpoint || b->stays)
        return;
    char *dir = tern_fs_dirname(b->checkpoint);
    tern_info("retention may remove the checkpoint of step %" PRId64
              ": it keeps the newest ones and the best of held-out sets. A symbolic link keeps it: "
              "ln -s %s %s/NAME",
              b->step,
              strrchr(b->checkpoint, '/') ? strrchr(b->checkpoint, '/') + 1 : b->checkpoint, dir);
    free(dir);
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct found all = {0};
    int rc = -1;

    if (show_has_fields())
        return show_fields(fields, N_FIELDS);
    if (count < 1)
        return tern_err_set(err, TERN_USAGE, "--count %" PRId64 ": wanted 1 row or more", count);
    if (n_args == 0)
        return tern_err_set(err, TERN_USAGE, "which METRIC? 'loss', or the name of a held-out set");
    if (show_need_ledger(err) == 0)
        rc = n_args > 1 ? of_named(n_args, args, &all, err) : of_all(args[0], &all, err);
    if (rc == 0 && all.n == 0)
        rc = none(args[0], &all, err);
    if (rc == 0) {
        qsort(all.v, all.n, sizeof *all.v, by_value);
        rc = print(&all, err);
        if (rc == 0)
            tell_retention(&all.v[0]);
    }
    for (size_t i = 0; i < all.n; i++) {
        free(all.v[i].name);
        free(all.v[i].checkpoint);
        free((char *)all.v[i].state);
    }
    free(all.v);
    tern_ledger_rows_free(&all.names);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    SHOW_OPT_ALL,
    {"max", 0, TERN_OPT_FLAG, .to.flag = &greatest, .help = "the greatest value is the best"},
    {"count", 'c', TERN_OPT_INT, "N", "10", .to.integer = &count, .help = "how many rows"},
    SHOW_OPT_FORMAT,
    SHOW_OPT_STYLE,
    {0},
};

const struct tern_cmd ledger_best = {
    .name = "best",
    .args = "METRIC [RUN...]",
    .summary = "print the runs, or the steps of one run, with the best value of a metric",
    .about =
        "METRIC is a metric such as loss, or the name of a held-out set, whose perplexity a "
        "token counts. With one RUN its best steps are printed, with several the best step of "
        "each, and without RUN those of all your runs. NaN and superseded values do not count.",
    .examples = "  tern ledger best general latest\n"
                "  tern ledger best mfu --max -c 3\n",
    .opts = opts,
    .args_max = -1,
    .run = run,
};
