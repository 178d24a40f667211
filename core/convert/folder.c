/* A folder of weights as it is written: files of tensors, their index, and the files beside them.
 */
#include "core/convert/export.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/convert/nxd.h"
#include "core/convert/shards.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD_BYTES 5000000000ull
static const char *const torch_names[] = {
    [TERN_CKPT_F64] = "float64",
    [TERN_CKPT_F32] = "float32",
    [TERN_CKPT_F16] = "float16",
    [TERN_CKPT_BF16] = "bfloat16",
};

bool tern_convert_is_adapters(const struct tern_convert_export *x)
{
    return x->adapter_config || (x->adapters.rank && !x->options->merge);
}

uint64_t tern_convert_tensor_bytes(const struct tern_ckpt_info *t)
{
    uint64_t n = tern_ckpt_type_bytes(t->type);

    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d]; /* cannot wrap: it was compared with the file */
    return n;
}

int tern_convert_deal_files(struct tern_convert_export *x, struct tern_err *err)
{
    uint64_t max = x->options->max_shard_bytes ? x->options->max_shard_bytes : SHARD_BYTES;
    max = tern_convert_is_adapters(x) ? UINT64_MAX : max; /* PEFT reads one file */
    uint64_t *bytes = tern_alloc(x->n, sizeof *bytes, "list of tensors", err);

    if (!bytes)
        return -1;
    for (size_t i = 0; i < x->n; i++) {
        bytes[i] = tern_convert_tensor_bytes(&x->tensors[i]);
        x->total += bytes[i];
    }
    x->n_shards = tern_convert_deal_shards(bytes, x->n, max, x->shard);
    free(bytes);
    return tern_convert_sort_shards(x->tensors, x->shard, x->n, x->n_shards, err);
}

/* ------------------------------------------------------------------ weights */

static char *shard_name(const struct tern_convert_export *x, unsigned i)
{
    if (tern_convert_is_adapters(x))
        return tern_strdup("adapter_model.safetensors");
    if (x->n_shards == 1)
        return tern_strdup("model.safetensors");
    return tern_strf("model-%05u-of-%05u.safetensors", i + 1, x->n_shards);
}

/* Tensors first to first + n of the list, which become one file. */
struct part {
    size_t first, n;
    char *head; /* [len] */
    size_t len;
    uint64_t data; /* bytes that follow it */
};

static int append_all(const struct part *p, const char *path,
                      tern_convert_write_tensor *write_tensor, void *ctx, struct tern_behind *b,
                      struct tern_err *err)
{
    int rc = b ? tern_behind_write(b, p->head, p->len, err) : -1;

    for (size_t k = 0; rc == 0 && k < p->n; k++)
        rc = write_tensor(ctx, p->first + k, b, err);
    tern_assert(rc < 0 || tern_behind_at(b) == p->len + p->data, "%s: %llu bytes", path,
                (unsigned long long)tern_behind_at(b));
    return rc;
}

/* An earlier call wrote it. */
static bool is_there(const char *path, const struct part *p)
{
    struct stat st;

    return TERN_AGAIN(lstat(path, &st)) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == p->len + p->data;
}

