/* Which of the two restarts a run on HyperPod: tern, or the platform's agent, which repeats a step
 * of `srun --auto-resume=1` after a failure.  Both at once would start the ranks twice.
 *
 *   srun --auto-resume=1 tern run     the agent repeats the step with tern run in it; tern makes
 *                                     one attempt, and its orphans (orphan.h) queue nothing again
 *   sbatch --auto-resume=1            every srun of the job inherits the option: tern takes it off
 *                                     its own, and restarts by launch.restarts.  With
 *                                     launch.restarts: 0 the ranks of a workload keep it
 *   workload.command has it           tern_check_restarts (core/check)
 */
#ifndef TERN_RUN_AUTO_RESUME_H
#define TERN_RUN_AUTO_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "core/place/place.h"

/* Log which of the two restarts this run, where there are two, and set `place->auto_resume` when it
 * is the agent.  May unset the job's option in this process's environment.  `trainer`: the ranks
 * are tern's own, whose rendezvous allows one start an attempt.  Returns the restarts that are left
 * to tern: `restarts`, or 0. */
int64_t tern_run_auto_resume(struct tern_place *place, bool trainer, int64_t restarts);

/* On HyperPod, log that tern restarts a run without the option; elsewhere log nothing. */
void tern_run_auto_resume_tell(int64_t restarts);

#endif
