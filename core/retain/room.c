#include "core/retain/room.h"

#include "core/base/again.h"
#include "core/base/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

int tern_retain_room_check(const char *to, uint64_t bytes, struct tern_err *err)
{
    char *dir = tern_fs_dirname(to);
    struct statvfs fs;
    int rc;

    while ((rc = TERN_AGAIN(statvfs(dir, &fs))) < 0 && errno == ENOENT && strcmp(dir, "/") != 0 &&
           strcmp(dir, ".") != 0) {
        char *up = tern_fs_dirname(dir);
        free(dir);
        dir = up;
    }
    free(dir);
    /* A file system without counts gives 0 blocks. */
    if (rc < 0 || fs.f_blocks == 0 || bytes / fs.f_frsize < fs.f_bavail)
        return 0;
    errno = ENOSPC;
    return tern_err_sys(err, "%s: takes %.1f MiB, and %.1f are free", to, (double)bytes / 0x1p20,
                        (double)fs.f_bavail * (double)fs.f_frsize / 0x1p20);
}
