/* One attempt: one launch of the ranks, from the lease on the run's checkpoints to its last row in
 * the ledger.
 *
 *     tern_run_attempt_begin(&a, err)       id, number, lease, rows: it exists from here on
 *     tern_run_preflight(&a, ...)                the nodes are checked (preflight.h)
 *     tern_run_attempt_launch(&a, ...)      the ranks, until the last of them is gone
 *     tern_run_attempt_end_row(&a, ...)     how it ended, into the ledger
 *     tern_run_attempt_end(&a)              releases lease and spool
 */
#ifndef TERN_RUN_ATTEMPT_H
#define TERN_RUN_ATTEMPT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "core/ckpt/ckpt.h"
#include "core/ledger/ledger.h"
#include "core/place/place.h"
#include "core/run/run.h"

/* Copies in checkpoint.mirror that count: of steps behind `after` (-1: of any) and before `before`.
 */
struct tern_run_copies {
    int64_t after;   /* of the newest good one in checkpoint.dir, */
    uint64_t before; /* if a damaged one there, of the step before this, is newer */
};

struct tern_run_attempt {
    const struct tern_run_options *o;
    struct tern_place place;
    const char *recipe_text; /* the file's text when `o->recipe` was read */
    const char *kind;        /* the ledger's: train, precompile, trial, smoke */
    char id[TERN_ULID_SIZE]; /* of an earlier attempt, or ""; the id in checkpoint.dir wins */
    unsigned number;
    struct tern_ckpt_lease *lease; /* NULL: a workload without checkpoint.dir */
    pid_t heartbeat;               /* heartbeat.h; 0: none runs */
    struct tern_ledger_spool *spool;
    char *spool_dir;
    char *resumed; /* the checkpoint it resumes from, or NULL */
    int64_t resumed_step;
    bool copy; /* its checkpoint comes back from checkpoint.mirror (restore.h) */
    struct tern_run_copies copies; /* those that count */
    char copy_of[TERN_ULID_SIZE];  /* the run whose copies count; "": of any */
    bool stopped;                  /* a signal came before it was there; it is pending */
    char *restored;                /* what came back from where, for the ledger; or NULL */
    char full[TERN_SHA256_HEX], identity[TERN_SHA256_HEX];
    pid_t *watchers;    /* watchers.h; 0: none, and ranks on other nodes watch.  NULL likewise */
    sigset_t *old_mask; /* the caller's, restored in the ranks; the supervisor's signals are
                           blocked from before the first attempt to after the last */
    char **command;     /* run by the ranks, NULL-ended, in place of the recipe's command or the
                           trainer; NULL: those run */
    /* results of the launch */
    int asked; /* the last signal passed on; 0: none */
    const char
        *limit;       /* why this process stopped them: time_limit, reservation; NULL: it did not */
    time_t limit_end; /* the job's end that it then knew */
    bool goes_on;     /* that is not its end any more: the next attempt begins in this job */
    /* Slurm still lists an earlier attempt's step, whose srun had to be ended: the ranks do not
     * wait for its end.  Set before, and by, the launch. */
    bool overlap;
    char lost_node[256]; /* a node that Slurm has declared down; "": none */
};

/* The recipe file's text, "" when it cannot be read now; malloc'ed. */
char *tern_run_recipe_text(const struct tern_run_options *o);

/* Does it run tern's own trainer? */
bool tern_run_attempt_is_trainer(const struct tern_run_attempt *a);

/* Do its ranks communicate by MPI between nodes?  TERN_FABRIC comes before the recipe. */
bool tern_run_attempt_by_mpi(const struct tern_run_attempt *a);

/* Do its ranks use the supervisor's rendezvous socket?  Otherwise PMIx, or the means of a workload.
 */
bool tern_run_attempt_uses_rendezvous(const struct tern_run_attempt *a);

/* `a` has o, place, recipe_text, kind, old_mask and command.  -1: nothing is recorded or held.
 */
int tern_run_attempt_begin(struct tern_run_attempt *a, struct tern_err *err);

/* Start the ranks and watch them.  *result: how they ended, also when they could not be started. -1
 * only when the attempt's own means fail. */
int tern_run_attempt_launch(struct tern_run_attempt *a, struct tern_run_result *result,
                            struct tern_err *err);

/* Announce and record that its nodes have changed since the begin. */
int tern_run_attempt_moved(struct tern_run_attempt *a, struct tern_err *err);

/* Record in the ledger how it ended. */
void tern_run_attempt_end_row(struct tern_run_attempt *a, const struct tern_run_result *result);

/* Release lease and spool, and fold the ledger. */
void tern_run_attempt_end(struct tern_run_attempt *a);

/* An event of the attempt, into ledger and log. */
void tern_run_attempt_add_event(struct tern_run_attempt *a, const char *kind, const char *severity,
                                const char *node, const char *text);

#endif
