/* Preloaded into the ranks of a run (tests/lib/saves.sh): what happens to its saves.
 *
 *     $TEST_MARKS/held-SSSSSSSS   while this file is there, writers of shards of that step wait, or
 *                                 those alone whose path has its text; partners' copies, too
 *     TEST_MKDIRS=1               makers of temporary folders wait likewise
 *     TEST_FULL=WORD              no room for a shard whose path has the word
 *     TEST_FAILS=CALL:ERROR:WORD,...
 *                                 a write, fsync, mkdir or rename fails with EIO, ENOSPC or
 *                                 EDQUOT, where the path (of a rename the new one) has the word, or
 *                                 ends in WORD$
 *     TEST_NO_STAGING=1           one rank gets no memory for its staging
 *     TEST_FOLDS=1                the nice of each process that folds run.db, a line each in
 *                                 $TEST_MARKS/folds
 *     TEST_STOP=STAGE:SSSSSSSS:R  rank R stops for good at a stage of the save of that step, and
 *                                 its pid is in $TEST_MARKS/at
 *
 * Stages: copy (in the middle; SSSSSSSS is the how-manieth save, from 2 on), write (in the middle),
 * fsync (before it), named (before the rename), renamed (behind it), pruned (before the shard of
 * that step is removed).  The last three are rank 0's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int rank = -1; /* known from the first shard on */
static char *staging;
static size_t staging_bytes;
static unsigned saves, parts; /* copied so far; of one shard, written so far */

static char *path_of(int fd, char path[4096])
{
    char link[64];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, 4095);
    path[n > 0 ? n : 0] = '\0';
    return path;
}

static bool mark(const char *name)
{
    char path[4096], text[32];
    const char *dir = getenv("TEST_MARKS");

    snprintf(path, sizeof path, "%s/%s", dir ? dir : ".", name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    const int n = snprintf(text, sizeof text, "%d\n", getpid());
    if (fd < 0 || syscall(SYS_write, fd, text, n) != n)
        return false;
    close(fd);
    return true;
}

/* Stops here, if this is the place: `path` has the step, unless it is NULL. */
static void pass(const char *stage, const char *path, unsigned number)
{
    const char *where = getenv("TEST_STOP");
    const size_t len = strlen(stage);
    char step[32];
    int at = -1;

    if (!where || strncmp(where, stage, len) != 0 || where[len] != ':' ||
        sscanf(where + len + 1, "%8[0-9]:%d", step, &at) != 2 || at != rank)
        return;
    if (path ? !strstr(path, step) : (unsigned)strtoul(step, NULL, 10) != number)
        return;
    if (mark("at"))
        for (;;)
            pause();
}

void *mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off64_t offset)
{
    if ((flags & MAP_POPULATE) && getenv("TEST_NO_STAGING") && mark("no-staging")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *at = (void *)syscall(SYS_mmap, addr, bytes, prot, flags, fd, offset);
    if ((flags & MAP_POPULATE) && at != MAP_FAILED) {
        staging = at;
        staging_bytes = bytes;
    }
    return at;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    if (staging && (char *)to >= staging && (char *)to < staging + staging_bytes) {
        if (to == staging)
            saves++;
        else
            pass("copy", NULL, saves);
    }
    return memmove(to, from, n);
}

/* Do writers of `path` wait while the file `held` is there? */
static bool is_held(const char *held, const char *path)
{
    char word[256];
    const int fd = open(held, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, word, sizeof word - 1);

    if (fd >= 0)
        close(fd);
    if (n >= 0)
        word[n] = '\0';
    return n >= 0 && strstr(path, word);
}

static void wait_while_held(const char *path)
{
    const char *dir = getenv("TEST_MARKS"), *step = strstr(path, "step-");
    char held[4200];

    if (!step)
        return;
    snprintf(held, sizeof held, "%s/held-%.8s", dir ? dir : ".", step + strlen("step-"));
    while (is_held(held, path))
        usleep(10000);
}

/* Shall `call` of `path` fail?  Then errno is set. */
static bool fails(const char *call, const char *path)
{
    char *list = strdup(getenv("TEST_FAILS") ? getenv("TEST_FAILS") : ""), *save = NULL;
    bool is = false;

    for (char *row = strtok_r(list, ",", &save); row && !is; row = strtok_r(NULL, ",", &save)) {
        char name[16], error[16], word[256];
        if (sscanf(row, "%15[^:]:%15[^:]:%255s", name, error, word) != 3 || strcmp(name, call) != 0)
            continue;
        const size_t len = strlen(word), all = strlen(path);
        const bool end = word[len - 1] == '$';
        if (end)
            word[len - 1] = '\0';
        is = end ? all >= len && strcmp(path + all - len + 1, word) == 0
                 : strstr(path, word) != NULL;
        if (is)
            errno = strcmp(error, "EIO") == 0      ? EIO
                    : strcmp(error, "EDQUOT") == 0 ? EDQUOT
                                                   : ENOSPC;
    }
    const int kept = errno;
    free(list);
    errno = kept;
    return is;
}

int mkdir(const char *path, mode_t mode)
{
    if (fails("mkdir", path))
        return -1;
    if (strstr(path, ".tmp-") && getenv("TEST_MKDIRS"))
        wait_while_held(path);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int fallocate64(int fd, int mode, off64_t from, off64_t len)
{
    const char *full = getenv("TEST_FULL");
    char path[4096];
    const char *shard = strstr(path_of(fd, path), "/shard-"), *copy = strstr(path, "/.part-shard-");

    if (!shard && !copy)
        return (int)syscall(SYS_fallocate, fd, mode, from, len);
    if (shard) {
        rank = atoi(shard + strlen("/shard-"));
        parts = 0;
    }
    wait_while_held(path);
    if (full && strstr(path, full)) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, from, len);
}

ssize_t write(int fd, const void *data, size_t n)
{
    char path[4096];

    if (getenv("TEST_STOP") && strstr(path_of(fd, path), "/shard-") && ++parts == 3)
        pass("write", path, 0);
    if (getenv("TEST_FAILS") && fails("write", path_of(fd, path)))
        return -1;
    return syscall(SYS_write, fd, data, n);
}

int fsync(int fd)
{
    char path[4096];

    if (getenv("TEST_STOP") && strstr(path_of(fd, path), "/shard-"))
        pass("fsync", path, 0);
    if (getenv("TEST_FAILS") && fails("fsync", path_of(fd, path)))
        return -1;
    return (int)syscall(SYS_fsync, fd);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    const char *name = strrchr(to, '/');
    const bool named = name && strncmp(name, "/step-", 6) == 0;

    if (named)
        pass("named", name, 0);
    if (named && fails("rename", to))
        return -1;
    const int rc = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    if (named && rc == 0)
        pass("renamed", name, 0);
    return rc;
}

int rename(const char *from, const char *to)
{
    const char *name = strrchr(to, '/'), *dir = getenv("TEST_MARKS");
    char path[4096];

    if (getenv("TEST_FOLDS") && name && strcmp(name, "/run.db") == 0) {
        snprintf(path, sizeof path, "%s/folds", dir ? dir : ".");
        FILE *f = fopen(path, "a");
        if (f) {
            fprintf(f, "%d\n", getpriority(PRIO_PROCESS, 0));
            fclose(f);
        }
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int fd, const char *name, int flags)
{
    char path[4096];

    if (strncmp(name, "shard-", 6) == 0 && strstr(path_of(fd, path), "/.trash-"))
        pass("pruned", path, 0);
    return (int)syscall(SYS_unlinkat, fd, name, flags);
}
