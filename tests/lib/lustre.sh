# Sourced after tap.sh: folders with "lustre" in their name are on Lustre, for programs that $lustre
# (words before a command) starts; lfs takes every layout, and finds one stripe everywhere.
lustre_make() {
    mkdir -p lfs-bin
    cat >lfs-bin/lfs <<S
#!/bin/sh
echo "\$*" >>$WORK/asked
case \$1 in getstripe) echo 1 ;; esac
S
    chmod +x lfs-bin/lfs
    cat >statfs.c <<'C'
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
int statfs64(const char *path, struct statfs64 *to)
{
    const int rc = (int)syscall(SYS_statfs, path, to);
    const char *name = strrchr(path, '/');
    if (rc == 0 && strstr(name ? name : path, "lustre"))
        to->f_type = 0x0BD00BD0;
    return rc;
}
C
    gcc -O1 -shared -fPIC -o statfs.so statfs.c || exit 1
    lustre=(env "PATH=$WORK/lfs-bin:$PATH" "LD_PRELOAD=$WORK/statfs.so")
}
