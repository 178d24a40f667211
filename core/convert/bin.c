/* Hugging Face folders of PyTorch's files: pytorch_model.bin, or several with an index. */
#include "core/convert/foreign.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/pytorch/pytorch.h"

#include <stdlib.h>
#include <string.h>

enum {
    FILES_MAX = 4096,
};

/* The tensor as an array of the file that was listed last; `skip` bytes of its name go. */
static int add_tensor(struct tern_convert_foreign *f, const struct tern_pytorch_tensor *t,
                      size_t skip, struct tern_err *err)
{
    struct tern_ckpt_info info = {.name = t->name + skip, .type = t->type, .ndim = t->ndim};
    struct tern_ckpt_piece piece = {.file = (unsigned)f->n_files - 1, .offset = t->offset};

    memcpy(info.shape, t->shape, sizeof info.shape);
    memcpy(piece.shape, t->shape, sizeof piece.shape);
    memcpy(piece.stride, t->stride, sizeof piece.stride);
    return tern_convert_foreign_array(f, &info, &piece, 1, err);
}

/* ---------------------------------------------------------------- one file */

struct group {
    const char *name; /* [len]: the dicts around a tensor */
    size_t len, n;
};

static int by_size(const void *a, const void *b)
{
    const struct group *x = a, *y = b;

    return (x->n < y->n) - (x->n > y->n);
}

/* "'model' (291), 'ema' (291)": the dicts that hold tensors, the fullest first. */
static void list_groups(const struct tern_pytorch_file *file, struct tern_buf *to)
{
    enum { GROUPS = 64, SHOWN = 4 };
    struct group g[GROUPS];
    size_t n = 0;

    for (size_t i = 0; i < file->n; i++) {
        const struct tern_pytorch_tensor *t = &file->tensors[i];
        const size_t len = t->outer ? t->outer - 1 : 0; /* 0: of an empty key */
        size_t k = 0;
        if (!t->outer)
            continue;
        while (k < n && (g[k].len != len || memcmp(g[k].name, t->name, len) != 0))
            k++;
        if (k == n && n < GROUPS)
            g[n++] = (struct group){t->name, len, 0};
        if (k < n)
            g[k].n++;
    }
    qsort(g, n, sizeof *g, by_size);
    for (size_t k = 0; k < n && k < SHOWN; k++)
        tern_buf_printf(to, "%s'%.*s' (%zu)", k ? ", " : "", (int)g[k].len, g[k].name, g[k].n);
    if (n > SHOWN)
        tern_buf_puts(to, ", ...");
}

/* Why none of its tensors are taken; `mixed`: there are some, and others in dicts beside them. */
static int say_groups(const struct tern_pytorch_file *file, const char *path, const char *key,
                      bool mixed, struct tern_err *err)
{
    struct tern_buf groups = {.max = 600};

    list_groups(file, &groups);
    if (groups.data)
        tern_str_mask(groups.data);
    if (mixed)
        tern_err_set(err, TERN_USAGE,
                     "%s: has tensors at the top and, in dicts beside them, below %s. Give the key "
                     "of those that are meant (--key KEY), or save these alone",
                     path, groups.data);
    else if (!groups.len)
        tern_err_set(err, TERN_USAGE, "%s: its tensors lie at the top, and not below a key '%s'",
                     path, key);
    else if (key)
        tern_err_set(err, TERN_USAGE, "%s: has no tensors below '%s'; it has some below %s", path,
                     key, groups.data);
    else
        tern_err_set(err, TERN_USAGE,
                     "%s: its tensors lie below %s, and none at the top. Write those of one key to "
                     "a folder, and give that: tern ckpt export %s --key KEY -o FOLDER",
                     path, groups.data, path);
    tern_buf_free(&groups);
    return -1;
}

