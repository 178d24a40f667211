/* A shared ledger: what of it is the caller's, and what may be read. */
#include "core/ledger/homes.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/ledger/fold.h"
#include "core/ledger/texts.h"
#include "core/ledger/view.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_USERS = 1 << 16 };

/* ---------------------------------------------------------------- users */

char *tern_ledger_user(uint32_t uid)
{
    const struct passwd *pw = getpwuid(uid);

    return pw ? tern_strdup(pw->pw_name) : tern_strf("%u", (unsigned)uid);
}

/* Has the folder's group only its owner (as useradd makes it, and pam_umask takes it)? */
static bool private_group(const struct stat *st)
{
    const struct passwd *pw = getpwuid(st->st_uid);
    const struct group *gr = getgrgid(st->st_gid);

    if (gr && gr->gr_mem[0])
        return false;
    return st->st_uid == st->st_gid || (pw && gr && strcmp(pw->pw_name, gr->gr_name) == 0);
}

/* Is it a folder into which other users may put files? */
static bool is_shared(const char *dir, struct stat *st)
{
    return TERN_AGAIN(stat(dir, st)) == 0 && S_ISDIR(st->st_mode) &&
           ((st->st_mode & S_IWOTH) || ((st->st_mode & S_IWGRP) && !private_group(st)));
}

bool tern_ledger_home_shared(const char *ledger_dir)
{
    struct stat st;
    uint32_t uid;

    return tern_ledger_home_uid(ledger_dir, &uid) || is_shared(ledger_dir, &st);
}

char *tern_ledger_home_user(const char *ledger_dir, const char *run_id)
{
    struct stat top, st;
    uint32_t uid;

    if (tern_ledger_home_uid(ledger_dir, &uid))
        return tern_ledger_user(uid);
    if (!is_shared(ledger_dir, &top))
        return NULL;
    char *run = tern_strf("%s/runs/%s", ledger_dir, run_id);
    char *user = TERN_AGAIN(lstat(run, &st)) == 0 && st.st_uid != top.st_uid
                     ? tern_ledger_user(st.st_uid)
                     : NULL;
    free(run);
    return user;
}

/* ---------------------------------------------------------------- what may be read */

