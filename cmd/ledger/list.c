/* tern ledger list: a row a run. */
#include "cmd/ledger/show.h"

#include "core/base/log.h"

#include <math.h>
#include <stdlib.h>
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
    {"lost", "records that the storage did not take", true},
    {"updated", "time of the newest record", false},
    {"created", "when the run began", false},
    {"user", "user that began it", false},
    {"model", "what it trains", false},
    {"recipe", "the recipe's path", false},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };
static const char usual[] = "id%-12,name,state,jobid,attempts,step,loss,ckpt,updated";
/* Where a run has lost some. */
static const char with_lost[] = "id%-12,name,state,jobid,attempts,step,loss,ckpt,lost,updated";
/* With -a. */
static const char all_usual[] = "id%-12,user,name,state,jobid,attempts,step,loss,ckpt,updated";
static const char all_with_lost[] =
    "id%-12,user,name,state,jobid,attempts,step,loss,ckpt,lost,updated";

enum { JOBS_MAX = 256 };

struct jobs {
    char *text; /* what -j said, its names ended by NUL */
    const char *names[JOBS_MAX];
    size_t n;
};

/* Does one of the run's attempts belong to a job of -j? */
static bool of_jobs(const struct tern_ledger_rows *attempts, const char *run_id,
                    const struct jobs *jobs)
{
    for (size_t i = 0; i < attempts->n; i++)
        for (size_t k = 0; k < jobs->n; k++)
            if (tern_ledger_job_is(jobs->names[k], &attempts->attempts[i]) > 0 &&
                strcmp(attempts->attempts[i].run_id, run_id) == 0)
                return true;
    return false;
}

