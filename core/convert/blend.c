/* Blends of models: what is asked for, and the folder that it is written to. */
#include "core/convert/blend.h"

#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/convert/blend_models.h"
#include "core/convert/blend_pass.h"
#include "core/convert/shards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARD_BYTES 5000000000ull

struct blend {
    const struct tern_convert_blend *b;
    struct tern_convert_export *x; /* [n]: the base, if there is one, then the models */
    size_t n;
    struct tern_convert_hf out, as_is; /* options of x[0] and of the others */
    struct tern_convert_blend_pass *pass;
    bool tokenizer; /* one was found and copied */
};

/* ------------------------------------------------------------------ what is asked for */

static int check_models(const struct tern_convert_blend *b, struct tern_err *err)
{
    const bool differences =
        b->method != TERN_CONVERT_BLEND_LINEAR && b->method != TERN_CONVERT_BLEND_SLERP;

    if (b->n < 1 || b->n > TERN_CONVERT_BLEND_MODELS)
        return tern_err_set(err, TERN_USAGE, "%zu models are to be blended; allowed are 1 to %d",
                            b->n, TERN_CONVERT_BLEND_MODELS);
    if (b->method == TERN_CONVERT_BLEND_SLERP && b->n != 2)
        return tern_err_set(err, TERN_USAGE, "slerp blends two models, not %zu", b->n);
    if (differences && !b->base)
        return tern_err_set(err, TERN_USAGE,
                            "this method blends differences from a base: give the model that all "
                            "were trained from (--base)");
    if (!differences && b->base)
        return tern_err_set(err, TERN_USAGE,
                            "linear and slerp have no base; give it as one of the models");
    return 0;
}

static int check_numbers(const struct tern_convert_blend *b, struct tern_err *err)
{
    double sum = 0;

    for (size_t i = 0; i < b->n; i++) {
        const struct tern_convert_blend_model *m = &b->models[i];
        if (!isfinite(m->weight))
            return tern_err_set(err, TERN_USAGE, "%s: its weight is no finite number", m->path);
        if (b->base && !(m->density > 0 && m->density <= 1))
            return tern_err_set(err, TERN_USAGE,
                                "%s: its density is %g; allowed is more than 0, and at most 1",
                                m->path, m->density);
        sum += m->weight;
    }
    if (b->method == TERN_CONVERT_BLEND_LINEAR && b->normalize && fabs(sum) < 1e-8)
        return tern_err_set(err, TERN_USAGE,
                            "the weights sum up to %g, which nothing can be divided by. See "
                            "--normalize",
                            sum);
    if (b->method == TERN_CONVERT_BLEND_SLERP && !(b->t >= 0 && b->t <= 1))
        return tern_err_set(err, TERN_USAGE, "t is %g; allowed is 0 to 1", b->t);
    if (b->base && !isfinite(b->lambda))
        return tern_err_set(err, TERN_USAGE, "lambda is no finite number");
    return 0;
}

static int open_models(struct blend *d, struct tern_err *err)
{
    const struct tern_convert_blend *b = d->b;
    const size_t first = b->base != NULL, n = first + b->n;

    d->x = tern_alloc(n, sizeof *d->x, "models", err);
    for (size_t k = 0; d->x && k < n; k++) {
        d->x[k].options = k == 0 ? &d->out : &d->as_is;
        d->n = k + 1;
        if (tern_convert_blend_open(&d->x[k], k < first ? b->base : b->models[k - first].path,
                                    err) < 0 ||
            tern_convert_blend_compare(&d->x[k], &d->x[0], err) < 0)
            return -1;
    }
    for (size_t k = 1; d->x && k < n && !b->out.files_from; k++)
        if (tern_convert_blend_compare_tokenizers(&d->x[k], &d->x[0], err) < 0)
            return -1;
    return d->x ? 0 : -1;
}

/* ------------------------------------------------------------------ weights */

static int deal_shards(struct tern_convert_export *x, struct tern_err *err)
{
    const uint64_t max = x->options->max_shard_bytes ? x->options->max_shard_bytes : SHARD_BYTES;
    uint64_t *bytes = tern_alloc(x->n, sizeof *bytes, "list of tensors", err);

    if (!bytes)
        return -1;
    for (size_t i = 0; i < x->n; i++) {
        bytes[i] = tern_ckpt_type_bytes(x->tensors[i].type);
        for (int d = 0; d < x->tensors[i].ndim; d++)
            bytes[i] *= x->tensors[i].shape[d];
        x->total += bytes[i];
    }
    x->n_shards = tern_convert_deal_shards(bytes, x->n, max, x->shard);
    free(bytes);
    return 0;
}

static char *shard_name(const struct tern_convert_export *x, unsigned i)
{
    return x->n_shards == 1 ? tern_strdup("model.safetensors")
                            : tern_strf("model-%05u-of-%05u.safetensors", i + 1, x->n_shards);
}

static int write_shard(struct blend *d, unsigned i, struct tern_err *err)
{
    const struct tern_convert_export *x = &d->x[0];
    char *name = shard_name(x, i), *path = tern_fs_join(x->temp, name), *head = NULL;
    size_t first = 0, n = 0, len;
    uint64_t data;
    struct tern_fs_new f;
    int rc = -1;

    while (x->shard[first] != i)
        first++;
    while (first + n < x->n && x->shard[first + n] == i)
        n++;
    if (tern_ckpt_safetensors_head(x->tensors + first, n, &head, &len, &data, err) < 0 ||
        tern_fs_new_open(&f, path, 0644, err) < 0)
        goto out;
    rc = tern_fs_write(f.fd, head, len, path, err);
    for (size_t k = first; rc == 0 && k < first + n; k++)
        rc = tern_convert_blend_pass_write(d->pass, k, f.fd, path, err);
    if (rc == 0) {
        const off_t end = lseek(f.fd, 0, SEEK_CUR);
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

static int write_index(const struct tern_convert_export *x, struct tern_err *err)
{
    json_t *map = json_object();

    for (size_t i = 0; i < x->n; i++) {
        char *name = shard_name(x, x->shard[i]);
        json_object_set_new(map, x->tensors[i].name, json_string(name));
        free(name);
    }
    json_t *index = json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)x->total,
                              "weight_map", map);
    int rc = tern_convert_write_json(x, "model.safetensors.index.json", index, JSON_SORT_KEYS, err);
    json_decref(index);
    return rc;
}

