/* slurmstepd and the task it forks.  As root, the options' callback notes only that an option is
 * given.  Texts are read in task_init, which runs as the user, in the task. */
#include "plugin.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* As tern's programs end: bad input; a reason outside the run. */
enum { REFUSED = 2, NODE_FAILED = 75 };
/* slurm.h's SLURM_BATCH_SCRIPT. */
#define BATCH_STEP 0xfffffffbU

static bool given[TERN_SPANK_OPTIONS];

void tern_spank_remote_option(enum tern_spank_option which)
{
    given[which] = true;
}

static uint32_t step_number(spank_t sp)
{
    uint32_t step = 0;

    spank_get_item(sp, S_JOB_STEPID, &step);
    return step;
}

/* Batch, interactive and extern steps have numbers above any step that srun makes. */
static bool is_batch(uint32_t step)
{
    return step >= 0xfffffff0U;
}

static void step_name(char to[32], spank_t sp, uint32_t *job)
{
    uint32_t step = step_number(sp);

    *job = 0;
    spank_get_item(sp, S_JOB_ID, job);
    if (is_batch(step))
        snprintf(to, 32, "batch");
    else
        snprintf(to, 32, "%u", step);
}

static bool has(spank_t sp, const char *name)
{
    char none[1];

    /* ESPANK_NOSPACE when it is there and has a value. */
    return spank_getenv(sp, name, none, sizeof none) != ESPANK_ENV_NOEXIST;
}

/* A batch step with --export=NONE has the option in its environment only. */
static bool carries(spank_t sp, enum tern_spank_option which)
{
    return tern_spank_options[which].since <= TERN_SPANK_MINOR &&
           (given[which] || has(sp, tern_spank_options[which].slurm));
}

static int set(spank_t sp, const char *name, const char *value)
{
    if (spank_setenv(sp, name, value, 1) == ESPANK_SUCCESS)
        return 0;
    slurm_error("tern: cannot set %s in the task's environment", name);
    return -1;
}

/* TERN_MARKER=<job>.<step>.<major>.<minor>: see core/task/marker.h, which reads it. */
static int set_recipe_and_marker(spank_t sp)
{
    struct tern_spank_names *o = &tern_spank_options[TERN_SPANK_RECIPE];
    char marker[64], step[32], recipe[TERN_SPANK_PATH];
    char *value = NULL;
    uint32_t job;

    step_name(step, sp, &job);
    /* A job submitted by another job's step inherits that job's number and spool. */
    if (step_number(sp) == BATCH_STEP) {
        spank_unsetenv(sp, "SLURM_STEP_ID");
        spank_unsetenv(sp, "TERN_RUN_SPOOL");
    }
    snprintf(marker, sizeof marker, "%u.%s.%d.%d", job, step, TERN_SPANK_MAJOR, TERN_SPANK_MINOR);
    if (set(sp, "TERN_MARKER", marker) < 0 || set(sp, "TERN_RECEIPT", marker) < 0)
        return -1;
    if (!carries(sp, TERN_SPANK_RECIPE))
        return 0;
    if (spank_getenv(sp, o->handed, recipe, sizeof recipe) != ESPANK_SUCCESS &&
        (spank_option_getopt(sp, &o->o, &value) != ESPANK_SUCCESS || !value ||
         snprintf(recipe, sizeof recipe, "%s", value) >= (int)sizeof recipe)) {
        slurm_error("tern: the job carries --tern but not its recipe's path");
        return -1;
    }
    return set(sp, o->variable, recipe);
}

/* An option of the step, else of the job; "" when it was not given. */
static int read_value(char to[TERN_SPANK_VALUE], spank_t sp, enum tern_spank_option which)
{
    struct tern_spank_names *o = &tern_spank_options[which];
    char text[128];
    char *value = NULL;

    to[0] = '\0';
    if (!carries(sp, which))
        return 0;
    if (spank_option_getopt(sp, &o->o, &value) != ESPANK_SUCCESS || !value)
        value = spank_getenv(sp, o->slurm, text, sizeof text) == ESPANK_SUCCESS ? text : "";
    if (tern_spank_value(to, which, value))
        return 0;
    slurm_error("tern: %s: the value that arrived on this node is not %s", o->option,
                tern_spank_allowed(which));
    return -1;
}

