/* A SPANK plugin with three of pyxis's options, for workload.sh: srun says what it was given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1)

enum { IMAGE, MOUNTS, WORKDIR, N };
static const char *const names[N] = {"container-image", "container-mounts", "container-workdir"};
static char *given[N];

static int take(int val, const char *arg, int remote)
{
    (void)remote;
    free(given[val]);
    given[val] = strdup(arg);
    return 0;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    for (int i = 0; i < N; i++) {
        struct spank_option o = {(char *)names[i], "X", "[pyxis_stub] taken, and told", 1, i, take};
        if (spank_option_register(sp, &o) != ESPANK_SUCCESS)
            return -1;
    }
    return 0;
}

int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    (void)sp, (void)ac, (void)av;
    if (given[IMAGE])
        slurm_spank_log("pyxis_stub: %s=%s %s=%s %s=%s ", names[IMAGE], given[IMAGE], names[MOUNTS],
                        given[MOUNTS] ? given[MOUNTS] : "", names[WORKDIR],
                        given[WORKDIR] ? given[WORKDIR] : "");
    return 0;
}
