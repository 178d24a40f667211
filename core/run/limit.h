/* Stops the ranks in time before Slurm ends the job.
 *
 * Slurm sends a warning signal only with `--signal`, and a user guessed its time.  The supervisor
 * knows better.  It queries the job's end, and reservations that take its nodes, now and then; the
 * ledger has the times of a step and a checkpoint.  A child does this, as a controller or storage
 * that does not answer must delay neither signals nor heartbeats.
 *
 * A suspended job (scontrol suspend, gang scheduling) gets a later end from Slurm when it is
 * resumed. A gap between two ticks shows that: the end that is known is then too early.  The ranks
 * are not stopped before a query that began after the gap has an answer.  A query without an answer
 * leaves the known end as it is: a controller that is down ends no job and gives none more time.
 *
 * For tern's own trainer alone: what another program does on an unexpected signal is not known.
 */
#ifndef TERN_RUN_LIMIT_H
#define TERN_RUN_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "core/run/attempt.h"

struct tern_run_limit {
    const struct tern_run_attempt *a; /* NULL: no end is looked for */
    pid_t pid;                        /* the child that queries; 0: none */
    int fd;                           /* the pipe of its answer */
    bool old;                         /* it began before this process was stopped and resumed */
    int64_t next;                     /* query, on the boot clock */
    int64_t seen;                     /* the last tick, on that clock; 0: none */
    int64_t wait;                     /* ns for which only a new answer counts */
    time_t end;                       /* of the job; 0: not known */
    int64_t need;                     /* seconds before it at which the ranks are to stop */
    bool measured;                    /* `need` is */
    bool reserved;                    /* `end` is of a reservation, not of the time limit */
    /* result: why the ranks had to stop, a word of the ledger; NULL: they did not have to */
    const char *reason;
};

/* Query when it is time.  True, once, when the ranks are to stop now; `text` is the reason. */
bool tern_run_limit_tick(struct tern_run_limit *l, char *text, size_t size);
/* Child `pid` was waited for: take its answer, if it has one.  True when it was the child that
 * queries. */
bool tern_run_limit_reaped(struct tern_run_limit *l, pid_t pid);
/* End the child. */
void tern_run_limit_free(struct tern_run_limit *l);

#endif
