#include "core/run/run.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/check/check.h"
#include "core/place/nodes.h"
#include "core/place/place.h"
#include "core/run/attempt.h"
#include "core/run/auto_resume.h"
#include "core/run/command.h"
#include "core/run/environ.h"
#include "core/run/history.h"
#include "core/run/outcome.h"
#include "core/run/precompile.h"
#include "core/run/preflight.h"
#include "core/run/rehearsal.h"
#include "core/run/requeue.h"
#include "core/run/watch.h"
#include "core/run/watchers.h"
#include "core/slurm/slurm.h"
#include "core/task/marker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    /* Attempts in a row without a checkpoint: the fault comes back on any nodes. */
    MAX_ATTEMPTS_WITHOUT_CHECKPOINT = 3,
};

struct supervisor {
    const struct tern_run_options *o;
    struct tern_place place; /* the whole job */
    struct tern_place_nodes nodes;
    size_t want; /* nodes that an attempt uses */
    int64_t restarts;
    char *recipe_text;
    unsigned attempts; /* so far, of this process */
    struct tern_run_precompile precompile;
    pid_t watchers; /* watchers.h */
    bool overlap;   /* of the attempts to come */
    sigset_t signals, old_mask;
};

/* ------------------------------------------------------------------ one attempt */

/* A signal that requests the end while no rank runs; 0: none came within `seconds`. */
static int wait_stop(struct supervisor *s, int seconds)
{
    const struct timespec wait = {.tv_sec = seconds};
    sigset_t ends = s->signals;
    int sig;

    sigdelset(&ends, SIGCHLD);
    do /* for tern's own trainer SIGUSR2 requests a dump, never the end */
        sig = sigtimedwait(&ends, NULL, &wait);
    while ((sig < 0 && errno == EINTR) || (sig == SIGUSR2 && !s->o->recipe->workload.command));
    return sig > 0 ? sig : 0;
}

/* Check the nodes, and replace those that are not fit.  1: no others are left; *result has the end.
 */
static int pass_preflight(struct supervisor *s, struct tern_run_attempt *a,
                          struct tern_run_result *result, struct tern_err *err)
{
    for (;;) {
        char **bad = NULL;
        size_t n = 0;
        if (tern_run_preflight(a, &bad, &n, err) < 0)
            return -1;
        for (size_t i = 0; i < n; i++) {
            tern_place_nodes_mark_bad(&s->nodes, bad[i]);
            free(bad[i]);
        }
        free(bad);
        if (n == 0)
            return 0;
        if (tern_place_nodes_choose(&s->nodes, s->want, &a->place, err) < 0) {
            tern_run_outcome_unfit(result, err);
            return 1;
        }
        if (tern_run_attempt_moved(a, err) < 0)
            return -1;
    }
}

/* When the node of the batch script is lost every time, no process is left to count, and Slurm
 * itself queues the job again.  1: no restart is left; *result has the end. */
static int pass_history(struct supervisor *s, const struct tern_run_attempt *a,
                        struct tern_run_result *result)
{
    struct tern_run_history h = {0};
    struct tern_err err = {0};

    if (!s->place.slurm || s->place.restarts == 0 || s->attempts > 1)
        return 0;
    if (tern_run_history_read(&h, s->o->recipe->ledger.dir, a->id, s->place.job, a->kind, &err) < 0)
        tern_warn("%s", err.text);
    if (h.vain <= s->restarts + 1) /* including this one */
        return 0;
    tern_run_outcome_lost(result, h.vain - 1, s->restarts);
    return 1;
}

/* Why nodes could not be had for the job, as the program that starts nodes has noted it. The next
 * attempt has the reason in the ledger. */
static void note_capacity(const struct supervisor *s, struct tern_run_attempt *a)
{
    struct tern_slurm_job *job = NULL;
    struct tern_err err = {0};

    if (!s->place.slurm || s->attempts > 1)
        return;
    if (tern_slurm_job_load(s->place.job, &job, &err) < 0)
        tern_debug("%s", err.text);
    else if (tern_str_starts(job->admin_comment, "tern: "))
        tern_run_attempt_add_event(a, "capacity", "warn", /* node= */ NULL,
                                   job->admin_comment + strlen("tern: "));
    tern_slurm_job_free(job);
}

