/* sbatch, salloc and srun: everything here runs as the user, before anything is queued; the shape
 * of a step is checked once srun has it. */
#include "plugin.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char recipe[TERN_SPANK_PATH];                      /* absolute; "" without --tern */
static char values[TERN_SPANK_OPTIONS][TERN_SPANK_VALUE]; /* of the others; "" when not given */
static bool inherited; /* the recipe: checked when the job was submitted */

/* Tells task_init that srun has refused.  A hook that fails does nothing where the plugin is
 * `optional`.  Where it is `required` the step stays with its job, whose later steps then wait for
 * its nodes for ever. */
static const char refused[] = "SLURM_SPANK_TERN_REFUSED";

/* The values travel through environments, logs and terminals. */
static bool printable(const char *s)
{
    for (; *s; s++)
        if (tern_spank_control(s))
            return false;
    return true;
}

static int absolute(char to[TERN_SPANK_PATH], const char *path)
{
    char cwd[TERN_SPANK_PATH] = "";
    bool is = path[0] == '/';

    if (!is && !getcwd(cwd, sizeof cwd)) {
        slurm_error("tern: cannot determine the current folder: %s", strerror(errno));
        return -1;
    }
    if (snprintf(to, TERN_SPANK_PATH, "%s%s%s", cwd, is ? "" : "/", path) >= TERN_SPANK_PATH) {
        slurm_error("tern: --tern: the path has more than %d bytes", TERN_SPANK_PATH - 1);
        return -1;
    }
    if (!printable(to)) {
        slurm_error("tern: --tern: the current folder's name holds a control character");
        return -1;
    }
    return 0;
}

/* In a heterogeneous job srun reads environment and options once for each group of nodes. */
static bool is_het(void)
{
    return getenv("SLURM_HET_SIZE");
}

/* Inside a job that carries an option, Slurm's commands find it in their environment and call with
 * it before they read their own options. */
static bool from_job(enum tern_spank_option which, const char *value)
{
    static int calls[TERN_SPANK_OPTIONS];
    const char *option = getenv(tern_spank_options[which].slurm);

    return (calls[which]++ == 0 || is_het()) && option && strcmp(option, value) == 0;
}

/* The job's recipe was checked at submission, and its path is relative to where that was typed:
 * use the absolute path from there. */
static bool inherit(const char *value)
{
    const char *path = getenv(tern_spank_options[TERN_SPANK_RECIPE].handed);

    if (!from_job(TERN_SPANK_RECIPE, value) || !path || path[0] != '/' ||
        strlen(path) >= sizeof recipe || !printable(path))
        return false;
    snprintf(recipe, sizeof recipe, "%s", path);
    inherited = true;
    return true;
}

static int take_recipe(const char *program, const char *value)
{
    char path[TERN_SPANK_PATH];

    if (!printable(value)) {
        slurm_error("tern: --tern: the path holds a control character");
        return -1;
    }
    if (inherit(value))
        return 0;
    if (absolute(path, value) < 0)
        return -1;
    /* Slurm may call twice with the same value. */
    if (strcmp(path, recipe) != 0 && tern_spank_check(program, value, NULL) < 0)
        return -1;
    snprintf(recipe, sizeof recipe, "%s", path);
    inherited = false;
    return 0;
}

int tern_spank_client_option(const struct tern_spank_config *c, enum tern_spank_option which,
                             const char *value)
{
    char v[TERN_SPANK_VALUE];

    if (!value || !*value) {
        slurm_error("tern: %s needs %s", tern_spank_options[which].option,
                    tern_spank_allowed(which));
        return -1;
    }
    if (which == TERN_SPANK_RECIPE)
        return take_recipe(c->program, value);
    if (!tern_spank_value(v, which, value)) {
        /* The value itself is not repeated: it may hold anything. */
        slurm_error("tern: %s: not %s", tern_spank_options[which].option,
                    tern_spank_allowed(which));
        return -1;
    }
    if (which == TERN_SPANK_PROFILE && !from_job(which, value) && strcmp(v, values[which]) != 0 &&
        tern_spank_check_profile(c->program, v) < 0)
        return -1;
    snprintf(values[which], sizeof values[which], "%s", v);
    return 0;
}

/* What salloc's own shell finds, and nodes whose plugin is older.  In tasks, and with
 * --export=NONE, task_init sets the same. */
static bool set_variables(void)
{
    if (recipe[0] && setenv(tern_spank_options[TERN_SPANK_RECIPE].variable, recipe, 1) < 0)
        return false;
    for (int i = 0; i < TERN_SPANK_OPTIONS; i++)
        if (values[i][0] && setenv(tern_spank_options[i].variable, values[i], 1) < 0)
            return false;
    return true;
}

int tern_spank_client_ready(spank_t sp)
{
    const struct tern_spank_names *r = &tern_spank_options[TERN_SPANK_RECIPE];

    unsetenv(refused);
    if (!set_variables()) {
        slurm_error("tern: cannot set the environment: %s", strerror(errno));
        return -1;
    }
    if (!recipe[0])
        return 0;
    /* Arrives in the job's tasks as SLURM_SPANK_TERN_RECIPE, unlike setenv() also with
     * --export=NONE. It does not arrive in the tasks of an srun that submits the job itself, or
     * that has another recipe than the job. */
    if (spank_context() == S_CTX_LOCAL && setenv(r->handed, recipe, 1) == 0)
        return 0;
    if (spank_job_control_setenv(sp, r->control, recipe, 1) != ESPANK_SUCCESS) {
        slurm_error("tern: cannot pass the recipe's path to the job");
        return -1;
    }
    return 0;
}

/* A whole number that srun has put into its environment; 0 for none. */
static uint32_t own_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long n = text ? strtol(text, &end, 10) : 0;

    return text && !*end && n > 0 && n <= INT32_MAX ? (uint32_t)n : 0;
}

/* What srun is about to start; false where it does not say.  Of a step of several groups Slurm's
 * items tell the first group alone, and its environment the whole. */
static bool read_step(spank_t sp, struct tern_spank_step *s)
{
    if (spank_get_item(sp, S_JOB_ID, &s->job) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_STEPID, &s->step) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_NNODES, &s->nodes) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_TOTAL_TASK_COUNT, &s->tasks) != ESPANK_SUCCESS)
        return false;
    if (is_het()) {
        s->nodes = own_number("SLURM_NNODES");
        s->tasks = own_number("SLURM_NTASKS");
    }
    return s->nodes && s->tasks;
}

/* The hook runs for one group, and the others have their environments already: end their tasks as
 * they begin.  On SIGTERM srun ends the tasks that have begun by then.  So it is sent until srun
 * has ended, for 13 s at most, at ever longer intervals since srun logs each one. */
static void end_other_groups(void)
{
    enum { FIRST_MS = 50, TIMES = 8 };
    const pid_t srun = getpid();

    if (fork() != 0)
        return;
    for (int i = 0; i < TIMES; i++) {
        const int ms = FIRST_MS << i;
        const struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
        nanosleep(&pause, NULL);
        if (getppid() != srun)
            break;
        kill(srun, SIGTERM);
    }
    _exit(0);
}

/* A job's recipe does not describe the other steps of its script. Only a recipe typed for this step
 * is checked against its shape and its time; `tern run` checks its own. */
void tern_spank_client_step(spank_t sp, const struct tern_spank_config *c)
{
    struct tern_spank_step s = {0};

    if (!recipe[0] || inherited || !read_step(sp, &s) ||
        tern_spank_check(c->program, recipe, &s) == 0)
        return;
    setenv(refused, "1", 1);
    if (is_het())
        end_other_groups();
}
