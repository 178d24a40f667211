#include "core/ledger/calls.h"

#include "core/base/again.h"
#include "core/base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

static int call_open(const char *path, int flags, int mode)
{
    return TERN_AGAIN(open(path, flags, mode));
}

static int call_access(const char *path, int mode)
{
    return TERN_AGAIN(access(path, mode));
}

static int call_stat(const char *path, struct stat *st)
{
    return TERN_AGAIN(stat(path, st));
}

static int call_lstat(const char *path, struct stat *st)
{
    return TERN_AGAIN(lstat(path, st));
}

static int call_fstat(int fd, struct stat *st)
{
    return TERN_AGAIN(fstat(fd, st));
}

static ssize_t call_pread(int fd, void *to, size_t len, off_t offset)
{
    return TERN_AGAIN(pread(fd, to, len, offset));
}

static ssize_t call_pwrite(int fd, const void *data, size_t len, off_t offset)
{
    ssize_t n;
    struct tern_again a = {0};

    tern_assert(fd >= 0 && offset >= 0 && (data || !len), "%zu bytes at %lld of descriptor %d", len,
                (long long)offset, fd);
    do /* a write to a stale handle is lost: the snapshot is made anew from the spools */
        n = pwrite(fd, data, len, offset);
    while (n < 0 && errno == EINTR && tern_again(&a));
    tern_assert(n < 0 || (size_t)n <= len, "%zd of %zu bytes", n, len);
    return n;
}

static int call_unlink(const char *path)
{
    return TERN_AGAIN(unlink(path));
}

static int call_fchmod(int fd, mode_t mode)
{
    return TERN_AGAIN(fchmod(fd, mode));
}

static int call_ftruncate(int fd, off_t bytes)
{
    return TERN_AGAIN(ftruncate(fd, bytes));
}

static void install(void)
{
    static const struct {
        const char *name; /* SQLite's (os_unix.c); a name that a release lacks is no error */
        sqlite3_syscall_ptr call;
    } calls[] = {
        {"open", (sqlite3_syscall_ptr)call_open},
        {"access", (sqlite3_syscall_ptr)call_access},
        {"stat", (sqlite3_syscall_ptr)call_stat},
        {"lstat", (sqlite3_syscall_ptr)call_lstat},
        {"fstat", (sqlite3_syscall_ptr)call_fstat},
        {"pread", (sqlite3_syscall_ptr)call_pread},
        {"pread64", (sqlite3_syscall_ptr)call_pread},
        {"pwrite", (sqlite3_syscall_ptr)call_pwrite},
        {"pwrite64", (sqlite3_syscall_ptr)call_pwrite},
        {"unlink", (sqlite3_syscall_ptr)call_unlink},
        {"fchmod", (sqlite3_syscall_ptr)call_fchmod},
        {"ftruncate", (sqlite3_syscall_ptr)call_ftruncate},
    };
    /* All of SQLite's unix file systems share one table of calls. */
    sqlite3_vfs *unix_vfs = sqlite3_vfs_find("unix");

    for (size_t i = 0; unix_vfs && i < sizeof calls / sizeof *calls; i++)
        unix_vfs->xSetSystemCall(unix_vfs, calls[i].name, calls[i].call);
}

void tern_ledger_calls(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install);
}
