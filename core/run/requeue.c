#include "core/run/requeue.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/run/history.h"
#include "core/run/pace.h"
#include "core/slurm/slurm.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LONGEST_WARN_S = 3600,
    MOVED_S = 60, /* later than the end for which the ranks were stopped: there is time to go on */
    ASK_S = 120,  /* SlurmctldTimeout: after that a second controller answers */
    ALIVE_S = 3 * TERN_CKPT_HEARTBEAT_S, /* an attempt elsewhere with a later heartbeat lives */
};

/* ------------------------------------------------------------------ the job's output */

/* Slurm gives the batch script the mode that it was submitted with, if any. */
static bool is_emptied(void)
{
    const char *mode = getenv("SLURM_OPEN_MODE");
    bool append = true;

    if (mode)
        return *mode == 't';
    return tern_slurm_file_append_load(&append, NULL) == 0 && !append;
}

static bool is_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

void tern_run_requeue_check_output(const struct tern_place *place)
{
    const char *restarts = getenv("SLURM_RESTART_COUNT");
    struct tern_slurm_job *job = NULL;

    if (!place->slurm || (restarts && strcmp(restarts, "0") != 0) ||
        (!is_file(STDOUT_FILENO) && !is_file(STDERR_FILENO)) ||
        tern_slurm_job_load(place->job, &job, NULL) < 0)
        return;
    if (job->batch && job->requeue && is_emptied())
        tern_warn("when Slurm queues this job again, it empties the output file. Submit with "
                  "--open-mode=append, as `tern submit` does.");
    tern_slurm_job_free(job);
}

/* ------------------------------------------------------------------ the job's time is up */

/* Seconds before the end at which Slurm warns the job, as far as that is known; -1: it is not.
 * `tern submit` sets TERN_RUN_WARN, sbatch reads SBATCH_SIGNAL, which a job inherits, and lets it
 * win over its script. */
static int64_t asked_seconds(const struct tern_slurm_job *job)
{
    const char *set = tern_var("TERN_RUN_WARN"), *signal = getenv("SBATCH_SIGNAL");
    struct tern_err err = {0};
    int64_t seconds = -1;

    if (set && tern_str_int(set, 1, INT32_MAX, &seconds) == 0)
        return seconds;
    if (signal && (seconds = tern_slurm_signal_read(signal)) >= 0)
        return seconds;
    if (job->batch && tern_slurm_job_signal_load(job->id, &seconds, &err) < 0)
        tern_warn("%s: is there a --signal in it?", err.text);
    return seconds;
}

/* How long before the end Slurm's warning may have come, after which the ranks ended.  A --signal
 * on sbatch's command line cannot be queried; it is longer for longer jobs. */
static int64_t near_seconds(const struct tern_slurm_job *job)
{
    const int64_t tenth = job->end ? ((int64_t)(job->end - job->start) - job->suspended) / 10 : 0;
    int64_t warn = asked_seconds(job);

    if (warn < 0)
        warn = tenth < LONGEST_WARN_S ? tenth : LONGEST_WARN_S;
    if (warn < TERN_RUN_WARN_S)
        warn = TERN_RUN_WARN_S;
    return warn + TERN_RUN_WARN_LATE_S;
}

/* Did the ranks end by a stop request?  `--signal` without B: reaches them and not the
 * batch script; so does a preemption's SIGTERM. */
static bool was_requested(const struct tern_run_attempt *a, const struct tern_run_result *result)
{
    static const int stops[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};

    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (result->signal == stops[i])
            return true;
    return a->asked || result->status == TERN_CONTINUED;
}

static bool is_near(const struct tern_slurm_job *job, time_t when)
{
    return when && when - time(NULL) <= near_seconds(job);
}

/* Why Slurm ends the job; NULL: it does not, and a user did. */
static const char *slurms_reason(const struct tern_run_attempt *a, const struct tern_slurm_job *job,
                                 const struct tern_run_result *result)
{
    time_t reserved = 0;

    if ((job->preempt && job->preempt >= job->start) || strcmp(result->outcome, "preempted") == 0)
        return "preempted";
    const bool limit = strcmp(result->outcome, "time_limit") == 0;
    if (a->limit && job->state == TERN_SLURM_JOB_RUNNING)
        return a->limit;
    const bool stopped =
        strcmp(result->outcome, "stopped") == 0 || strcmp(result->outcome, "killed") == 0;
    /* The end of a cancelled job is the present time. */
    if (!limit && (!stopped || job->state != TERN_SLURM_JOB_RUNNING))
        return NULL;
    if (tern_slurm_job_find_reservation(job, a->place.node_list, &reserved, NULL) == 0 &&
        is_near(job, reserved) && (!job->end || reserved <= job->end))
        return "reservation";
    if (limit || is_near(job, job->end))
        return "time_limit";
    if (job->end && (a->asked == SIGUSR1 || a->asked == SIGUSR2))
        tern_info("the job ends in %" PRId64 " s: this was a person's request to stop. If it was "
                  "--signal of sbatch's command line, put that into the script, or set "
                  "TERN_RUN_WARN to its seconds.",
                  (int64_t)(job->end - time(NULL)));
    return NULL;
}

