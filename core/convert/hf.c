/* Hugging Face folders out. */
#include "core/convert/export.h"

#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/convert/nxd.h"
#include "core/convert/nxd_adapters.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 8 << 20 }; /* bytes of weights in memory at a time */
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

/* ------------------------------------------------------------------ weights */

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

static uint64_t infinities(const char *x, enum tern_ckpt_type type, uint64_t n)
{
    uint64_t found = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint32_t u;
        uint16_t h;
        if (type == TERN_CKPT_F32) {
            memcpy(&u, x + i * sizeof u, sizeof u);
            found += (u & 0x7fffffff) == 0x7f800000;
        } else {
            memcpy(&h, x + i * sizeof h, sizeof h);
            found += (h & 0x7fff) == (type == TERN_CKPT_F16 ? 0x7c00 : 0x7f80);
        }
    }
    return found;
}

enum tern_ckpt_type tern_convert_stored_type(const struct tern_convert_export *x,
                                             const char *tensor)
{
    struct tern_ckpt_info info = {.type = TERN_CKPT_OTHER};

    tern_ckpt_find(x->from, tensor - strlen(x->prefix), &info);
    return info.type;
}

int tern_convert_check_range(const struct tern_convert_export *x, const struct tern_ckpt_info *t,
                             enum tern_ckpt_type from, const char *piece, uint64_t n,
                             struct tern_err *err)
{
    /* From the narrowest range on. */
    static const struct {
        enum tern_ckpt_type type;
        const char *last, *then;
    } ranges[] = {
        {TERN_CKPT_F16, "f16's 65504", "Export it as bf16 or f32"},
        {TERN_CKPT_BF16, "bf16's 3.39e38", "Export it as f32"},
        {TERN_CKPT_F32, "f32's 3.40e38", "Take smaller adapters or another base"},
    };
    const size_t n_ranges = sizeof ranges / sizeof *ranges;
    size_t to = 0, wide = 0;

    while (to < n_ranges && ranges[to].type != t->type)
        to++;
    while (wide < n_ranges && ranges[wide].type != from)
        wide++;
    const uint64_t infinite = to < wide ? infinities(piece, t->type, n) : 0;
    return infinite == 0
               ? 0
               : tern_err_set(err, TERN_USAGE,
                              "%s: tensor '%s' holds values beyond %s (%llu in one piece of it). "
                              "%s.",
                              tern_ckpt_path(x->from), t->name, ranges[to].last,
                              (unsigned long long)infinite, ranges[to].then);
}

/* The type that a tensor's values have before they are written. */
static enum tern_ckpt_type computed_from(const struct tern_convert_export *x,
                                         const struct tern_ckpt_info *t,
                                         const struct tern_convert_merge *merge)
{
    const char *saved = x->peft && !merge ? tern_convert_peft_saved(x->peft, t->name) : NULL;
    struct tern_ckpt_info info = {.type = TERN_CKPT_OTHER};

    if (merge)
        return TERN_CKPT_F64;
    if (!saved)
        return tern_convert_stored_type(x, t->name);
    tern_ckpt_find(tern_convert_peft_arrays(x->peft), saved, &info);
    return info.type;
}

static int write_rows(struct tern_convert_export *x, const struct tern_ckpt_info *t,
                      struct tern_convert_merge *merge, char *piece, struct tern_behind *out,
                      struct tern_err *err)
{
    uint64_t row = tern_convert_tensor_bytes(t) / t->shape[0],
             most = merge ? t->shape[1] * sizeof(double) : row;
    struct rows w = {.piece = piece, .values = merge ? (double *)(piece + PIECE) : NULL};
    const enum tern_ckpt_type from = computed_from(x, t, merge);

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
            tern_convert_check_range(x, t, from, piece,
                                     w.shape[0] * row / tern_ckpt_type_bytes(t->type), err) < 0 ||
            tern_behind_write(out, piece, w.shape[0] * row, err) < 0)
            return -1;
        tern_progress_add(w.shape[0] * row);
    }
    tern_assert_cmp(w.start[0], ==, t->shape[0]);
    return 0;
}

static int write_tensor(struct tern_convert_export *x, const struct tern_ckpt_info *t, char *piece,
                        struct tern_behind *out, struct tern_err *err)
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
    int rc = write_rows(x, t, merge, piece, out, err);
    tern_convert_merge_close(merge);
    return rc;
}

/* ------------------------------------------------------------------ the whole */

struct source {
    struct tern_convert_export *x;
    char *piece;
};

static int append_tensor(void *ctx, size_t i, struct tern_behind *out, struct tern_err *err)
{
    struct source *s = ctx;

    if (out)
        return write_tensor(s->x, &s->x->tensors[i], s->piece, out, err);
    tern_progress_add(tern_convert_tensor_bytes(&s->x->tensors[i]));
    return 0;
}

static int fill(struct tern_convert_export *x, struct tern_convert_out *out, struct tern_err *err)
{
    /* As it is written, and in double while an adapter is put in. */
    struct source s = {x, tern_alloc(2 * (size_t)PIECE, 1, "weights", err)};

    tern_progress_expect(x->options->verify ? 2 * x->total : x->total);
    int rc = s.piece ? tern_convert_write_weights(x, append_tensor, &s, err) : -1;

    free(s.piece);
    out->adapters = tern_convert_is_adapters(x);
    if (rc == 0 && !out->adapters)
        rc = tern_convert_write_beside(x, &out->tokenizer, err);
    else if (rc == 0)
        rc = x->adapter_config ? tern_convert_write_json(x, "adapter_config.json",
                                                         x->adapter_config, JSON_SORT_KEYS, err)
                               : tern_convert_write_adapter_config(x, err);
    return rc == 0 ? tern_fs_sync_dir(x->temp, err) : -1;
}

static int begin(struct tern_convert_export *x, const char *out_dir, struct tern_err *err)
{
    struct tern_buf what = {0};

    if (x->options->from_nxd)
        tern_buf_printf(&what, "of ranks %d\n", (int)x->options->from_nxd->hw);
    tern_convert_describe(&what, x);
    const int rc = tern_convert_folder_begin(x, out_dir, &what, err);
    tern_buf_free(&what);
    return rc;
}

static int export_run(struct tern_convert_export *x, const char *out_dir,
                      struct tern_convert_out *out, struct tern_err *err)
{
    if ((!x->adapter_config && tern_convert_load_config(x, err) < 0) || list(x, err) < 0 ||
        tern_convert_deal_files(x, err) < 0)
        return -1;
    const int made = begin(x, out_dir, err);
    if (made > 0) {
        out->adapters = tern_convert_is_adapters(x);
        out->tokenizer = true; /* or the earlier call said that there is none */
    }
    if (made)
        return made < 0 ? -1 : 0;
    if (fill(x, out, err) < 0)
        return tern_convert_folder_stopped(x, x->options->stop, err);
    return tern_convert_folder_end(x, out_dir, err);
}

void tern_convert_export_free(struct tern_convert_export *x)
{
    tern_convert_folder_drop(x);
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

    x.read_back =
        (struct tern_behind_read_back){.progress = tern_progress_add, .stop = x.options->stop};
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