/* -j takes commas, and may be given again. */
static int parse_jobs(struct jobs *jobs, struct tern_err *err)
{
    struct tern_buf all = {0};
    char *at = NULL;

    for (size_t i = 0; i < show.jobs.n; i++)
        tern_buf_printf(&all, "%s,", show.jobs.values[i]);
    jobs->text = all.data;
    for (char *s = all.data ? strtok_r(all.data, ",", &at) : NULL; s;
         s = strtok_r(NULL, ",", &at)) {
        if (tern_ledger_job_is(s, &(struct tern_ledger_attempt){0}) < 0)
            return tern_err_set(err, TERN_USAGE,
                                "-j '%s': is no job's id, such as 4711, or 4711_3 of an array", s);
        if (jobs->n == JOBS_MAX)
            return tern_err_set(err, TERN_USAGE, "-j: more than %d jobs", JOBS_MAX);
        jobs->names[jobs->n++] = s;
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
    char exact[32], job[TERN_LEDGER_JOB_SIZE];

    show_cell_text(t, r->id);
    show_cell_text(t, r->name);
    show_cell_text(t, show_state(r));
    show_cell_text(t, tern_ledger_job_name(job, r->job_id, r->array_job, r->array_task));
    show_cell_int(t, r->attempts, -1);
    show_cell_int(t, r->last_step, -1);
    if (r->has_loss && show.parsable)
        show_cell_text(t, tern_str_exact(exact, sizeof exact, r->last_loss));
    else if (r->has_loss)
        show_cell(t, "%.4f", r->last_loss);
    else
        show_cell_text(t, NULL);
    show_cell_int(t, r->ckpt_step, -1);
    show_cell_int(t, r->lost, -1);
    show_cell_time(t, r->updated_ns);
    show_cell_time(t, r->created_ns);
    show_cell_text(t, r->user);
    show_cell_text(t, r->model);
    show_cell_text(t, r->recipe_path);
}

/* ---------------------------------------------------------------- the homes of a ledger */

struct home {
    const char *dir;
    struct tern_ledger_rows runs, attempts;
};

struct listed {
    const struct home *home;
    const struct tern_ledger_run *run;
};

static int read_home(struct home *h, bool jobs, struct tern_err *err)
{
    struct tern_ledger *l = tern_ledger_open(h->dir, err);
    int rc = !l || tern_ledger_runs(l, &h->runs, err) < 0 ||
                     (jobs && tern_ledger_attempts(l, &h->attempts, err) < 0)
                 ? -1
                 : 0;

    tern_ledger_close(l);
    return rc;
}

static int by_id(const void *x, const void *y)
{
    const struct listed *a = x, *b = y;
    int rc = strcmp(a->run->id, b->run->id);

    return rc ? rc : strcmp(a->home->dir, b->home->dir);
}

/* The selected runs, the newest last. */
static struct listed *choose(const struct home *homes, size_t n_homes, const struct jobs *jobs,
                             int64_t since, size_t *n, struct tern_err *err)
{
    size_t total = 0;

    for (size_t i = 0; i < n_homes; i++)
        total += homes[i].runs.n;
    struct listed *list = tern_alloc(total + 1, sizeof *list, "a list of runs", err);
    *n = 0;
    for (size_t i = 0; list && i < n_homes; i++) {
        const struct home *h = &homes[i];
        show.ledger = h->dir; /* where its state is looked for */
        for (size_t k = 0; k < h->runs.n; k++) {
            const struct tern_ledger_run *r = &h->runs.runs[k];
            if ((!jobs->n || of_jobs(&h->attempts, r->id, jobs)) && r->updated_ns >= since &&
                in_state(r))
                list[(*n)++] = (struct listed){h, r};
        }
    }
    if (list && *n)
        qsort(list, *n, sizeof *list, by_id);
    return list;
}

static int print(const struct listed *list, size_t n, struct tern_err *err)
{
    struct show_cells t = {.fields = fields, .n_fields = N_FIELDS};
    json_t *j = show.json ? json_array() : NULL;
    bool lost = false;

    for (size_t i = 0; i < n; i++) {
        show.ledger = list[i].home->dir;
        lost |= list[i].run->lost > 0;
        if (show.json)
            json_array_append_new(j, show_json_run(list[i].run));
        else
            row(&t, list[i].run);
    }
    const char *format = show.all ? (lost ? all_with_lost : all_usual) : lost ? with_lost : usual;
    return show.json ? show_json(j, err) : show_table(&t, format, err);
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct tern_ledger_rows dirs = {0};
    struct jobs jobs = {0};
    struct home *homes = NULL;
    struct listed *list = NULL;
    int64_t since = INT64_MIN;
    size_t n = 0, n_homes = 0;
    int rc = -1;

    (void)n_args, (void)args;
    if (show.helpformat)
        return show_fields(fields, N_FIELDS);
    if (show_want_ledger(err) < 0 || parse_jobs(&jobs, err) < 0 ||
        (show.since && tern_cmd_parse_time(show.since, &since, err) < 0) ||
        tern_ledger_homes(show.ledger, show.all, &dirs, err) < 0)
        goto out;
    homes = tern_alloc(dirs.n, sizeof *homes, "the homes of a ledger", err);
    if (!homes)
        goto out;
    for (; n_homes < dirs.n; n_homes++) {
        homes[n_homes].dir = dirs.names[n_homes];
        if (read_home(&homes[n_homes], jobs.n, err) == 0)
            continue;
        if (dirs.n == 1)
            goto out;
        tern_warn("%s: is left out: %s", dirs.names[n_homes], err->text); /* others are not to be */
    }
    list = choose(homes, n_homes, &jobs, since, &n, err);
    rc = list ? print(list, n, err) : -1;
out:
    for (size_t i = 0; i < n_homes; i++) {
        tern_ledger_rows_free(&homes[i].runs);
        tern_ledger_rows_free(&homes[i].attempts);
    }
    free(homes);
    free(list);
    tern_ledger_rows_free(&dirs);
    free(jobs.text);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    SHOW_OPT_ALL,
    {"jobs", 'j', TERN_OPT_LIST, "JOBID", .to.list = &show.jobs,
     .help = "only runs of these jobs (4711, 4711_3; commas allowed)"},
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
    .about =
        "In a ledger that users share (its folder lets others write) each user has a folder, "
        "LEDGER/u/UID, to which no other user writes. Your runs are listed, with -a those of all "
        "users that you may read. A run named by its id may be another user's.",
    .examples = "  tern ledger list -S now-7days\n"
                "  tern ledger list -j 4711 -n -o id\n",
    .opts = opts,
    .run = run,
};
