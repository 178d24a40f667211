/* A folder of a rendering: written whole, and known again by its list of files and their SHA-256.
 */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/render/parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a list that is read, and of any rendered file. */
enum { MAX_BYTES = 16 << 20 };

static void digest(const struct tern_buf *text, char hex[TERN_SHA256_HEX])
{
    uint8_t sum[TERN_SHA256_BYTES];

    tern_sha256(text->data ? text->data : "", text->len, sum);
    tern_hex(hex, sum, sizeof sum);
}

int tern_render_list(const struct tern_render *r, struct tern_buf *to, struct tern_err *err)
{
    json_t *files = json_object();
    char hex[TERN_SHA256_HEX], *text = NULL;
    size_t len;

    for (size_t i = 0; i < r->n_files; i++) {
        digest(&r->file[i].text, hex);
        json_object_set_new(files, r->file[i].name, json_string(hex));
    }
    json_t *list = json_pack("{ss so}", "form", r->form, "sha256", files);
    FILE *out = open_memstream(&text, &len);
    int rc = out ? tern_json_print(out, list, err) : tern_err_sys(err, TERN_RENDER_LIST);
    if (out && fclose(out) != 0 && rc == 0)
        rc = tern_err_sys(err, TERN_RENDER_LIST);
    if (rc == 0)
        tern_buf_add(to, text, len);
    free(text);
    json_decref(list);
    return rc;
}

/* ------------------------------------------------------------------ a folder that is there */

static int foreign(const char *dir, const char *name, const char *why, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s/%s: %s; nothing is written. Move it away, or name another folder.", dir,
                        name, why);
}

static int check_file(const char *dir, const char *name, const json_t *sums, struct tern_err *err)
{
    const char *sum = json_string_value(json_object_get(sums, name));
    uint8_t is[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX], *path = tern_strf("%s/%s", dir, name);

    if (strcmp(name, TERN_RENDER_LIST) == 0) {
        free(path);
        return 0;
    }
    int rc =
        sum ? tern_sha256_file(path, is, err) : foreign(dir, name, "is no file of tern's", err);
    free(path);
    if (rc == 0 && strcmp(tern_hex(hex, is, sizeof is), sum) != 0)
        return foreign(dir, name, "was changed since tern rendered it (--diff shows how)", err);
    return rc;
}

/* All that is in folder `dir`/`below` ("" or "lifecycle/") is of the list. */
static int check_folder(const char *dir, const char *below, const json_t *sums,
                        struct tern_err *err)
{
    char *path = tern_strf("%s/%s", dir, below);
    DIR *d = opendir(path);
    int rc = d ? 0 : tern_err_sys(err, "%s: cannot be read", path);

    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *name = tern_strf("%s%s", below, e->d_name), *folder = tern_strf("%s/", name);
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            rc = tern_err_sys(err, "%s/%s: cannot stat", dir, name);
        else if (S_ISDIR(st.st_mode) && !*below)
            rc = check_folder(dir, folder, sums, err);
        else if (S_ISREG(st.st_mode))
            rc = check_file(dir, name, sums, err);
        else
            rc = foreign(dir, name, "is no file of tern's", err);
        free(name);
        free(folder);
    }
    if (d)
        closedir(d);
    free(path);
    return rc;
}

/* *ret_there: `dir` has an earlier rendering, which may go. */
static int check_target(const char *dir, bool *ret_there, struct tern_err *err)
{
    char *path = tern_strf("%s/%s", dir, TERN_RENDER_LIST);
    struct stat st;
    int rc = 0;

    *ret_there = lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && tern_fs_exists(path);
    if (*ret_there) {
        json_t *list = tern_json_load(path, MAX_BYTES, err);
        rc = list ? check_folder(dir, "", json_object_get(list, "sha256"), err) : -1;
        json_decref(list);
    } else {
        rc = tern_fs_is_free(dir, err);
    }
    free(path);
    return rc;
}

/* ------------------------------------------------------------------ a new one */

static int put_file(const char *dir, const char *name, const struct tern_buf *text, mode_t mode,
                    struct tern_err *err)
{
    char *path = tern_strf("%s/%s", dir, name), *parent = tern_fs_dirname(path);
    int rc = tern_fs_mkdirs(parent, 0755, err);

    if (rc == 0)
        rc = tern_fs_replace(path, text->data ? text->data : "", text->len, mode, err);
    free(parent);
    free(path);
    return rc;
}

static int put_all(const struct tern_render *r, const char *dir, struct tern_err *err)
{
    struct tern_buf list = {0};
    int rc = tern_render_list(r, &list, err);

    for (size_t i = 0; rc == 0 && i < r->n_files; i++) {
        const struct tern_render_file *f = &r->file[i];
        rc = put_file(dir, f->name, &f->text, f->program ? 0755 : 0644, err);
    }
    if (rc == 0)
        rc = put_file(dir, TERN_RENDER_LIST, &list, 0644, err);
    tern_buf_free(&list);
    return rc;
}

/* Folder `temp` becomes `dir`; what was there becomes `temp`. */
static int swap(const char *temp, const char *dir, bool there, struct tern_err *err)
{
    int rc = there ? renameat2(AT_FDCWD, temp, AT_FDCWD, dir, RENAME_EXCHANGE)
                   : tern_fs_rename(temp, dir, /* only_new= */ false);

    if (rc < 0 && there && (errno == EINVAL || errno == ENOSYS))
        return tern_err_set(err, TERN_USAGE,
                            "%s: this file system cannot exchange folders. Remove it first.", dir);
    return rc < 0 ? tern_err_sys(err, "%s: cannot put it in place", dir) : 0;
}

int tern_render_write(const struct tern_render *r, const char *dir, struct tern_err *err)
{
    char *temp = NULL, *to = tern_strdup(dir);
    bool there;
    int rc = -1;

    for (size_t n = strlen(to); n > 1 && to[n - 1] == '/';)
        to[--n] = '\0';
    if (check_target(to, &there, err) < 0)
        goto out;
    temp = tern_fs_folder_beside(to, err);
    if (!temp)
        goto out;
    rc = put_all(r, temp, err);
    if (rc == 0)
        rc = swap(temp, to, there, err);
    if (rc == 0)
        rc = tern_fs_sync_parent(to, err);
    if (rc < 0 || there)
        tern_fs_remove_tree(temp, NULL);
out:
    free(temp);
    free(to);
    return rc;
}
