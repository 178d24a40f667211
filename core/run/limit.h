/* The end that Slurm has in mind for the job, and the stop in time before it.
 *
 * A warning signal is sent only where `--signal` asked for one, and so long before the end as
 * somebody guessed.  The supervisor knows better: the job's end and the reservations that take its
 * nodes are asked for now and then, and what a step and a checkpoint take here is in the ledger.
 * By a child, as a controller or a storage that does not answer must hold up neither signals nor
 * heartbeats.
 *
 * For tern's own trainer alone: nobody knows what another program does at a signal that it did not
 * ask for.
 */
#ifndef TERN_RUN_LIMIT_H
#define TERN_RUN_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "core/run/attempt.h"

struct tern_run_limit {
    const struct tern_run_attempt *a; /* NULL: nothing is looked at */
    pid_t pid;                        /* who looks; 0: nobody */
    int fd;                           /* what it answers */
    int64_t next;                     /* look, on the boot clock */
    time_t end;                       /* 0: none is known */
    int64_t need;                     /* seconds before it at which the ranks are to stop */
    bool measured;                    /* `need` is */
    bool reserved;                    /* a reservation's, not the time limit's */
    /* result: why the ranks had to stop, the ledger's word; NULL: they had not */
    const char *reason;
};

/* When it is time: look.  True, once, when the ranks are to stop now; `text` then tells why. */
bool tern_run_limit_tick(struct tern_run_limit *l, char *text, size_t size);
/* A child was waited for.  True when it was the one who looks. */
bool tern_run_limit_reaped(struct tern_run_limit *l, pid_t pid);
/* Ends who looks. */
void tern_run_limit_free(struct tern_run_limit *l);

#endif
