/* An srun that stays when its ranks have gone, or that waits before they come.
 *
 * Where a slurmstepd was killed, the step stays in the controller's books and srun waits for ever;
 * but the ranks' programs go on without it, and their logs tell when the last of them has ended.
 *
 * The threads of srun's PMIx plugin (Slurm 22.05; seen once in 4 to 40 times with steps of a
 * heterogeneous job) may wait for each other for ever once the step is over, and the job would hold
 * its nodes until its time limit.  So the controller is asked now and then whether the step is
 * still there: by a child, as a controller that does not answer must hold up neither signals nor
 * heartbeats.
 *
 * The step of a job with spare nodes outlives a node, so that the others' ranks can have the job
 * queued again when it is the supervisor's (orphan.h).  When it is another one, what is left of the
 * step is ended from here.
 *
 * The same look tells of an srun whose step is not there yet: other steps have the nodes, or they
 * are still being made ready.
 */
#ifndef TERN_RUN_SRUN_HANG_H
#define TERN_RUN_SRUN_HANG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/run/launch.h"

/* Seconds between two looks, and looks in a row that find no step: srun gets this long to write
 * what it still holds. */
enum { TERN_RUN_SRUN_HANG_LOOK_S = 10, TERN_RUN_SRUN_HANG_LOOKS = 3 };
/* Seconds without a step after which that is told, and again every so many. */
enum { TERN_RUN_SRUN_HANG_WAITS_S = 3, TERN_RUN_SRUN_HANG_WAITS_AGAIN_S = 300 };

struct tern_run_srun_hang {
    char *logs;   /* the attempt's (tern_logs_dir), malloc'ed: a rank's tells that it began */
    size_t ranks; /* that have logs */
    /* The attempt's in Slurm's notation, where the step outlives one of them (launch.spares), else
     * NULL; borrowed. */
    const char *nodes;
    bool lost;  /* the job has given up one of them, and the ranks were ended */
    bool ended; /* result: srun had to be ended, and with it went what it knew of its ranks */
    bool known; /* result: but their logs tell `status`, wait(2)'s of the first that failed, else 0
                 */
    int status;
    unsigned over; /* looks in a row that found every rank ended */
    pid_t pid;     /* who asks; 0: nobody */
    int64_t next;  /* look, on the boot clock */
    int64_t tell;  /* from then on a look tells that no step is there; likewise */
    bool began;    /* the step was seen; before that srun may be waiting for its nodes */
    unsigned gone; /* looks in a row */
};

/* When it is time: look, and end an srun that has stayed too long. */
void tern_run_srun_hang_tick(struct tern_run_srun_hang *s, const struct tern_run_ranks *r);
/* A child was waited for.  True when it was the one who asks. */
bool tern_run_srun_hang_reaped(struct tern_run_srun_hang *s, struct tern_run_ranks *r, pid_t pid,
                               int status);
/* Ends who asks. */
void tern_run_srun_hang_free(struct tern_run_srun_hang *s);

#endif
