/* Leases: which process does a piece of work, and whether it lives. */
#include "cmd/data/share.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

char *data_folder_merge_lease(const char *plan)
{
    return tern_strf("merge-%s.lease", plan);
}

/* The first line of a lease, malloc'ed; NULL where it cannot be read. */
static char *owner_of(int fd)
{
    char line[NAME_MAX + 2];
    const ssize_t n = TERN_AGAIN(pread(fd, line, sizeof line - 1, 0));

    if (n < 0)
        return NULL;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return tern_strdup(line);
}

/* Opening asks a file server, where stat may remember. */
static int open_lease(const char *path)
{
    return TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC));
}

/* Is the lease at `path` that of `owner`?  1, 0; -1 where it cannot be read. */
static int is_owner(const char *path, const char *owner)
{
    const int fd = open_lease(path);

    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    char *there = owner_of(fd);
    const int is = there ? strcmp(there, owner) == 0 : -1;
    free(there);
    close(fd);
    return is;
}

/* ---- heartbeats ---- */

/* A lease that another process has taken over has that one's heartbeats. */
static void heartbeat_once(const struct data_folder *f)
{
    const int fd = open_lease(f->lease);
    char *there = fd < 0 ? NULL : owner_of(fd);

    if (there && strcmp(there, f->owner) == 0)
        futimens(fd, NULL);
    free(there);
    if (fd >= 0)
        close(fd);
}

