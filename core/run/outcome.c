#include "core/run/outcome.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

__attribute__((format(printf, 4, 5))) static void
say(struct tern_run_result *r, const char *outcome, int status, const char *fmt, ...)
{
    va_list ap;

    r->outcome = outcome;
    r->status = status;
    va_start(ap, fmt);
    vsnprintf(r->why, sizeof r->why, fmt, ap);
    va_end(ap);
}

/* The word for Slurm's reason to end the job, or NULL when it had none. */
static const char *job_outcome(const char *word)
{
    static const struct {
        const char *slurm, *ours;
    } words[] = {
        {"TIMEOUT", "time_limit"},  {"DEADLINE", "time_limit"}, {"PREEMPTED", "preempted"},
        {"CANCELLED", "cancelled"}, {"NODE_FAIL", "node_fail"}, {"OUT_OF_MEMORY", "killed"},
        {"PENDING", "requeued"}, /* queued again while its ranks end */
    };

    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].slurm, word) == 0)
            return words[i].ours;
    return NULL;
}

static void judge_signal(const struct tern_run_facts *f, struct tern_run_result *r, int sig)
{
    const char *word = job_outcome(f->job_word);
    char ranks[32] = "the ranks";

    if (f->rank >= 0)
        snprintf(ranks, sizeof ranks, "rank %d", f->rank);
    if (f->lost_node[0])
        say(r, "node_fail", TERN_TEMPFAIL, "node %s is down", f->lost_node);
    else if (f->memory[0])
        say(r, "killed", TERN_TEMPFAIL, "%s", f->memory);
    else if (word)
        say(r, word, TERN_TEMPFAIL, "Slurm ended the job (%s); %s ended by signal %d (%s)",
            f->job_word, ranks, sig, strsignal(sig));
    else if (f->job_word && sig == SIGTERM && !f->asked)
        /* srun gives the highest status, which is its own SIGTERM to the other ranks. */
        say(r, "killed", TERN_TEMPFAIL,
            "a rank was killed, and srun ended the others; the output "
            "above has the rank");
    else if (sig == f->asked) /* on request: it uses up no restart */
        say(r, "stopped", TERN_TEMPFAIL, "%s ended by signal %d (%s), passed on", ranks, sig,
            strsignal(sig));
    else
        say(r, "killed", TERN_TEMPFAIL, "%s ended by signal %d (%s)", ranks, sig, strsignal(sig));
}

/* Why the run is done with its newest checkpoint before the last step; "": it is not.  The message
 * of rank 0, without a checkpoint that agrees, holds only for the checkpoint it resumed from: it
 * might concern steps that were lost. */
static const char *early(const struct tern_run_facts *f)
{
    if (f->ended[0])
        return f->ended;
    return f->newest >= 0 && f->newest == f->resumed ? f->said : "";
}

/* Status 0: is there a checkpoint of the last step? */
static void judge_done(const struct tern_run_facts *f, struct tern_run_result *r)
{
    if (f->steps == 0 || f->newest >= f->steps || early(f)[0])
        say(r, "done", TERN_OK, "%s", f->newest < f->steps ? early(f) : "");
    else if (f->lost_node[0])
        say(r, "node_fail", TERN_TEMPFAIL, "node %s is down", f->lost_node);
    else if (f->newest < 0)
        say(r, "failed", TERN_FAILED,
            "the ranks ended as if done, but there is no checkpoint of step %" PRId64, f->steps);
    else
        say(r, "failed", TERN_FAILED,
            "the ranks ended as if done, but the newest checkpoint is of step %" PRId64
            ", not %" PRId64,
            f->newest, f->steps);
}

/* Killed for memory, says the rank or Slurm?  The trainer's own refusal and its ends with a
 * checkpoint are what they say. */
static bool judge_memory(const struct tern_run_facts *f, struct tern_run_result *r, int status,
                         const char *ranks)
{
    if (status == TERN_CONTINUED || status == TERN_HALTED ||
        (status == TERN_USAGE && f->steps > 0) || f->lost_node[0])
        return false;
    if (f->memory[0])
        say(r, "killed", TERN_TEMPFAIL, "%s", f->memory);
    else if (f->job_word && strcmp(f->job_word, "OUT_OF_MEMORY") == 0)
        say(r, "killed", TERN_TEMPFAIL, "Slurm ended the job (%s); %s ended with status %d",
            f->job_word, ranks, status);
    else
        return false;
    return true;
}

