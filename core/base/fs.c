#include "core/base/fs.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/str.h"
#include "core/base/temp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WHO = 100 };

/* The host and PID namespace in which process numbers have a meaning. */
static const char *place(char to[WHO])
{
    char host[65] = "", ns[32] = "";
    ssize_t n = readlink("/proc/self/ns/pid", ns, sizeof ns - 1);

    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '-' || *c == '/')
            *c = '_';
    snprintf(to, WHO, "%s-%.20s", host, n > 5 ? ns + 5 : "0"); /* pid:[4026531836] */
    to[strcspn(to, "]")] = '\0';
    for (char *c = to; *c; c++)
        if (*c == '[')
            *c = 'n';
    return to;
}

bool tern_fs_temp_left(const char *name)
{
    char who[WHO];
    const char *at = strstr(name, ".tmp-");
    size_t len = strlen(place(who));
    int64_t pid;

    if (!at || strncmp(at + 5, who, len) != 0 || at[5 + len] != '-')
        return false;
    char number[16];
    const char *end = strchr(at + 5 + len + 1, '-');
    snprintf(number, sizeof number, "%.*s", end ? (int)(end - (at + 5 + len + 1)) : 0,
             at + 5 + len + 1);
    return tern_str_int(number, 1, INT32_MAX, &pid) == 0 && kill((pid_t)pid, 0) < 0 &&
           errno == ESRCH;
}

char *tern_fs_temp_name(const char *path)
{
    char who[WHO];

    return tern_strf("%s.tmp-%s-%d-XXXXXX", path, place(who), (int)getpid());
}

/* mkostemp(3) that may be called again: one that failed may have filled in the Xs. */
static int temp_open(char *temp)
{
    memset(temp + strlen(temp) - 6, 'X', 6);
    return mkostemp(temp, O_CLOEXEC);
}

int tern_fs_temp(char *path)
{
    return TERN_AGAIN(temp_open(path));
}

int tern_fs_check_out(const char *path, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(lstat(path, &st)) < 0)
        return errno == ENOENT ? 0 : tern_err_sys(err, "%s", path);
    if (S_ISLNK(st.st_mode))
        return tern_err_set(err, TERN_USAGE,
                            "%s: is a link, which a file would replace. Name what it leads to, or "
                            "another file.",
                            path);
    return S_ISREG(st.st_mode)
               ? 0
               : tern_err_set(err, TERN_USAGE,
                              "%s: is %s, which a file would replace. Name a file.", path,
                              S_ISDIR(st.st_mode) ? "a folder" : "a device, pipe or socket");
}

int tern_fs_new_open(struct tern_fs_new *f, const char *path, mode_t mode, struct tern_err *err)
{
    struct stat there;

    *f = (struct tern_fs_new){.fd = -1};
    if (TERN_AGAIN(stat(path, &there)) == 0 && !S_ISREG(there.st_mode))
        return tern_err_set(err, TERN_USAGE, "%s: is %s, which a file would replace. Name a file.",
                            path, S_ISDIR(there.st_mode) ? "a folder" : "a device, pipe or socket");
    char *temp = tern_fs_temp_name(path);
    int fd = tern_fs_temp(temp);

    if (fd < 0) {
        tern_err_sys(err, "%s: cannot create", path);
        free(temp);
        return -1;
    }
    if (TERN_AGAIN(fchmod(fd, mode)) < 0) {
        tern_err_sys(err, "%s: cannot set its mode", path);
        unlink(temp);
        close(fd);
        free(temp);
        return -1;
    }
    *f = (struct tern_fs_new){.fd = fd, .path = tern_strdup(path), .temp = temp};
    return 0;
}

static void new_release(struct tern_fs_new *f)
{
    free(f->path);
    free(f->temp);
    *f = (struct tern_fs_new){.fd = -1};
}

void tern_fs_new_abort(struct tern_fs_new *f)
{
    int saved = errno;

    if (f->temp) {
        unlink(f->temp);
        close(f->fd);
        new_release(f);
    }
    errno = saved;
}