/* This process stopped the ranks for an end of the job.  Is there now much time before the end? The
 * job was suspended and resumed, or got more time, just then. */
static bool has_moved(const struct tern_run_attempt *a, const struct tern_slurm_job *job)
{
    time_t end = job->end, reserved = 0;

    if (!a->limit || a->asked != SIGUSR1 || job->state != TERN_SLURM_JOB_RUNNING ||
        tern_slurm_job_find_reservation(job, a->place.node_list, &reserved, NULL) < 0)
        return false;
    if (reserved && (!end || reserved < end))
        end = reserved;
    return !end || end - a->limit_end > MOVED_S;
}

static const char *describe(const char *reason)
{
    if (strcmp(reason, "preempted") == 0)
        return "Slurm preempts the job";
    return strcmp(reason, "reservation") == 0 ? "a reservation takes the job's nodes"
                                              : "the job's time limit is near";
}

static void add(struct tern_run_result *result, const char *text)
{
    size_t n = strlen(result->why);

    snprintf(result->why + n, sizeof result->why - n, "%s%s", n ? "; " : "", text);
}

/* Did this attempt leave a checkpoint?  The folder shows it for tern's trainer, also where the
 * ledger could not be written. */
static bool left_checkpoint(const struct tern_run_attempt *a)
{
    struct tern_run_history h = {0};
    struct tern_err err;
    uint64_t step = 0;
    char *path = NULL;

    if (a->copy) /* of checkpoint.mirror, which the next attempt takes, too */
        return true;
    if (tern_run_attempt_is_trainer(a)) {
        if (tern_ckpt_latest(a->o->recipe->checkpoint.dir, &path, &step, &err) < 0)
            tern_warn("%s", err.text);
        const bool left = path && (int64_t)step > a->resumed_step;
        free(path);
        return left;
    }
    if (tern_run_history_read(&h, a->o->recipe->ledger.dir, a->id, a->place.job, a->kind, &err) ==
        0)
        return h.newest_left;
    tern_warn("%s", err.text);
    return false;
}

/* Would the job run again without this process, or does its end come from outside the job?  Slurm
 * queues a preempted job again; after a maintenance nodes are free for it.  A time limit would stop
 * the next attempt at the same step, for ever. */
static bool may_repeat(const struct tern_slurm_job *job, const char *reason)
{
    return strcmp(reason, "preempted") == 0 ||
           (strcmp(reason, "reservation") == 0 && !*job->reservation);
}

static void queue_again(struct tern_run_attempt *a, struct tern_run_result *result,
                        const struct tern_slurm_job *job, const char *reason)
{
    struct tern_err err = {0};

    if (a->o->recipe->launch.at_time_limit == TERN_AT_LIMIT_STOP)
        return;
    if (strcmp(job->word, "PENDING") == 0) { /* Slurm was faster */
        add(result, "the job is queued again");
        return;
    }
    if (!may_repeat(job, reason) && !left_checkpoint(a)) {
        add(result, "it left no checkpoint: not queued again");
        return;
    }
    if (!job->requeue) {
        add(result, "the job cannot be queued again: submit with --requeue");
        return;
    }
    tern_run_attempt_add_event(a, "requeue", "info", NULL, result->why);
    add(result, tern_slurm_job_requeue(a->place.job, false, &err) < 0 ? err.text
                                                                      : "the job is queued again");
}

/* A run that this process stopped in time is not lost because the controller is just away. */
static int load_job(const struct tern_run_attempt *a, struct tern_slurm_job **ret_job,
                    struct tern_err *err)
{
    const int64_t second = 1000000000;
    const int64_t deadline = tern_clock_boot_ns() + (a->limit ? ASK_S : 0) * second;

    while (tern_slurm_job_load(a->place.job, ret_job, err) < 0) {
        if (err->code != TERN_TEMPFAIL || tern_clock_boot_ns() >= deadline)
            return -1;
        tern_clock_sleep_ns(second);
    }
    return 0;
}

/* May Slurm have ended it?  A trainer that failed by itself is not repeated.  A stop request before
 * its first step ends it without a checkpoint. */
static bool is_stop(const struct tern_run_attempt *a, const struct tern_run_result *result)
{
    return a->place.slurm && strcmp(a->kind, "train") == 0 && was_requested(a, result) &&
           result->status != TERN_OK && result->status != TERN_HALTED &&
           (!tern_run_attempt_is_trainer(a) || result->status == TERN_CONTINUED || result->signal ||
            strcmp(result->outcome, "stopped") == 0);
}

