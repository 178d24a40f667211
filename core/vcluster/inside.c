/* Seen from inside: a node of a virtual cluster, or its head. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/vcluster/rootfs.h"
#include "core/vcluster/vcluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static bool has_socket(const char *dir)
{
    char *ctl = tern_strf("%s/ctl", dir);
    struct stat st;
    bool is = stat(ctl, &st) == 0 && S_ISSOCK(st.st_mode);

    free(ctl);
    return is;
}

const char *tern_vcluster_local_folder(void)
{
    static char beside[1024];
    const char *conf = getenv("SLURM_CONF");

    if (has_socket(TERN_VCLUSTER_ROOT_STATE))
        return TERN_VCLUSTER_ROOT_STATE;
    if (!conf || !*conf)
        return NULL;
    /* Plain mode has no /run of its own: the state is what slurm.conf lies in. */
    char *etc = tern_fs_dirname(conf), *top = tern_fs_dirname(etc);
    int n = snprintf(beside, sizeof beside, "%s", top);
    free(top);
    free(etc);
    return n < (int)sizeof beside && has_socket(beside) ? beside : NULL;
}
