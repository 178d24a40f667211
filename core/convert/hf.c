/* Hugging Face folders out. */
#include "core/convert/export.h"

#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/convert/nxd_adapters.h"
#include "core/convert/shards.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 8 << 20 }; /* bytes of weights in memory at a time */
#define SHARD_BYTES 5000000000ull
static const char *const torch_names[] = {
    [TERN_CKPT_F64] = "float64",
    [TERN_CKPT_F32] = "float32",
    [TERN_CKPT_F16] = "float16",
    [TERN_CKPT_BF16] = "bfloat16",
};

/* ------------------------------------------------------------------ what is to be written */

/* The tensors to write, and their places. */
static int list(struct tern_convert_export *x, struct tern_err *err)
{
    const struct tern_convert_hf *o = x->options;

    if (x->adapter_config) {
        x->from = x->c;
        x->prefix = "";
        return tern_convert_list_arrays(x, err);
    }
    if (x->peft) {
        x->from = x->base; /* its prefix is there */
        return tern_convert_peft_check(x->peft, &x->config, err) < 0
                   ? -1
                   : tern_convert_list_tensors(x, err);
    }
    bool adapted = tern_convert_adapters(x->c, &x->adapters);
    x->from = x->c;
    x->prefix = !tern_ckpt_manifest(x->c) ? "" : adapted ? "base/" : "model/";
    if (o->merge && !adapted)
        return tern_err_set(err, TERN_USAGE,
                            "%s: holds no adapters (LoRA) to be merged. `tern ckpt export` writes "
                            "its model",
                            tern_ckpt_path(x->c));
    if (adapted && !o->merge) {
        x->prefix = "lora/";
        return tern_convert_list_adapters(x, err);
    }
    if (o->merge && o->base)
        x->from = x->base = tern_convert_open_base(o->base, &x->prefix, err);
    return x->from ? tern_convert_list_tensors(x, err) : -1;
}

static bool is_adapters(const struct tern_convert_export *x)
{
    return x->adapter_config || (x->adapters.rank && !x->options->merge);
}

static uint64_t bytes_of(const struct tern_ckpt_info *t)
{
    uint64_t n = tern_ckpt_type_bytes(t->type);

    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d]; /* cannot wrap: it was compared with the file */
    return n;
}

static int deal_shards(struct tern_convert_export *x, struct tern_err *err)
{
    uint64_t max = x->options->max_shard_bytes ? x->options->max_shard_bytes : SHARD_BYTES;
    max = is_adapters(x) ? UINT64_MAX : max; /* PEFT reads one file */
    uint64_t *bytes = tern_alloc(x->n, sizeof *bytes, "list of tensors", err);

    if (!bytes)
        return -1;
    for (size_t i = 0; i < x->n; i++) {
        bytes[i] = bytes_of(&x->tensors[i]);
        x->total += bytes[i];
    }
    x->n_shards = tern_convert_deal_shards(bytes, x->n, max, x->shard);
    free(bytes);
    return tern_convert_sort_shards(x->tensors, x->shard, x->n, x->n_shards, err);
}

/* ------------------------------------------------------------------ weights */

static char *shard_name(const struct tern_convert_export *x, unsigned i)
{
    if (is_adapters(x))
        return tern_strdup("adapter_model.safetensors");
    if (x->n_shards == 1)
        return tern_strdup("model.safetensors");
    return tern_strf("model-%05u-of-%05u.safetensors", i + 1, x->n_shards);
}

/* Rows of a tensor, and room for them. */
struct rows {
    uint64_t start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS];
    char *piece;    /* as they are written */
    double *values; /* while an adapter is put in; else NULL */
};

static int read_piece(struct tern_convert_export *x, const struct tern_ckpt_info *t,
                      struct tern_convert_merge *merge, const struct rows *w, struct tern_err *err)
{
    const int64_t from[] = {(int64_t)w->start[0], 0};
    const int64_t some[] = {(int64_t)w->shape[0], (int64_t)w->shape[1]};