void tern_run_requeue_if_ended_by_slurm(struct tern_run_attempt *a, struct tern_run_result *result)
{
    struct tern_slurm_job *job = NULL;
    struct tern_err err = {0};

    if (!is_stop(a, result))
        return;
    if (load_job(a, &job, &err) < 0) {
        tern_warn("%s", err.text);
        if (a->limit) {
            result->outcome = a->limit;
            add(result, err.text);
        }
        return;
    }
    a->goes_on = result->status == TERN_CONTINUED && has_moved(a, job);
    const char *reason = a->goes_on ? NULL : slurms_reason(a, job, result);
    if (reason && tern_run_attempt_is_trainer(a) && result->status != TERN_CONTINUED &&
        strcmp(reason, "preempted") != 0)
        reason = NULL;
    if (a->goes_on)
        add(result, "the job has more time now: it goes on");
    if (reason) {
        result->outcome = reason;
        add(result, describe(reason));
        queue_again(a, result, job, reason);
    }
    tern_slurm_job_free(job);
}

/* ------------------------------------------------------------------ attempts without an end */

/* Is a node of the list down?  Its name, in `to`. */
static bool find_down(const char *list, char *to, size_t size)
{
    struct tern_slurm_nodes *nodes = NULL;
    char **hosts = NULL;
    size_t n = 0;

    to[0] = '\0';
    if (list && tern_slurm_hosts_expand(list, &hosts, &n, NULL) == 0 &&
        tern_slurm_nodes_load(&nodes, NULL) == 0)
        for (size_t i = 0; i < nodes->n && !*to; i++)
            for (size_t j = 0; j < n && nodes->node[i].down && !*to; j++)
                if (strcmp(hosts[j], nodes->node[i].name) == 0)
                    snprintf(to, size, "%s", nodes->node[i].name);
    tern_slurm_nodes_free(nodes);
    tern_slurm_hosts_free(hosts);
    return *to;
}

bool tern_run_lives(const struct tern_run_attempt *a, const struct tern_ledger_attempt *other)
{
    if (other->outcome || !a->place.slurm || other->job_id != a->place.job ||
        other->restart_count != a->place.restarts || other->pid <= 0)
        return false;
    if (other->host && strcmp(other->host, a->place.host) == 0)
        return other->pid != getpid() && (kill((pid_t)other->pid, 0) == 0 || errno == EPERM);
    const double silent = tern_ledger_silence(a->o->recipe->ledger.dir, other->run_id);
    return silent > 0 && silent < ALIVE_S;
}

static void close_one(const struct tern_run_attempt *a, const struct tern_ledger_attempt *old)
{
    struct tern_ledger_end end = {.outcome = "killed", .exit_code = TERN_TEMPFAIL};
    struct tern_err err = {0};
    char cause[400], node[256];
    bool same_job = a->place.slurm && old->job_id == a->place.job;

    if (a->place.slurm && find_down(old->nodes, node, sizeof node)) {
        end.outcome = "node_fail";
        snprintf(cause, sizeof cause, TERN_RUN_GONE ", and node %s is down", node);
    } else if (same_job && old->restart_count < a->place.restarts) {
        end.outcome = "requeued";
        snprintf(cause, sizeof cause, TERN_RUN_GONE "; Slurm has started job %" PRId64 " again",
                 old->job_id);
    } else {
        snprintf(cause, sizeof cause, TERN_RUN_GONE " (process %" PRId64 " on %s)", old->pid,
                 old->host ? old->host : "?");
    }
    end.cause = cause;
    struct tern_ledger_spool *s =
        tern_ledger_spool_open(a->o->recipe->ledger.dir, a->id, old->attempt, "after", &err);
    if (!s || tern_ledger_spool_attempt_end(s, &end, &err) < 0 ||
        tern_ledger_spool_close(s, &err) < 0)
        tern_warn("attempt %" PRIu32 " has no end in the ledger: %s", old->attempt, err.text);
    else
        tern_info("attempt %" PRIu32 " had no end in the ledger: %s, %s", old->attempt, end.outcome,
                  cause);
}

void tern_run_close_earlier(const struct tern_run_attempt *a)
{
    struct tern_ledger_rows rows = {0};
    struct tern_err err = {0};

    if (a->number <= 1)
        return;
    struct tern_ledger *l = tern_ledger_open_run(a->o->recipe->ledger.dir, a->id, &err);
    if (!l || tern_ledger_attempts(l, &rows, &err) < 0)
        tern_warn("%s", err.text);
    for (size_t i = 0; i < rows.n; i++)
        if (rows.attempts[i].attempt < a->number && !rows.attempts[i].outcome &&
            rows.attempts[i].begin_ns && !tern_run_lives(a, &rows.attempts[i]))
            close_one(a, &rows.attempts[i]);
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
}
