/* Bytes to and from an open file, all of them or an error. */
#include "core/base/fs.h"

#include "core/base/assert.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

int tern_fs_write(int fd, const void *data, size_t len, const char *path, struct tern_err *err)
{
    const char *p = data;

    tern_assert(fd >= 0 && (data || !len), "%s: %zu bytes", path, len);
    tern_assert_cmp(len, <=, SSIZE_MAX);
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tern_err_sys(err, "%s: cannot write", path);
        tern_assert_cmp((size_t)n, <=, len);
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Where it stands; -1: it has no place to stand at, as a pipe or /dev/null. */
static off_t position(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? lseek(fd, 0, SEEK_CUR) : -1;
}

int tern_fs_write_at(int fd, uint64_t offset, const void *data, size_t len, const char *path,
                     struct tern_err *err)
{
    const off_t begin = position(fd);

    tern_assert(offset <= INT64_MAX && len <= INT64_MAX - offset, "%s: %zu bytes at %llu", path,
                len, (unsigned long long)offset);
    tern_assert(begin < 0 || begin == (off_t)offset, "%s: stands at %lld, not at %llu", path,
                (long long)begin, (unsigned long long)offset);
    if (tern_fs_write(fd, data, len, path, err) < 0)
        return -1;
    const off_t end = begin < 0 ? -1 : position(fd);
    if (end >= 0 && end != (off_t)(offset + len)) /* the storage's fault, which is no assertion's */
        return tern_err_set(err, TERN_TEMPFAIL, "%s: has %lld bytes after %llu were written", path,
                            (long long)end, (unsigned long long)offset + len);
    return 0;
}

int tern_fs_pread(int fd, void *to, size_t len, uint64_t offset, const char *path,
                  struct tern_err *err)
{
    char *p = to;

    while (len) {
        ssize_t n = pread(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tern_err_sys(err, "%s: cannot read", path);
        if (n == 0)
            return tern_err_set(err, TERN_USAGE, "%s: ends at byte %llu, %zu bytes too early", path,
                                (unsigned long long)offset, len);
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}