/* Slurm ended the job: programs that handle SIGTERM exit with any status. */
static void say_slurm(const struct tern_run_facts *f, struct tern_run_result *r, const char *word,
                      const char *ranks, int status)
{
    say(r, word, TERN_TEMPFAIL, "Slurm ended the job (%s); %s ended with status %d%s%s",
        f->job_word, ranks, status, f->said[0] ? ": " : "", f->said);
}

static void judge_status(const struct tern_run_facts *f, struct tern_run_result *r, int status)
{
    const char *word = job_outcome(f->job_word);
    char ranks[32] = "the ranks";

    if (f->rank >= 0)
        snprintf(ranks, sizeof ranks, "rank %d", f->rank);
    if (judge_memory(f, r, status, ranks))
        return;
    switch (status) {
    case TERN_USAGE:
        say(r, "refused", status, "%s ended with status 2: %s", ranks,
            f->said[0] ? f->said : "usage or bad input");
        break;
    case TERN_TEMPFAIL:
        if (f->lost_node[0])
            say(r, "node_fail", status, "node %s is down", f->lost_node);
        else if (word)
            say_slurm(f, r, word, ranks, status);
        else
            say(r, "fault", status, "%s ended for a reason outside the run (status 75)%s%s", ranks,
                f->said[0] ? ": " : "", f->said);
        break;
    case TERN_CONTINUED:
        say(r, word ? word : "stopped", status, "stopped with a checkpoint, to be continued");
        break;
    case TERN_HALTED:
        say(r, "halted", status, "halted with a checkpoint");
        break;
    default:
        if (f->lost_node[0])
            say(r, "node_fail", TERN_TEMPFAIL, "node %s is down", f->lost_node);
        else if (word)
            say_slurm(f, r, word, ranks, status);
        else
            say(r, "failed", f->steps ? TERN_FAILED : status, "%s ended with status %d%s%s", ranks,
                status, f->said[0] ? ": " : "", f->said);
        break;
    }
}

/* Only the checkpoint shows how the ranks ended. */
static void judge_srun_hang(const struct tern_run_facts *f, struct tern_run_result *r)
{
    const char *word = job_outcome(f->job_word);

    if (f->steps && (f->newest >= f->steps || early(f)[0]))
        judge_done(f, r);
    else if (f->lost_node[0])
        say(r, "node_fail", TERN_TEMPFAIL, "node %s is down", f->lost_node);
    else
        say(r, word ? word : "fault", TERN_TEMPFAIL,
            "srun did not end with its step and was ended; how the ranks ended is not known");
}

void tern_run_judge(const struct tern_run_facts *f, struct tern_run_result *result, int *sig)
{
    int status = WIFEXITED(f->status) ? WEXITSTATUS(f->status) : 0;

    *sig = 0;
    if (f->frozen[0] && !f->lost_node[0]) {
        say(result, "fault", TERN_TEMPFAIL, "%s", f->frozen);
        return;
    }
    if (f->srun_hang) {
        judge_srun_hang(f, result);
        return;
    }
    if (WIFSIGNALED(f->status))
        *sig = WTERMSIG(f->status);
    /* 128 + signal, as of shells and srun; a workload's shell gives it for its children, too. */
    if (status > 128 && status < 128 + 65)
        *sig = status - 128;
    if (*sig)
        judge_signal(f, result, *sig);
    else if (status == 0)
        judge_done(f, result);
    else
        judge_status(f, result, status);
}

void tern_run_outcome_failed(struct tern_run_result *result, const struct tern_err *err)
{
    say(result, "failed", err->code, "%.500s", err->text);
}

void tern_run_outcome_stopped(struct tern_run_result *result, int sig, bool resumed)
{
    say(result, "stopped", resumed ? TERN_CONTINUED : TERN_TEMPFAIL,
        "signal %d (%s) before the ranks were started", sig, strsignal(sig));
}

void tern_run_outcome_unfit(struct tern_run_result *result, const struct tern_err *err)
{
    say(result, "node_fail", TERN_TEMPFAIL, "%.500s", err->text);
}

void tern_run_outcome_lost(struct tern_run_result *result, unsigned lost, int64_t restarts)
{
    say(result, "failed", TERN_TEMPFAIL,
        "%u attempts of this job were lost and made no checkpoint; no restart is left of "
        "%" PRId64 " (launch.restarts). `tern ledger show %s` shows their nodes.",
        lost, restarts, result->run_id);
}

void tern_run_outcome_precompile_failed(struct tern_run_result *result)
{
    char why[sizeof result->why];

    memcpy(why, result->why, sizeof why);
    say(result, "precompile_failed", result->status, "workload.precompile.command: %.450s", why);
}
