/* A unified diff from the files of a folder to those of a rendering. */
#include "core/base/diff.h"
#include "core/base/fs.h"
#include "core/render/parts.h"

#include <stdlib.h>

enum { MAX_BYTES = 16 << 20 }; /* of a file */

static int diff_file(FILE *to, bool clean, const char *dir, const struct tern_render_file *f,
                     bool *ret_differs, struct tern_err *err)
{
    char *path = tern_strf("%s/%s", dir, f->name), *old = NULL;
    char *new_name = tern_strf("%s (rendered)", f->name);
    size_t len = 0;
    int rc = tern_fs_exists(path) ? tern_fs_read(path, MAX_BYTES, &old, &len, err) : 0;

    if (rc == 0) {
        const struct tern_diff d = {.to = to,
                                    .clean = clean,
                                    .old_name = path,
                                    .new_name = new_name,
                                    .old = old,
                                    .old_len = len,
                                    .new = f->text.data,
                                    .new_len = f->text.len};
        if (tern_diff_print(&d))
            *ret_differs = true;
    }
    free(old);
    free(new_name);
    free(path);
    return rc;
}

int tern_render_diff(const struct tern_render *r, const char *dir, FILE *to, bool clean,
                     bool *ret_differs, struct tern_err *err)
{
    bool differs = false;

    if (!tern_fs_exists(dir))
        return tern_err_set(err, TERN_USAGE, "--diff: %s: there is no such folder.", dir);
    for (size_t i = 0; i < r->n_files; i++)
        if (diff_file(to, clean, dir, &r->file[i], &differs, err) < 0)
            return -1;
    *ret_differs = differs;
    return 0;
}
