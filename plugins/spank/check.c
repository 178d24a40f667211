/* `tern run --check RECIPE` and `tern env --profile NAME`, run as the user. */
#include "plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    LIMIT_MS = 20000,       /* a check takes 50 ms; a shared file system that hangs, for ever */
    PROFILE_LIMIT_MS = 2000 /* only a typing mistake is looked for */
};

/* Before each error of `tern run`. */
static const char own_error[] = "tern run: error: ";

/* Does a line of what it said begin as an error does: of `tern run` or of the child itself?  It is
 * looked for where its status is not known. */
static bool refused(const char *said)
{
    for (const char *line = said; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, own_error, sizeof own_error - 1) == 0 || strncmp(line, "error: ", 7) == 0)
            return true;
    }
    return false;
}

int tern_spank_check(const char *program, const char *recipe, const struct tern_spank_step *step)
{
    char n[16], t[16], id[32];
    const char *argv[12] = {program, "run", "--check"};
    int a = 3;
    struct tern_spank_child c = {
        .program = program, .argv = (char *const *)argv, .limit_ms = LIMIT_MS};

    if (step) {
        snprintf(n, sizeof n, "%u", step->nodes);
        snprintf(t, sizeof t, "%u", step->tasks);
        snprintf(id, sizeof id, "%u.%u", step->job, step->step);
        argv[a++] = "--nodes", argv[a++] = n, argv[a++] = "--ntasks", argv[a++] = t;
        argv[a++] = "--step", argv[a++] = id;
    }
    argv[a++] = "--", argv[a] = recipe;
    /* Slurm does not show a plugin the job's partition. */
    setenv("TERN_ANY_PARTITION", "1", 1);
    int rc = tern_spank_child(&c);
    unsetenv("TERN_ANY_PARTITION");
    if (rc < 0) {
        slurm_error("tern: cannot check %s: %s", recipe, strerror(errno));
        return -1;
    }
    if (c.late) {
        slurm_error("tern: checking %s took more than %d s. Is its file system up?", recipe,
                    LIMIT_MS / 1000);
        return -1;
    }
    if (WIFSIGNALED(c.status))
        slurm_error("tern: '%s run --check %s' ended by signal %d", program, recipe,
                    WTERMSIG(c.status));
    /* A tern older than this plugin has no such option. */
    if (step &&
        (strstr(c.said, "--nodes: no such option") || strstr(c.said, "--step: no such option")))
        return 0;
    else if (c.status != 0 && !c.said[0])
        slurm_error("tern: '%s run --check %s' ended with %d and printed nothing", program, recipe,
                    WEXITSTATUS(c.status));
    bool no = c.unseen ? refused(c.said) : c.status != 0;
    tern_spank_repeat(c.said, own_error);
    return no ? -1 : 0;
}

int tern_spank_check_profile(const char *program, const char *profile)
{
    const char *argv[] = {program, "env", "--profile", profile, "--export0", NULL};
    struct tern_spank_child c = {
        .program = program, .argv = (char *const *)argv, .limit_ms = PROFILE_LIMIT_MS};

    /* Any other trouble may be this machine's alone: the node decides. */
    if (tern_spank_child(&c) < 0 || c.late || !WIFEXITED(c.status) || WEXITSTATUS(c.status) != 2)
        return 0;
    tern_spank_repeat(c.said, "tern env: error: ");
    return -1;
}
