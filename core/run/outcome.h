/* What became of an attempt, from what was seen of its end. */
#ifndef TERN_RUN_OUTCOME_H
#define TERN_RUN_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "core/run/run.h"

/* What is known when the ranks are gone. */
struct tern_run_facts {
    int status;           /* wait(2)'s of srun, or of the first rank that did not end well */
    int rank;             /* that rank; -1 when unknown, as under srun */
    int asked;            /* the last signal passed on to the ranks; 0 for none */
    const char *job_word; /* Slurm's name of the job's state; NULL outside Slurm */
    char lost_node[256];  /* a node of the job that is down; "" for none */
    int64_t steps;        /* that tern's own trainer was to make; 0 for a workload */
    int64_t newest;       /* step of the newest verified checkpoint; -1 for none */
    char ended[300]; /* why the run is done with that one before its last step; "": it is not */
    bool srun_hang;  /* srun had to be ended after its step (srun_hang.h): `status` says nothing */
    /* Rank 0's words, "" for none: why it could not go on; after a good end, why the run was over
     * with the checkpoint that it began from. */
    char said[300];
    int64_t resumed;  /* that checkpoint's step; -1 for none */
    char memory[500]; /* who was killed for memory, and where; "": nobody */
};

/* Fills outcome, status and why of `result`; *sig is the signal that ended the ranks, 0 for none.
 *
 * The trainer's own statuses hold (0, 2, 75, 76, 77), except that 0 must be borne out by a
 * checkpoint of the last step, since srun also says 0 after losing tasks.  A signal or a lost node
 * is a reason outside the run: 75, and so is an srun that took its ranks' status with it, unless
 * the checkpoint tells that they were done.  Any other status of a workload is passed on. */
void tern_run_judge(const struct tern_run_facts *f, struct tern_run_result *result, int *sig);

#endif