/* Verifying a part, waiting for a disk and merging may each take longer than others wait. */
static void *send_heartbeats(void *arg)
{
    struct data_folder *f = arg;
    struct timespec until;

    pthread_mutex_lock(&f->lock);
    while (!f->quit) {
        if (f->lease)
            heartbeat_once(f);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += DATA_HEARTBEAT_MS / 1000;
        pthread_cond_timedwait(&f->wake, &f->lock, &until);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static int begin_heartbeats(struct data_folder *f, struct tern_err *err)
{
    sigset_t all, before;

    if (f->heartbeats)
        return 0;
    sigfillset(&all); /* the caller's thread has the signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&f->thread, NULL, send_heartbeats, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    f->heartbeats = rc == 0;
    return rc == 0 ? 0
                   : tern_err_set(err, TERN_FAILED, "%s: cannot start a thread: %s", f->path,
                                  strerror(rc));
}

/* Takes `owner` over. */
static enum data_lease hold(struct data_folder *f, const char *name, char *owner,
                            struct tern_err *err)
{
    if (begin_heartbeats(f, err) < 0) {
        data_folder_remove(f, name);
        free(owner);
        return DATA_LEASE_FAILED;
    }
    pthread_mutex_lock(&f->lock);
    f->lease = data_folder_file(f, name);
    f->owner = owner;
    pthread_mutex_unlock(&f->lock);
    return DATA_LEASE_OURS;
}

bool data_folder_holds(const struct data_folder *f)
{
    return f->lease && is_owner(f->lease, f->owner) != 0;
}

void data_folder_release(struct data_folder *f)
{
    pthread_mutex_lock(&f->lock);
    if (f->lease && is_owner(f->lease, f->owner) == 1)
        TERN_AGAIN(unlink(f->lease));
    free(f->lease);
    free(f->owner);
    f->lease = f->owner = NULL;
    pthread_mutex_unlock(&f->lock);
}

/* ---- lost processes ---- */

/* The time by the file system's clock; 0 where it is not known. */
static time_t folder_time(const struct data_folder *f)
{
    struct tern_fs_new probe = {.fd = -1};
    struct stat st = {.st_mtime = 0};

    if (f->task) {
        const int fd = TERN_AGAIN(open(f->task, O_WRONLY | O_CLOEXEC));
        if (fd >= 0 && futimens(fd, NULL) == 0 && fstat(fd, &st) < 0)
            st.st_mtime = 0;
        if (fd >= 0)
            close(fd);
        return st.st_mtime;
    }
    char *path = data_folder_file(f, "now");
    if (tern_fs_new_open(&probe, path, 0644, NULL) == 0 && fstat(probe.fd, &st) < 0)
        st.st_mtime = 0;
    tern_fs_new_abort(&probe);
    free(path);
    return st.st_mtime;
}

/* The owner of a lease without a heartbeat, malloc'ed; NULL: its process lives. */
static char *lost_owner(const struct data_folder *f, const char *name)
{
    char *path = data_folder_file(f, name), *owner = NULL;
    const int fd = open_lease(path);
    struct stat lease;

    if (fd >= 0 && fstat(fd, &lease) == 0)
        owner = owner_of(fd);
    if (owner && !tern_fs_temp_left(owner) && folder_time(f) <= lease.st_mtime + DATA_LOST_S) {
        free(owner);
        owner = NULL;
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return owner;
}

/* Move the lease of `owner` away: only one process can.  Another process may have been faster; its
 * lease is put back. */
static int set_aside(const struct data_folder *f, const char *name, const char *owner,
                     struct tern_err *err)
{
    char *path = data_folder_file(f, name);
    struct tern_fs_new aside = {.fd = -1};
    int rc = tern_fs_new_open(&aside, path, 0644, err);

    if (rc == 0 && tern_fs_rename(path, aside.temp, /* only_new= */ false) == 0) {
        rc = is_owner(aside.temp, owner) == 1;
        if (!rc && link(aside.temp, path) < 0)
            tern_debug("%s: leased again meanwhile", path);
    } else if (rc == 0 && errno != ENOENT) {
        rc = tern_err_sys(err, "%s: cannot be taken over", path);
    }
    tern_fs_new_abort(&aside);
    free(path);
    return rc;
}

/* A frozen process may go on at any time: what it has not finished must not come to its place. */
static void evict(const struct data_folder *f, const char *owner)
{
    const char *at = strstr(owner, ".tmp-"), *end = at ? strrchr(at, '-') : NULL;

    if (!end || end < at + strlen(".tmp-"))
        return;
    char *mark = tern_strf("%.*s", (int)(end - at) + 1, at);
    data_folder_remove_temps(f, mark);
    free(mark);
}

/* 1: there is no lease `name`, or it was a lost process's and is removed; 0: a process has it; -1.
 */
static int clear_lost(struct data_folder *f, const char *name, struct tern_err *err)
{
    char *path = data_folder_file(f, name);
    const int fd = open_lease(path);

    free(path);
    if (fd < 0)
        return 1;
    close(fd);
    char *lost = lost_owner(f, name);
    const int rc = lost ? set_aside(f, name, lost, err) : 0;
    if (rc > 0) {
        tern_info("%s: the process that had %s is gone or frozen; its work is done again", f->path,
                  name);
        evict(f, lost);
    }
    free(lost);
    return rc;
}

/* The name until 0.4, malloc'ed: a process of that time may hold it.  It goes with 0.5. */
static char *old_name(const char *name)
{
    return tern_strf("%.*s.claim", (int)(strlen(name) - strlen(".lease")), name);
}

/* 1: the lease is this process's, by *ret_owner; 0: another's; -1. */
static int acquire(struct data_folder *f, const char *name, char **ret_owner, struct tern_err *err)
{
    char *old = old_name(name);
    int rc = clear_lost(f, old, err);

    free(old);
    if (rc > 0)
        rc = clear_lost(f, name, err);
    return rc > 0 ? data_folder_put_new(f, name, "", ret_owner, err) : rc;
}

enum data_lease data_folder_acquire(struct data_folder *f, const char *name, struct tern_err *err)
{
    struct tern_err why = {0};
    char *owner = NULL;

    tern_assert(!f->lease, "%s beside %s", name, f->lease);
    tern_assert(tern_str_ends(name, ".lease"), "%s", name);
    const int rc = acquire(f, name, &owner, &why);
    if (rc > 0)
        return hold(f, name, owner, err);
    if (rc == 0)
        return DATA_LEASE_OTHERS;
    if (access(f->path, F_OK) < 0 && errno == ENOENT)
        return DATA_LEASE_GONE;
    if (err)
        *err = why;
    return DATA_LEASE_FAILED;
}
