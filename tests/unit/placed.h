/* Did a file or folder get its name when it was durable, and was the name made durable?  For unit
 * tests of what a power cut could take; the tests' own files lie below `work`. */
#ifndef TESTS_UNIT_PLACED_H
#define TESTS_UNIT_PLACED_H

#include "tests/unit/disk.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <dirent.h>
#include <stdlib.h>

static char work[] = "/tmp/tern-durable-XXXXXX";
static struct tern_err err;

static inline char *in_work(const char *name)
{
    return tern_fs_join(work, name);
}

static inline int checked(int good)
{
    if (!good)
        disk_print();
    return good;
}

/* `path` got its name by `call` from a file that was synced before; its folder was synced after. */
static inline bool placed(const char *call, const char *path)
{
    char *dir = tern_fs_dirname(path);
    int at = disk_find(0, call, path);
    bool before = at >= 0 && disk_synced(disk_events[at].path, 0, at);
    bool after = at >= 0 && disk_synced(dir, at, -1);

    if (!before || !after)
        printf("# %s: %s\n", path,
               at < 0    ? "never got its name"
               : !before ? "was not synced before it got its name"
                         : "its folder was not synced after");
    free(dir);
    return before && after;
}

/* The same of a folder and all files in it. */
static inline bool folder_placed(const char *path, int least)
{
    int at = disk_find(0, "rename", path), n = 0;
    bool good = placed("rename", path);
    DIR *d = opendir(path);

    for (struct dirent *e; good && d && (e = readdir(d));) {
        char *file = tern_fs_join(disk_events[at].path, e->d_name);
        if (e->d_type == DT_REG) {
            n++;
            int own = disk_find(0, "rename", file); /* of files that have temporary names first */
            good = own >= 0 && own < at ? disk_synced(disk_events[own].path, 0, own)
                                        : disk_synced(file, 0, at);
            if (!good)
                printf("# %s was not synced before its folder got its name\n", file);
        }
        free(file);
    }
    if (d)
        closedir(d);
    return good && n >= least;
}

/* Folder `path`, which will be part of one that gets its name by event `at`: its files were synced
 * before they got theirs, and every folder after that.  *files counts. */
static inline bool tree_synced(const char *path, int at, int *files)
{
    DIR *d = opendir(path);
    int last = 0; /* file that got its name here */
    bool good = d != NULL;

    for (struct dirent *e; good && (e = readdir(d));) {
        char *one = tern_fs_join(path, e->d_name), *was = NULL;
        if (e->d_type == DT_DIR && e->d_name[0] != '.') {
            good = tree_synced(one, at, files);
        } else if (e->d_type == DT_REG) {
            was = tern_strf("%s%s", disk_events[at].path, one + strlen(disk_events[at].to));
            int own = disk_find(0, "rename", was);
            good = own >= 0 && own < at && disk_synced(disk_events[own].path, 0, own);
            last = own > last ? own : last;
            ++*files;
        }
        if (!good)
            printf("# %s was not synced\n", one);
        free(was);
        free(one);
    }
    if (d)
        closedir(d);
    char *was = tern_strf("%s%s", disk_events[at].path, path + strlen(disk_events[at].to));
    good = good && disk_synced(was, last, at);
    free(was);
    return good;
}

#endif