    const char *saved = x->peft && !merge ? tern_convert_peft_saved(x->peft, t->name) : NULL;
    if (saved)
        return tern_ckpt_read(tern_convert_peft_arrays(x->peft), saved, t->type, w->start, w->shape,
                              w->piece, err);
    if (!merge)
        return tern_ckpt_read(x->from, t->name - strlen(x->prefix), t->type, w->start, w->shape,
                              w->piece, err);
    if (tern_convert_merge_read(merge, from, some, w->values, err) < 0)
        return -1;
    tern_ckpt_convert(w->piece, t->type, w->values, TERN_CKPT_F64, w->shape[0] * w->shape[1]);
    return 0;
}

int tern_convert_check_range(const struct tern_convert_export *x, const struct tern_ckpt_info *t,
                             const char *piece, uint64_t n, struct tern_err *err)
{
    uint64_t infinite = 0;

    if (t->type != TERN_CKPT_F16 || x->options->dtype != TERN_CONVERT_F16)
        return 0;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, piece + i * sizeof h, sizeof h);
        infinite += (h & 0x7fff) == 0x7c00;
    }
    return infinite == 0
               ? 0
               : tern_err_set(err, TERN_USAGE,
                              "%s: tensor '%s' holds values beyond f16's 65504 (%llu in one "
                              "piece of it). Export it as bf16 or f32.",
                              tern_ckpt_path(x->from), t->name, (unsigned long long)infinite);
}

static int write_rows(struct tern_convert_export *x, const struct tern_ckpt_info *t,
                      struct tern_convert_merge *merge, char *piece, int fd, const char *path,
                      struct tern_err *err)
{
    uint64_t row = bytes_of(t) / t->shape[0], most = merge ? t->shape[1] * sizeof(double) : row;
    struct rows w = {.piece = piece, .values = merge ? (double *)(piece + PIECE) : NULL};

    memcpy(w.shape, t->shape, sizeof w.shape);
    if (most > PIECE)
        return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' has rows of %llu bytes (at most %d)",
                            tern_ckpt_path(x->from), t->name, (unsigned long long)most, PIECE);
    for (; w.start[0] < t->shape[0]; w.start[0] += w.shape[0]) {
        if (x->options->stop && *x->options->stop)
            return tern_err_set(err, TERN_FAILED, "interrupted; nothing was left behind");
        uint64_t left = t->shape[0] - w.start[0];
        w.shape[0] = left < PIECE / most ? left : PIECE / most;
        if (read_piece(x, t, merge, &w, err) < 0 ||
            tern_convert_check_range(x, t, piece, w.shape[0] * (row / 2), err) < 0 ||
            tern_fs_write(fd, piece, w.shape[0] * row, path, err) < 0)
            return -1;
    }
    tern_assert_cmp(w.start[0], ==, t->shape[0]);
    return 0;
}

static int write_tensor(struct tern_convert_export *x, const struct tern_ckpt_info *t, char *piece,
                        int fd, const char *path, struct tern_err *err)
{
    struct tern_convert_merge *merge = NULL;
    struct tern_model_tensor whole;

    if (x->options->merge) {
        struct tern_model_adapters a = x->adapters;
        tern_model_tensor(&x->config, (size_t)tern_model_tensor_find(&x->config, t->name), &whole);
        int beside = x->peft ? tern_convert_peft_beside(x->peft, &whole, &a, err)
                             : tern_model_adapter_beside(&a, whole.kind);
        if (beside > 0)
            merge = tern_convert_merge_open(x->from, x->prefix,
                                            x->peft ? tern_convert_peft_arrays(x->peft) : x->c, &a,
                                            &whole, err);
        if (beside < 0 || (beside && !merge))
            return -1;
    }
    int rc = write_rows(x, t, merge, piece, fd, path, err);
    tern_convert_merge_close(merge);
    return rc;
}

