/* Folders that appear whole: made beside their place, then renamed. */
#include "core/base/fs.h"

#include "core/base/again.h"
#include "core/base/str.h"
#include "core/base/temp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is another file system, or another part of the same one, mounted at `dir`? */
static bool is_mount(const char *dir, const struct stat *st, const struct stat *above)
{
#ifdef STATX_ATTR_MOUNT_ROOT
    struct statx x;

    if (statx(AT_FDCWD, dir, 0, 0, &x) == 0 && x.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)
        return x.stx_attributes & STATX_ATTR_MOUNT_ROOT;
#endif
    (void)dir;
    return st->st_dev != above->st_dev || st->st_ino == above->st_ino;
}

/* Does rename(2) put a folder in the place of `dir`, an empty one? */
static int check_replaced(const char *dir, const char *parent, struct tern_err *err)
{
    struct stat st, here, above;

    if (TERN_AGAIN(stat(dir, &st)) < 0 || TERN_AGAIN(stat(".", &here)) < 0 ||
        TERN_AGAIN(stat(parent, &above)) < 0)
        return tern_err_sys(err, "%s: cannot stat", dir);
    if (st.st_dev == here.st_dev && st.st_ino == here.st_ino)
        return tern_err_set(err, TERN_USAGE,
                            "%s: is the working folder, which is not replaced. Name a folder "
                            "inside it, such as ./NAME.",
                            dir);
    if (is_mount(dir, &st, &above))
        return tern_err_set(err, TERN_USAGE,
                            "%s: is a mount point, which cannot be replaced. Name a folder inside "
                            "it, such as %s/NAME.",
                            dir, dir);
    if (above.st_mode & S_ISVTX && geteuid() != 0 && st.st_uid != geteuid() &&
        above.st_uid != geteuid())
        return tern_err_set(err, TERN_USAGE,
                            "%s: is another user's folder, which cannot be replaced in %s (it is "
                            "sticky). Choose another name.",
                            dir, parent);
    return 0;
}

static int no_folder(const char *path, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: is there already, and is no folder. Choose another name.", path);
}

int tern_fs_check_folder(const char *path, bool or_none, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(stat(path, &st)) == 0)
        return S_ISDIR(st.st_mode) ? 0 : tern_err_set(err, TERN_USAGE, "%s: is no folder", path);
    if (errno != ENOENT)
        return tern_err_sys(err, "%s: cannot stat", path);
    return or_none ? 0 : tern_err_set(err, TERN_USAGE, "%s: there is no such folder", path);
}

int tern_fs_mkdir_failed(const char *path, struct tern_err *err)
{
    return errno == EEXIST ? no_folder(path, err)
                           : tern_err_sys(err, "%s: cannot make folder", path);
}

static int check_there(const char *dir, struct tern_err *err)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    int names = 0;

    if (!d && errno == ENOTDIR)
        return no_folder(dir, err);
    if (!d)
        return tern_err_sys(err, "%s: cannot be made a folder", dir);
    while (names < 3 && readdir(d))
        names++; /* "." and ".." are two */
    closedir(d);
    if (names >= 3)
        return tern_err_set(
            err, TERN_USAGE,
            "%s: is there already and not empty. Remove it, or choose another name.", dir);
    char *parent = tern_fs_dirname(dir);
    const int rc = check_replaced(dir, parent, err);
    free(parent);
    return rc;
}

/* `dir` has no slash at its end. */
static int check_free(const char *dir, struct tern_err *err)
{
    const char *name = tern_fs_basename(dir);
    struct stat st;

    if (!*dir)
        return tern_err_set(err, TERN_USAGE, "the folder to write has no name");
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: cannot be replaced. Name a folder inside it, such as %s/NAME.",
                            dir, *name ? dir : "");
    if (TERN_AGAIN(lstat(dir, &st)) < 0)
        return errno == ENOENT ? 0 : tern_err_sys(err, "%s: cannot be made a folder", dir);
    if (S_ISLNK(st.st_mode))
        return tern_err_set(err, TERN_USAGE,
                            "%s: is a symbolic link, which a folder cannot replace. Name the "
                            "folder itself, or remove the link.",
                            dir);
    return check_there(dir, err);
}

static char *without_slash(const char *dir)
{
    char *s = tern_strdup(dir);

    for (size_t n = strlen(s); n > 1 && s[n - 1] == '/';)
        s[--n] = '\0';
    return s;
}

int tern_fs_is_free(const char *dir, struct tern_err *err)
{
    char *s = without_slash(dir);
    const int rc = check_free(s, err);

    free(s);
    return rc;
}

/* mkdtemp(3) that may be called again. */
static char *temp_folder(char *temp)
{
    memset(temp + strlen(temp) - 6, 'X', 6);
    return mkdtemp(temp);
}

/* Makes folder `temp`, malloc'ed, which lies beside `to`; frees both, or returns `temp`. */
static char *make_beside(char *to, char *temp, struct tern_err *err)
{
    char *parent = tern_fs_dirname(to);
    int rc = tern_fs_mkdirs(parent, 0777, err);

    if (rc == 0 && !TERN_AGAIN_PTR(temp_folder(temp)))
        rc = tern_err_sys(err, "%s: cannot make folder", to);
    free(parent);
    free(to);
    if (rc == 0) {
        const mode_t mask = umask(0);
        umask(mask);
        if (TERN_AGAIN(chmod(temp, 0777 & ~mask)) < 0) {
            rc = tern_err_sys(err, "%s: cannot set its mode", temp);
            rmdir(temp);
        }
    }
    if (rc == 0)
        return temp;
    free(temp);
    return NULL;
}

char *tern_fs_folder_beside(const char *dir, struct tern_err *err)
{
    char *to = without_slash(dir);

    return make_beside(to, tern_strf("%s.tmp-XXXXXX", to), err);
}

char *tern_fs_folder_beside_swept(const char *dir, struct tern_err *err)
{
    char *to = without_slash(dir);

    tern_fs_temp_sweep(to);
    return make_beside(to, tern_fs_temp_name(to), err);
}

void tern_fs_temp_sweep(const char *path)
{
    char *dir = tern_fs_dirname(path), *start = tern_strf("%s.tmp-", tern_fs_basename(path));
    DIR *d = TERN_AGAIN_PTR(opendir(dir));

    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        /* In a folder for all, names that another user made stay. */
        if (!tern_str_starts(e->d_name, start) || !tern_fs_temp_left(e->d_name) ||
            TERN_AGAIN(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) < 0 ||
            st.st_uid != geteuid())
            continue;
        char *left = tern_fs_join(dir, e->d_name);
        if (S_ISDIR(st.st_mode))
            tern_fs_remove_tree(left, NULL);
        else
            unlink(left);
        free(left);
    }
    if (d)
        closedir(d);
    free(start);
    free(dir);
}

int tern_fs_sync_above(const char *path, const char *top, struct tern_err *err)
{
    char *at = tern_strdup(path);
    int rc = 0;

    while (rc == 0 && strlen(at) > strlen(top)) {
        char *up = tern_fs_dirname(at);
        rc = tern_fs_sync_dir(up, err);
        free(at);
        at = up;
    }
    free(at);
    return rc;
}
