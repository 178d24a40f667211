/* Ranks whose supervisor is gone, and with it perhaps its whole node.
 *
 * Slurm declares a node down when it has been silent for SlurmdTimeout (300 s by default), and then
 * ends what the job has on other nodes: by then it is late to ask for anything.  A job submitted
 * with --no-kill is not even ended.  So as soon as the node of the batch script does not answer,
 * the job is queued again from here: the first node of the others that still runs asks for it.
 * Slurm frees the job when it has given up that node itself, SlurmdTimeout later; for SlurmUser and
 * root the node is set DOWN, and the job begins anew at once.
 */
#ifndef TERN_RUN_ORPHAN_H
#define TERN_RUN_ORPHAN_H

#include "core/base/err.h"

/* Seconds without an answer of the supervisor's, after which it is asked for. */
enum { TERN_RUN_ORPHAN_AFTER_S = 5 };

/* Of a rank's node, with the environment of a rank.  Returns within a minute: 0 when the supervisor
 * or its node answers, or the job has been queued again or has ended; -1 when nothing can be found
 * out from here.  Who still misses the supervisor after it asks again. */
int tern_run_orphan(struct tern_err *err);

#endif
