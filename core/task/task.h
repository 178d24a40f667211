/* One rank's program, run by a process that stands between it and the step: tern-task.
 *
 * The program is a child with stdin as it is, and its stdout and stderr in pipes.  What it prints
 * is passed on unchanged and at once, and kept in the rank's log (core/logs/logs.h); values among
 * it go to the ledger (intake.h).  Neither waits for storage: a thread of its own writes (feed.h).
 *
 * Signals: whoever signals a rank (slurmstepd, orted, the supervisor) signals all its processes or
 * its process group, in which the program stays.  So it hears a signal once, directly, and
 * tern-task hears it, too, and ignores it.  When tern-task is killed, so is the program.
 */
#ifndef TERN_TASK_TASK_H
#define TERN_TASK_TASK_H

#include <stdint.h>

#include "core/base/err.h"
#include "core/recipe/recipe.h"

/* Tell the tasks of an attempt, by this process's environment, where their logs go
 * (TERN_RUN_LOGS) and where values come from (TERN_RUN_METRICS); and keep from now on what this
 * process logs as the log "run" beside theirs. */
void tern_task_export(const struct tern_recipe *r, const char *run_id, unsigned attempt);

/* This process's rank by its launcher's variables (Open MPI's, PMIx's, Slurm's in this order); 0
 * when there is none. */
int64_t tern_task_rank(void);

struct tern_env_facts; /* core/env/env.h */

/* Before the program: set what its node and its own place among the node's ranks ask for.
 * `look` adds what it knows of the node: tern_env_facts_blas, or NULL where no library can be
 * loaded. */
int tern_task_set_environ(void (*look)(struct tern_env_facts *facts), struct tern_err *err);

/* Run argv[0] to its end.  Returns its exit status, 127 or 126 when it cannot be run; ends this
 * process by the same signal when one ended the program. */
int tern_task_run(char **argv);

#endif
