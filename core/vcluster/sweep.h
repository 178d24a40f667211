/* What a plain cluster's supervisor leaves behind when it is killed: the daemons end with it, the
 * steps and the processes of jobs do not. */
#ifndef TERN_VCLUSTER_SWEEP_H
#define TERN_VCLUSTER_SWEEP_H

#include "core/base/err.h"

/* The variable of the daemons of a plain cluster, and of the steps that they start: its folder. */
#define TERN_VCLUSTER_SWEEP_MARK "TERN_CLUSTER_DAEMON"

/* Kill the caller's processes that belong to the plain cluster of `dir`, whose supervisor has
 * ended.  They are those with the mark, tasks of its jobs, and descendants of either.  A user's
 * shell that only has the cluster's SLURM_CONF is left alone, and so are the caller and its
 * parents.  -1 when one does not end within 10 s. */
int tern_vcluster_sweep(const char *dir, struct tern_err *err);

#endif