static int write_shard(struct tern_convert_export *x, unsigned i, char *piece, struct tern_err *err)
{
    char *name = shard_name(x, i), *path = tern_fs_join(x->temp, name), *head = NULL;
    size_t first = 0, n = 0, len;
    uint64_t data;
    struct tern_fs_new f;
    int rc = -1;

    while (x->shard[first] != i)
        first++;
    while (first + n < x->n && x->shard[first + n] == i)
        n++;
    if (tern_ckpt_safetensors_head(x->tensors + first, n, &head, &len, &data, err) < 0)
        goto out;
    tern_assert(n > 0 && first + n <= x->n, "shard %u: tensors %zu to %zu", i, first, first + n);
    if (tern_fs_new_open(&f, path, 0644, err) < 0)
        goto out;
    rc = tern_fs_write(f.fd, head, len, path, err);
    for (size_t k = 0; rc == 0 && k < n; k++)
        rc = write_tensor(x, &x->tensors[first + k], piece, f.fd, path, err);
    if (rc == 0) {
        off_t end = lseek(f.fd, 0, SEEK_CUR);
        tern_assert(end < 0 || (uint64_t)end == len + data, "%s: %lld bytes", path, (long long)end);
        rc = tern_fs_new_commit(&f, err);
    } else {
        tern_fs_new_abort(&f);
    }
out:
    free(head);
    free(path);
    free(name);
    return rc;
}

/* 1e-05 as people write it, if 15 digits are exact; else all 17. */
static char *dump_short(const json_t *j, size_t flags)
{
    char *text = json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(15) | flags);
    json_t *back = text ? json_loads(text, 0, NULL) : NULL;
    bool same = back && json_equal(back, j);

    json_decref(back);
    if (same)
        return text;
    free(text);
    return json_dumps(j, JSON_INDENT(2) | flags);
}

int tern_convert_write_json(const struct tern_convert_export *x, const char *name, const json_t *j,
                            size_t flags, struct tern_err *err)
{
    char *path = tern_fs_join(x->temp, name), *text = dump_short(j, flags);
    char *line = tern_strf("%s\n", text ? text : "");
    int rc = text ? tern_fs_replace(path, line, strlen(line), 0644, err)
                  : tern_err_set(err, TERN_FAILED, "%s: cannot be written as JSON", path);

    free(line);
    free(text);
    free(path);
    return rc;
}

static int write_index(const struct tern_convert_export *x, struct tern_err *err)
{
    json_t *map = json_object();
    uint64_t numbers = 0;

    for (size_t i = 0; i < x->n; i++) {
        char *name = shard_name(x, x->shard[i]);
        json_object_set_new(map, x->tensors[i].name, json_string(name));
        free(name);
        numbers += bytes_of(&x->tensors[i]) / tern_ckpt_type_bytes(x->tensors[i].type);
    }
    json_t *index =
        json_pack("{s:{s:I,s:I},s:o}", "metadata", "total_parameters", (json_int_t)numbers,
                  "total_size", (json_int_t)x->total, "weight_map", map);
    int rc = tern_convert_write_json(x, "model.safetensors.index.json", index, JSON_SORT_KEYS, err);
    json_decref(index);
    return rc;
}

/* ------------------------------------------------------------------ the files beside them */

static int write_config(struct tern_convert_export *x, struct tern_err *err)
{
    const char *dtype = torch_names[x->tensors[0].type];

    json_object_set_new(x->config_json, "torch_dtype", json_string(dtype));
    if (json_object_get(x->config_json, "dtype")) /* so transformers 5 calls it, and believes it */
        json_object_set_new(x->config_json, "dtype", json_string(dtype));
    /* What transformers needs to choose the class; a config made by hand may lack it. */
    if (!json_object_get(x->config_json, "architectures"))
        json_object_set_new(x->config_json, "architectures", json_pack("[s]", "LlamaForCausalLM"));
    return tern_convert_write_json(x, "config.json", x->config_json, 0, err);
}

static bool is_tokenizer(const char *name)
{
    return strcmp(name, "tokenizer.model") == 0 || strcmp(name, "tokenizer.json") == 0 ||
           strcmp(name, "vocab.json") == 0;
}

