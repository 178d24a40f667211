/* core/base, writing behind: the file has the given bytes, patches too, and an error is reported.
 */
#include "core/base/behind.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PIECE = 2 << 20 };

static char work[] = "/tmp/tern-behind-XXXXXX";
static volatile int fail_after = -1; /* calls of write(2) to the file that still succeed */
static int fd = -1;

ssize_t write(int to, const void *data, size_t n)
{
    if (to == fd && fd >= 0 && fail_after >= 0 && fail_after-- == 0) {
        fail_after = 0;
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, to, data, n);
}

static int synced; /* fsync(2) of the file, before anything of it was read back */
static uint64_t were_read;

int fsync(int to)
{
    synced += to == fd && were_read == 0;
    return (int)syscall(SYS_fsync, to);
}

static char *begin(const char *name)
{
    char *path = tern_fs_join(work, name);

    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return path;
}

static bool holds(const char *want, size_t n)
{
    char *got = malloc(n + 1);
    bool same = pread(fd, got, n + 1, 0) == (ssize_t)n && memcmp(got, want, n) == 0;

    free(got);
    return same;
}

static void sizes(void)
{
    static const size_t steps[] = {1 << 20, PIECE, PIECE - 1, PIECE + 1, 9 * PIECE + 7};
    const size_t n = 11 * PIECE + 13;
    char *data = malloc(n);

    for (size_t i = 0; i < n; i++)
        data[i] = (char)(i * 7 + i / 1021);
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        char *path = begin("sizes");
        struct tern_err err = {0};
        struct tern_behind *b = tern_behind_new(fd, path, &err);
        int rc = b ? 0 : -1;
        for (size_t at = 0, some; rc == 0 && at < n; at += some) {
            some = steps[s] < n - at ? steps[s] : n - at;
            rc = tern_behind_write(b, data + at, some, &err);
        }
        ok(rc == 0 && tern_behind_at(b) == n && tern_behind_end(b, &err) == 0 && holds(data, n),
           "%zu bytes, given %zu at a time (%s)", n, steps[s], err.text);
        close(fd);
        free(path);
    }
    char *path = begin("none");
    struct tern_behind *b = tern_behind_new(fd, path, NULL);
    ok(b && tern_behind_end(b, NULL) == 0 && holds("", 0), "nothing given makes an empty file");
    close(fd);
    free(path);
    free(data);
}

static void patches(void)
{
    const size_t n = 2 * PIECE + 100;
    static const size_t at[] = {0, PIECE - 2, PIECE, 2 * PIECE - 2, 2 * PIECE, 2 * PIECE + 96};
    char *data = calloc(n, 1), *path = begin("patches");
    struct tern_behind *b = tern_behind_new(fd, path, NULL);
    bool good = tern_behind_write(b, data, n, NULL) == 0;

    for (size_t i = sizeof at / sizeof *at; i-- > 0;) {
        memcpy(data + at[i], "abcd", 4);
        good = good && tern_behind_patch(b, at[i], "abcd", 4, NULL) == 0;
    }
    good = good && tern_behind_write(b, "end", 3, NULL) == 0 && tern_behind_end(b, NULL) == 0;
    data = realloc(data, n + 3);
    memcpy(data + n, "end", 3);
    ok(good && holds(data, n + 3), "patches in what is written, in what is not, and across");
    close(fd);
    free(path);
    free(data);
}

static void failures(void)
{
    char *data = calloc(PIECE, 1);

    for (int after = 0; after < 3; after++) {
        char *path = begin("full");
        struct tern_err err = {0};
        struct tern_behind *b = tern_behind_new(fd, path, NULL);
        int calls = 0, rc = 0;
        fail_after = after;
        while (rc == 0 && calls < 100) {
            rc = tern_behind_write(b, data, PIECE, &err);
            calls++;
        }
        ok(rc < 0 && calls <= after + 6, "write %d fails: a call soon after tells it (%d)", after,
           calls);
        has(err.text, "full: ", "write %d fails: the error names the file", after);
        has(err.text, "No space left", "write %d fails: the error has the cause", after);
        ok(err.code == TERN_TEMPFAIL, "write %d fails: the kind of the error is kept", after);
        err = (struct tern_err){0};
        ok(tern_behind_end(b, &err) < 0 && strstr(err.text, "No space left"),
           "write %d fails: the end tells it, too", after);
        fail_after = -1;
        close(fd);
        free(path);
    }
    char *path = begin("late");
    struct tern_err err = {0};
    struct tern_behind *b = tern_behind_new(fd, path, NULL);
    fail_after = 0;
    int rc = tern_behind_write(b, "few", 3, &err);
    ok(rc == 0 && tern_behind_end(b, &err) < 0 && strstr(err.text, "No space left"),
       "a failure of the last piece is reported by the end");
    fail_after = -1;
    b = tern_behind_new(fd, path, NULL);
    tern_behind_write(b, data, PIECE, NULL);
    errno = EDOM;
    tern_behind_abort(b);
    ok(errno == EDOM, "abort keeps errno");
    tern_behind_abort(NULL);
    ok(tern_behind_end(NULL, NULL) == 0, "the end of nothing is fine");
    close(fd);
    free(path);
    free(data);
}

