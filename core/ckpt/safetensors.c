#include "core/ckpt/safetensors.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/le.h"
#include "core/base/str.h"
#include "core/ckpt/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------ write */

static json_t *dims(const uint64_t *v, int n)
{
    json_t *a = json_array();

    for (int d = 0; d < n; d++)
        json_array_append_new(a, json_integer((json_int_t)v[d]));
    return a;
}

int tern_ckpt_safetensors_head(const struct tern_ckpt_info *arrays, size_t n, char **head,
                               size_t *len, uint64_t *data_bytes, struct tern_err *err)
{
    json_t *root = json_object();
    uint64_t at = 0, bytes;
    int rc = -1;
    char *text = NULL, *out;

    /* transformers refuses a file that does not say which framework's layout it has. */
    json_object_set_new(root, "__metadata__", json_pack("{s:s}", "format", "pt"));
    for (size_t i = 0; i < n; i++) {
        const struct tern_ckpt_info *a = &arrays[i];
        if (tern_ckpt_shape_bytes(a->shape, a->ndim, a->type, &bytes) < 0 ||
            at + bytes > (1ull << 62)) {
            tern_err_set(err, TERN_USAGE, "array '%s' is too large for a file", a->name);
            goto out;
        }
        if (json_object_get(root, a->name)) {
            tern_err_set(err, TERN_USAGE, "array '%s' is given twice", a->name);
            goto out;
        }
        json_t *span = json_pack("[I,I]", (json_int_t)at, (json_int_t)(at + bytes));
        json_t *t = json_pack("{s:s,s:o,s:o}", "dtype", tern_ckpt_type_name(a->type), "shape",
                              dims(a->shape, a->ndim), "data_offsets", span);
        if (!t || json_object_set_new(root, a->name, t) < 0) {
            tern_err_set(err, TERN_USAGE, "array '%s': its name is not UTF-8", a->name);
            goto out;
        }
        at += bytes;
    }
    text = json_dumps(root, JSON_COMPACT);
    size_t json_len = text ? strlen(text) : 0, padded = (json_len + 7) / 8 * 8;
    if (!text || padded > TERN_CKPT_ST_HEADER_MAX) {
        tern_err_set(err, TERN_FAILED, "%zu arrays are too many for one safetensors file", n);
        goto out;
    }
    out = tern_alloc(8 + padded, 1, "safetensors header", err);
    if (!out)
        goto out;
    tern_le_put64(out, padded);
    memset(out + 8, ' ', padded);
    memcpy(out + 8, text, json_len);
    *head = out;
    *len = 8 + padded;
    *data_bytes = at;
    rc = 0;
out:
    free(text);
    json_decref(root);
    return rc;
}

/* ------------------------------------------------------------------ read */

static int whole_number(const json_t *j, uint64_t *v)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0)
        return -1;
    *v = (uint64_t)json_integer_value(j);
    return 0;
}

/* Types of the format that tern does not read, with the bits of an element. */
static const struct {
    const char *name;
    unsigned bits;
} others[] = {
    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"F8_E4M3", 8},     {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"C64", 64},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

/* A tensor of these as bytes, whose shape they have: an error for a reader of that tensor alone. */
static int other_parse(const char *dtype, const json_t *shape, uint64_t bytes, const char *path,
                       struct tern_ckpt_st_tensor *t, struct tern_err *err)
{
    uint64_t bits = 0, n;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, dtype) == 0)
            bits = others[i].bits;
    if (bits == 0) {
        char type[16];
        snprintf(type, sizeof type, "%s", dtype);
        tern_str_mask(type);
        return tern_err_set(err, TERN_USAGE,
                            "%s: tensor '%s' is of type '%s', which tern does not know", path,
                            t->info.name, type);
    }
    for (size_t d = 0; d < json_array_size(shape); d++)
        if (whole_number(json_array_get(shape, d), &n) < 0 ||
            __builtin_mul_overflow(bits, n, &bits))
            return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' has an impossible shape", path,
                                t->info.name);
    if (bits % 8 || bits / 8 != bytes)
        return tern_err_set(err, TERN_USAGE, "%s: tensor '%s': its offsets contradict its shape",
                            path, t->info.name);
    t->info.type = TERN_CKPT_OTHER;
    snprintf(t->info.other, sizeof t->info.other, "%s", dtype);
    t->info.ndim = 1;
    t->info.shape[0] = t->bytes = bytes;
    return 0;
}

static int tensor_parse(const char *name, const json_t *j, uint64_t data_at, const char *path,
                        struct tern_ckpt_st_tensor *t, struct tern_err *err)
{
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    const json_t *shape = json_object_get(j, "shape"), *span = json_object_get(j, "data_offsets");
    uint64_t begin, end, bytes;

    if (!dtype || !json_is_array(shape) || json_array_size(span) != 2 ||
        whole_number(json_array_get(span, 0), &begin) < 0 ||
        whole_number(json_array_get(span, 1), &end) < 0)
        return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' lacks a dtype, shape or data_offsets",
                            path, name);
    t->offset = data_at + begin;
    t->info.name = tern_strdup(name);
    if (begin > end)
        return tern_err_set(err, TERN_USAGE, "%s: tensor '%s': its offsets contradict its shape",
                            path, name);
    if (tern_ckpt_type_parse(dtype, &t->info.type) < 0)
        return other_parse(dtype, shape, end - begin, path, t, err);
    if (json_array_size(shape) > TERN_CKPT_DIMS)
        return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' has %zu dimensions (at most %d)",
                            path, name, json_array_size(shape), TERN_CKPT_DIMS);
    t->info.ndim = (int)json_array_size(shape);
    for (int d = 0; d < t->info.ndim; d++)
        if (whole_number(json_array_get(shape, (size_t)d), &t->info.shape[d]) < 0)
            return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' has an impossible shape", path,
                                name);
    if (tern_ckpt_shape_bytes(t->info.shape, t->info.ndim, t->info.type, &bytes) < 0 ||
        end - begin != bytes)
        return tern_err_set(err, TERN_USAGE, "%s: tensor '%s': its offsets contradict its shape",
                            path, name);
    t->bytes = bytes;
    return 0;
}