/* ------------------------------------------------------------------ the files beside them */

/* torch_dtype, or dtype as transformers 5 writes it, is that of the new weights. */
static int write_config(const struct tern_convert_export *x, struct tern_err *err)
{
    const enum tern_ckpt_type type = x->tensors[0].type;
    const char *word = type == TERN_CKPT_F64   ? "float64"
                       : type == TERN_CKPT_F32 ? "float32"
                       : type == TERN_CKPT_F16 ? "float16"
                                               : "bfloat16";
    const bool new = json_object_get(x->config_json, "dtype") != NULL;

    json_object_set_new(x->config_json, "torch_dtype", json_string(word));
    if (new)
        json_object_set_new(x->config_json, "dtype", json_string(word));
    /* What transformers needs to choose the class; a config made by hand may lack it. */
    if (!json_object_get(x->config_json, "architectures"))
        json_object_set_new(x->config_json, "architectures", json_pack("[s]", "LlamaForCausalLM"));
    return tern_convert_write_json(x, "config.json", x->config_json, 0, err);
}

/* The model's files besides weights from `dir`; NULL: from `x->c`, where digests are checked.
 * Files that are there already stay. */
static int copy_companions(struct blend *d, const char *dir, struct tern_err *err)
{
    struct tern_convert_export *x = &d->x[0];
    struct tern_ckpt_file files[TERN_CKPT_COMPANIONS];
    size_t n = tern_ckpt_companions(dir ? dir : tern_ckpt_path(x->c), files), len;
    int rc = 0;

    for (size_t i = 0; rc >= 0 && i < n; i++) {
        const char *name = files[i].name;
        char *text = NULL, *to = tern_fs_join(x->temp, name);
        if (!tern_fs_exists(to)) {
            rc = dir ? tern_fs_read(files[i].path, 64 << 20, &text, &len, err)
                     : tern_ckpt_file_read(x->c, name, &text, &len, err);
            if (rc == 0)
                rc = tern_fs_replace(to, text, len, 0644, err);
            if (rc == 0 && (tern_str_starts(name, "tokenizer.") || strcmp(name, "vocab.json") == 0))
                d->tokenizer = true;
        }
        free(text);
        free(to);
    }
    tern_ckpt_companions_free(files, n);
    return rc < 0 ? -1 : 0; /* 1: it lies there and is not of the checkpoint */
}

static int write_companions(struct blend *d, struct tern_err *err)
{
    const char *named = json_string_value(json_object_get(tern_ckpt_meta(d->x[0].c), "tokenizer"));
    const char *from = d->b->out.files_from;

    if (from && !tern_fs_exists(from))
        return tern_err_set(err, TERN_USAGE, "%s: there is no such tokenizer folder", from);
    if ((from && copy_companions(d, from, err) < 0) || copy_companions(d, NULL, err) < 0)
        return -1;
    return d->tokenizer || !named ? 0 : copy_companions(d, named, err);
}

/* ------------------------------------------------------------------ the whole */

static int fill(struct blend *d, struct tern_err *err)
{
    struct tern_convert_export *x = &d->x[0];

    for (unsigned i = 0; i < x->n_shards; i++)
        if (write_shard(d, i, err) < 0)
            return -1;
    if ((x->n_shards > 1 && write_index(x, err) < 0) || write_config(x, err) < 0 ||
        write_companions(d, err) < 0)
        return -1;
    return tern_fs_sync_dir(x->temp, err);
}

static int run(struct blend *d, const char *out_dir, struct tern_err *err)
{
    if (check_models(d->b, err) < 0 || check_numbers(d->b, err) < 0 || open_models(d, err) < 0 ||
        deal_shards(&d->x[0], err) < 0)
        return -1;
    d->pass = tern_convert_blend_pass_new(d->b, d->x, d->n, err);
    if (!d->pass || tern_convert_folder_begin(&d->x[0], out_dir, err) < 0 || fill(d, err) < 0)
        return -1;
    return tern_convert_folder_end(&d->x[0], out_dir, err);
}

int tern_convert_blend(const struct tern_convert_blend *b, const char *out_dir,
                       struct tern_convert_out *ret_out, struct tern_err *err)
{
    struct blend d = {.b = b,
                      .out = {.dtype = b->out.dtype, .max_shard_bytes = b->out.max_shard_bytes}};
    char *to = tern_strdup(out_dir);

    for (size_t k = strlen(to); k > 1 && to[k - 1] == '/';)
        to[--k] = '\0';
    int rc = run(&d, to, err);
    if (rc == 0 && ret_out)
        *ret_out = (struct tern_convert_out){.bytes = d.x[0].total,
                                             .tensors = (unsigned)d.x[0].n,
                                             .shards = d.x[0].n_shards,
                                             .tokenizer = d.tokenizer};
    tern_convert_blend_pass_free(d.pass);
    for (size_t k = 0; k < d.n; k++)
        tern_convert_export_free(&d.x[k]);
    free(d.x);
    free(to);
    return rc;
}