int tern_fs_new_commit(struct tern_fs_new *f, struct tern_err *err)
{
    tern_assert(f->fd >= 0 && f->temp && f->path, "commit of a file that is not open");
    if (tern_fs_sync(f->fd) < 0) {
        tern_err_sys(err, "%s: cannot make it durable", f->path);
        tern_fs_new_abort(f);
        return -1;
    }
    if (tern_fs_rename(f->temp, f->path, false) < 0) {
        tern_err_sys(err, "%s: cannot put it in place", f->path);
        tern_fs_new_abort(f);
        return -1;
    }
    int rc = tern_fs_sync_parent(f->path, err);
    if (tern_fs_close(f->fd) < 0 && rc == 0)
        rc = tern_err_sys(err, "%s: cannot close", f->path);
    new_release(f);
    return rc;
}

static int replace_once(const char *path, const void *data, size_t len, mode_t mode,
                        struct tern_err *err)
{
    struct tern_fs_new f;

    if (tern_fs_new_open(&f, path, mode, err) < 0)
        return -1;
    if (tern_fs_write_at(f.fd, 0, data, len, path, err) < 0) {
        tern_fs_new_abort(&f);
        return -1;
    }
    return tern_fs_new_commit(&f, err);
}

int tern_fs_replace(const char *path, const void *data, size_t len, mode_t mode,
                    struct tern_err *err)
{
    struct tern_again a = {0};
    int rc;

    do {
        errno = 0;
        rc = replace_once(path, data, len, mode, err);
    } while (rc < 0 && tern_again_stale(&a));
    return rc;
}

int tern_fs_sync(int fd)
{
    int rc;

    do
        rc = fsync(fd);
    while (rc < 0 && errno == EINTR);
    return rc;
}

int tern_fs_sync_data(int fd)
{
    int rc;

    do
        rc = fdatasync(fd);
    while (rc < 0 && errno == EINTR);
    return rc;
}

int tern_fs_close(int fd)
{
    return close(fd) < 0 && errno != EINTR ? -1 : 0;
}

/* rename(2) or, without replacing, renameat2(2): NFS and some parallel file systems lack its flag.
 */
static int rename_once(const char *from, const char *to, bool only_new)
{
    struct stat st;

    if (!only_new)
        return rename(from, to);
    int rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (rc < 0 && (errno == EINVAL || errno == ENOSYS)) {
        if (lstat(to, &st) < 0)
            return errno == ENOENT ? rename(from, to) : -1;
        errno = EEXIST;
    }
    return rc;
}

int tern_fs_rename(const char *from, const char *to, bool only_new)
{
    struct tern_again a = {0};
    struct stat was, is;

    if (TERN_AGAIN(lstat(from, &was)) < 0)
        return -1;
    for (bool again = false;; again = true) {
        if (rename_once(from, to, only_new) == 0)
            return 0;
        const int why = errno;
        /* The server renamed it, and its answer was lost. */
        if (again && (why == ENOENT || why == EEXIST) && TERN_AGAIN(lstat(to, &is)) == 0 &&
            is.st_dev == was.st_dev && is.st_ino == was.st_ino)
            return 0;
        errno = why;
        if (!tern_again(&a))
            return -1;
    }
}

int tern_fs_reopen(int fd, const char *path, struct tern_err *err)
{
    struct stat st;
    int now = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));

    if (now < 0)
        return tern_err_sys(err, "%s: cannot open it again", path);
    int rc = TERN_AGAIN(fstat(now, &st));
    if (rc < 0)
        tern_err_sys(err, "%s: cannot stat", path);
    else if (!S_ISREG(st.st_mode))
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: is not a regular file any more", path);
    else if (TERN_AGAIN(dup3(now, fd, O_CLOEXEC)) < 0)
        rc = tern_err_sys(err, "%s: cannot open it again", path);
    close(now);
    return rc;
}

