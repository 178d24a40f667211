/* Judges how an attempt ended, from the facts about its end. */
#ifndef TERN_RUN_OUTCOME_H
#define TERN_RUN_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "core/run/run.h"

/* The facts when the ranks are gone. */
struct tern_run_facts {
    int status;           /* wait(2)'s of srun, or of the first rank that failed */
    int rank;             /* that rank; -1 when unknown, as under srun */
    int asked;            /* the last signal passed on to the ranks; 0 for none */
    const char *job_word; /* Slurm's name of the job's state; NULL outside Slurm */
    char lost_node[256];  /* a node of the job that is down; "" for none */
    int64_t steps;        /* of the recipe for tern's own trainer; 0 for a workload */
    int64_t newest;       /* step of the newest verified checkpoint; -1 for none */
    char ended[300]; /* why the run is done with that checkpoint before its last step; "": it is not
                      */
    bool srun_hang;  /* srun had to be ended after its step (srun_hang.h): `status` means nothing */
    /* The message of rank 0, "" for none: why it failed. After a good end it says why the run was
     * complete with the checkpoint that it resumed from. */
    char said[300];
    int64_t resumed; /* that checkpoint's step; -1 for none */
    /* Which rank was killed for memory, or ended after a process of it was, and where; "": none. */
    char memory[500];
    char frozen[500]; /* which rank was stopped, and ended for that; likewise */
};

/* Fill outcome, status and why of `result`; *sig: the signal that ended the ranks, 0: none.
 *
 * The trainer's own statuses are taken as they are (0, 2, 75, 76, 77).  But 0 needs a checkpoint of
 * the last step, since srun gives 0 after losing tasks, too.  A signal, a lost node, a frozen rank
 * or a kill for memory is a reason outside the run: 75.  The loss of the ranks' status with srun is
 * one, too, unless the checkpoint shows that they were done.  Any other status of a workload is
 * passed on. */
void tern_run_judge(const struct tern_run_facts *f, struct tern_run_result *result, int *sig);

/* Ends without ranks to judge: fill outcome, status and why of `result`.  requeue.c alone changes
 * the word later, to the reason that Slurm has. */

/* The attempt failed, with this error. */
void tern_run_outcome_failed(struct tern_run_result *result, const struct tern_err *err);
/* Signal `sig` came before the ranks were started.  `resumed`: there is a checkpoint, or a copy of
 * one, to go on from. */
void tern_run_outcome_stopped(struct tern_run_result *result, int sig, bool resumed);
/* Too few nodes passed the preflight. */
void tern_run_outcome_unfit(struct tern_run_result *result, const struct tern_err *err);
/* `lost` attempts of this job made no checkpoint, and none of its `restarts` is left. */
void tern_run_outcome_lost(struct tern_run_result *result, unsigned lost, int64_t restarts);
/* The compilation failed, as `result` has it. */
void tern_run_outcome_precompile_failed(struct tern_run_result *result);

#endif
