/* LD_PRELOAD: a storage that takes TAKEN writes to a task's spool, refuses REFUSED, and then hangs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int of(const char *name)
{
    const char *s = getenv(name);

    return s ? atoi(s) : 0;
}

/* -1: write it; else the errno. */
static int judge(int fd)
{
    static int n;
    char link[40], path[4096];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    if (!strstr(path, "/spool/1/task") || ++n <= of("TAKEN"))
        return -1;
    while (n > of("TAKEN") + of("REFUSED"))
        pause();
    return ENOSPC;
}

ssize_t pwrite64(int fd, const void *data, size_t len, off64_t at);
ssize_t pwrite64(int fd, const void *data, size_t len, off64_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    const int why = judge(fd);

    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite64");
    if (why < 0)
        return real(fd, data, len, at);
    errno = why;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
    return pwrite64(fd, data, len, at);
}
