/* Processes of a node, stopped and continued: those that were stopped before (by Slurm's suspend,
 * by their user) stay so. */
#ifndef TERN_VCLUSTER_STOP_H
#define TERN_VCLUSTER_STOP_H

#include "core/base/err.h"

/* Which processes have been stopped here.  In memory that children share, so that it outlives the
 * one that stopped them. */
struct tern_vcluster_stop;

/* Empty; for the life of the caller and its children.  NULL with `err`. */
struct tern_vcluster_stop *tern_vcluster_stop_new(struct tern_err *err);

/* Forget them: their node has ended. */
void tern_vcluster_stop_forget(struct tern_vcluster_stop *s);

/* In a node's PID and mount namespaces: stop all processes that run, but the first one and this
 * one, and write them down. */
int tern_vcluster_stop_all(struct tern_vcluster_stop *s, struct tern_err *err);
/* In a node's PID namespace: those that are written down go on.  The list is empty again. */
void tern_vcluster_stop_end(struct tern_vcluster_stop *s);

#endif
