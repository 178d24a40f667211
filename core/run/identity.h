/* Which run an attempt belongs to, and its number in it. */
#ifndef TERN_RUN_IDENTITY_H
#define TERN_RUN_IDENTITY_H

#include "core/run/attempt.h"

/* Fill id, number, resumed and resumed_step of `a`, and take the lease on checkpoint.dir, which a
 * child renews from then on (heartbeat.h).  A workload without checkpoint.dir is identified by the
 * job's comment.  Fails when the recipe is of another run than the checkpoint. */
int tern_run_identify(struct tern_run_attempt *a, struct tern_err *err);

/* Put the run's id into the job's Comment, so that squeue finds it (and sacct, where slurm.conf has
 * AccountingStoreFlags=job_comment).  Compare the job's time limit with the run's pace, and log a
 * run that will not reach its end. */
void tern_run_identify_job(const struct tern_run_attempt *a);

#endif
