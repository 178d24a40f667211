/* sbatch, salloc and srun: everything here runs as the user, before anything is queued. */
#include "plugin.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char recipe[TERN_SPANK_PATH]; /* absolute; "" without --tern */

/* Where Slurm keeps the option's value for commands inside the job. */
static const char inherited_option[] = "SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern";
/* What tern_spank_client_ready() sets, as it looks inside the job. */
static const char inherited_recipe[] = "SLURM_SPANK_TERN_RECIPE";

/* The values travel through environments, logs and terminals. */
static bool printable(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 127)
            return false;
    return true;
}

static int absolute(char to[TERN_SPANK_PATH], const char *path)
{
    char cwd[TERN_SPANK_PATH] = "";
    bool is = path[0] == '/';

    if (!is && !getcwd(cwd, sizeof cwd)) {
        slurm_error("tern: cannot tell the current folder: %s", strerror(errno));
        return -1;
    }
    if (snprintf(to, TERN_SPANK_PATH, "%s%s%s", cwd, is ? "" : "/", path) >= TERN_SPANK_PATH) {
        slurm_error("tern: --tern: the path has more than %d bytes", TERN_SPANK_PATH - 1);
        return -1;
    }
    return 0;
}

/* Inside a job that carries --tern, Slurm's commands find the option in their environment and call
 * with it before they read their own options.  It was checked at submission, and the path is
 * relative to where that was typed: take what was made of it there. */
static bool inherit(const char *value)
{
    static int calls;
    const char *option = getenv(inherited_option), *path = getenv(inherited_recipe);

    if (calls++ > 0 || !option || strcmp(option, value) != 0 || !path || path[0] != '/' ||
        strlen(path) >= sizeof recipe || !printable(path))
        return false;
    strcpy(recipe, path);
    return true;
}

int tern_spank_client_option(const char *program, const char *value)
{
    char path[TERN_SPANK_PATH];

    if (!value || !*value) {
        slurm_error("tern: --tern needs the path of a recipe (run.yaml)");
        return -1;
    }
    if (!printable(value)) {
        slurm_error("tern: --tern: the path holds a control character");
        return -1;
    }
    if (inherit(value))
        return 0;
    if (absolute(path, value) < 0)
        return -1;
    /* Slurm may call twice with the same value. */
    if (strcmp(path, recipe) != 0 && tern_spank_check(program, value) < 0)
        return -1;
    strcpy(recipe, path);
    return 0;
}

int tern_spank_client_ready(spank_t sp)
{
    if (!recipe[0])
        return 0;
    /* Arrives in the job's tasks as SLURM_SPANK_TERN_RECIPE, unlike setenv() also with
     * --export=NONE; but not in those of the srun that asks for the job itself, or for another
     * recipe than the job's. */
    if (spank_context() == S_CTX_LOCAL && setenv(inherited_recipe, recipe, 1) == 0)
        return 0;
    if (spank_job_control_setenv(sp, "TERN_RECIPE", recipe, 1) != ESPANK_SUCCESS) {
        slurm_error("tern: cannot hand the recipe's path to the job");
        return -1;
    }
    return 0;
}