static int metadata_check(const json_t *metadata, const char *path, struct tern_err *err)
{
    const char *key;
    json_t *v;
    bool texts = json_is_object(metadata);

    json_object_foreach((json_t *)metadata, key, v) texts = texts && json_is_string(v);
    return texts ? 0
                 : tern_err_set(err, TERN_USAGE, "%s: its __metadata__ is no JSON object of texts",
                                path);
}

static int by_offset(const void *a, const void *b)
{
    const struct tern_ckpt_st_tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    /* Empty tensors share an offset with what follows. */
    return (x->bytes > 0) - (y->bytes > 0);
}

static int header_fill(json_t *root, const char *path, struct tern_ckpt_st_header *h,
                       struct tern_err *err)
{
    const char *name;
    json_t *v;

    if (json_object_size(root) > TERN_CKPT_ENTRIES_MAX)
        return tern_err_set(err, TERN_USAGE, "%s: names too many tensors", path);
    h->tensors = tern_alloc(json_object_size(root) + 1, sizeof *h->tensors, path, err);
    if (!h->tensors)
        return -1;
    json_object_foreach(root, name, v)
    {
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata_check(v, path, err) < 0)
                return -1;
            continue;
        }
        if (!*name || strlen(name) > TERN_CKPT_NAME_MAX)
            return tern_err_set(err, TERN_USAGE, "%s: a tensor's name has %zu bytes (1 to %d)",
                                path, strlen(name), TERN_CKPT_NAME_MAX);
        int rc = tensor_parse(name, v, h->bytes, path, &h->tensors[h->n], err);
        h->n += h->tensors[h->n].info.name != NULL;
        if (rc < 0)
            return -1;
    }
    qsort(h->tensors, h->n, sizeof *h->tensors, by_offset);
    uint64_t at = h->bytes;
    for (size_t i = 0; i < h->n; i++) {
        if (h->tensors[i].offset != at)
            return tern_err_set(err, TERN_USAGE,
                                "%s: tensor '%s' overlaps another or leaves a hole", path,
                                h->tensors[i].info.name);
        if (h->tensors[i].bytes > h->file_size - at)
            return tern_err_set(err, TERN_USAGE,
                                "%s: is truncated: it ends inside tensor '%s', at byte %llu", path,
                                h->tensors[i].info.name, (unsigned long long)h->file_size);
        at += h->tensors[i].bytes;
    }
    if (at != h->file_size)
        return tern_err_set(err, TERN_USAGE, "%s: %llu bytes follow the last tensor", path,
                            (unsigned long long)(h->file_size - at));
    return 0;
}

int tern_ckpt_st_header_parse(const char *head, size_t len, uint64_t file_size, const char *path,
                              struct tern_ckpt_st_header *h, struct tern_err *err)
{
    json_t *root = tern_json_parse(head + 8, len - 8, path, err);
    int rc;

    *h = (struct tern_ckpt_st_header){.bytes = len, .file_size = file_size};
    if (!root)
        return -1;
    if (!json_is_object(root))
        rc = tern_err_set(err, TERN_USAGE, "%s: its header is no JSON object", path);
    else
        rc = header_fill(root, path, h, err);
    json_decref(root);
    if (rc < 0)
        tern_ckpt_st_header_free(h);
    return rc;
}

int tern_ckpt_st_header_read(int fd, const char *path, struct tern_ckpt_st_header *h,
                             struct tern_err *err)
{
    uint8_t first[8];
    struct stat st;

    if (TERN_AGAIN(fstat(fd, &st)) < 0)
        return tern_err_sys(err, "%s: cannot stat", path);
    if (!S_ISREG(st.st_mode))
        return tern_err_set(err, TERN_USAGE, "%s: is not a regular file", path);
    if (st.st_size < 8)
        return tern_err_set(err, TERN_USAGE, "%s: is truncated: %lld bytes are no safetensors file",
                            path, (long long)st.st_size);
    if (tern_fs_pread(fd, first, 8, 0, path, err) < 0)
        return -1;
    if (memcmp(first, "version ", 8) == 0) /* https://git-lfs */
        return tern_err_set(
            err, TERN_USAGE,
            "%s: is a Git LFS pointer, and not the file it stands for. Get that: git "
            "lfs pull.",
            path);
    const uint64_t word = tern_le_get64(first);
    if (word > TERN_CKPT_ST_HEADER_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s: is no safetensors file (header of %llu bytes; at most %d)", path,
                            (unsigned long long)word, TERN_CKPT_ST_HEADER_MAX);
    if (word > (uint64_t)st.st_size - 8)
        return tern_err_set(err, TERN_USAGE, "%s: is truncated inside its header (%lld bytes)",
                            path, (long long)st.st_size);
    char *head = tern_alloc(8 + word, 1, path, err);
    if (!head)
        return -1;
    int rc = tern_fs_pread(fd, head, 8 + word, 0, path, err);
    if (rc == 0)
        rc = tern_ckpt_st_header_parse(head, 8 + word, (uint64_t)st.st_size, path, h, err);
    free(head);
    return rc;
}

void tern_ckpt_st_header_free(struct tern_ckpt_st_header *h)
{
    for (size_t i = 0; i < h->n; i++)
        free((char *)h->tensors[i].info.name);
    free(h->tensors);
    h->tensors = NULL;
    h->n = 0;
}
