/* Processes of the cluster: a node's first one, and Slurm's daemons. */
#ifndef TERN_VCLUSTER_NODE_H
#define TERN_VCLUSTER_NODE_H

#include "core/vcluster/plan.h"

/* Run argv[0] with a plain environment, stdin and stdout from and to nowhere, stderr as it is.  It
 * dies with its parent.  The pid, or -1. */
pid_t tern_vcluster_node_spawn(const struct tern_vcluster_plan *p, char *const *argv,
                               struct tern_err *err);

/* munged at `socket`, whose folder also gets its other files; `log` is a name in the cluster's log
 * folder.  The pid, or -1.
 *
 * Every node has its own munged: a munged that sees a credential twice takes it for a replay, and
 * Slurm sends one credential to all nodes of a step.  Only a Slurm built with
 * --enable-multiple-slurmd accepts replays. */
pid_t tern_vcluster_node_start_munged(const struct tern_vcluster_plan *p, const char *socket,
                                      const char *log, struct tern_err *err);

/* Node `i` (from 0) in namespaces of its own.  Its process mounts what it needs, runs munged, waits
 * for the end of `go`, sets up its network and runs slurmd.  An error before that is written to
 * `trouble`.  The pid, or -1. */
pid_t tern_vcluster_node_start(const struct tern_vcluster_plan *p, size_t i, int go, int trouble,
                               struct tern_err *err);

/* A fork into the namespaces of `flags` (clone(2)); as fork(2). */
pid_t tern_vcluster_node_clone(int flags);

#endif
