/* A folder copied whole: beside its place first, then under its name. */
#include "core/base/tree_file.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tern_tree_file *)a)->name,
                  ((const struct tern_tree_file *)b)->name);
}

/* The folders of `name` under `root`, made as needed. */
static int make_folders(const char *root, const char *name, struct tern_err *err)
{
    const char *slash = strrchr(name, '/');

    if (!slash)
        return 0;
    char *dir = tern_strf("%s/%.*s", root, (int)(slash - name), name);
    int rc = tern_fs_mkdirs(dir, 0777, err);
    free(dir);
    return rc;
}

static int copy_one(const char *from, const struct tern_tree_file *f, const char *to,
                    struct tern_err *err)
{
    char hex[TERN_SHA256_HEX];
    struct stat st;
    char *source = tern_strf("%s/%s", from, f->name), *target = tern_strf("%s/%s", to, f->name);
    int in = -1, out = -1, rc = -1;

    if (make_folders(to, f->name, err) < 0)
        goto done;
    if (f->link) {
        rc = TERN_AGAIN(symlink(f->link, target));
        if (rc < 0)
            tern_err_sys(err, "%s: cannot make the link", target);
        goto done;
    }
    in = tern_tree_open_file(source, &st, err);
    if (in < 0)
        goto done;
    out = TERN_AGAIN(open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (out < 0) {
        tern_err_sys(err, "%s: cannot create", target);
        goto done;
    }
    if (tern_tree_stream(in, source, out, target, hex, err) < 0)
        goto done;
    if (strcmp(hex, f->sha256) != 0) {
        tern_err_set(err, TERN_TEMPFAIL, "%s: has changed since it was verified", source);
        goto done;
    }
    const off_t copied = lseek(out, 0, SEEK_CUR);
    if (copied < 0) {
        tern_err_sys(err, "%s: cannot seek", target);
        goto done;
    }
    if ((uint64_t)copied != f->bytes) {
        tern_err_set(err, TERN_TEMPFAIL, "%s: has %lld bytes, its record says %llu", source,
                     (long long)copied, (unsigned long long)f->bytes);
        goto done;
    }
    if (TERN_AGAIN(fchmod(out, f->mode)) < 0 || tern_fs_sync(out) < 0) {
        tern_err_sys(err, "%s: cannot make it durable", target);
        goto done;
    }
    posix_fadvise(out, 0, 0, POSIX_FADV_DONTNEED); /* it is read back from the storage */
    rc = 0;
done:
    if (in >= 0)
        close(in);
    if (out >= 0 && tern_fs_close(out) < 0 && rc == 0)
        rc = tern_err_sys(err, "%s: cannot close", target);
    free(source);
    free(target);
    return rc;
}

/* Every folder that the copy made.  Names are sorted: a folder's files are neighbours.  A folder
 * with a subfolder's files between its own is synced twice. */
static int sync_folders(const char *root, const struct tern_tree *t, struct tern_err *err)
{
    const char *last = "";
    size_t last_len = 0;

    for (size_t i = 0; i < t->n; i++) {
        const char *name = t->file[i].name;
        for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
            size_t len = (size_t)(slash - name);
            if (len <= last_len && strncmp(name, last, len) == 0 &&
                (last[len] == '/' || len == last_len))
                continue;
            char *dir = tern_strf("%s/%.*s", root, (int)len, name);
            int rc = tern_fs_sync_dir(dir, err);
            free(dir);
            if (rc < 0)
                return -1;
        }
        const char *slash = strrchr(name, '/');
        last = name;
        last_len = slash ? (size_t)(slash - name) : 0;
    }
    return tern_fs_sync_dir(root, err);
}

/* rename(2) alone would replace an empty folder. */
static int put_in_place(const char *aside, const char *to, struct tern_err *err)
{
    tern_assert(strcmp(aside, to) != 0, "%s", to);
    if (tern_fs_rename(aside, to, /* only_new= */ true) < 0)
        return tern_err_sys(err, "%s: cannot put it in place", to);
    return tern_fs_sync_parent(to, err);
}

/* Of an ended copy's files under `aside`, those that look whole stay (permission bits are set
 * last). Reading everything back verifies them.  1: some file stays. */
static int take_up(const char *aside, const struct tern_tree *t, struct tern_err *err)
{
    struct tern_tree left = {0};
    int any = 0;

    if (TERN_AGAIN(mkdir(aside, 0777)) == 0)
        return 0;
    if (errno != EEXIST)
        return tern_err_sys(err, "%s: cannot make folder", aside);
    if (tern_tree_list(aside, &left, NULL) < 0) {
        if (tern_fs_remove_tree(aside, err) < 0)
            return -1;
        return TERN_AGAIN(mkdir(aside, 0777)) < 0
                   ? tern_err_sys(err, "%s: cannot make folder", aside)
                   : 0;
    }
    for (size_t i = 0; i < left.n && any >= 0; i++) {
        const struct tern_tree_file *is = &left.file[i];
        const struct tern_tree_file *f =
            t->n ? bsearch(is, t->file, t->n, sizeof *t->file, by_name) : NULL;
        if (f && !f->link && !is->link && f->bytes == is->bytes && f->mode == is->mode) {
            any = 1;
            continue;
        }
        char *path = tern_strf("%s/%s", aside, is->name);
        if (TERN_AGAIN(unlink(path)) < 0)
            any = tern_err_sys(err, "%s: cannot remove", path);
        free(path);
    }
    tern_tree_free(&left);
    return any;
}

/* A reused file: its writer may have ended before it was durable. */
static int sync_one(const struct tern_tree_file *f, const char *to, struct tern_err *err)
{
    char *path = tern_strf("%s/%s", to, f->name);
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)),
        rc = fd < 0 ? -1 : tern_fs_sync(fd);

    if (rc < 0)
        tern_err_sys(err, "%s: cannot make it durable", path);
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    free(path);
    return rc;
}

static int fill(const char *from, const struct tern_tree *t, const char *aside,
                struct tern_err *err)
{
    struct stat st;
    int rc = 0;

    for (size_t i = 0; i < t->n; i++)
        tern_progress_expect(t->file[i].bytes);
    for (size_t i = 0; rc == 0 && i < t->n; i++) {
        char *path = tern_strf("%s/%s", aside, t->file[i].name);
        if (TERN_AGAIN(lstat(path, &st)) == 0) {
            rc = sync_one(&t->file[i], aside, err);
            tern_progress_add(t->file[i].bytes);
        } else {
            rc = copy_one(from, &t->file[i], aside, err);
        }
        free(path);
    }
    if (rc == 0)
        rc = sync_folders(aside, t, err);
    return rc == 0 ? tern_tree_verify(aside, t, true, err) : -1;
}

int tern_tree_copy(const char *from, const struct tern_tree *t, const char *aside, const char *to,
                   struct tern_err *err)
{
    char *parent = tern_fs_dirname(to);
    int rc = -1, old = 0;

    if (tern_fs_mkdirs(parent, 0777, err) < 0)
        goto out;
    do {
        old = take_up(aside, t, err);
        rc = old < 0 ? -1 : fill(from, t, aside, err);
        if (rc < 0)
            tern_fs_remove_tree(aside, NULL);
    } while (rc < 0 && old > 0); /* reused files may be of another version */
    if (rc == 0 && (rc = put_in_place(aside, to, err)) < 0)
        tern_fs_remove_tree(aside, NULL);
out:
    free(parent);
    return rc;
}
