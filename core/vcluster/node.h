/* Processes of the cluster: a node's first one, and Slurm's daemons. */
#ifndef TERN_VCLUSTER_NODE_H
#define TERN_VCLUSTER_NODE_H

#include "core/vcluster/plan.h"

/* Run argv[0] with a plain environment, stdin and stdout from and to nowhere, stderr as it is.  It
 * dies with its parent.  The pid, or -1. */
pid_t tern_node_spawn(const struct tern_vcluster_plan *p, char *const *argv, struct tern_err *err);

/* Node `i` (from 0) in namespaces of its own.  Its process mounts what it needs, waits for the end
 * of `go`, sets up its network and runs slurmd.  What goes wrong before that is written to
 * `trouble`.  The pid, or -1. */
pid_t tern_node_start(const struct tern_vcluster_plan *p, size_t i, int go, int trouble,
                      struct tern_err *err);

/* A fork into the namespaces of `flags` (clone(2)); as fork(2). */
pid_t tern_node_clone(int flags);

#endif
