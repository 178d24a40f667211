/* What ranks do when the supervisor, or its whole node, is gone.
 *
 * Slurm declares a node down after SlurmdTimeout of silence (300 s by default, and up to a third
 * more).  Then it queues the node's jobs again; they begin when their credentials have expired
 * (cred_expire: 120 s).  A job submitted with --no-kill, which has spare nodes, stays, empty.  So
 * ranks on other nodes act when the node of the batch script does not answer:
 *
 *   root, SlurmUser   queue the job again and set the node DOWN: no job waits for it
 *   others            wait until Slurm declares the node down; then queue a job of spares again
 *
 * Once the job is queued, they let it begin as soon as Slurm can have released its nodes.  They end
 * a job of spares that cannot be queued again.
 */
#ifndef TERN_RUN_ORPHAN_H
#define TERN_RUN_ORPHAN_H

#include "core/base/err.h"

/* Runs on a rank's node, with the environment of a rank.  Returns 0 when the supervisor or its node
 * answers, or the job has been queued again or has ended.  -1 when this cannot be found out from
 * here.  A caller that gets no answer of the supervisor afterwards calls it again. */
int tern_run_orphan(struct tern_err *err);

/* A watcher (watchers.h): query the supervisor until SIGTERM comes, and do the same in a child
 * whenever it is silent.  -1 when there is no beacon to query. */
int tern_run_orphan_watch(struct tern_err *err);

#endif