/* -1: it could not begin; nothing is recorded. */
static int attempt(struct supervisor *s, struct tern_run_attempt *a, struct tern_run_result *result,
                   struct tern_err *err)
{
    a->place = s->place;
    if (tern_place_nodes_choose(&s->nodes, s->want, &a->place, err) < 0 ||
        tern_run_attempt_begin(a, err) < 0)
        return -1;
    s->attempts++;
    memcpy(result->run_id, a->id, sizeof result->run_id);
    result->attempt = a->number;
    result->signal = 0;
    result->why[0] = '\0';
    note_capacity(s, a);
    int rc = a->stopped ? 0 : pass_history(s, a, result);
    if (rc == 0 && !a->stopped)
        rc = pass_preflight(s, a, result, err);
    if (rc == 0)
        rc = tern_run_environ_set(a, err);
    int sig = rc == 0 ? wait_stop(s, 0) : 0;
    if (sig) {
        a->asked = sig;
        tern_run_outcome_stopped(result, sig, a->resumed || a->copy);
    } else if (rc == 0) {
        rc = tern_run_attempt_launch(a, result, err);
    }
    if (rc < 0)
        tern_run_outcome_failed(result, err);
    return 0;
}

/* ------------------------------------------------------------------ and the next one */

/* An attempt that Slurm or a user ended is not repeated from here. */
static bool worth_another(const struct tern_run_attempt *a, const struct tern_run_result *result)
{
    static const char *const ours[] = {"node_fail", "killed", "fault", NULL};

    for (size_t i = 0; ours[i]; i++)
        if (strcmp(result->outcome, ours[i]) == 0)
            return result->status == TERN_TEMPFAIL && !a->asked;
    return false;
}

static void add_reason(struct tern_run_result *result, const char *reason)
{
    size_t n = strlen(result->why);

    snprintf(result->why + n, sizeof result->why - n, "%s%s", n ? "; " : "", reason);
}

/* Too few good nodes: queue the job again for others. */
static void requeue(struct supervisor *s, struct tern_run_attempt *a,
                    struct tern_run_result *result, const char *why)
{
    struct tern_err err = {0};
    struct tern_slurm_job *job = NULL;

    if (!s->place.slurm)
        return;
    if (tern_slurm_job_load(s->place.job, &job, &err) < 0) {
        add_reason(result, err.text);
        return;
    }
    bool may = job->requeue;
    tern_slurm_job_free(job);
    if (!may) {
        add_reason(result, "the job cannot be queued again: submit with --requeue, or with spare "
                           "nodes (launch.spares) and --no-kill");
        return;
    }
    tern_run_attempt_add_event(a, "requeue", "warn", NULL, why);
    if (tern_slurm_job_requeue(s->place.job, false, &err) < 0)
        add_reason(result, err.text);
    else
        add_reason(result, "the job is queued again");
}