static void count(uint64_t bytes)
{
    were_read += bytes;
}

/* A file of `n` bytes with a patch at `patched`, damaged by one bit at `damaged` before its end;
 * -1: neither.  What tern_behind_end says. */
static int end_of(size_t n, long patched, long damaged, const volatile sig_atomic_t *stop,
                  struct tern_err *err)
{
    const struct tern_behind_read_back how = {.progress = count, .stop = stop};
    char *path = begin("read"), *data = malloc(n), byte;
    struct tern_behind *b = tern_behind_new(fd, path, err);

    for (size_t i = 0; i < n; i++)
        data[i] = (char)(i * 7 + i / 1021);
    were_read = 0;
    synced = 0;
    tern_behind_read_back(b, &how);
    int rc = tern_behind_write(b, data, n, err);
    if (rc == 0 && patched >= 0)
        rc = tern_behind_patch(b, (uint64_t)patched, "SUMS", 4, err);
    if (rc == 0 && damaged >= 0) {
        /* A patch waits until all before it is written. */
        while (pread(fd, &byte, 1, damaged) != 1)
            usleep(100);
        byte ^= 4;
        rc = pwrite(fd, &byte, 1, damaged) == 1 ? 0 : -1;
    }
    if (rc < 0)
        tern_behind_abort(b);
    else
        rc = tern_behind_end(b, err);
    close(fd);
    free(path);
    free(data);
    return rc;
}

static void read_back(void)
{
    static const size_t sizes[] = {0, 1, PIECE, PIECE + 1, 5 * PIECE + 7};
    static const long patched[] = {0, PIECE - 2, PIECE, 2 * PIECE - 4, 3 * PIECE - 1};
    const size_t n = 6 * PIECE + 100;
    volatile sig_atomic_t stop = 0;
    struct tern_err err = {0};
    char text[128];

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ok(end_of(sizes[i], -1, -1, NULL, &err) == 0 && were_read == sizes[i],
           "%zu bytes are read back (%s)", sizes[i], err.text);
    ok(synced == 1, "a file is made durable before it is read back: its pages leave the cache");
    for (size_t i = 0; i < sizeof patched / sizeof *patched; i++) {
        ok(end_of(n, patched[i], -1, NULL, &err) == 0 && were_read == n,
           "a file with a patch at %ld is read back (%s)", patched[i], err.text);
        for (long k = -1; k <= 4; k++) {
            const long at = patched[i] + k;
            if (at < 0)
                continue;
            err = (struct tern_err){0};
            int rc = end_of(n, patched[i], at, NULL, &err);
            ok(rc < 0 && err.code == TERN_TEMPFAIL &&
                   strstr(err.text, "are not those that were written there"),
               "a flipped bit at %ld, beside a patch at %ld, is seen (%s)", at, patched[i],
               err.text);
        }
    }
    ok(end_of(n, 0, 2 * PIECE + 5, &stop, &err) < 0, "a flipped bit in a piece is seen");
    snprintf(text, sizeof text, "/read: bytes %d to %d are not those", 2 * PIECE, 3 * PIECE - 1);
    has(err.text, text, "the message names the file and the piece");
    stop = 2;
    ok(end_of(n, 0, -1, &stop, &err) < 0 && err.code == TERN_FAILED && were_read == 0,
       "a signal ends the reading (%s)", err.text);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    sizes();
    patches();
    read_back();
    failures();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
