#include "core/run/attempt.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/logs/logs.h"
#include "core/retain/retain.h"
#include "core/run/command.h"
#include "core/run/heartbeat.h"
#include "core/run/identity.h"
#include "core/run/outcome.h"
#include "core/run/requeue.h"
#include "core/run/rows.h"
#include "core/run/settle.h"
#include "core/run/watch.h"
#include "core/slurm/slurm.h"

#include <dirent.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    /* For the last checkpoints of a run that is done: node-seconds.  The nodes wait for one process
     * that could do its work elsewhere (core/retain/offline.h).  A minute is no loss. */
    KEEP_DONE_NODE_S = 900,
    KEEP_DONE_MIN_S = 60,
    KEEP_ENDED_S = 5, /* another attempt continues them */
};

bool tern_run_attempt_is_trainer(const struct tern_run_attempt *a)
{
    return !a->command && !a->o->recipe->workload.command;
}

/* Every rank gets a kilobyte or so of every other rank from the supervisor.  With more ranks,
 * PMIx's tree of daemons is better. */
enum { RENDEZVOUS_RANKS = 512 };

bool tern_run_attempt_by_mpi(const struct tern_run_attempt *a)
{
    const char *asked = tern_var("TERN_FABRIC");

    return tern_run_attempt_is_trainer(a) &&
           (asked ? strcmp(asked, "mpi") == 0 : a->o->recipe->launch.fabric == TERN_CARRY_MPI);
}

bool tern_run_attempt_uses_rendezvous(const struct tern_run_attempt *a)
{
    const char *wireup = tern_var("TERN_WIREUP");

    if (!tern_run_attempt_is_trainer(a))
        return false;
    if (!a->place.slurm)
        return true;
    /* Also of a heterogeneous job: srun --mpi=pmix of Slurm 22.05 may stay when a step of several
     * groups has ended. srun_hang.h takes half a minute to detect it. */
    return a->o->recipe->launch.with == TERN_LAUNCH_SRUN &&
           !tern_run_attempt_by_mpi(a) && /* MPI's own launcher connects them */
           a->place.nodes * a->place.ranks_per_node <= RENDEZVOUS_RANKS &&
           !(wireup && strcmp(wireup, "pmix") == 0);
}

/* ------------------------------------------------------------------ running it */

/* A node of the job that Slurm has declared down, into `to`. */
static void find_lost_node(const struct tern_run_attempt *a, char *to, size_t size)
{
    struct tern_slurm_nodes *nodes = NULL;
    struct tern_err err = {0};
    char **hosts = NULL;
    size_t n = 0;

    if (tern_slurm_hosts_expand(a->place.node_list, &hosts, &n, &err) < 0 ||
        tern_slurm_nodes_load(&nodes, &err) < 0) {
        tern_warn("%s", err.text);
        tern_slurm_hosts_free(hosts);
        return;
    }
    for (size_t i = 0; i < nodes->n && !*to; i++) {
        const struct tern_slurm_node *node = &nodes->node[i];
        for (size_t j = 0; j < n && node->down && !*to; j++)
            if (strcmp(hosts[j], node->name) == 0)
                snprintf(to, size, "%s", node->name);
    }
    tern_slurm_nodes_free(nodes);
    tern_slurm_hosts_free(hosts);
}

/* The text of the last event of this kind in this attempt, of `writer` (NULL: of any). */
static void read_said(const struct tern_run_attempt *a, const char *kind, const char *writer,
                      char *to, size_t size)
{
    struct tern_ledger_rows events = {0};
    struct tern_err err;
    struct tern_ledger *l = tern_ledger_open_run(a->o->recipe->ledger.dir, a->id, &err);

    if (!l || tern_ledger_events(l, &events, &err) < 0)
        tern_warn("%s", err.text);
    for (size_t i = 0; i < events.n; i++)
        if (events.events[i].attempt == a->number && strcmp(events.events[i].kind, kind) == 0 &&
            (!writer || strcmp(events.events[i].writer, writer) == 0))
            snprintf(to, size, "%s", events.events[i].text);
    tern_ledger_rows_free(&events);
    tern_ledger_close(l);
}

/* Does the checkpoint say that its run is done before the last step? */
static void read_end(const char *path, char *to, size_t size)
{
    struct tern_err err;
    struct tern_ckpt *c = tern_ckpt_open(path, &err);

    if (!c)
        return;
    const char *words = json_string_value(json_object_get(tern_ckpt_meta(c), "ended"));
    snprintf(to, size, "%s", words ? words : "");
    tern_ckpt_close(c);
}