/* Is there to be another attempt?  If not, log, ledger and `result` have the reason. */
static bool again(struct supervisor *s, struct tern_run_attempt *a, struct tern_run_result *result)
{
    struct tern_run_history h = {0};
    struct tern_err err = {0};
    char text[400];

    if (a->goes_on) { /* it uses up no restart */
        s->attempts--;
        tern_run_attempt_add_event(a, "restart", "info", /* node= */ NULL, result->why);
        return true;
    }
    if (!worth_another(a, result))
        return false;
    if (a->lost_node[0])
        tern_place_nodes_mark_bad(&s->nodes, a->lost_node);
    if (tern_run_history_read(&h, s->o->recipe->ledger.dir, a->id, s->place.job, a->kind, &err) <
        0) {
        tern_warn("%s", err.text);
        h.faults = s->attempts < MAX_ATTEMPTS_WITHOUT_CHECKPOINT
                       ? s->attempts
                       : MAX_ATTEMPTS_WITHOUT_CHECKPOINT - 1; /* no haste */
    }
    /* Outside Slurm every process counts from 0, and a ledger that cannot be read counts nothing.
     */
    if (!s->place.slurm || h.attempts < s->attempts)
        h.attempts = s->attempts;
    if (h.attempts > s->restarts) {
        if (s->restarts > 0) {
            snprintf(text, sizeof text, "no restart is left of %" PRId64, s->restarts);
            add_reason(result, text);
        }
        return false;
    }
    if (h.faults >= MAX_ATTEMPTS_WITHOUT_CHECKPOINT) {
        snprintf(text, sizeof text, "%u attempts in a row made no checkpoint: given up", h.faults);
        add_reason(result, text);
        tern_run_attempt_add_event(a, "stuck", "error", NULL, text);
        return false;
    }
    struct tern_place probe = s->place;
    if (tern_place_nodes_choose(&s->nodes, s->want, &probe, &err) < 0) {
        requeue(s, a, result, err.text);
        return false;
    }
    int pause = h.faults == 0 ? 0 : 1 << (h.faults - 1);
    snprintf(text, sizeof text, "attempt %u: %s: %.200s. The next one begins%s", a->number,
             result->outcome, result->why, pause ? " after a pause" : "");
    tern_run_attempt_add_event(a, "restart", "warn", a->lost_node[0] ? a->lost_node : NULL, text);
    int sig = wait_stop(s, pause);
    if (!sig)
        return true;
    snprintf(text, sizeof text, "signal %d (%s) came before the next attempt", sig, strsignal(sig));
    add_reason(result, text);
    return false;
}

/* ------------------------------------------------------------------ compiling beforehand */

static void set_kind(const struct supervisor *s, struct tern_run_attempt *a)
{
    a->kind = s->o->kind ? s->o->kind : "train";
    if (!s->precompile.dir)
        return;
    if (s->precompile.complete) {
        if (s->attempts == 0)
            tern_info("cache found: %s", s->precompile.dir);
        return;
    }
    a->kind = "precompile";
    a->command = s->o->recipe->workload.precompile.command;
    tern_info("no complete cache of compiled graphs yet: compiling into %s", s->precompile.dir);
}

/* An attempt ended: true when it was a good compilation.  A failed compilation gets an outcome of
 * its own, unless it was stopped or is worth another attempt. */
static bool compiled(struct supervisor *s, struct tern_run_attempt *a,
                     struct tern_run_result *result)
{
    struct tern_err err = {0};

    if (strcmp(a->kind, "precompile") != 0)
        return false;
    if (result->status == TERN_OK) {
        if (tern_run_precompile_mark(&s->precompile, a->id, a->number, &err) == 0) {
            s->attempts = 0;
            return true;
        }
        tern_run_outcome_failed(result, &err);
    } else if (strcmp(result->outcome, "failed") != 0 && strcmp(result->outcome, "refused") != 0) {
        return false;
    }
    tern_run_outcome_precompile_failed(result);
    return false;
}

/* ------------------------------------------------------------------ the whole */

static int64_t requested_restarts(const struct tern_run_options *o)
{
    const char *job = tern_var("TERN_RESTARTS");
    int64_t n;

    if (o->restarts >= 0)
        return o->restarts;
    if (job && tern_str_int(job, 0, 1000000, &n) == 0)
        return n;
    if (job)
        tern_warn("TERN_RESTARTS: '%s' is no number from 0 to 1000000; the recipe counts", job);
    return o->recipe->launch.restarts;
}

static int64_t restarts_of(const struct tern_run_options *o)
{
    int64_t n = requested_restarts(o), most = o->site ? o->site->restarts_max : -1;

    if (most < 0 || n <= most)
        return n;
    tern_warn("%" PRId64 " restarts are more than the %" PRId64 " that %s allows", n, most,
              o->site->path);
    return most;
}

