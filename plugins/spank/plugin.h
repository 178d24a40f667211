/* tern's SPANK plugin: `--tern=RECIPE` for sbatch, salloc, srun and #SBATCH lines.
 *
 *   file          runs in            as    does
 *   tern_spank.c  all                      sends each hook to its context; registers the option
 *   client.c      sbatch salloc srun user  checks the recipe, refuses, hands its path to the job
 *   check.c       the same           user  runs `tern run --check`
 *   remote.c      slurmstepd, task   both  receipt and recipe for the task; notes its end
 *
 * Hooks return 0 or -1 only (newer Slurms take any other value as an error).  It is shipped as
 * `optional` in plugstack.conf, where a hook's failure is ignored, and that is wanted: a broken
 * plugin must not drain nodes.  Only an option's callback still refuses then, so that is where the
 * recipe is checked; and the trainer asks for the receipt, so that a node without the plugin is
 * noticed.  In slurmd and in prolog and epilog there is nothing of it.
 *
 *     optional /usr/local/lib/slurm/tern_spank.so tern=/usr/local/bin/tern
 */
#ifndef TERN_SPANK_PLUGIN_H
#define TERN_SPANK_PLUGIN_H

#include <stdint.h>

/* The hooks are declared there, and they are what this library shows (exports.map). */
#pragma GCC visibility push(default)
#include <slurm/spank.h>
#pragma GCC visibility pop

/* Path names in messages and in the job's environment; PATH_MAX with its NUL. */
enum { TERN_SPANK_PATH = 4096 };

/* The option's callback on the submitting side: 0, or -1 after saying why not.  `program` is the
 * tern that checks: plugstack.conf's "tern=PATH", else "tern", which PATH then finds. */
int tern_spank_client_option(const char *program, const char *value);
/* Once all options are read: hands the recipe's absolute path to the job. */
int tern_spank_client_ready(spank_t sp);

/* Run `<program> run --check <recipe>` for at most 20 s.  0, or -1 after saying what it said. */
int tern_spank_check(const char *program, const char *recipe);

/* The option arrived on the node. */
void tern_spank_remote_option(void);
int tern_spank_remote_task_init(spank_t sp, struct spank_option *option);
int tern_spank_remote_task_exit(spank_t sp);

#endif