static int write_shard(const struct tern_convert_export *x, unsigned i,
                       tern_convert_write_tensor *write_tensor, void *ctx, struct tern_err *err)
{
    char *name = shard_name(x, i), *path = tern_fs_join(x->temp, name);
    struct part p = {0};
    struct tern_fs_new f;
    int rc = -1;

    while (x->shard[p.first] != i)
        p.first++;
    while (p.first + p.n < x->n && x->shard[p.first + p.n] == i)
        p.n++;
    if (tern_ckpt_safetensors_head(x->tensors + p.first, p.n, &p.head, &p.len, &p.data, err) < 0)
        goto out;
    tern_assert(p.n > 0 && p.first + p.n <= x->n, "shard %u: tensors %zu to %zu", i, p.first,
                p.first + p.n);
    if (is_there(path, &p)) {
        rc = 0;
        for (size_t k = 0; rc == 0 && k < p.n; k++)
            rc = write_tensor(ctx, p.first + k, NULL, err);
        if (x->options->verify && x->read_back.progress)
            x->read_back.progress(p.data);
        goto out;
    }
    if (tern_fs_new_open(&f, path, 0644, err) < 0)
        goto out;
    struct tern_behind *b = tern_behind_new(f.fd, path, err);
    if (b && x->options->verify)
        tern_behind_read_back(b, &x->read_back);
    rc = append_all(&p, path, write_tensor, ctx, b, err);
    if (rc < 0)
        tern_behind_abort(b);
    else
        rc = tern_behind_end(b, err);
    if (rc == 0)
        rc = tern_fs_new_commit(&f, err);
    else
        tern_fs_new_abort(&f);
out:
    free(p.head);
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
    if (!same) {
        free(text);
        text = json_dumps(j, JSON_INDENT(2) | flags);
    }
    return tern_json_python_restore(text);
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
        numbers +=
            tern_convert_tensor_bytes(&x->tensors[i]) / tern_ckpt_type_bytes(x->tensors[i].type);
    }
    json_t *index =
        json_pack("{s:{s:I,s:I},s:o}", "metadata", "total_parameters", (json_int_t)numbers,
                  "total_size", (json_int_t)x->total, "weight_map", map);
    int rc = tern_convert_write_json(x, "model.safetensors.index.json", index, JSON_SORT_KEYS, err);
    json_decref(index);
    return rc;
}

int tern_convert_write_weights(const struct tern_convert_export *x,
                               tern_convert_write_tensor *write_tensor, void *ctx,
                               struct tern_err *err)
{
    for (unsigned i = 0; i < x->n_shards; i++)
        if (write_shard(x, i, write_tensor, ctx, err) < 0)
            return -1;
    return x->n_shards > 1 ? write_index(x, err) : 0;
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

/* A tokenizer's files come from one folder: those of two would contradict each other. */
static bool belongs_to_tokenizer(const char *name)
{
    return strcmp(name, "config.json") != 0 && strcmp(name, "generation_config.json") != 0;
}

/* From the checkpoint's own copies, whose digests are checked; files that it lacks, from `from`. */
static int copy_companions(struct tern_convert_export *x, const char *from, bool own,
                           bool *tokenizer, struct tern_err *err)
{
    struct tern_ckpt_file files[TERN_CKPT_COMPANIONS];
    size_t n = tern_ckpt_companions(own ? tern_ckpt_path(x->c) : from, files), len = 0;
    const bool has_one = *tokenizer;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *text = NULL, *to = tern_fs_join(x->temp, files[i].name);
        if (!tern_fs_exists(to) && !(has_one && belongs_to_tokenizer(files[i].name))) {
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

/* Is the tokenizer's folder only that of NxD's config?  Such a folder may have none. */
static bool is_beside_config(const struct tern_convert_hf *o)
{
    return o->from_nxd && o->files_from == o->from_nxd->config;
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
        if (!*tokenizer && !is_beside_config(x->options))
            return tern_err_set(err, TERN_USAGE,
                                "%s: has no tokenizer.model, tokenizer.json or vocab.json",
                                x->options->files_from);
    }
    const char *adapters = x->peft ? tern_ckpt_path(tern_convert_peft_arrays(x->peft)) : NULL;
    if (copy_companions(x, adapters, !adapters, tokenizer, err) < 0 ||
        (x->base && copy_companions(x, tern_ckpt_path(x->base), false, tokenizer, err) < 0))
        return -1;
    return *tokenizer || !named ? 0 : copy_companions(x, named, false, tokenizer, err);
}

int tern_convert_write_beside(struct tern_convert_export *x, bool *ret_tokenizer,
                              struct tern_err *err)
{
    *ret_tokenizer = false;
    if (write_config(x, err) < 0 || write_companions(x, ret_tokenizer, err) < 0)
        return -1;
    return *ret_tokenizer ? tern_convert_complete_tokenizer(x, err) : 0;
}
