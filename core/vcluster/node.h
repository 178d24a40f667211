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
 * Every node has its own munged.  A munged that sees a credential twice takes it for a replay, and
 * Slurm sends one credential to all nodes of a step.  Only a Slurm built with
 * --enable-multiple-slurmd accepts replays. */
pid_t tern_vcluster_node_start_munged(const struct tern_vcluster_plan *p, const char *socket,
                                      const char *log, struct tern_err *err);

/* Node `i` (from 0) in namespaces of its own.  Its process mounts what it needs, runs munged, waits
 * for the end of `go`, sets up its network and runs slurmd.  An error before that is written to
 * `trouble`.  The pid, or -1. */
pid_t tern_vcluster_node_start(const struct tern_vcluster_plan *p, size_t i, int go, int trouble,
                               struct tern_err *err);

/* In plain mode: slurmd of node `i`. */
int tern_vcluster_node_start_plain(struct tern_vcluster_plan *p, size_t i, struct tern_err *err);

/* A running cluster's node `i`: its power is cut, or it boots.  TERN_USAGE when it is off, or on,
 * already; TERN_TEMPFAIL with EC2's code when there is no capacity for it. */
int tern_vcluster_node_power_off(struct tern_vcluster_plan *p, size_t i, struct tern_err *err);
int tern_vcluster_node_power_on(struct tern_vcluster_plan *p, size_t i, struct tern_err *err);
/* Its first process has ended. */
void tern_vcluster_node_is_off(struct tern_vcluster_plan_node *n);

/* A fork into the namespaces of `flags` (clone(2)); as fork(2). */
pid_t tern_vcluster_node_clone(int flags);

#endif