/* From the checkpoint's own copies, whose digests are checked; files that it lacks, from `from`. */
static int copy_companions(struct tern_convert_export *x, const char *from, bool own,
                           bool *tokenizer, struct tern_err *err)
{
    struct tern_ckpt_file files[TERN_CKPT_COMPANIONS];
    size_t n = tern_ckpt_companions(own ? tern_ckpt_path(x->c) : from, files), len = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *text = NULL, *to = tern_fs_join(x->temp, files[i].name);
        if (!tern_fs_exists(to)) {
            /* tokenizer.json of a large vocabulary: 35 MB. */
            rc = own ? tern_ckpt_file_read(x->c, files[i].name, &text, &len, err)
                     : tern_fs_read(files[i].path, 64 << 20, &text, &len, err);
            if (rc == 0)
                rc = tern_fs_replace(to, text, len, 0644, err);
            if (rc == 0 && is_tokenizer(files[i].name))
                *tokenizer = true;
            rc = rc > 0 ? 0 : rc; /* lies there and is not of the checkpoint: left alone */
        }
        free(text);
        free(to);
    }
    tern_ckpt_companions_free(files, n);
    return rc;
}

static int write_companions(struct tern_convert_export *x, bool *tokenizer, struct tern_err *err)
{
    const char *named =
        x->peft ? NULL : json_string_value(json_object_get(tern_ckpt_meta(x->c), "tokenizer"));

    if (x->options->files_from) {
        if (!tern_fs_exists(x->options->files_from))
            return tern_err_set(err, TERN_USAGE, "%s: there is no such tokenizer folder",
                                x->options->files_from);
        if (copy_companions(x, x->options->files_from, false, tokenizer, err) < 0)
            return -1;
    }
    const char *adapters = x->peft ? tern_ckpt_path(tern_convert_peft_arrays(x->peft)) : NULL;
    if (copy_companions(x, adapters, !adapters, tokenizer, err) < 0 ||
        (x->base && copy_companions(x, tern_ckpt_path(x->base), false, tokenizer, err) < 0))
        return -1;
    return *tokenizer || !named ? 0 : copy_companions(x, named, false, tokenizer, err);
}

/* ------------------------------------------------------------------ the whole */

static int fill(struct tern_convert_export *x, struct tern_convert_out *out, struct tern_err *err)
{
    /* As it is written, and in double while an adapter is put in. */
    char *piece = tern_alloc(2 * (size_t)PIECE, 1, "weights", err);
    int rc = piece ? 0 : -1;

    for (unsigned i = 0; rc == 0 && i < x->n_shards; i++)
        rc = write_shard(x, i, piece, err);
    free(piece);
    out->adapters = is_adapters(x);
    if (rc == 0 && out->adapters)
        rc = x->adapter_config ? tern_convert_write_json(x, "adapter_config.json",
                                                         x->adapter_config, JSON_SORT_KEYS, err)
                               : tern_convert_write_adapter_config(x, err);
    if (rc == 0 && x->n_shards > 1)
        rc = write_index(x, err);
    if (rc == 0 && !out->adapters)
        rc = write_config(x, err);
    if (rc == 0 && !out->adapters)
        rc = write_companions(x, &out->tokenizer, err);
    return rc == 0 ? tern_fs_sync_dir(x->temp, err) : -1;
}

int tern_convert_folder_begin(struct tern_convert_export *x, const char *out_dir,
                              struct tern_err *err)
{
    if (tern_fs_is_free(out_dir, err) < 0)
        return -1;
    x->temp = tern_fs_folder_beside(out_dir, err);
    return x->temp ? 0 : -1;
}

int tern_convert_folder_end(struct tern_convert_export *x, const char *out_dir,
                            struct tern_err *err)
{
    if (tern_fs_rename(x->temp, out_dir, /* only_new= */ false) < 0)
        return tern_err_sys(err, "%s: cannot be put in place", out_dir);
    free(x->temp);
    x->temp = NULL; /* it has its name now */
    return tern_fs_sync_parent(out_dir, err);
}

static int export_run(struct tern_convert_export *x, const char *out_dir,
                      struct tern_convert_out *out, struct tern_err *err)
{
    if ((!x->adapter_config && tern_convert_load_config(x, err) < 0) || list(x, err) < 0 ||
        deal_shards(x, err) < 0 || tern_convert_folder_begin(x, out_dir, err) < 0 ||
        fill(x, out, err) < 0)
        return -1;
    return tern_convert_folder_end(x, out_dir, err);
}

