/* What a program asks of the disk, in order: included by a test, it stands before libc's functions.
 *
 *     disk_clear();  ...;  at = disk_find(0, "rename", file);  disk_synced(folder, at, -1)
 *
 * One event a call that succeeded: fsync and fdatasync of a path, link and rename (of any kind)
 * with both of theirs, unlink.  Threads may call at once.
 */
#ifndef TESTS_UNIT_DISK_H
#define TESTS_UNIT_DISK_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DISK_MAX = 4096 };

static struct disk_event {
    const char *call;
    char path[512], to[512]; /* `to` of link and rename */
} disk_events[DISK_MAX];
static int disk_n;
static pthread_mutex_t disk_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *disk_fails; /* a sync that fails with EIO once, */
static int disk_fails_after;   /* after so many that do not */

static inline void disk_clear(void)
{
    disk_n = 0;
}

static inline void disk_add(const char *call, const char *path, const char *to)
{
    const int why = errno;

    pthread_mutex_lock(&disk_lock);
    if (disk_n < DISK_MAX) {
        struct disk_event *e = &disk_events[disk_n++];
        e->call = call;
        snprintf(e->path, sizeof e->path, "%s", path);
        snprintf(e->to, sizeof e->to, "%s", to ? to : "");
    }
    pthread_mutex_unlock(&disk_lock);
    errno = why;
}

static inline int disk_sync(const char *call, long number, int fd)
{
    char link[64], path[512];

    if (disk_fails && strcmp(disk_fails, call) == 0 && disk_fails_after-- == 0) {
        disk_fails = NULL;
        errno = EIO;
        return -1;
    }
    long rc = syscall(number, fd);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (rc == 0)
        disk_add(call, path, NULL);
    return (int)rc;
}

int fsync(int fd)
{
    return disk_sync("fsync", SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return disk_sync("fdatasync", SYS_fdatasync, fd);
}

static inline int disk_rename(const char *from, const char *to, unsigned flags)
{
    long rc = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);

    if (rc == 0)
        disk_add("rename", from, to);
    return (int)rc;
}

int rename(const char *from, const char *to)
{
    return disk_rename(from, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    (void)from_dir, (void)to_dir; /* AT_FDCWD, both */
    return disk_rename(from, to, flags);
}

int link(const char *from, const char *to)
{
    long rc = syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);

    if (rc == 0)
        disk_add("link", from, to);
    return (int)rc;
}

int unlink(const char *path)
{
    long rc = syscall(SYS_unlinkat, AT_FDCWD, path, 0);

    if (rc == 0)
        disk_add("unlink", path, NULL);
    return (int)rc;
}

int unlinkat(int dir, const char *name, int flags)
{
    char link[64], path[512];
    long rc = syscall(SYS_unlinkat, dir, name, flags);
    const int why = errno;

    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t n = dir == AT_FDCWD ? 0 : readlink(link, path, sizeof path - 1);
    snprintf(path + (n > 0 ? n : 0), sizeof path - (size_t)(n > 0 ? n : 0), "%s%s",
             n > 0 ? "/" : "", name);
    errno = why;
    if (rc == 0)
        disk_add("unlink", path, NULL);
    return (int)rc;
}

/* Of a path with this text the last byte of each write is dropped, and not reported. */
static const char *disk_drops;

ssize_t write(int fd, const void *data, size_t n)
{
    char link[64], path[512];

    if (disk_drops && n) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(link, path, sizeof path - 1);
        path[len > 0 ? len : 0] = '\0';
        if (strstr(path, disk_drops))
            return syscall(SYS_write, fd, data, n - 1) < 0 ? -1 : (ssize_t)n;
    }
    return syscall(SYS_write, fd, data, n);
}

/* The first event from `at` on of `call` on `path` (of link and rename: to it); -1 for none. */
static inline int disk_find(int at, const char *call, const char *path)
{
    for (int i = at; i < disk_n; i++) {
        const struct disk_event *e = &disk_events[i];
        if (strcmp(e->call, call) == 0 && strcmp(*e->to ? e->to : e->path, path) == 0)
            return i;
    }
    return -1;
}

/* Was `path`, a file or folder, synced between the events `from` and `to` (-1: the end)? */
static inline bool disk_synced(const char *path, int from, int to)
{
    int at = disk_find(from, "fsync", path), data = disk_find(from, "fdatasync", path);

    to = to < 0 ? disk_n : to;
    return (at >= 0 && at < to) || (data >= 0 && data < to);
}

/* For a test's log. */
static inline void disk_print(void)
{
    for (int i = 0; i < disk_n; i++)
        printf("# %d %s %s %s\n", i, disk_events[i].call, disk_events[i].path, disk_events[i].to);
}

#endif