static int prepare(struct supervisor *s, struct tern_err *err)
{
    const struct tern_recipe *r = s->o->recipe;

    if (tern_place_read(&s->place, r, s->o->ranks, err) < 0)
        return -1;
    int64_t spares = s->place.slurm ? r->launch.spares : 0;
    if (spares >= s->place.nodes)
        return tern_recipe_fail(r, "launch.spares", err,
                                "%" PRId64 " nodes in reserve of the job's %" PRId64
                                ": none is left to work. Ask for more nodes.",
                                spares, s->place.nodes);
    s->want = (size_t)(s->place.nodes - spares);
    struct tern_check_options known = {
        .nodes = (int64_t)s->want,
        .ranks = (int64_t)s->want * tern_run_workers(r, &s->place),
    };
    /* Outside a job the ranks are here, and the groups of one may have several partitions. */
    const char *any = s->place.slurm && s->place.groups == 1 ? NULL : "";
    if (tern_place_find_machines(r, any, &known, err) < 0 || tern_check_recipe(r, &known, err) < 0)
        return -1;
    s->restarts = tern_run_auto_resume(&s->place, !r->workload.command, restarts_of(s->o));
    if (tern_check_restarts(r, s->restarts, err) < 0)
        return -1;
    struct tern_run_attempt first = {.o = s->o, .place = s->place};
    first.place.nodes = (int64_t)s->want;
    if (!s->o->kind && tern_run_precompile_open(&s->precompile, &first, err) < 0)
        return -1;
    return tern_place_nodes_read(&s->nodes, &s->place, err);
}

/* Ranks on other nodes notice the death of this one themselves: mpirun's do not have the beacon,
 * and a container has no tern-orphan. */
static bool ranks_watch(const struct tern_recipe *r)
{
    return r->launch.with == TERN_LAUNCH_SRUN && !r->workload.container;
}

int tern_run(const struct tern_run_options *options, struct tern_run_result *result,
             struct tern_err *err)
{
    struct supervisor s = {.o = options};
    int rc;

    result->run_id[0] = '\0';
    if (prepare(&s, err) < 0)
        return -1;
    s.recipe_text = tern_run_recipe_text(options);
    tern_run_watch_signals(&s.signals);
    sigprocmask(SIG_BLOCK, &s.signals, &s.old_mask);
    tern_run_requeue_check_output(&s.place);
    s.watchers = tern_run_watchers_start(&s.place, options->recipe->launch.spares,
                                         ranks_watch(options->recipe));
    for (bool more = true; more;) {
        struct tern_run_attempt a = {
            .o = options,
            .recipe_text = s.recipe_text,
            .watchers = &s.watchers,
            .overlap = s.overlap,
            .old_mask = &s.old_mask,
        };
        set_kind(&s, &a);
        memcpy(a.id, result->run_id, sizeof a.id);
        rc = attempt(&s, &a, result, err);
        if (rc < 0)
            break;
        bool ready = compiled(&s, &a, result);
        tern_run_rehearsal_clear(&a, result);
        tern_run_requeue_if_ended_by_slurm(&a, result);
        tern_run_attempt_end_row(&a, result);
        more = ready || again(&s, &a, result);
        tern_run_attempt_end(&a);
        s.overlap |= a.overlap;
    }
    if (rc < 0 && s.attempts > 0) { /* an earlier attempt took place */
        add_reason(result, err->text);
        rc = 0;
    }
    tern_run_watchers_stop(&s.watchers);
    while (wait_stop(&s, 0)) /* the run has ended; its report is still to be printed */
        ;
    sigprocmask(SIG_SETMASK, &s.old_mask, NULL);
    free(s.recipe_text);
    tern_place_nodes_free(&s.nodes);
    tern_run_precompile_free(&s.precompile);
    return rc;
}

/* ------------------------------------------------------------------ the job's recipe */

int tern_run_job_recipe(const char **path, struct tern_err *err)
{
    if (tern_task_check_marker(true, err) < 0)
        return -1;
    *path = tern_var("TERN_RECIPE");
    return 0;
}
