/* tern ledger list: a row a run. */
#include "cmd/ledger/show.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static const struct tern_report_field fields[] = {
    {"id", "the run's ULID", false},
    {"name", "its name in the recipe", false},
    {"state", "running, silent (no end, and its owner is gone), or how the newest attempt ended",
     false},
    {"jobid", "Slurm job of the newest attempt", true},
    {"attempts", "how many there were", true},
    {"step", "newest effective step", true},
    {"loss", "training loss of the newest step", true},
    {"ckpt", "step of the newest checkpoint", true},
    {"updated", "time of the newest record", false},
    {"created", "when the run began", false},
    {"user", "who began it", false},
    {"model", "what it trains", false},
    {"recipe", "the recipe's path", false},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };
static const char usual[] = "id%-12,name,state,jobid,attempts,step,loss,ckpt,updated";

/* Does one of the run's attempts belong to a job of -j? */
static bool of_jobs(const struct tern_ledger_rows *attempts, const char *run_id,
                    const int64_t *jobs, size_t n_jobs)
{
    for (size_t i = 0; i < attempts->n; i++)
        for (size_t k = 0; k < n_jobs; k++)
            if (attempts->attempts[i].job_id == jobs[k] &&
                strcmp(attempts->attempts[i].run_id, run_id) == 0)
                return true;
    return false;
}

/* -j takes commas, and may be given again. */
static int parse_jobs(int64_t *jobs, size_t *n, size_t max, struct tern_err *err)
{
    for (size_t i = 0; i < show.jobs.n; i++) {
        for (const char *s = show.jobs.values[i]; *s;) {
            size_t len = strcspn(s, ",");
            char one[32];
            snprintf(one, sizeof one, "%.*s", (int)len, s);
            if (*n == max || tern_str_int(one, 1, INT64_MAX, &jobs[*n]) < 0)
                return tern_err_set(err, TERN_USAGE, "-j '%s': is no list of at most %zu job ids",
                                    show.jobs.values[i], max);
            ++*n;
            s += len + (s[len] == ',');
        }
    }
    return 0;
}

static bool in_state(const struct tern_ledger_run *r)
{
    const char *state = show.state ? show_state(r) : NULL;

    return !show.state || (state && strcasecmp(state, show.state) == 0);
}

static void row(struct show_cells *t, const struct tern_ledger_run *r)
{
    char exact[32];

    show_cell_text(t, r->id);
    show_cell_text(t, r->name);
    show_cell_text(t, show_state(r));
    show_cell_int(t, r->job_id, 0);
    show_cell_int(t, r->attempts, -1);
    show_cell_int(t, r->last_step, -1);
    if (r->has_loss && show.parsable)
        show_cell_text(t, tern_str_exact(exact, sizeof exact, r->last_loss));
    else if (r->has_loss)
        show_cell(t, "%.4f", r->last_loss);
    else
        show_cell_text(t, NULL);
    show_cell_int(t, r->ckpt_step, -1);
    show_cell_time(t, r->updated_ns);
    show_cell_time(t, r->created_ns);
    show_cell_text(t, r->user);
    show_cell_text(t, r->model);
    show_cell_text(t, r->recipe_path);
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct tern_ledger_rows runs = {0}, attempts = {0};
    struct show_cells t = {.fields = fields, .n_fields = N_FIELDS};
    int64_t jobs[256], since = INT64_MIN;
    size_t n_jobs = 0;
    int rc = -1;

    (void)n_args, (void)args;
    if (show.helpformat)
        return show_fields(fields, N_FIELDS);
    if (show_want_ledger(err) < 0 || parse_jobs(jobs, &n_jobs, 256, err) < 0 ||
        (show.since && tern_cmd_parse_time(show.since, &since, err) < 0))
        return -1;
    struct tern_ledger *l = tern_ledger_open(show.ledger, err);
    if (!l || tern_ledger_runs(l, &runs, err) < 0 ||
        (n_jobs && tern_ledger_attempts(l, &attempts, err) < 0))
        goto out;
    json_t *j = show.json ? json_array() : NULL;
    for (size_t i = 0; i < runs.n; i++) {
        const struct tern_ledger_run *r = &runs.runs[i];
        if ((n_jobs && !of_jobs(&attempts, r->id, jobs, n_jobs)) || r->updated_ns < since ||
            !in_state(r))
            continue;
        if (show.json)
            json_array_append_new(j, show_json_run(r));
        else
            row(&t, r);
    }
    rc = show.json ? show_json(j, err) : show_table(&t, usual, err);
out:
    tern_ledger_rows_free(&runs);
    tern_ledger_rows_free(&attempts);
    tern_ledger_close(l);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"jobs", 'j', TERN_OPT_LIST, "JOBID", .to.list = &show.jobs,
     .help = "only runs of these jobs (commas allowed)"},
    {"starttime", 'S', TERN_OPT_TEXT, "TIME", .to.text = &show.since,
     .help = "only runs with records since TIME: YYYY-MM-DD[THH:MM[:SS]], now-3days"},
    {"state", 's', TERN_OPT_TEXT, "STATE", .to.text = &show.state,
     .help = "only runs in this state: running, silent, done, ..."},
    SHOW_OPT_FORMAT,
    SHOW_OPT_STYLE,
    {0},
};

const struct tern_cmd ledger_list = {
    .name = "list",
    .summary = "list runs, the newest last",
    .examples = "  tern ledger list -S now-7days\n"
                "  tern ledger list -j 4711 -n -o id\n",
    .opts = opts,
    .run = run,
};
