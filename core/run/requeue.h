/* What goes on in another attempt of the same job: Slurm's reasons to end this one, and the truth
 * about one before it that could not tell it itself. */
#ifndef TERN_RUN_REQUEUE_H
#define TERN_RUN_REQUEUE_H

#include "core/run/attempt.h"

/* The ranks were asked to end, by this process or by Slurm itself, and did.  Where that was for the
 * job's time limit, a preemption or a reservation that takes its nodes, result->outcome and why say
 * so, and the job is queued again, if it may be, the recipe lets it (launch.at_time_limit) and this
 * attempt left a checkpoint.  Nothing of the kind: does nothing. */
void tern_run_requeue_later(struct tern_run_attempt *a, struct tern_run_result *result);

/* An attempt before this one has no end in the ledger: its supervisor was lost, with its node or
 * without, and is no more.  Write its end: node_fail, requeued or killed, with the cause. */
void tern_run_close_earlier(const struct tern_run_attempt *a);

/* With which the cause of such an end begins: it is none of those that use up no restart. */
#define TERN_RUN_GONE "its tern run is gone"

#endif