/* srun ends the others when a rank has failed, and gives the highest status: that of its own
 * SIGTERM.  Their logs have the rank.  Ranks that were asked to stop do so one after the other: the
 * first says whether it is with a checkpoint. */
static void find_first(const struct tern_run_attempt *a, struct tern_run_facts *f)
{
    int status = 0;

    if (f->srun_hang || !WIFEXITED(f->status) || WEXITSTATUS(f->status) != 128 + SIGTERM)
        return;
    char *logs = tern_logs_dir(a->o->recipe->ledger.dir, a->id, a->number);
    const size_t n = (size_t)(a->place.nodes * a->place.ranks_per_node);
    const int64_t rank = f->asked ? tern_logs_first_exit(logs, n, &status)
                                  : tern_logs_first_failed(logs, n, &status);
    free(logs);
    if (rank < 0 || !WIFEXITED(status))
        return;
    if (f->asked && WEXITSTATUS(status) != TERN_CONTINUED && WEXITSTATUS(status) != TERN_HALTED)
        return;
    f->rank = (int)rank;
    f->status = status;
}

enum { LOST_LOOKS = 8, LOST_PAUSE_NS = 250000000 };

static void collect(struct tern_run_attempt *a, const struct tern_run_watch *w,
                    struct tern_run_facts *f)
{
    struct tern_slurm_job *job = NULL;
    struct tern_err err = {0};
    uint64_t step = 0;
    char *path = NULL;

    f->status = w->srun_hang.known ? w->srun_hang.status
                : w->first >= 0    ? tern_run_ranks_status(w->ranks, w->first, w->asked)
                                   : 0;
    f->srun_hang = w->srun_hang.ended && !w->srun_hang.known;
    a->overlap |= w->srun_hang.ended;
    const bool good = f->status == 0 || f->srun_hang;
    f->rank = a->place.slurm || w->ranks->n == 1 ? -1 : w->first;
    f->asked = a->asked = w->asked;
    if (a->place.slurm)
        find_first(a, f);
    a->limit = w->limit.reason;
    a->limit_end = w->limit.end;
    f->steps = tern_run_attempt_is_trainer(a) ? a->o->recipe->steps : 0;
    f->newest = -1;
    f->resumed = a->resumed_step;
    if (tern_run_attempt_is_trainer(a) &&
        tern_ckpt_latest(a->o->recipe->checkpoint.dir, &path, &step, &err) == 0 && path)
        f->newest = (int64_t)step;
    if (good && path && f->newest < f->steps)
        read_end(path, f->ended, sizeof f->ended);
    if (good && f->steps && f->newest < f->steps && !f->ended[0])
        read_said(a, "over", "rank0", f->said, sizeof f->said);
    if (!good && f->steps && WIFEXITED(f->status) && WEXITSTATUS(f->status) < 128)
        read_said(a, "failed", "rank0", f->said, sizeof f->said);
    free(path);
    if (!good)
        read_said(a, "memory", NULL, f->memory, sizeof f->memory);
    if (!good && w->frozen.why[0])
        snprintf(f->frozen, sizeof f->frozen, "%s", w->frozen.why);
    else if (!good && w->srun_hang.left[0])
        snprintf(f->frozen, sizeof f->frozen, "%s", w->srun_hang.left);
    else if (!good)
        read_said(a, "frozen", NULL, f->frozen, sizeof f->frozen);
    if (!a->place.slurm || (good && (f->newest >= f->steps || f->ended[0])))
        return;
    if (tern_slurm_job_load(a->place.job, &job, &err) == 0)
        f->job_word = job->word;
    else
        tern_warn("%s", err.text);
    tern_slurm_job_free(job);
    /* srun may notice that a node is gone before slurmctld does, and ends with 1 then. */
    const bool wait = WIFEXITED(f->status) && WEXITSTATUS(f->status) == 1 && a->place.nodes > 1;
    for (int i = 0; i == 0 || (wait && i < LOST_LOOKS && !f->lost_node[0]); i++) {
        if (i)
            tern_clock_sleep_ns(LOST_PAUSE_NS);
        find_lost_node(a, f->lost_node, sizeof f->lost_node);
    }
    memcpy(a->lost_node, f->lost_node, sizeof a->lost_node);
}

