/* A unified diff from the files of a folder to those of a rendering. */
#include "core/base/diff.h"
#include "core/base/fs.h"
#include "core/render/parts.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_BYTES = 16 << 20 }; /* of a file */

struct out {
    FILE *to;
    bool clean, differs;
};

/* *ret_old: the file's text; NULL where there is none, but not where it cannot be seen. */
static int read_old(const char *path, char **ret_old, size_t *ret_len, bool *ret_program,
                    struct tern_err *err)
{
    struct stat st;

    *ret_old = NULL;
    *ret_len = 0;
    if (stat(path, &st) < 0)
        return errno == ENOENT ? 0 : tern_err_sys(err, "%s: cannot be read", path);
    *ret_program = st.st_mode & S_IXUSR;
    return tern_fs_read(path, MAX_BYTES, ret_old, ret_len, err);
}

static void put_mode(struct out *o, const char *path, bool program)
{
    char *name = tern_strdup(path);

    if (o->clean)
        tern_str_mask(name);
    fprintf(o->to,
            program ? "%s: becomes a program (chmod +x)\n" : "%s: is no program (chmod -x)\n",
            name);
    free(name);
    o->differs = true;
}

/* `f` NULL: the file is removed. */
static int diff_file(struct out *o, const char *dir, const char *name,
                     const struct tern_render_file *f, struct tern_err *err)
{
    char *path = tern_strf("%s/%s", dir, name), *old;
    char *new_name = f ? tern_strf("%s (rendered)", name) : tern_strdup("/dev/null");
    bool program = false;
    size_t len;
    int rc = read_old(path, &old, &len, &program, err);

    if (rc == 0) {
        const struct tern_diff d = {.to = o->to,
                                    .clean = o->clean,
                                    .old_name = path,
                                    .new_name = new_name,
                                    .old = old,
                                    .old_len = len,
                                    .new = f ? f->text.data : "",
                                    .new_len = f ? f->text.len : 0};
        if (tern_diff_print(&d))
            o->differs = true;
        if (old && f && program != f->program)
            put_mode(o, path, f->program);
        free(old);
    }
    free(new_name);
    free(path);
    return rc;
}

static int check_dir(const char *dir, struct tern_err *err)
{
    DIR *d = opendir(dir);

    if (!d && errno == ENOENT)
        return tern_err_set(err, TERN_USAGE, "--diff: %s: there is no such folder.", dir);
    if (!d && errno == ENOTDIR)
        return tern_err_set(err, TERN_USAGE, "--diff: %s: is no folder.", dir);
    if (!d)
        return tern_err_sys(err, "--diff: %s: cannot be read", dir);
    closedir(d);
    return 0;
}

int tern_render_diff(const struct tern_render *r, const char *dir, FILE *to, bool clean,
                     bool *ret_differs, struct tern_err *err)
{
    struct out o = {.to = to, .clean = clean};
    json_t *list = NULL, *sum;
    const char *name;
    int rc = check_dir(dir, err);

    if (rc == 0)
        rc = tern_render_load_list(r, dir, &list, err);
    for (size_t i = 0; rc == 0 && i < r->n_files; i++)
        rc = diff_file(&o, dir, r->file[i].name, &r->file[i], err);
    json_object_foreach(json_object_get(list, "sha256"), name, sum)
    {
        if (rc == 0 && tern_render_is_stale(r, dir, name))
            rc = diff_file(&o, dir, name, NULL, err);
    }
    json_decref(list);
    if (rc == 0)
        *ret_differs = o.differs;
    return rc;
}