void tern_convert_export_free(struct tern_convert_export *x)
{
    if (x->temp)
        tern_fs_remove_tree(x->temp, NULL);
    free(x->temp);
    json_decref(x->config_json);
    json_decref(x->adapter_config);
    free(x->tensors);
    free(x->shard);
    tern_convert_peft_close(x->peft);
    tern_ckpt_close(x->base);
    tern_ckpt_close(x->c);
}

/* Adapters of PEFT, and the weights that they belong to. */
static int open_peft(struct tern_convert_export *x, const char *path, struct tern_err *err)
{
    const char *base = x->options->base;
    char *named = NULL;

    if (!x->peft)
        x->peft = tern_convert_peft_open(path, err);
    if (x->peft && (base || (base = named = tern_convert_peft_base(x->peft, err))))
        x->base = tern_convert_open_base(base, &x->prefix, err);
    free(named);
    return x->base ? 0 : -1;
}

/* Adapters on Optimum Neuron's ranks; of `merge` with the weights that they belong to. */
static int open_nxd_adapters(struct tern_convert_export *x, const char *dir, struct tern_err *err)
{
    const struct tern_convert_hf *o = x->options;

    if (tern_convert_nxd_adapters_open(dir, o->stop, &x->c, &x->adapter_config, err) < 0)
        return -1;
    if (!o->merge && o->base)
        json_object_set_new(x->adapter_config, "base_model_name_or_path", json_string(o->base));
    if (!o->merge)
        return 0;
    x->peft = tern_convert_peft_of(dir, x->adapter_config, x->c, err); /* takes both */
    x->adapter_config = NULL;
    x->c = NULL;
    return x->peft ? open_peft(x, dir, err) : -1;
}

/* Arrays of PEFT's own come before those of ranks beside them. */
static bool has_peft_arrays(const char *dir)
{
    char *st = tern_fs_join(dir, "adapter_model.safetensors");
    char *bin = tern_fs_join(dir, "adapter_model.bin");
    bool has = tern_convert_peft_is(dir) && (tern_fs_exists(st) || tern_fs_exists(bin));

    free(bin);
    free(st);
    return has;
}

static int open_source(struct tern_convert_export *x, const char *path, struct tern_err *err)
{
    const struct tern_convert_hf *o = x->options;
    bool ours = tern_ckpt_is_ours(path) || tern_str_starts(tern_fs_basename(path), "step-");
    char *dir = NULL;
    bool look = o->from_nxd || (o->merge && !ours && !has_peft_arrays(path));
    int adapters = look ? tern_convert_nxd_adapters_find(path, &dir, err) : 0;
    int rc = adapters < 0 ? -1 : 0;

    if (adapters > 0)
        rc = open_nxd_adapters(x, dir, err);
    else if (rc == 0 && o->from_nxd)
        rc = tern_convert_open_from_nxd(x, path, o->from_nxd, err);
    else if (rc == 0 && !ours && o->merge && tern_convert_peft_is(path))
        rc = open_peft(x, path, err);
    else if (rc == 0) {
        x->c = ours && !o->key ? tern_ckpt_open(path, err) : tern_convert_open(path, o->key, err);
        rc = x->c ? 0 : -1;
    }
    free(dir);
    return rc;
}

int tern_convert_to_hf(const char *path, const char *out_dir, const struct tern_convert_hf *options,
                       struct tern_convert_out *out, struct tern_err *err)
{
    static const struct tern_convert_hf defaults;
    struct tern_convert_export x = {.options = options ? options : &defaults};
    struct tern_convert_out done = {0};
    char *to = tern_strdup(out_dir);

    for (size_t n = strlen(to); n > 1 && to[n - 1] == '/';)
        to[--n] = '\0';
    int rc = open_source(&x, path, err);
    if (rc == 0)
        rc = export_run(&x, to, &done, err);
    if (rc == 0 && out) {
        done.bytes = x.total;
        done.tensors = (unsigned)x.n;
        done.shards = x.n_shards;
        *out = done;
    }
    tern_convert_export_free(&x);
    free(to);
    return rc;
}
