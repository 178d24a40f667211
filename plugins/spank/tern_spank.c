/* The hooks that Slurm calls: see plugin.h. */
#include "plugin.h"

#include <stdbool.h>
#include <string.h>

#pragma GCC visibility push(default)
SPANK_PLUGIN(tern, 1)
#pragma GCC visibility pop

static const char *program = "tern"; /* lives as long as plugstack.conf's arguments */

static int on_option(int val, const char *value, int remote)
{
    (void)val;
    if (remote) {
        tern_spank_remote_option();
        return 0;
    }
    return tern_spank_client_option(program, value);
}

static struct spank_option option = {
    .name = "tern",
    .arginfo = "RECIPE",
    .usage = "check this run.yaml now, refuse the job if it cannot work, and give it to `tern run`",
    .has_arg = 1,
    .cb = on_option,
};

static void read_arguments(int ac, char **av)
{
    static const char key[] = "tern=";

    for (int i = 0; i < ac; i++) {
        if (strncmp(av[i], key, sizeof key - 1) == 0)
            program = av[i] + sizeof key - 1;
        else
            slurm_error("tern: plugstack.conf: unknown argument '%s' (allowed: tern=PATH)", av[i]);
    }
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    switch (spank_context()) {
    case S_CTX_ALLOCATOR:
    case S_CTX_LOCAL:
        read_arguments(ac, av);
        /* fall through */
    case S_CTX_REMOTE:
        return spank_option_register(sp, &option) == ESPANK_SUCCESS ? 0 : -1;
    default:
        return 0;
    }
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    switch (spank_context()) {
    case S_CTX_ALLOCATOR:
    case S_CTX_LOCAL:
        return tern_spank_client_ready(sp);
    default:
        return 0;
    }
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    return tern_spank_remote_task_init(sp, &option);
}

int slurm_spank_task_exit(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    return tern_spank_remote_task_exit(sp);
}
