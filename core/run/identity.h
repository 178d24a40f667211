/* Which run an attempt belongs to, and its number in it. */
#ifndef TERN_RUN_IDENTITY_H
#define TERN_RUN_IDENTITY_H

#include "core/run/attempt.h"

/* Fill id, number, resumed and resumed_step of `a`, and take the lease on checkpoint.dir, which a
 * child renews from then on (heartbeat.h).  A workload without checkpoint.dir is identified by the
 * job's comment.  Fails when the recipe is of another run than the checkpoint. */
int tern_run_identify(struct tern_run_attempt *a, struct tern_err *err);

enum { TERN_RUN_IDS = 16 }; /* in a job's Comment; a job of more runs forgets the oldest */

/* The job's Comment `text` with the run in front, then other runs of the job, then the user's
 * words; malloc'ed. */
char *tern_run_comment_with(const char *text, const char *id);
/* Which run of the Comment is this attempt's?  It is the one of the same name and recipe file that
 * has no living attempt here, else one that has no attempt yet.  a->id stays when there is none. */
int tern_run_comment_choose(struct tern_run_attempt *a, const char *text, struct tern_err *err);

/* Put the run's id into the job's Comment, so that squeue finds it (and sacct, where slurm.conf has
 * AccountingStoreFlags=job_comment).  Compare the job's time limit with the run's pace, and log a
 * run that will not reach its end. */
void tern_run_identify_job(const struct tern_run_attempt *a);

#endif
