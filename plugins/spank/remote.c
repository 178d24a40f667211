/* slurmstepd and the task it forks.  As root, in the option's callback, only one fact is kept: that
 * the option is there.  Texts are read in task_init, which runs as the user, in the task itself. */
#include "plugin.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>

/* Of the receipt's form. */
enum { RECEIPT_VERSION = 1 };

static bool given;

void tern_spank_remote_option(void)
{
    given = true;
}

static void step_name(char to[32], spank_t sp, uint32_t *job)
{
    uint32_t step = 0;

    *job = 0;
    spank_get_item(sp, S_JOB_ID, job);
    spank_get_item(sp, S_JOB_STEPID, &step);
    /* Batch, interactive and extern steps have numbers above any step that srun makes. */
    if (step >= 0xfffffff0U)
        snprintf(to, 32, "batch");
    else
        snprintf(to, 32, "%u", step);
}

/* TERN_RECEIPT=<job>.<step>.<version>: the trainer compares it with its own job and step, so that
 * one inherited from another step does not count. */
int tern_spank_remote_task_init(spank_t sp, struct spank_option *option)
{
    char receipt[64], step[32], recipe[TERN_SPANK_PATH];
    char *value = NULL;
    uint32_t job;

    /* A batch step with --export=NONE is told of the option by its environment alone. */
    if (!given && spank_getenv(sp, "SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern", recipe,
                               sizeof recipe) == ESPANK_ENV_NOEXIST)
        return 0;
    step_name(step, sp, &job);
    snprintf(receipt, sizeof receipt, "%u.%s.%d", job, step, RECEIPT_VERSION);
    if (spank_getenv(sp, "SLURM_SPANK_TERN_RECIPE", recipe, sizeof recipe) != ESPANK_SUCCESS &&
        (spank_option_getopt(sp, option, &value) != ESPANK_SUCCESS || !value ||
         snprintf(recipe, sizeof recipe, "%s", value) >= (int)sizeof recipe)) {
        slurm_error("tern: the job carries --tern but not its recipe's path");
        return -1;
    }
    if (spank_setenv(sp, "TERN_RECIPE", recipe, 1) != ESPANK_SUCCESS ||
        spank_setenv(sp, "TERN_RECEIPT", receipt, 1) != ESPANK_SUCCESS) {
        slurm_error("tern: cannot set the task's environment");
        return -1;
    }
    return 0;
}

/* Into the node's log, for the admin who looks for a task that died without words. */
int tern_spank_remote_task_exit(spank_t sp)
{
    char step[32];
    uint32_t job, task = 0;
    int status = 0;

    if (!given || spank_get_item(sp, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS)
        return 0;
    spank_get_item(sp, S_TASK_GLOBAL_ID, &task);
    step_name(step, sp, &job);
    if (WIFSIGNALED(status))
        slurm_info("tern: job %u step %s task %u: signal %d", job, step, task, WTERMSIG(status));
    else
        slurm_info("tern: job %u step %s task %u: exit %d", job, step, task, WEXITSTATUS(status));
    return 0;
}
