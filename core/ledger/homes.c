/* A shared ledger, a folder a user: which path is whose, and folders as they should be.  No names
 * of users here: programs for containers have this, and no libraries of their own. */
#include "core/ledger/homes.h"

#include "core/base/again.h"
#include "core/base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALL_BITS = 07777 };

/* ---------------------------------------------------------------- the owner of a path */

static bool parse_uid(const char *s, size_t len, uint32_t *uid)
{
    char word[12];
    int64_t n;

    snprintf(word, sizeof word, "%.*s", (int)len, s);
    if (len == 0 || len > 10 || strspn(s, "0123456789") < len || (len > 1 && *s == '0') ||
        tern_str_int(word, 0, UINT32_MAX, &n) < 0)
        return false;
    *uid = (uint32_t)n;
    return true;
}

bool tern_ledger_home_parse_uid(const char *word, uint32_t *uid)
{
    return parse_uid(word, strlen(word), uid);
}

size_t tern_ledger_home_part(const char *path, uint32_t *uid)
{
    size_t found = 0;

    for (const char *s = path; (s = strstr(s, "/u/")); s += 2) {
        size_t len = strcspn(s + 3, "/");
        const char *rest = s + 3 + len;
        while (*rest == '/')
            rest++;
        const char *next = rest + strcspn(rest, "/");
        if (parse_uid(s + 3, len, uid) && (!*rest || strcmp(rest, "ledger.db") == 0 ||
                                           (next - rest == 4 && strncmp(rest, "runs", 4) == 0)))
            found = (size_t)(s + 3 + len - path);
    }
    if (!found && path[0] == 'u' && path[1] == '/') { /* of a ledger that is the current folder */
        size_t len = strcspn(path + 2, "/");
        if (parse_uid(path + 2, len, uid))
            found = 2 + len;
    }
    return found;
}

bool tern_ledger_home_uid(const char *home, uint32_t *uid)
{
    size_t n = tern_ledger_home_part(home, uid);

    return n && home[n + strspn(home + n, "/")] == '\0';
}

int tern_ledger_home_not_yours(const char *home, const struct stat *st, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: is your folder in this shared ledger, and %s uid %u. Have it removed.",
                        home, S_ISDIR(st->st_mode) ? "belongs to" : "is no folder, made by",
                        (unsigned)st->st_uid);
}

/* ---------------------------------------------------------------- making one */

static mode_t current_umask(void)
{
    mode_t mask = umask(077);

    umask(mask);
    return mask;
}

int tern_ledger_home_bits(const char *home, const char *run_id)
{
    char *dir = tern_strf("%s/runs/%s", home, run_id);
    struct stat st;
    int bits =
        TERN_AGAIN(stat(dir, &st)) == 0 && S_ISDIR(st.st_mode) ? (int)(st.st_mode & 0777) : -1;

    free(dir);
    return bits;
}

/* A folder of these permissions, past the umask; one that is there stays as it is. */
static int make_dir(const char *path, mode_t mode, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(mkdir(path, mode & 0700)) < 0) /* never more than it will have */
        return errno == EEXIST && TERN_AGAIN(stat(path, &st)) == 0 && S_ISDIR(st.st_mode)
                   ? 0
                   : tern_fs_mkdir_failed(path, err);
    if (TERN_AGAIN(stat(path, &st)) < 0 ||
        TERN_AGAIN(chmod(path, mode | (st.st_mode & S_ISGID))) < 0)
        return tern_err_sys(err, "%s: cannot set its permissions", path);
    return 0;
}

