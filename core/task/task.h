/* tern-task: the process between a step and one rank's program.
 *
 * The program is a child; its stdin is inherited, its stdout and stderr are pipes.  Its output is
 * passed on unchanged and at once, and kept in the rank's log (core/logs/logs.h); values in it go
 * to the ledger (core/intake/intake.h).  Neither waits for storage: a thread of its own writes
 * (feed.h).
 *
 * Signals: slurmstepd, orted and the supervisor signal all processes of a rank or its process
 * group, in which the program stays.  So the program gets a signal once, directly; tern-task gets
 * it, too, and ignores it.  When tern-task is killed, the program is killed, too.
 */
#ifndef TERN_TASK_TASK_H
#define TERN_TASK_TASK_H

#include <stdint.h>

#include "core/base/err.h"
#include "core/recipe/recipe.h"

/* Set, in this process's environment, where the logs of an attempt's tasks go (TERN_RUN_LOGS) and
 * where values come from (TERN_RUN_METRICS).  From then on the messages of this process are kept,
 * too, as the log "run" beside theirs. */
void tern_task_export(const struct tern_recipe *r, const char *run_id, unsigned attempt);

/* The rank of this process from the variables of its launcher (Open MPI, PMIx, Slurm, in this
 * order); 0 when there are none. */
int64_t tern_task_rank(void);

struct tern_env_facts; /* core/env/env.h */

/* Before the program starts: set the variables that its node and its place among the node's ranks
 * need.  `look` adds facts of the node: tern_env_facts_blas, or NULL where no library can be
 * loaded.
 */
int tern_task_set_environ(void (*look)(struct tern_env_facts *facts), struct tern_err *err);

/* Run argv[0] to its end.  Returns its exit status, 127 or 126 when it cannot be run; ends this
 * process by the same signal when one ended the program. */
int tern_task_run(char **argv);

#endif
