/* Ranks whose supervisor is gone, and with it perhaps its whole node.
 *
 * Slurm declares a node down when it has been silent for SlurmdTimeout (300 s by default, and up to
 * a third more), and then queues its jobs again, to begin when their credentials have run out
 * (cred_expire: 120 s).  A job submitted with --no-kill, which has spare nodes, it keeps, with
 * nothing in it.  So ranks on other nodes do, when the node of the batch script does not answer:
 *
 *   root, SlurmUser   queue the job again, and set the node DOWN: it need not be waited for
 *   others            wait until Slurm has given up the node; then queue a job of spares again
 *
 * and, once the job is queued, let it begin as soon as Slurm can have let go of its nodes.  A job
 * of spares that may not be queued again is ended.
 */
#ifndef TERN_RUN_ORPHAN_H
#define TERN_RUN_ORPHAN_H

#include "core/base/err.h"

/* Of a rank's node, with the environment of a rank.  Returns 0 when the supervisor
 * or its node answers, or the job has been queued again or has ended; -1 when nothing can be found
 * out from here.  Who still misses the supervisor after it asks again. */
int tern_run_orphan(struct tern_err *err);

#endif