/* Start the retention process. */
static int start_retention(struct tern_run_attempt *a, struct tern_retain *retention,
                           struct tern_err *err)
{
    struct tern_retain_options o;

    if (strcmp(a->kind, "train") != 0) { /* attempts of other kinds leave nothing to keep */
        *retention = (struct tern_retain){.stop = -1};
        return 0;
    }
    tern_retain_options_read(a->o->recipe, &o);
    o.run_id = a->id;
    o.attempt = a->number;
    return tern_retain_start(retention, &o, err);
}

/* Ranks whose operations failed have left their flight records. */
static void report_dumps(const struct tern_run_result *result)
{
    const char *dir = tern_var("TERN_FABRIC_DUMP");
    char *pattern = dir ? tern_strf("%s/fabric-rank-*.tfr", dir) : NULL;
    glob_t found = {0};

    if (pattern && result->status != TERN_OK && result->status != TERN_CONTINUED &&
        result->status != TERN_HALTED && glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        tern_info("`tern fabric flight-report %s` reports which rank was missing where", dir);
    globfree(&found);
    free(pattern);
}

static double keep_seconds(int64_t nodes)
{
    double share = (double)KEEP_DONE_NODE_S / (double)nodes;

    return share > KEEP_DONE_MIN_S ? share : KEEP_DONE_MIN_S;
}

/* When the supervisor's shell was started as a rank (`srun --mpi=pmix --pty bash`, mpirun), it has
 * the variables of that rank.  Ranks that inherited these would all be the same one; their own
 * launcher sets them again. */
static void forget_place(void)
{
    static const char *const names[] = {"PMIX_RANK",
                                        "PMIX_NAMESPACE",
                                        "PMI_RANK",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* Open the socket where tern's own ranks find each other, and set its address for them. */
static int open_rendezvous(const struct tern_run_attempt *a, struct tern_run_watch *w,
                           struct tern_err *err)
{
    unsetenv("TERN_RUN_SOCKET");
    if (!tern_run_attempt_uses_rendezvous(a))
        return 0;
    w->rendezvous = tern_wire_rendezvous_open(a->place.slurm ? "0.0.0.0" : "127.0.0.1",
                                              (int)(a->place.nodes * a->place.ranks_per_node), err);
    if (!w->rendezvous)
        return -1;
    setenv("TERN_RUN_SOCKET", tern_wire_rendezvous_address(w->rendezvous), 1);
    return 0;
}

/* Only a batch script has ranks on other nodes, which survive the death of its node.  They leave
 * a step alone that HyperPod's agent repeats.  Watchers do the same for them, and a container's
 * image has no tern-orphan.  Signs of life come from all ranks that srun starts. */
static void open_beacon(const struct tern_run_attempt *a, struct tern_task_beacon *beacon)
{
    const bool step = a->place.slurm && a->o->recipe->launch.with == TERN_LAUNCH_SRUN;
    const char *node = getenv("SLURMD_NODENAME");
    const bool far = step && node && a->place.groups == 1 && a->place.nodes > 1 &&
                     !a->place.auto_resume && !(a->watchers && *a->watchers) &&
                     !a->o->recipe->workload.container;

    tern_task_beacon_open(beacon, far ? node : NULL, a->o->recipe->launch.spares);
    if (step)
        tern_task_beacon_expect(beacon, (size_t)(a->place.nodes * a->place.ranks_per_node));
}

/* What ranks whose storage hangs could not record. */
static void record_losses(struct tern_run_attempt *a, struct tern_task_beacon *beacon)
{
    char cause[200], text[300];

    tern_task_beacon_answer(beacon); /* that came since the last look */
    for (size_t i = 0; i < beacon->n_losses; i++) {
        struct tern_task_beacon_loss *l = &beacon->losses[i];
        tern_str_mask(l->node);
        snprintf(cause, sizeof cause, "the storage did not answer rank %" PRId64 " on %s", l->rank,
                 l->node);
        tern_ledger_lost_words(&l->lost, cause, text, sizeof text);
        const struct tern_ledger_event e = {
            .kind = "gap", .severity = "warn", .node = l->node, .text = text};
        struct tern_err err = {0};
        if (tern_ledger_spool_event(a->spool, &e, &err) < 0)
            tern_warn("%s", err.text);
    }
}

/* Launch the ranks, watch them, and judge how they ended. */
static void run_ranks(struct tern_run_attempt *a, struct tern_run_watch *w,
                      struct tern_run_result *result)
{
    struct tern_run_facts facts = {0};
    struct tern_err err = {0};

    tern_run_watch_signals(&w->signals);
    tern_run_heartbeat_stop(&a->heartbeat);
    if (tern_run_ranks_start(w->ranks, a, &err) < 0) {
        tern_run_watch(w); /* those that did start */
        tern_run_outcome_failed(result, &err);
    } else {
        tern_run_watch(w);
        tern_run_ranks_leftover(w->ranks);
        if (w->first >= 0)
            tern_run_settle_checkpoints(a);
        collect(a, w, &facts);
        tern_run_judge(&facts, result, &result->signal);
        report_dumps(result);
    }
    record_losses(a, w->beacon);
    if (w->fenced.code)
        tern_run_outcome_failed(result, &w->fenced);
}

int tern_run_attempt_launch(struct tern_run_attempt *a, struct tern_run_result *result,
                            struct tern_err *err)
{
    const bool limited =
        a->place.slurm && tern_run_attempt_is_trainer(a) && strcmp(a->kind, "train") == 0;
    struct tern_run_ranks ranks = {.old_mask = a->old_mask};
    struct tern_retain retention = {.stop = -1};
    struct tern_task_beacon beacon = {.socket.fd = -1};
    struct tern_run_watch w = {
        .ranks = &ranks,
        .spool = a->spool,
        .lease = a->lease,
        .checkpoint_dir = a->o->recipe->checkpoint.dir,
        .ledger_dir = a->o->recipe->ledger.dir,
        .tensorboard = a->o->recipe->ledger.tensorboard,
        .run_id = a->id,
        .retention = &retention,
        .beacon = &beacon,
        .srun_hang.beacon = &beacon,
        .watchers = a->watchers,
        .limit.a = limited ? a : NULL,
        .srun_hang.ranks = (size_t)(a->place.nodes * a->place.ranks_per_node),
        .srun_hang.nodes = a->o->recipe->launch.spares > 0 ? a->place.node_list : NULL,
    };
    char **as_given = a->command, **filled = NULL;
    sigset_t ends;
    double wait = 0;
    bool done = false;
    int rc = -1;

    if (a->lease && tern_ckpt_lease_check(a->lease, err) < 0 && err->code != TERN_TEMPFAIL)
        goto out;
    if (tern_run_command_fill(a, &filled, err) < 0 || start_retention(a, &retention, err) < 0)
        goto out;
    if (filled)
        a->command = filled;
    if (tern_run_attempt_by_mpi(a))
        setenv("TERN_FABRIC", "mpi", 1);
    forget_place();
    if (open_rendezvous(a, &w, err) < 0)
        goto out;
    open_beacon(a, &beacon);
    w.srun_hang.logs = tern_logs_dir(a->o->recipe->ledger.dir, a->id, a->number);
    run_ranks(a, &w, result);
    done = result->status == TERN_OK;
    wait = done ? keep_seconds(a->place.nodes) : KEEP_ENDED_S;
    rc = 0;
out:
    tern_task_beacon_close(&beacon);
    tern_run_ranks_free(&ranks);
    tern_wire_rendezvous_close(w.rendezvous);
    a->command = as_given;
    tern_recipe_words_free(filled);
    tern_run_watch_stop_signals(&ends);
    tern_retain_finish(&retention, wait, done, a->lease, &ends);
    return rc;
}

static void announce(const struct tern_run_attempt *a)
{
    char from[80] = "";

    if (a->resumed)
        snprintf(from, sizeof from, ", from step %" PRId64, a->resumed_step);
    tern_info("run %s, attempt %u: %" PRId64 " node%s x %" PRId64 " rank%s on %s%s", a->id,
              a->number, a->place.nodes, a->place.nodes == 1 ? "" : "s", a->place.ranks_per_node,
              a->place.ranks_per_node == 1 ? "" : "s", a->place.node_list, from);
}

/* ------------------------------------------------------------------ from begin to end */

static void release(struct tern_run_attempt *a)
{
    tern_run_heartbeat_stop(&a->heartbeat);
    if (a->spool)
        tern_ckpt_lease_free(a->lease, true);
    else /* refused before it had a row: numbers of attempts in the ledger have no holes */
        tern_ckpt_lease_withdraw(a->lease);
    a->lease = NULL;
    tern_ledger_spool_close(a->spool, NULL);
    a->spool = NULL;
    free(a->resumed);
    a->resumed = NULL;
    free(a->restored);
    a->restored = NULL;
    free(a->spool_dir);
    a->spool_dir = NULL;
}

int tern_run_attempt_begin(struct tern_run_attempt *a, struct tern_err *err)
{
    if (tern_run_identify(a, err) < 0 || tern_run_rows_open(a, err) < 0) {
        release(a);
        return -1;
    }
    announce(a);
    if (a->restored)
        tern_run_attempt_add_event(a, "checkpoint", "info", /* node= */ NULL, a->restored);
    tern_run_close_earlier(a);
    tern_run_settle_checkpoints(a);
    tern_run_rows_recipe(a);
    tern_run_identify_job(a);
    return 0;
}

int tern_run_attempt_moved(struct tern_run_attempt *a, struct tern_err *err)
{
    announce(a);
    return tern_run_rows_begin(a, err);
}

/* Did a task record any value of the trainer? */
static bool has_values(const struct tern_run_attempt *a)
{
    char *dir = tern_ledger_spool_dir(a->o->recipe->ledger.dir, a->id, a->number);
    DIR *d = opendir(dir);
    bool has = !d; /* not known */

    for (struct dirent *e; d && !has && (e = readdir(d));)
        has = tern_str_starts(e->d_name, "task");
    if (d)
        closedir(d);
    free(dir);
    return has;
}

/* The cause, and the records that the attempt's writers lost, malloc'ed; NULL for neither. */
static char *with_lost(const struct tern_run_attempt *a, const char *cause)
{
    struct tern_ledger_rows events = {0};
    struct tern_buf b = {0};
    struct tern_err err;
    struct tern_ledger *l = tern_ledger_open_run(a->o->recipe->ledger.dir, a->id, &err);

    if (!l || tern_ledger_events(l, &events, &err) < 0)
        tern_warn("%s", err.text);
    if (cause)
        tern_buf_puts(&b, cause);
    for (size_t i = 0; i < events.n; i++) {
        const struct tern_ledger_event *e = &events.events[i];
        if (e->attempt != a->number || strcmp(e->kind, "gap") != 0)
            continue;
        /* The supervisor writes it for ranks that cannot, too (record_losses). */
        const bool own = strcmp(e->writer, "run") != 0;
        char *words = tern_strf("the ledger lacks records%s%s%s: %s", own ? " that " : "",
                                own ? e->writer : "", own ? " could not write" : "", e->text);
        tern_buf_printf(&b, "%s%s", b.len ? "; " : "", words);
        tern_warn("%s", words);
        free(words);
    }
    tern_ledger_rows_free(&events);
    tern_ledger_close(l);
    return b.data;
}

void tern_run_attempt_end_row(struct tern_run_attempt *a, const struct tern_run_result *result)
{
    const struct tern_recipe_metrics *metrics = &a->o->recipe->workload.metrics;
    struct tern_err err = {0};
    struct tern_ledger_end end = {
        .outcome = result->outcome,
        .exit_code = result->status,
        .signal = result->signal,
        .cause = result->why[0] ? result->why : NULL,
    };

    if (metrics->n && strcmp(result->outcome, "done") == 0 && !has_values(a))
        tern_run_attempt_add_event(a, "metrics", "warn", NULL,
                                   "the trainer finished, but no output matched workload.metrics");
    char *why = with_lost(a, end.cause);
    end.cause = why;
    if (tern_ledger_spool_attempt_end(a->spool, &end, &err) < 0 ||
        tern_ledger_spool_sync(a->spool, &err) < 0)
        tern_warn("the end of the attempt is not in the ledger: %s", err.text);
    free(why);
}

void tern_run_attempt_end(struct tern_run_attempt *a)
{
    const bool began = a->spool;

    release(a);
    if (began)
        tern_run_watch_last_fold(a->o->recipe->ledger.dir, a->o->recipe->ledger.tensorboard, a->id);
}

void tern_run_attempt_add_event(struct tern_run_attempt *a, const char *kind, const char *severity,
                                const char *node, const char *text)
{
    const struct tern_ledger_event e = {
        .kind = kind, .severity = severity, .node = node, .text = text};
    struct tern_err err = {0};

    if (strcmp(severity, "info") == 0)
        tern_info("%s", text);
    else
        tern_warn("%s", text);
    if (tern_ledger_spool_event(a->spool, &e, &err) < 0)
        tern_warn("%s", err.text);
}