/* Once a path and process: a run is checked again and again. */
static void warn_once(const char *path, const char *what)
{
    enum { LOGGED = 64 };
    static uint64_t logged[LOGGED];
    static size_t n;
    uint64_t h = 14695981039346656037u; /* FNV-1a */

    for (const char *s = path; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    for (size_t i = 0; i < n; i++)
        if (logged[i] == h)
            return;
    if (n < LOGGED)
        logged[n++] = h;
    char *name = tern_strdup(path);
    tern_str_mask(name);
    tern_warn("%s: %s; it is left out", name, what);
    free(name);
}

bool tern_ledger_home_sound(const char *path, mode_t type)
{
    char words[120];
    uint32_t uid;
    struct stat st;

    if (!tern_ledger_home_part(path, &uid) || TERN_AGAIN(lstat(path, &st)) < 0)
        return true;
    if ((st.st_mode & S_IFMT) == type && (st.st_uid == uid || st.st_uid == 0))
        return true;
    if (S_ISLNK(st.st_mode)) {
        warn_once(path, "is a link, and links are not read in a user's folder of a shared ledger");
    } else if ((st.st_mode & S_IFMT) != type) {
        warn_once(path, type == S_IFDIR ? "is no folder" : "is no file");
    } else {
        char *owner = tern_ledger_user(st.st_uid), *user = tern_ledger_user(uid);
        snprintf(words, sizeof words, "belongs to %.40s, not to %.40s", owner, user);
        warn_once(path, words);
        free(owner);
        free(user);
    }
    return false;
}

bool tern_ledger_sound(const char *path, bool folder)
{
    return tern_ledger_home_sound(path, folder ? S_IFDIR : S_IFREG);
}

/* ---------------------------------------------------------------- where one writes */

/* Is there a run of the caller's in LEDGER/runs, from before the ledger was shared? */
static bool has_own_run(const char *ledger_dir)
{
    char *runs = tern_fs_join(ledger_dir, "runs");
    int fd = TERN_AGAIN(access(runs, W_OK | X_OK)) == 0
                 ? TERN_AGAIN(open(runs, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))
                 : -1;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct stat st;
    bool own = d && TERN_AGAIN(fstat(fd, &st)) == 0 && st.st_uid == geteuid();

    if (fd >= 0 && !d)
        close(fd);
    for (struct dirent *e; d && !own && (e = readdir(d));)
        own = tern_ledger_ulid_valid(e->d_name) &&
              TERN_AGAIN(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) == 0 &&
              S_ISDIR(st.st_mode) && st.st_uid == geteuid();
    if (d)
        closedir(d);
    free(runs);
    return own;
}

/* LEDGER/runs: not there, or the caller's. */
static bool runs_are_sound(const char *ledger_dir)
{
    char *runs = tern_fs_join(ledger_dir, "runs");
    struct stat st;
    bool sound =
        TERN_AGAIN(lstat(runs, &st)) < 0 || (S_ISDIR(st.st_mode) && st.st_uid == geteuid());

    free(runs);
    return sound;
}

/* Does the storage give every user's files one owner, as an access point of EFS does?  Then users
 * cannot be distinguished. */
static bool maps_users(const char *dir)
{
    char *probe = tern_strf("%s/.whose-XXXXXX", dir);
    int fd = TERN_AGAIN(mkostemp(probe, O_CLOEXEC));
    struct stat st;
    bool maps = fd >= 0 && TERN_AGAIN(fstat(fd, &st)) == 0 && st.st_uid != geteuid();

    if (fd >= 0) {
        TERN_AGAIN(unlink(probe));
        close(fd);
    }
    free(probe);
    return maps;
}

int tern_ledger_home(const char *ledger_dir, enum tern_ledger_mode mode, char **out,
                     struct tern_err *err)
{
    struct stat top, st;
    uint32_t uid;
    char *home = tern_strf("%s/u/%u", ledger_dir, (unsigned)geteuid());
    bool there = TERN_AGAIN(stat(ledger_dir, &top)) == 0,
         exists = TERN_AGAIN(lstat(home, &st)) == 0;
    bool shared =
        there ? is_shared(ledger_dir, &top) : mode == TERN_LEDGER_GROUP || mode == TERN_LEDGER_ALL;
    bool mine = exists && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
    int rc = 0;

    /* Root's own file system, as a tmpfs is mounted, is root's, though it be for all. */
    bool roots = there && geteuid() == 0 && top.st_uid == 0 && !mine && runs_are_sound(ledger_dir);
    if (tern_ledger_home_uid(ledger_dir, &uid) || has_own_run(ledger_dir) || roots ||
        (!mine && !shared) || (!mine && there && maps_users(ledger_dir))) {
        free(home);
        home = tern_strdup(ledger_dir);
    } else if (exists && !mine) {
        rc = tern_ledger_home_not_yours(home, &st, err);
    }
    if (rc == 0)
        *out = home;
    else
        free(home);
    return rc;
}

/* ---------------------------------------------------------------- all homes */

static int add_home(struct tern_ledger_rows *rows, const char *dir, struct tern_err *err)
{
    const char **name = tern_ledger_rows_add(rows, sizeof *name, MAX_USERS, err);

    if (!name)
        return -1;
    *name = tern_ledger_text(&rows->texts, dir);
    return 0;
}

/* Is LEDGER/runs from before the ledger was shared, and not made by another user? */
static bool is_old(const char *ledger_dir, const struct stat *top)
{
    char *runs = tern_fs_join(ledger_dir, "runs");
    struct stat st;
    bool old = TERN_AGAIN(stat(runs, &st)) == 0 && (st.st_uid == top->st_uid || st.st_uid == 0);

    free(runs);
    return old || has_own_run(ledger_dir);
}

static int by_uid(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

    return a < b ? -1 : a > b;
}

/* All users' homes but the caller's, by uid; `hidden` counts those that may not be read. */
static int add_others(struct tern_ledger_rows *rows, const char *ledger_dir, size_t *hidden,
                      struct tern_err *err)
{
    char *users = tern_fs_join(ledger_dir, "u");
    uint32_t *uids = tern_alloc(MAX_USERS, sizeof *uids, "users of a ledger", err), uid;
    DIR *d = TERN_AGAIN_PTR(opendir(users));
    size_t n = 0;
    int rc = uids ? 0 : -1;

    for (struct dirent *e; uids && d && n < MAX_USERS && (e = readdir(d));)
        if (tern_ledger_home_parse_uid(e->d_name, &uid) && uid != geteuid())
            uids[n++] = uid;
    if (d)
        closedir(d);
    if (n)
        qsort(uids, n, sizeof *uids, by_uid);
    for (size_t i = 0; i < n && rc == 0; i++) {
        char *home = tern_strf("%s/%u", users, (unsigned)uids[i]);
        if (!tern_ledger_home_sound(home, S_IFDIR)) {
        } else if (TERN_AGAIN(access(home, R_OK | X_OK)) < 0) {
            ++*hidden;
        } else {
            rc = add_home(rows, home, err);
        }
        free(home);
    }
    free(uids);
    free(users);
    return rc;
}

int tern_ledger_homes(const char *ledger_dir, bool all, struct tern_ledger_rows *out,
                      struct tern_err *err)
{
    struct tern_ledger_rows rows = {0};
    char *own = tern_strf("%s/u/%u", ledger_dir, (unsigned)geteuid());
    char *runs = tern_fs_join(ledger_dir, "runs"), *users = tern_fs_join(ledger_dir, "u");
    struct stat top, st;
    uint32_t uid;
    size_t hidden = 0;
    int rc = 0;

    bool shared = is_shared(ledger_dir, &top) && !tern_ledger_home_uid(ledger_dir, &uid);
    bool divided = !tern_ledger_home_uid(ledger_dir, &uid) && TERN_AGAIN(lstat(users, &st)) == 0 &&
                   S_ISDIR(st.st_mode);
    if (divided && TERN_AGAIN(lstat(own, &st)) == 0 && tern_ledger_home_sound(own, S_IFDIR))
        rc = add_home(&rows, own, err);
    if (rc == 0 &&
        (!shared || is_old(ledger_dir, &top) || (all && TERN_AGAIN(stat(runs, &st)) == 0)))
        rc = add_home(&rows, ledger_dir, err);
    if (rc == 0 && divided && all)
        rc = add_others(&rows, ledger_dir, &hidden, err);
    if (rc == 0 && rows.n == 0) /* which holds nothing yet */
        rc = add_home(&rows, divided || shared ? own : ledger_dir, err);
    if (hidden)
        tern_info("%s: what %zu user%s there may not be read", users, hidden,
                  hidden == 1 ? " has" : "s have");
    free(own);
    free(runs);
    free(users);
    if (rc < 0)
        tern_ledger_rows_free(&rows);
    else
        *out = rows;
    return rc;
}

/* ---------------------------------------------------------------- which run, of all homes */

static int find_job(struct tern_ledger *l, const char *job, char id[TERN_ULID_SIZE],
                    struct tern_err *err)
{
    struct tern_ledger_rows rows = {0};
    size_t best = SIZE_MAX;

    if (tern_ledger_attempts(l, &rows, err) < 0)
        return -1;
    for (size_t i = 0; i < rows.n; i++)
        if (tern_ledger_job_is(job, &rows.attempts[i]) > 0 &&
            (best == SIZE_MAX || rows.attempts[i].begin_ns >= rows.attempts[best].begin_ns))
            best = i;
    if (best != SIZE_MAX)
        memcpy(id, rows.attempts[best].run_id, TERN_ULID_SIZE);
    tern_ledger_rows_free(&rows);
    return best == SIZE_MAX;
}

/* The run that a user wants: by its name as typed, or by the job that it belongs to. */
struct wanted {
    const char *typed, *job; /* or NULL */
    bool is_id;              /* typed is a run's whole id, and no name */
    bool one;                /* of several by that name none is taken, else the newest */
};

/* In one home: 0, 1 for none, -1. */
static int find_in(const char *home, const struct wanted *w, char id[TERN_ULID_SIZE],
                   struct tern_err *err)
{
    const char *typed = w->typed, *job = w->job;

    if (w->is_id) { /* needs no catalogue */
        memcpy(id, typed, TERN_ULID_SIZE);
        return tern_ledger_home_bits(home, id) < 0;
    }
    if (!job && (!typed || strcmp(typed, "latest") == 0)) { /* neither does the newest */
        struct tern_ledger_rows ids = {0};
        if (tern_ledger_ids(home, &ids, err) < 0)
            return -1;
        if (ids.n)
            memcpy(id, ids.names[ids.n - 1], TERN_ULID_SIZE);
        int none = ids.n == 0;
        tern_ledger_rows_free(&ids);
        return none;
    }
    struct tern_ledger *l = tern_ledger_open(home, err);
    int rc = !l ? -1 : job ? find_job(l, job, id, err) : tern_ledger_view_find(l, typed, id, err);
    tern_ledger_close(l);
    return rc;
}

/* The run in homes[from..) that is wanted; 1 for none. */
static int find_among(const struct tern_ledger_rows *homes, size_t from, const struct wanted *w,
                      const char **home, char run_id[TERN_ULID_SIZE], struct tern_err *err)
{
    char id[TERN_ULID_SIZE];

    *home = NULL;
    for (size_t i = from; i < homes->n; i++) {
        struct tern_err why = {0};
        int rc = find_in(homes->names[i], w, id, &why);
        if (rc < 0)
            *err = why;
        if (rc < 0 && !w->one)
            return -1;
        if (rc != 0)
            continue;
        if (w->one && *home)
            return tern_err_set(err, TERN_USAGE,
                                "'%s' is a run in %s and in %s. Name one with --ledger.",
                                w->job     ? w->job
                                : w->typed ? w->typed
                                           : "latest",
                                *home, homes->names[i]);
        if (!*home || strcmp(id, run_id) > 0) {
            memcpy(run_id, id, TERN_ULID_SIZE);
            *home = homes->names[i];
        }
    }
    return *home ? 0 : 1;
}

/* In the caller's homes, else in all of them, of which the caller's are the first; 1 for none.
 * `all` is filled when it is wanted. */
static int find_everywhere(const char *ledger_dir, struct wanted w,
                           const struct tern_ledger_rows *own, struct tern_ledger_rows *all,
                           const char **home, char run_id[TERN_ULID_SIZE], struct tern_err *err)
{
    int rc = find_among(own, 0, &w, home, run_id, err);
    size_t from = 0;

    if (rc != 1)
        return rc;
    if (!all->n && tern_ledger_homes(ledger_dir, true, all, err) < 0)
        return -1;
    while (from < own->n && from < all->n && strcmp(own->names[from], all->names[from]) == 0)
        from++;
    w.one = true;
    return find_among(all, from, &w, home, run_id, err);
}

int tern_ledger_locate(const char *ledger_dir, const char *typed, const char *job, char **home,
                       char run_id[TERN_ULID_SIZE], struct tern_err *err)
{
    struct tern_ledger_rows own = {0}, all = {0};
    const bool is_id = !job && typed && tern_ledger_ulid_valid(typed);
    struct wanted wanted = {.typed = typed, .job = job, .is_id = is_id};
    const char *found = NULL;

    if (job && tern_ledger_job_is(job, &(struct tern_ledger_attempt){0}) < 0)
        return tern_err_set(err, TERN_USAGE,
                            "-j '%s': is no job's id, such as 4711, or 4711_3 of an array", job);
    int rc = tern_ledger_homes(ledger_dir, false, &own, err);
    if (rc == 0)
        rc = find_everywhere(ledger_dir, wanted, &own, &all, &found, run_id, err);
    if (rc == 1 && is_id) { /* a run may be called like an id */
        wanted.is_id = false;
        rc = find_everywhere(ledger_dir, wanted, &own, &all, &found, run_id, err);
    }
    if (rc == 1 && is_id) { /* reading it gives the error */
        memcpy(run_id, typed, TERN_ULID_SIZE);
        found = own.names[0];
        rc = 0;
    }
    if (rc == 0)
        *home = tern_strdup(found);
    else if (rc == 1)
        rc = job ? tern_err_set(err, TERN_USAGE, "%s: no run of job %s", ledger_dir, job)
                 : tern_ledger_view_none(ledger_dir, own.names[0], typed, err);
    tern_ledger_rows_free(&own);
    tern_ledger_rows_free(&all);
    return rc;
}
