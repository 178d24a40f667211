/* A folder of a rendering: written whole, and known again by its list of files and their SHA-256.
 * Slurm's files are such a list in a folder that may have others.
 */
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/base/temp.h"
#include "core/render/parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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
    char hex[TERN_SHA256_HEX];

    if (!sum)
        return foreign(dir, name, "was not rendered by tern", err);
    char *path = tern_strf("%s/%s", dir, name);
    int rc = tern_sha256_file(path, is, err);
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
        else if (!S_ISREG(st.st_mode))
            rc = foreign(dir, name, "was not rendered by tern", err);
        else if (strcmp(name, TERN_RENDER_LIST) != 0)
            rc = check_file(dir, name, sums, err);
        free(name);
        free(folder);
    }
    if (d)
        closedir(d);
    free(path);
    return rc;
}

int tern_render_load_list(const struct tern_render *r, const char *dir, json_t **ret_list,
                          struct tern_err *err)
{
    char *path = tern_strf("%s/%s", dir, TERN_RENDER_LIST);
    json_t *list = tern_fs_exists(path) ? tern_json_load(path, MAX_BYTES, err) : NULL;
    int rc = list || !tern_fs_exists(path) ? 0 : -1;

    free(path);
    if (list) {
        const char *form = json_string_value(json_object_get(list, "form"));
        if (!form || strcmp(form, r->form) != 0)
            rc = foreign(dir, TERN_RENDER_LIST, "is of another form (--to)", err);
    }
    if (rc == 0)
        *ret_list = list;
    else
        json_decref(list);
    return rc;
}

/* *ret_there: `dir` has an earlier rendering, which may go. */
static int check_target(const struct tern_render *r, const char *dir, bool *ret_there,
                        struct tern_err *err)
{
    struct stat st;
    json_t *list = NULL;
    int rc;

    if (lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) &&
        tern_render_load_list(r, dir, &list, err) < 0)
        return -1;
    *ret_there = list != NULL;
    rc = list ? check_folder(dir, "", json_object_get(list, "sha256"), err)
              : tern_fs_is_free(dir, err);
    json_decref(list);
    return rc;
}

/* ------------------------------------------------------------------ a new one */

static bool is_within(const char *name)
{
    return *name && *name != '/' && !tern_str_starts(name, "../") && !strstr(name, "/../");
}

static int put_file(const char *dir, const char *name, const struct tern_buf *text, mode_t mode,
                    struct tern_err *err)
{
    char *path = tern_strf("%s/%s", dir, name), *parent = tern_fs_dirname(path);

    tern_assert(is_within(name), "'%s' leads out of %s", name, dir);
    int rc = tern_fs_mkdirs(parent, 0755, err);

    tern_fs_temp_sweep(path); /* of the form that writes into a folder with others */
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

static int write_whole(const struct tern_render *r, const char *to, struct tern_err *err)
{
    bool there;

    if (check_target(r, to, &there, err) < 0)
        return -1;
    char *temp = tern_fs_folder_beside_swept(to, err);
    if (!temp)
        return -1;
    int rc = put_all(r, temp, err);
    if (rc == 0)
        rc = swap(temp, to, there, err);
    if (rc == 0)
        rc = tern_fs_sync_parent(to, err);
    if (rc < 0 || there)
        tern_fs_remove_tree(temp, NULL);
    free(temp);
    return rc;
}

/* ------------------------------------------------------------------ into a folder with others */

/* Is the file missing, or already what it shall be? */
static bool is_settled(const char *dir, const struct tern_render_file *f)
{
    char *path = tern_strf("%s/%s", dir, f->name), *old = NULL;
    size_t len;
    bool settled = !tern_fs_exists(path);

    if (!settled && tern_fs_read(path, MAX_BYTES, &old, &len, NULL) == 0)
        settled = len == f->text.len && memcmp(old, f->text.data, len) == 0;
    free(old);
    free(path);
    return settled;
}

bool tern_render_is_stale(const struct tern_render *r, const char *dir, const char *name)
{
    if (strchr(name, '/') || *name == '.')
        return false;
    for (size_t i = 0; i < r->n_files; i++)
        if (strcmp(r->file[i].name, name) == 0)
            return false;
    char *path = tern_strf("%s/%s", dir, name);
    const bool there = tern_fs_exists(path);
    free(path);
    return there;
}

static int remove_stale(struct tern_render *r, const char *dir, const char *name,
                        struct tern_err *err)
{
    char *path = tern_strf("%s/%s", dir, name);
    int rc = unlink(path) < 0 ? tern_err_sys(err, "%s: cannot be removed", path) : 0;

    if (rc == 0)
        tern_render_say(r, "removed: %s, which this layout does not need", path);
    free(path);
    return rc;
}

static int write_into(struct tern_render *r, const char *dir, struct tern_err *err)
{
    json_t *list = NULL, *sums, *sum;
    const char *name;
    int rc = tern_fs_mkdirs(dir, 0755, err);

    if (rc == 0)
        rc = tern_render_load_list(r, dir, &list, err);
    sums = json_object_get(list, "sha256");
    for (size_t i = 0; rc == 0 && i < r->n_files; i++)
        if (!is_settled(dir, &r->file[i]))
            rc = check_file(dir, r->file[i].name, sums, err);
    json_object_foreach(sums, name, sum)
    {
        if (rc == 0 && tern_render_is_stale(r, dir, name))
            rc = check_file(dir, name, sums, err);
    }
    if (rc == 0)
        rc = put_all(r, dir, err);
    json_object_foreach(sums, name, sum)
    {
        if (rc == 0 && tern_render_is_stale(r, dir, name))
            rc = remove_stale(r, dir, name, err);
    }
    json_decref(list);
    return rc;
}

/* ------------------------------------------------------------------ both */

int tern_render_write(struct tern_render *r, const char *dir, struct tern_err *err)
{
    static const int ends[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    char *to = tern_strdup(dir);
    sigset_t later, before;
    int rc;

    for (size_t n = strlen(to); n > 1 && to[n - 1] == '/';)
        to[--n] = '\0';
    sigemptyset(&later);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaddset(&later, ends[i]);
    pthread_sigmask(SIG_BLOCK, &later, &before);
    rc = strcmp(r->form, "slurm") == 0 ? write_into(r, to, err) : write_whole(r, to, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(to);
    return rc;
}
