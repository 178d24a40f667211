/* The hooks that Slurm calls: see plugin.h. */
#include "plugin.h"

#include <string.h>
#include <unistd.h>

#pragma GCC visibility push(default)
SPANK_PLUGIN(tern, 1)
#pragma GCC visibility pop

static struct tern_spank_config config = {.program = "tern"};

static int on_option(int which, const char *value, int remote)
{
    if (remote) {
        tern_spank_remote_option(which);
        return 0;
    }
    return tern_spank_client_option(&config, which, value);
}

/* Every hook gets the arguments anew; a mistake in them is logged once, on the user's side. */
static void read_arguments(int ac, char **av, bool tell)
{
    static const char program[] = "tern=";

    for (int i = 0; i < ac; i++) {
        if (strncmp(av[i], program, sizeof program - 1) == 0 && av[i][sizeof program - 1])
            config.program = av[i] + sizeof program - 1;
        else if (strcmp(av[i], "health=prolog") == 0)
            config.health_prolog = true;
        else if (strncmp(av[i], "bin=/", 5) == 0)
            config.bin = av[i] + 4;
        else if (strncmp(av[i], "conf=/", 6) == 0)
            config.conf = av[i] + 5;
        else if (tell)
            slurm_error("tern: plugstack.conf: unknown argument '%s' (allowed: tern=PATH, "
                        "health=prolog, bin=/DIR, conf=/FILE)",
                        av[i]);
    }
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    switch (spank_context()) {
    case S_CTX_ALLOCATOR:
    case S_CTX_LOCAL:
        read_arguments(ac, av, true);
        return tern_spank_options_register(sp, on_option);
    case S_CTX_REMOTE: /* a failure here would drain the node */
        tern_spank_options_register(sp, on_option);
        return 0;
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

int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    tern_spank_client_step(sp, &config);
    return 0;
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    read_arguments(ac, av, false);
    int status = tern_spank_remote_task_init(sp, &config);
    if (status) /* a hook's return value is ignored under `optional` */
        _exit(status);
    return 0;
}

int slurm_spank_task_exit(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    return tern_spank_remote_task_exit(sp);
}

int slurm_spank_job_prolog(spank_t sp, int ac, char **av)
{
    read_arguments(ac, av, false);
    return tern_spank_prolog(sp, &config);
}