/* `tern run` sets the profile for its ranks itself.  It starts in the batch step of a job with a
 * recipe, and has set it for its own steps.  In all other tasks the plugin sets it. */
static bool profile_is_ours(spank_t sp)
{
    if (has(sp, "TERN_RUN_SPOOL"))
        return false;
    return !is_batch(step_number(sp)) || !carries(sp, TERN_SPANK_RECIPE);
}

static int hand_over(spank_t sp, const struct tern_spank_config *c)
{
    char values[TERN_SPANK_OPTIONS][TERN_SPANK_VALUE];

    if (set_recipe_and_marker(sp) < 0)
        return -1;
    for (int i = TERN_SPANK_RECIPE + 1; i < TERN_SPANK_OPTIONS; i++)
        if (read_value(values[i], sp, i) < 0 ||
            (values[i][0] && set(sp, tern_spank_options[i].variable, values[i]) < 0))
            return -1;
    if (values[TERN_SPANK_PROFILE][0] && profile_is_ours(sp))
        return tern_spank_profile(sp, c->program, values[TERN_SPANK_PROFILE]);
    return 0;
}

/* Slurm leaves PATH to the job, whose login may not know this Slurm. */
static void find_slurm(spank_t sp, const struct tern_spank_config *c)
{
    char path[TERN_SPANK_PATH], more[2 * TERN_SPANK_PATH];
    size_t n = c->bin ? strlen(c->bin) : 0;

    if (c->conf && !has(sp, "SLURM_CONF"))
        set(sp, "SLURM_CONF", c->conf);
    if (!n || n >= TERN_SPANK_PATH)
        return;
    if (!has(sp, "PATH"))
        snprintf(path, sizeof path, "/usr/local/bin:/usr/bin:/bin"); /* a shell's own */
    else if (spank_getenv(sp, "PATH", path, sizeof path) != ESPANK_SUCCESS)
        return;
    for (const char *at = path; (at = strstr(at, c->bin)); at += n)
        if ((at == path || at[-1] == ':') && (at[n] == ':' || !at[n]))
            return; /* it is there, where the user wants it */
    snprintf(more, sizeof more, "%s:%s", c->bin, path);
    set(sp, "PATH", more);
}

int tern_spank_remote_task_init(spank_t sp, const struct tern_spank_config *c)
{
    bool any = false;

    find_slurm(sp, c);
    for (int i = 0; i < TERN_SPANK_OPTIONS; i++)
        any = any || carries(sp, i);
    if (!any)
        return 0;
    if (has(sp, "SLURM_SPANK_TERN_REFUSED")) {
        int task = 0;
        spank_get_item(sp, S_TASK_ID, &task);
        if (task == 0) /* one line a node */
            slurm_error("tern: srun has refused this step: see its error");
        return REFUSED;
    }
    return hand_over(sp, c) < 0 ? NODE_FAILED : 0;
}

/* Into the node's log, for an admin who looks for a task that died without a message. */
int tern_spank_remote_task_exit(spank_t sp)
{
    char step[32];
    uint32_t job, task = 0;
    int status = 0;

    if (!given[TERN_SPANK_RECIPE] ||
        spank_get_item(sp, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS)
        return 0;
    spank_get_item(sp, S_TASK_GLOBAL_ID, &task);
    step_name(step, sp, &job);
    if (WIFSIGNALED(status))
        slurm_info("tern: job %u step %s task %u: signal %d", job, step, task, WTERMSIG(status));
    else
        slurm_info("tern: job %u step %s task %u: exit %d", job, step, task, WEXITSTATUS(status));
    return 0;
}