/* LEDGER and LEDGER/u, for all users of LEDGER; sticky: no user moves another's folder. */
static int make_users(const char *home, mode_t bits, struct tern_err *err)
{
    char *users = tern_fs_dirname(home), *ledger = tern_fs_dirname(users);
    struct stat st;
    int rc = 0;

    if (TERN_AGAIN(stat(ledger, &st)) < 0) { /* ledger.mode shares it from the beginning */
        char *parent = tern_fs_dirname(ledger);
        rc = tern_fs_mkdirs(parent, 0775, err);
        if (rc == 0)
            rc = make_dir(ledger, bits & S_IROTH ? 01777 : 03770, err);
        free(parent);
        if (rc == 0 && TERN_AGAIN(stat(ledger, &st)) < 0)
            rc = tern_err_sys(err, "%s", ledger);
    }
    if (rc == 0 && TERN_AGAIN(lstat(users, &(struct stat){0})) < 0) {
        rc = make_dir(users, S_ISVTX | (st.st_mode & (S_ISGID | 0777)), err);
        if (rc == 0 && chown(users, (uid_t)-1, st.st_gid) < 0) { /* then it is the caller's group */
        }
        if (rc == 0) /* chown takes setgid away */
            TERN_AGAIN(chmod(users, S_ISVTX | (st.st_mode & (S_ISGID | 0777))));
    }
    free(users);
    free(ledger);
    return rc;
}

/* The caller's own, to which no other user writes. */
static int make_home(const char *home, mode_t bits, struct tern_err *err)
{
    struct stat st, top;
    char *users = tern_fs_dirname(home);
    int rc = 0;

    if (TERN_AGAIN(lstat(home, &st)) < 0) {
        if ((rc = make_users(home, bits, err)) == 0 && TERN_AGAIN(mkdir(home, 0700)) < 0 &&
            errno != EEXIST)
            rc = tern_err_sys(err, "%s: cannot make folder", home);
        if (rc == 0 && TERN_AGAIN(lstat(home, &st)) < 0)
            rc = tern_err_sys(err, "%s", home);
    }
    if (rc == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()))
        rc = tern_ledger_home_not_yours(home, &st, err);
    /* A reader of a run passes here; other files here have permissions of their own. */
    mode_t want = (st.st_mode & ALL_BITS & ~(mode_t)022) | (bits & ~(mode_t)022);
    if (rc == 0 && TERN_AGAIN(stat(users, &top)) == 0 && top.st_gid != st.st_gid &&
        (top.st_mode & S_IWGRP) && chown(home, (uid_t)-1, top.st_gid) == 0)
        want |= top.st_mode & S_ISGID;
    if (rc == 0 && want != (st.st_mode & ALL_BITS) && TERN_AGAIN(chmod(home, want)) < 0)
        rc = tern_err_sys(err, "%s: cannot set its permissions", home);
    free(users);
    return rc;
}

/* Where all may put things, LEDGER/runs must be the caller's, or hold this run of theirs already.
 */
static int check_runs(const char *home, const char *runs, const char *run, struct tern_err *err)
{
    struct stat top, st, own;

    if (TERN_AGAIN(stat(home, &top)) < 0 || !(top.st_mode & S_IWOTH) ||
        TERN_AGAIN(lstat(runs, &st)) < 0 ||
        (S_ISDIR(st.st_mode) &&
         (st.st_uid == geteuid() || st.st_uid == top.st_uid ||
          (TERN_AGAIN(lstat(run, &own)) == 0 && S_ISDIR(own.st_mode) && own.st_uid == geteuid()))))
        return 0;
    return tern_err_set(err, TERN_USAGE, "%s: was put there by uid %u. Have it removed.", runs,
                        (unsigned)st.st_uid);
}

