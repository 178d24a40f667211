#include "core/vcluster/refused.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A number below /proc/sys; -1 when there is no such file. */
static int setting(const char *name)
{
    char *path = tern_strf("/proc/sys/%s", name);
    FILE *f = fopen(path, "re");
    int value = -1;

    if (f && fscanf(f, "%d", &value) != 1)
        value = -1;
    if (f)
        fclose(f);
    free(path);
    return value;
}

static void add(char *to, size_t size, const char *sentence)
{
    size_t n = strlen(to);

    snprintf(to + n, size - n, " %s", sentence);
}

void tern_vcluster_refused_explain(char *to, size_t size)
{
    *to = '\0';
    if (geteuid() != 0) {
        /* Ubuntu from 23.10 on: they are made, and have no rights inside. */
        if (setting("kernel/apparmor_restrict_unprivileged_userns") == 1)
            add(to, size,
                "AppArmor restricts user namespaces: install tern's package, which has a profile "
                "for it, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0.");
        if (setting("kernel/unprivileged_userns_clone") == 0)
            add(to, size,
                "This kernel keeps user namespaces from users: sysctl -w "
                "kernel.unprivileged_userns_clone=1.");
        if (setting("user/max_user_namespaces") == 0)
            add(to, size,
                "User namespaces are switched off: sysctl -w user.max_user_namespaces=10000.");
    }
    if (tern_fs_exists("/.dockerenv") || tern_fs_exists("/run/.containerenv") ||
        getenv("container"))
        add(to, size,
            "This is a container: it may when it is started with --cap-add=SYS_ADMIN "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined.");
}
