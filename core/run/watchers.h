/* Processes on other nodes that notice the death of this one.
 *
 * A job with spare nodes (launch.spares) is submitted with --no-kill.  When the node of its batch
 * script dies, Slurm leaves it RUNNING with nothing in it.  So a small step beside the ranks' runs
 * `tern orphan --watch` on a few of the job's other nodes, spares included.  It lasts from the
 * first attempt to the last.  It depends neither on the launcher of the ranks nor on their
 * container, nor on whether an attempt uses more than one node.
 *
 * Without spares Slurm itself ends the job, after SlurmdTimeout.  Ranks on other nodes are faster
 * (core/task/beacon.h).  Where they cannot watch, under mpirun and in a container, this step does.
 */
#ifndef TERN_RUN_WATCHERS_H
#define TERN_RUN_WATCHERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/place/place.h"

/* The name of the step begins with this. */
#define TERN_RUN_WATCHERS_STEP "tern-watch"

enum { TERN_RUN_WATCHERS = 4 };

/* Start the child that keeps the step and answers its queries.  It ends with this process.  0:
 * there is none, which is logged.  Or none is needed: the ranks watch and there are no spares, or
 * this is no node of a job. */
pid_t tern_run_watchers_start(const struct tern_place *job, int64_t spares, bool ranks_watch);
/* End child and step; *child becomes 0. */
void tern_run_watchers_stop(pid_t *child);

/* Which of `n` hosts watch, spread over them: their indices in ret_which; returns how many.  The
 * one called `self` does not. */
size_t tern_run_watchers_choose(char *const *hosts, size_t n, const char *self,
                                size_t ret_which[TERN_RUN_WATCHERS]);

#endif
