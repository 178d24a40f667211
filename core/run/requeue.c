#include "core/run/requeue.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/run/history.h"
#include "core/run/pace.h"
#include "core/slurm/slurm.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LONGEST_WARN_S = 3600 };

/* ------------------------------------------------------------------ the job's time is up */

/* How long before the end Slurm's warning may have come, after which the ranks ended.  `tern
 * submit` sets it.  The time of a job's own --signal cannot be queried; it is longer for longer
 * jobs. */
static int64_t near_seconds(const struct tern_slurm_job *job)
{
    const char *set = tern_var("TERN_RUN_WARN");
    const int64_t tenth = job->end && !set ? (int64_t)(job->end - job->start) / 10 : 0;
    int64_t warn;

    if (!set || tern_str_int(set, 1, INT32_MAX, &warn) < 0 || warn < TERN_RUN_WARN_S)
        warn = TERN_RUN_WARN_S;
    if (tenth > warn)
        warn = tenth < LONGEST_WARN_S ? tenth : LONGEST_WARN_S;
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
    return limit || is_near(job, job->end) ? "time_limit" : NULL;
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

/* Did this attempt leave a checkpoint? */
static bool left_checkpoint(const struct tern_run_attempt *a)
{
    struct tern_run_history h = {0};
    struct tern_err err;

    if (a->copy) /* of checkpoint.mirror, which the next attempt takes, too */
        return true;
    if (tern_run_history_read(&h, a->o->recipe->ledger.dir, a->id, a->place.job, a->kind, &err) ==
        0)
        return h.newest_left;
    tern_warn("%s", err.text);
    return false;
}

static void queue_again(struct tern_run_attempt *a, struct tern_run_result *result, bool may)
{
    struct tern_err err = {0};

    if (a->o->recipe->launch.at_time_limit == TERN_AT_LIMIT_STOP)
        return;
    if (!left_checkpoint(a)) {
        add(result, "it left no checkpoint: not queued again");
        return;
    }
    if (!may) {
        add(result, "the job cannot be queued again: submit with --requeue");
        return;
    }
    tern_run_attempt_add_event(a, "requeue", "info", NULL, result->why);
    add(result, tern_slurm_job_requeue(a->place.job, false, &err) < 0 ? err.text
                                                                      : "the job is queued again");
}

void tern_run_requeue_if_ended_by_slurm(struct tern_run_attempt *a, struct tern_run_result *result)
{
    const bool trainer = tern_run_attempt_is_trainer(a);
    struct tern_slurm_job *job = NULL;
    struct tern_err err;

    if (!a->place.slurm || !was_requested(a, result) || strcmp(a->kind, "train") != 0 ||
        result->status == TERN_OK || result->status == TERN_HALTED ||
        (trainer && result->status != TERN_CONTINUED))
        return;
    if (tern_slurm_job_load(a->place.job, &job, &err) < 0) {
        tern_warn("%s", err.text);
        return;
    }
    const char *reason = slurms_reason(a, job, result);
    if (reason) {
        result->outcome = reason;
        add(result, describe(reason));
        queue_again(a, result, job->requeue);
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
            rows.attempts[i].begin_ns)
            close_one(a, &rows.attempts[i]);
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
}
