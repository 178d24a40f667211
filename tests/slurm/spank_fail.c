/* A SPANK plugin that fails where its arguments say, for spank-matrix.sh.
 *
 *     required|optional spank_fail.so hook=HOOK ctx=CONTEXT [node=NAME]
 *
 * HOOK is a hook's name without "slurm_spank_", CONTEXT one of local, allocator, remote, slurmd,
 * script; with node= only there.  Before it fails it says "spank_fail: HOOK CONTEXT". */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(spank_fail, 1)

static const char *context(void)
{
    switch (spank_context()) {
    case S_CTX_LOCAL:
        return "local";
    case S_CTX_ALLOCATOR:
        return "allocator";
    case S_CTX_REMOTE:
        return "remote";
    case S_CTX_SLURMD:
        return "slurmd";
    case S_CTX_JOB_SCRIPT:
        return "script";
    default:
        return "none";
    }
}

static const char *argument(int ac, char **av, const char *key)
{
    size_t n = strlen(key);

    for (int i = 0; i < ac; i++)
        if (strncmp(av[i], key, n) == 0 && av[i][n] == '=')
            return av[i] + n + 1;
    return "";
}

static int hook(const char *name, int ac, char **av)
{
    const char *node = argument(ac, av, "node");
    char host[256] = "";

    gethostname(host, sizeof host - 1);
    if (strcmp(argument(ac, av, "hook"), name) != 0 ||
        strcmp(argument(ac, av, "ctx"), context()) != 0 || (*node && strcmp(node, host) != 0))
        return 0;
    slurm_error("spank_fail: %s %s", name, context());
    return -1;
}

#define HOOK(name)                                                                                 \
    int slurm_spank_##name(spank_t sp, int ac, char **av)                                          \
    {                                                                                              \
        (void)sp;                                                                                  \
        return hook(#name, ac, av);                                                                \
    }

HOOK(init)
HOOK(init_post_opt)
HOOK(local_user_init)
HOOK(user_init)
HOOK(task_init_privileged)
HOOK(task_init)
HOOK(task_post_fork)
HOOK(task_exit)
HOOK(exit)
HOOK(job_prolog)
HOOK(job_epilog)
HOOK(slurmd_exit)