static int read_once(const char *path, size_t max, char **data, size_t *len, struct tern_err *err)
{
    int rc = -1;
    char *p = NULL;
    struct stat st;
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));

    if (fd < 0) {
        tern_err_sys(err, "%s: cannot open", path);
        if (err && errno == ENOENT)
            err->code = TERN_USAGE;
        return -1;
    }
    if (TERN_AGAIN(fstat(fd, &st)) < 0) {
        tern_err_sys(err, "%s: cannot stat", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        tern_err_set(err, TERN_USAGE, "%s: is not a regular file", path);
        goto out;
    }
    if ((uint64_t)st.st_size > max) {
        tern_err_set(err, TERN_USAGE, "%s: %lld bytes are more than the %zu allowed here", path,
                     (long long)st.st_size, max);
        goto out;
    }
    p = tern_alloc((size_t)st.st_size + 1, 1, path, err);
    if (!p || tern_fs_pread(fd, p, (size_t)st.st_size, 0, path, err) < 0)
        goto out;
    *data = p;
    *len = (size_t)st.st_size;
    p = NULL;
    rc = 0;
out:
    free(p);
    close(fd);
    return rc;
}

int tern_fs_read(const char *path, size_t max, char **data, size_t *len, struct tern_err *err)
{
    struct tern_again a = {0};
    int rc;

    do {
        errno = 0;
        rc = read_once(path, max, data, len, err);
    } while (rc < 0 && tern_again_stale(&a));
    return rc;
}

int tern_fs_sync_dir(const char *dir, struct tern_err *err)
{
    struct tern_again a = {0};
    int rc;

    do {
        int fd = TERN_AGAIN(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (fd < 0)
            return tern_err_sys(err, "%s: cannot open folder", dir);
        rc = tern_fs_sync(fd);
        if (rc < 0)
            tern_err_sys(err, "%s: cannot make the folder durable", dir);
        close(fd);
    } while (rc < 0 && tern_again_stale(&a));
    return rc;
}

int tern_fs_sync_parent(const char *path, struct tern_err *err)
{
    char *dir = tern_fs_dirname(path);
    int rc = tern_fs_sync_dir(dir, err);

    free(dir);
    return rc;
}

int tern_fs_mkdirs(const char *path, mode_t mode, struct tern_err *err)
{
    char *p = tern_strdup(path);
    int rc = 0;

    for (char *s = p + (*p != '\0');; s++) {
        if (*s != '/' && *s != '\0')
            continue;
        char c = *s;
        *s = '\0';
        struct stat st;
        if (TERN_AGAIN(mkdir(p, mode)) < 0 &&
            !(TERN_AGAIN(stat(p, &st)) == 0 && S_ISDIR(st.st_mode))) {
            rc = tern_fs_mkdir_failed(p, err);
            break;
        }
        *s = c;
        if (c == '\0')
            break;
    }
    free(p);
    return rc;
}

static mode_t bits_of(const char *dir, mode_t unknown)
{
    struct stat st;

    if (stat(dir, &st) < 0)
        return unknown;
    return st.st_mode & (st.st_mode & S_ISVTX ? 0755 : 0777);
}

mode_t tern_fs_bits_in(const char *dir)
{
    return bits_of(dir, 0755) & 0666;
}

int tern_fs_mkdirs_like(const char *path, struct tern_err *err)
{
    struct stat st;
    int rc = 0;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    char *parent = tern_fs_dirname(path);
    if (strcmp(parent, path) != 0 && strcmp(parent, ".") != 0)
        rc = tern_fs_mkdirs_like(parent, err);
    mode_t bits = bits_of(parent, 0755);
    free(parent);
    if (rc < 0)
        return -1;
    if (mkdir(path, bits) < 0)
        return errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)
                   ? 0
                   : tern_fs_mkdir_failed(path, err);
    if (stat(path, &st) == 0 && (st.st_mode & 0777) != bits)
        chmod(path, bits | (st.st_mode & S_ISGID)); /* past the umask, where there are such bits */
    return 0;
}