/* With a key all that lies below it; else what lies at the top. */
static int take_file(struct tern_convert_foreign *f, const struct tern_pytorch_file *file,
                     const char *path, const char *key, struct tern_err *err)
{
    char *below = key ? tern_strf("%s.", key) : tern_strdup("");
    const size_t skip = strlen(below);
    size_t here = 0, deeper = 0;
    int rc = 0;

    for (size_t i = 0; i < file->n; i++) {
        const struct tern_pytorch_tensor *t = &file->tensors[i];
        here += key ? t->outer >= skip && tern_str_starts(t->name, below) : t->outer == 0;
        deeper += !key && t->outer > 0;
    }
    if (!here || deeper)
        rc = say_groups(file, path, key, /* mixed= */ here > 0, err);
    for (size_t i = 0; rc == 0 && i < file->n; i++)
        if (file->tensors[i].outer >= skip && tern_str_starts(file->tensors[i].name, below))
            rc = add_tensor(f, &file->tensors[i], skip, err);
    free(below);
    return rc;
}

struct tern_ckpt *tern_convert_open_bin(const char *dir, const char *file, const char *key,
                                        struct tern_err *err)
{
    struct tern_convert_foreign f = {.dir = dir};
    struct tern_pytorch_file read = {0};
    char *path = tern_fs_join(dir, file);
    int rc = tern_pytorch_open(path, &read, err);

    if (rc == 0)
        rc = tern_convert_foreign_file(&f, file, read.bytes, err);
    if (rc == 0)
        rc = take_file(&f, &read, path, key, err);
    tern_pytorch_free(&read);
    free(path);
    if (rc == 0)
        return tern_convert_foreign_open(&f, err);
    tern_convert_foreign_free(&f);
    return NULL;
}

/* ---------------------------------------------------------------- several files */

/* Those of the file's tensors that the index takes from there. */
static int add_file(struct tern_convert_foreign *f, const char *name, struct tern_ckpt_index *x,
                    struct tern_err *err)
{
    struct tern_pytorch_file read = {0};
    char *path = tern_fs_join(f->dir, name);
    int rc = tern_pytorch_open(path, &read, err);

    free(path);
    if (rc == 0)
        rc = tern_convert_foreign_file(f, name, read.bytes, err);
    for (size_t i = 0; rc == 0 && i < read.n; i++)
        if (read.tensors[i].outer == 0 && tern_ckpt_index_takes(x, read.tensors[i].name, name))
            rc = add_tensor(f, &read.tensors[i], 0, err);
    tern_pytorch_free(&read);
    return rc;
}

/* Is it absent, and nothing that is needed lies there? */
static bool is_spare(const char *dir, const char *file, const struct tern_ckpt_index *x)
{
    char *path = tern_fs_join(dir, file);
    const bool absent = !tern_fs_exists(path);

    free(path);
    return absent && !tern_ckpt_index_wants(x, file);
}

static int add_files(struct tern_convert_foreign *f, struct tern_ckpt_index *x,
                     struct tern_err *err)
{
    json_t *seen = json_object(), *v;
    const char *tensor;
    int rc = 0;

    json_object_foreach(x->map, tensor, v)
    {
        const char *file = json_string_value(v);
        if (!file || file[0] == '.' || strchr(file, '/') || !tern_str_ends(file, ".bin"))
            rc = tern_err_set(err, TERN_USAGE,
                              "%s: places tensor '%s' in a file that is no .bin of its folder",
                              x->path, tensor);
        else if (json_object_get(seen, file))
            continue;
        else if (f->n_files == FILES_MAX)
            rc = tern_err_set(err, TERN_USAGE, "%s: names more than %d files", x->path, FILES_MAX);
        else if (!is_spare(f->dir, file, x))
            rc = add_file(f, file, x, err);
        if (rc < 0)
            break;
        json_object_set_new(seen, file, json_true());
    }
    json_decref(seen);
    return rc;
}

struct tern_ckpt *tern_convert_open_bins(const char *dir, struct tern_ckpt_index *x,
                                         struct tern_err *err)
{
    struct tern_convert_foreign f = {.dir = dir};
    char *path = tern_fs_join(dir, "pytorch_model.bin.index.json");
    struct tern_ckpt *c = NULL;

    if (tern_ckpt_index_load(path, x, err) == 0 && add_files(&f, x, err) == 0)
        c = tern_convert_foreign_open(&f, err);
    else
        tern_convert_foreign_free(&f);
    if (c && tern_ckpt_index_check(x, c, err) < 0) {
        tern_ckpt_close(c);
        c = NULL;
    }
    tern_ckpt_index_free(x);
    free(path);
    return c;
}
