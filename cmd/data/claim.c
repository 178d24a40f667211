/* Claims: which process does a piece of work, and whether it lives. */
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

char *data_folder_merge_claim(const char *plan)
{
    return tern_strf("merge-%s.claim", plan);
}

/* The first line of a claim, malloc'ed; NULL where it cannot be read. */
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
static int open_claim(const char *path)
{
    return TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC));
}

/* Is the claim at `path` that of `owner`?  1, 0; -1 where it cannot be told. */
static int is_owner(const char *path, const char *owner)
{
    const int fd = open_claim(path);

    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    char *there = owner_of(fd);
    const int is = there ? strcmp(there, owner) == 0 : -1;
    free(there);
    close(fd);
    return is;
}

/* ---- signs of life ---- */

/* A claim that another process has taken over is that one's to beat. */
static void beat_once(const struct data_folder *f)
{
    const int fd = open_claim(f->claim);
    char *there = fd < 0 ? NULL : owner_of(fd);

    if (there && strcmp(there, f->owner) == 0)
        futimens(fd, NULL);
    free(there);
    if (fd >= 0)
        close(fd);
}

/* Verifying a part, waiting for a disk and merging may each take longer than others wait. */
static void *beat(void *arg)
{
    struct data_folder *f = arg;
    struct timespec until;

    pthread_mutex_lock(&f->lock);
    while (!f->quit) {
        if (f->claim)
            beat_once(f);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += DATA_BEAT_MS / 1000;
        pthread_cond_timedwait(&f->wake, &f->lock, &until);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static int begin_beating(struct data_folder *f, struct tern_err *err)
{
    sigset_t all, before;

    if (f->beating)
        return 0;
    sigfillset(&all); /* the caller's thread has the signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&f->thread, NULL, beat, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    f->beating = rc == 0;
    return rc == 0 ? 0
                   : tern_err_set(err, TERN_FAILED, "%s: cannot start a thread: %s", f->path,
                                  strerror(rc));
}

/* Takes `owner` over. */
static enum data_claim hold(struct data_folder *f, const char *name, char *owner,
                            struct tern_err *err)
{
    if (begin_beating(f, err) < 0) {
        data_folder_remove(f, name);
        free(owner);
        return DATA_CLAIM_FAILED;
    }
    pthread_mutex_lock(&f->lock);
    f->claim = data_folder_file(f, name);
    f->owner = owner;
    pthread_mutex_unlock(&f->lock);
    return DATA_CLAIM_OURS;
}

bool data_folder_holds(const struct data_folder *f)
{
    return f->claim && is_owner(f->claim, f->owner) != 0;
}

void data_folder_release(struct data_folder *f)
{
    pthread_mutex_lock(&f->lock);
    if (f->claim && is_owner(f->claim, f->owner) == 1)
        TERN_AGAIN(unlink(f->claim));
    free(f->claim);
    free(f->owner);
    f->claim = f->owner = NULL;
    pthread_mutex_unlock(&f->lock);
}

/* ---- lost processes ---- */

/* The time by the file system's clock; 0 where it cannot be told. */
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

/* The owner of a claim without a sign of life, malloc'ed; NULL: its process lives. */
static char *lost_owner(const struct data_folder *f, const char *name)
{
    char *path = data_folder_file(f, name), *owner = NULL;
    const int fd = open_claim(path);
    struct stat claim;

    if (fd >= 0 && fstat(fd, &claim) == 0)
        owner = owner_of(fd);
    if (owner && !tern_fs_temp_left(owner) && folder_time(f) <= claim.st_mtime + DATA_LOST_S) {
        free(owner);
        owner = NULL;
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return owner;
}

/* Move the claim of `owner` away: only one process can.  Another process may have been faster; its
 * claim is put back. */
static int set_aside(const struct data_folder *f, const char *name, const char *owner,
                     struct tern_err *err)
{
    char *path = data_folder_file(f, name);
    struct tern_fs_new aside = {.fd = -1};
    int rc = tern_fs_new_open(&aside, path, 0644, err);

    if (rc == 0 && tern_fs_rename(path, aside.temp, /* only_new= */ false) == 0) {
        rc = is_owner(aside.temp, owner) == 1;
        if (!rc && link(aside.temp, path) < 0)
            tern_debug("%s: claimed again meanwhile", path);
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

/* 1: the claim is ours, by *ret_owner; 0; -1. */
static int take_over(struct data_folder *f, const char *name, char **ret_owner,
                     struct tern_err *err)
{
    char *lost = lost_owner(f, name);
    int rc = lost ? set_aside(f, name, lost, err) : 0;

    if (rc > 0)
        rc = data_folder_put_new(f, name, "", ret_owner, err);
    if (rc > 0) {
        tern_info("%s: the process that had %s is gone or frozen; its work is done again", f->path,
                  name);
        evict(f, lost);
    }
    free(lost);
    return rc;
}

enum data_claim data_folder_claim(struct data_folder *f, const char *name, struct tern_err *err)
{
    struct tern_err why = {0};
    char *path = data_folder_file(f, name), *owner = NULL;

    tern_assert(!f->claim, "%s beside %s", name, f->claim);
    const int fd = open_claim(path);
    int rc = fd >= 0 ? 0 : data_folder_put_new(f, name, "", &owner, &why);

    if (fd >= 0)
        close(fd);
    free(path);
    if (rc == 0)
        rc = take_over(f, name, &owner, &why);
    if (rc > 0)
        return hold(f, name, owner, err);
    if (rc == 0)
        return DATA_CLAIM_OTHERS;
    if (access(f->path, F_OK) < 0 && errno == ENOENT)
        return DATA_CLAIM_GONE;
    if (err)
        *err = why;
    return DATA_CLAIM_FAILED;
}
