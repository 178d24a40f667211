#include "core/site/trust.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Inside an ordinary user's namespace (a virtual cluster) root has no number of its own. Files of
 * root, and of all users that are not mapped, show the overflow one. */
static bool stands_for_root(uid_t uid)
{
    unsigned inside, outside, count, overflow = 65534;
    bool mapped = false;
    FILE *f = fopen("/proc/self/uid_map", "re");

    if (!f)
        return false;
    while (fscanf(f, "%u %u %u", &inside, &outside, &count) == 3)
        mapped |= inside == 0 && outside == 0;
    fclose(f);
    f = fopen("/proc/sys/kernel/overflowuid", "re");
    if (f) {
        if (fscanf(f, "%u", &overflow) != 1)
            overflow = 65534;
        fclose(f);
    }
    return !mapped && uid == overflow;
}

/* Is it the group of one user alone, which many systems give each user together with a umask of
 * 002? Then a file that the group may write is the owner's alone to change. */
static bool private_group(uid_t uid, gid_t gid)
{
    const struct passwd *owner = getpwuid(uid), *p;
    char *name = owner && owner->pw_gid == gid ? tern_strdup(owner->pw_name) : NULL;
    const struct group *g = name ? getgrgid(gid) : NULL;
    bool alone = g && strcmp(g->gr_name, name) == 0;

    for (size_t i = 0; alone && g->gr_mem[i]; i++)
        alone = strcmp(g->gr_mem[i], name) == 0;
    if (alone) {
        setpwent();
        while (alone && (p = getpwent()))
            alone = p->pw_gid != gid || p->pw_uid == uid;
        endpwent();
    }
    free(name);
    return alone;
}

static int trusted(const char *path, const struct stat *st, struct tern_err *err)
{
    bool sticky = S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX);
    bool link = S_ISLNK(st->st_mode); /* has no mode of its own */

    if (st->st_uid != 0 && st->st_uid != geteuid() && !stands_for_root(st->st_uid))
        return tern_err_set(err, TERN_USAGE,
                            "%s: belongs to uid %u, neither root nor you, who alone may "
                            "change site settings. Run: chown root '%s'",
                            path, (unsigned)st->st_uid, path);
    mode_t others = st->st_mode & 022;
    if ((others & 020) && !sticky && !link && private_group(st->st_uid, st->st_gid))
        others &= ~(mode_t)020;
    if (others && !sticky && !link)
        return tern_err_set(err, TERN_USAGE,
                            "%s: others may write it (mode %04o): root and you alone "
                            "may change site settings. Run: chmod go-w '%s'",
                            path, (unsigned)st->st_mode & 07777, path);
    return 0;
}

/* Every folder above the file: a user that may rename there may put another file in its place. */
static int trusted_folders(const char *path, struct tern_err *err)
{
    char *at = tern_fs_dirname(path);
    int rc = 0;

    for (;;) {
        struct stat st;
        if (stat(at, &st) < 0)
            rc = tern_err_sys(err, "%s", at);
        else
            rc = trusted(at, &st, err);
        if (rc < 0 || strcmp(at, "/") == 0)
            break;
        char *up = tern_fs_dirname(at);
        free(at);
        at = up;
    }
    free(at);
    return rc;
}

/* The same of the path as it was written: a user that may replace a link in it chooses the file. */
static int trusted_links(const char *path, struct tern_err *err)
{
    char *at = tern_strdup(path);
    int rc = 0;

    for (;;) {
        struct stat st;
        if (lstat(at, &st) < 0)
            rc = tern_err_set(err, TERN_USAGE, "%s: %s", at, strerror(errno));
        else
            rc = trusted(at, &st, err);
        char *up = tern_fs_dirname(at);
        bool top = strcmp(up, at) == 0;
        free(at);
        at = up;
        if (rc < 0 || top)
            break;
    }
    free(at);
    return rc;
}

static int read_all(int fd, const char *path, size_t size, char **data, struct tern_err *err)
{
    char *to = malloc(size + 1);

    if (!to)
        return tern_err_set(err, TERN_FAILED, "%s: no memory for its %zu bytes", path, size);
    if (tern_fs_pread(fd, to, size, 0, path, err) < 0) {
        free(to);
        return -1;
    }
    to[size] = '\0';
    *data = to;
    return 0;
}

int tern_site_read_trusted(const char *path, size_t max, char **data, size_t *len,
                           struct tern_err *err)
{
    struct stat st;
    char *real = realpath(path, NULL);

    if (!real)
        return tern_err_set(err, TERN_USAGE, "%s: %s", path, strerror(errno));
    int fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    int rc = -1;
    if (fd < 0 || fstat(fd, &st) < 0)
        tern_err_set(err, TERN_USAGE, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        tern_err_set(err, TERN_USAGE, "%s: is no regular file", path);
    else if ((size_t)st.st_size > max)
        tern_err_set(err, TERN_USAGE, "%s: %lld bytes; at most %zu are read", path,
                     (long long)st.st_size, max);
    else if (trusted(real, &st, err) == 0 && trusted_folders(real, err) == 0 &&
             trusted_links(path, err) == 0)
        rc = read_all(fd, path, (size_t)st.st_size, data, err);
    if (rc == 0)
        *len = (size_t)st.st_size;
    if (fd >= 0)
        close(fd);
    free(real);
    return rc;
}
