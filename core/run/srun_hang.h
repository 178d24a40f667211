/* Ends an srun that stays when its ranks are gone, and reports one that waits before they start.
 *
 * When a slurmstepd was killed, the step stays in the controller's list and srun waits for ever.
 * The ranks' programs go on without it, and the messages that ranks send (core/task/beacon.h) show
 * when the last of them has ended.  Their logs show it, too, where no message gets through.  Srun
 * is ended TERN_TASK_BEACON_OVER_S later.  A rank that was killed with its slurmstepd leaves
 * neither: srun is ended when others have ended and it is silent.
 *
 * The threads of srun's PMIx plugin (Slurm 22.05) may deadlock once the step is over.  It was seen
 * once in 4 to 40 times with steps of a heterogeneous job.  The job would hold its nodes until its
 * time limit.  So a child queries the controller now and then whether the step still exists.  A
 * child, as a controller that does not answer must delay neither signals nor heartbeats.
 *
 * The step of a job with spare nodes survives a node.  When that is the supervisor's node, ranks on
 * other nodes queue the job again (orphan.h).  When it is another node, the rest of the step is
 * ended here.
 *
 * Ranks of the trainer end together.  A rank whose log does not end when those of others have may
 * be that of a stopped tern-task.  So the step is continued, which does nothing to processes that
 * run. After TERN_RUN_FROZEN_LEFT_S the step is ended.
 *
 * The same query finds an srun whose step does not exist yet: other steps have the nodes, or the
 * nodes are not ready.  Likewise an mpirun, whose daemons are such a step.
 */
#ifndef TERN_RUN_SRUN_HANG_H
#define TERN_RUN_SRUN_HANG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/run/launch.h"
#include "core/task/beacon.h"

/* Seconds between two queries, and queries in a row that find no step: srun gets this long to write
 * its buffers. */
enum { TERN_RUN_SRUN_HANG_LOOK_S = 10, TERN_RUN_SRUN_HANG_LOOKS = 3 };
/* Seconds without a step until that is logged, and until it is logged again. */
enum { TERN_RUN_SRUN_HANG_WAITS_S = 3, TERN_RUN_SRUN_HANG_WAITS_AGAIN_S = 300 };

struct tern_run_srun_hang {
    char *logs;   /* of the attempt (tern_logs_dir), malloc'ed: a rank's log shows that it began */
    size_t ranks; /* that have logs */
    /* The attempt's nodes in Slurm's notation, when the step survives one of them (launch.spares),
     * else NULL; borrowed. */
    const char *nodes;
    bool lost; /* the job has lost one of them, and the ranks were ended */
    char
        left[300]; /* result: the rank that was ended, as it had not long after all others; "": none
                    */
    bool ended;    /* result: srun had to be ended, and the ranks' status is lost with it */
    bool known; /* result: but their logs give `status`, wait(2)'s of the first that failed, else 0
                 */
    int status;
    struct tern_task_beacon *beacon; /* the ranks' signs of life; NULL: none are known */
    int64_t again_at;                /* silent ranks are judged again, on the boot clock; 0: none */
    int64_t over_at;   /* queries found that every rank has ended: when srun is, too, on the boot
                          clock; 0: none did */
    int64_t ticked;    /* the last tick, likewise */
    int64_t awake;     /* since then this process was not stopped, likewise */
    unsigned stay;     /* queries in a row that found some, all of them well, but not all */
    pid_t pid;         /* the child that queries; 0: none */
    int64_t next;      /* query, on the boot clock */
    int64_t report_at; /* from then on a missing step is logged; likewise */
    bool began;        /* the step was seen; before that srun may be waiting for its nodes */
    unsigned gone;     /* queries in a row without the step */
};

/* Query when it is time, and end an srun that has stayed too long. */
void tern_run_srun_hang_tick(struct tern_run_srun_hang *s, const struct tern_run_ranks *r);
/* Child `pid` was waited for.  True when it was the child that queries. */
bool tern_run_srun_hang_reaped(struct tern_run_srun_hang *s, struct tern_run_ranks *r, pid_t pid,
                               int status);
/* End the child. */
void tern_run_srun_hang_free(struct tern_run_srun_hang *s);

#endif