static int remove_at(int parent, const char *name, dev_t device, const char *path,
                     struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW)) < 0)
        return errno == ENOENT ? 0 : tern_err_sys(err, "%s: cannot stat", path);
    if (!S_ISDIR(st.st_mode)) {
        if (TERN_AGAIN(unlinkat(parent, name, 0)) < 0 && errno != ENOENT)
            return tern_err_sys(err, "%s: cannot remove", path);
        return 0;
    }
    if (device && st.st_dev != device)
        return tern_err_set(err, TERN_FAILED, "%s: is a mount; not removed", path);
    int fd = TERN_AGAIN(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd < 0 && errno == ENOENT) /* another process removes it, too */
        return 0;
    if (!d) {
        tern_err_sys(err, "%s: cannot open folder", path);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    int rc = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *sub = tern_strf("%s/%s", path, e->d_name);
        rc = remove_at(dirfd(d), e->d_name, st.st_dev, sub, err);
        free(sub);
    }
    closedir(d);
    if (rc == 0 && TERN_AGAIN(unlinkat(parent, name, AT_REMOVEDIR)) < 0 && errno != ENOENT)
        rc = tern_err_sys(err, "%s: cannot remove folder", path);
    return rc;
}

int tern_fs_remove_tree(const char *path, struct tern_err *err)
{
    return remove_at(AT_FDCWD, path, 0, path, err);
}

bool tern_fs_exists(const char *path)
{
    struct stat st;

    return TERN_AGAIN(stat(path, &st)) == 0;
}

static rlim_t open_before; /* 0: the limit was never raised */

int tern_fs_allow_open(size_t n, struct tern_err *err)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return tern_err_sys(err, "getrlimit");
    if (r.rlim_cur >= n)
        return 0;
    rlim_t hard = r.rlim_max, soft = r.rlim_cur;
    r.rlim_cur = hard < n ? hard : n;
    if (setrlimit(RLIMIT_NOFILE, &r) < 0)
        return tern_err_sys(err, "setrlimit");
    open_before = open_before ? open_before : soft;
    if (hard < n)
        return tern_err_set(err, TERN_FAILED,
                            "%zu files may have to be open at once, and the hard limit is %llu "
                            "(ulimit -Hn)",
                            n, (unsigned long long)hard);
    return 0;
}

void tern_fs_reset_open(void)
{
    struct rlimit r;

    if (!open_before || getrlimit(RLIMIT_NOFILE, &r) < 0)
        return;
    r.rlim_cur = open_before;
    setrlimit(RLIMIT_NOFILE, &r);
}

char *tern_fs_join(const char *dir, const char *path)
{
    if (path[0] == '/' || !*dir)
        return tern_strdup(path);
    return tern_strf("%s%s%s", dir, tern_str_ends(dir, "/") ? "" : "/", path);
}

char *tern_fs_dirname(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return tern_strdup(".");
    if (slash == path)
        return tern_strdup("/");
    return tern_strf("%.*s", (int)(slash - path), path);
}

const char *tern_fs_basename(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

char *tern_fs_self(void)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    if (n < 0)
        return NULL;
    path[n] = '\0';
    return tern_strdup(path);
}

char *tern_fs_self_dir(void)
{
    char *self = tern_fs_self(), *dir = self ? tern_fs_dirname(self) : NULL;

    free(self);
    return dir;
}

char *tern_fs_beside(const char *name)
{
    char *dir = tern_fs_self_dir(), *path = dir ? tern_fs_join(dir, name) : tern_strdup(name);

    free(dir);
    return path;
}

bool tern_fs_on_path(const char *name, bool runs)
{
    const char *path = getenv("PATH");
    bool found = false;
    struct stat st;

    for (const char *s = path ? path : "/bin:/usr/bin"; *s && !found;) {
        size_t len = strcspn(s, ":");
        char *file = len ? tern_strf("%.*s/%s", (int)len, s, name) : tern_strdup(name);
        found = stat(file, &st) == 0 && (!runs || (S_ISREG(st.st_mode) && access(file, X_OK) == 0));
        free(file);
        s += len + (s[len] == ':');
    }
    return found;
}
