/* Queues the job again when Slurm ended an attempt (orphan.c does when the supervisor's node died,
 * run.c when too few nodes are good). It also records the end of earlier attempts that could not
 * record it themselves. */
#ifndef TERN_RUN_REQUEUE_H
#define TERN_RUN_REQUEUE_H

#include "core/run/attempt.h"

/* Warn, before a job's first attempt, when Slurm would empty the output file as it queues the job
 * again. */
void tern_run_requeue_check_output(const struct tern_place *place);

/* Called when the ranks have ended.  This process or Slurm may have stopped them for the job's time
 * limit, a preemption or a reservation that takes its nodes.  Then set result->outcome and why to
 * that. Then queue the job again, if Slurm allows it, the recipe allows it (launch.at_time_limit)
 * and this attempt left a checkpoint. After a preemption, or for a maintenance, it needs no
 * checkpoint. When this process stopped the ranks and the job has much time left now, set
 * a->goes_on instead. For any other end do nothing. */
void tern_run_requeue_if_ended_by_slurm(struct tern_run_attempt *a, struct tern_run_result *result);

/* Is it an attempt of this job that is still at work beside this one?  Its process is looked for on
 * this host; on another one, its heartbeat counts. */
bool tern_run_lives(const struct tern_run_attempt *a, const struct tern_ledger_attempt *other);

/* When an earlier attempt has no end in the ledger, its supervisor was lost, with its node or
 * without.  Record its end: node_fail, requeued or killed, with the cause.  One
 * that lives is left alone. */
void tern_run_close_earlier(const struct tern_run_attempt *a);

/* The cause of such an end begins with this; the attempt uses up a restart. */
#define TERN_RUN_GONE "its tern run is gone"

#endif