int tern_ledger_home_make_run(const char *home, const char *run_id, int bits, struct tern_err *err)
{
    char *runs = tern_fs_join(home, "runs"), *run = tern_fs_join(runs, run_id ? run_id : "");
    uint32_t uid;
    int rc;

    if (!run_id) {
        rc = tern_ledger_home_uid(home, &uid)
                 ? make_home(home, bits >= 0 ? (mode_t)bits : 0777 & ~current_umask(), err)
                 : 0;
    } else if (tern_ledger_home_uid(home, &uid)) {
        mode_t mode = (bits >= 0 ? (mode_t)bits : 0777 & ~current_umask()) & ~(mode_t)022;
        rc = make_home(home, mode, err);
        if (rc == 0)
            rc = make_dir(runs, 0755, err);
        if (rc == 0)
            rc = make_dir(run, mode, err);
    } else if (bits < 0) {
        rc = tern_fs_mkdirs(home, 0775, err);
        if (rc == 0 && TERN_AGAIN(mkdir(runs, 0775)) < 0 && errno != EEXIST)
            rc = tern_err_sys(err, "%s: cannot make folder", runs);
        if (rc == 0 && (rc = check_runs(home, runs, run, err)) == 0)
            rc = tern_fs_mkdirs(run, 0775, err);
    } else {
        char *parent = tern_fs_dirname(home);
        rc = tern_fs_mkdirs(parent, 0775, err);
        free(parent);
        if (rc == 0)
            rc = make_dir(home, (mode_t)bits, err);
        if (rc == 0)
            rc = make_dir(runs, (mode_t)bits, err);
        if (rc == 0)
            rc = check_runs(home, runs, run, err);
        if (rc == 0)
            rc = make_dir(run, (mode_t)bits, err);
    }
    free(run);
    free(runs);
    return rc;
}

int tern_ledger_home_make_attempt(const char *dir, const char *run_id, int *bits,
                                  struct tern_err *err)
{
    char *spool = tern_fs_dirname(dir), *run = tern_fs_dirname(spool), *runs = tern_fs_dirname(run),
         *home = tern_fs_dirname(runs);
    int rc = tern_ledger_home_make_run(home, run_id, *bits, err);

    if (rc == 0)
        rc = tern_fs_mkdirs_like(dir, err);
    if (rc == 0)
        *bits = tern_ledger_home_bits(home, run_id);
    free(spool);
    free(run);
    free(runs);
    free(home);
    return rc;
}

int tern_ledger_home_sync(const char *dir, struct tern_err *err)
{
    uint32_t uid;
    int rc = 0;

    char *at = tern_strdup(dir);
    for (int left = tern_ledger_home_part(dir, &uid) ? 7 : 5; rc == 0 && left; left--) {
        rc = tern_fs_sync_dir(at, err);
        char *up = tern_fs_dirname(at);
        free(at);
        at = up;
    }
    free(at);
    return rc;
}

/* Files in a run's folder get the permissions of a new `ledger.mode`; files elsewhere do not. */
static void change_bits(int parent, const char *name, mode_t bits)
{
    int fd = TERN_AGAIN(openat(parent, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    struct stat st;

    if (fd < 0)
        return;
    if (TERN_AGAIN(fstat(fd, &st)) < 0 || (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))) {
        close(fd);
        return;
    }
    mode_t mode = S_ISDIR(st.st_mode) ? bits | (st.st_mode & S_ISGID)
                                      : bits & ((st.st_mode & S_IWUSR) ? 0666 : 0444);
    if (mode != (st.st_mode & ALL_BITS) && st.st_uid == geteuid())
        fchmod(fd, mode);
    DIR *d = S_ISDIR(st.st_mode) ? fdopendir(fd) : NULL;
    if (!d) {
        close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            change_bits(dirfd(d), e->d_name, bits);
    closedir(d);
}

int tern_ledger_make(const char *home, const char *run_id, enum tern_ledger_mode mode,
                     struct tern_err *err)
{
    static const int bits[] = {
        [TERN_LEDGER_UMASK] = -1,
        [TERN_LEDGER_PRIVATE] = 0700,
        [TERN_LEDGER_GROUP] = 0750,
        [TERN_LEDGER_ALL] = 0755,
    };

    int had = run_id ? tern_ledger_home_bits(home, run_id) : -1;
    if (tern_ledger_home_make_run(home, run_id, bits[mode] >= 0 ? bits[mode] : had, err) < 0)
        return -1;
    if (!run_id || bits[mode] < 0 || had < 0 || had == bits[mode])
        return 0;
    char *run = tern_strf("%s/runs/%s", home, run_id);
    change_bits(AT_FDCWD, run, (mode_t)bits[mode]);
    free(run);
    return 0;
}
