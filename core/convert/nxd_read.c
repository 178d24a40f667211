/* NeuronX Distributed's weights in: the ranks' files as one model under Hugging Face's names. */
#include "core/convert/nxd.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/convert/export.h"
#include "core/convert/foreign.h"
#include "core/convert/nxd_plan.h"
#include "core/pytorch/pytorch.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANKS_MAX = 1024, /* of each kind */
    CONFIG_MAX = 1 << 20,
};

/* Where a rank's file lies, and under which name. */
static const struct {
    const char *dir; /* below the folder; NULL: that folder itself */
    bool old;        /* tp_rank_TT_pp_rank_PP, plain a folder with checkpoint.pt */
    bool expert;     /* with ep_rank_00 */
} forms[] = {{"model", false, false},
             {"model", false, true},
             {NULL, false, false},
             {NULL, false, true},
             {NULL, true, false}};
enum { FORMS = sizeof forms / sizeof *forms };

struct rank {
    char *name; /* of its file in the folder */
    struct tern_pytorch_file file;
    size_t skip;      /* bytes of each name: "model." where the trainer kept the weights so */
    unsigned in_list; /* number of the file for tern_ckpt_open_files */
};

/* A tensor of a rank, and its place. */
struct found {
    unsigned file;
    const struct tern_pytorch_tensor *t; /* NULL: see `own` */
    struct tern_pytorch_file own;        /* xser: the file with this tensor alone */
};

struct reader {
    const char *dir;
    size_t form;
    bool xser;
    int tensor, pipeline; /* ranks */
    struct rank *ranks;   /* [pipeline][tensor] */
    struct tern_convert_nxd_plan plan;
    struct tern_convert_foreign list;
    struct found *found;               /* [tensor]: one tensor on its ranks */
    struct tern_convert_nxd_run *runs; /* [slots] */
    struct tern_ckpt_piece *pieces;    /* [tensor x slots] */
    bool *seen;                        /* [key heads] */
};

/* ------------------------------------------------------------------ files */

static char *rank_name(size_t form, int tensor, int pipeline)
{
    const char *dir = forms[form].dir;

    if (forms[form].old)
        return tern_strf("tp_rank_%02d_pp_rank_%02d", tensor, pipeline);
    return tern_strf("%s%sdp_rank_00_%stp_rank_%02d_pp_rank_%02d.pt", dir ? dir : "",
                     dir ? "/" : "", forms[form].expert ? "ep_rank_00_" : "", tensor, pipeline);
}

/* The number behind `key` in `name`; -1 when there is none. */
static int number_behind(const char *name, const char *key)
{
    const char *at = strstr(name, key);
    char digits[8] = "";
    int64_t n;

    if (!at)
        return -1;
    at += strlen(key);
    for (size_t i = 0; i < sizeof digits - 1 && at[i] >= '0' && at[i] <= '9'; i++)
        digits[i] = at[i];
    return tern_str_int(digits, 0, RANKS_MAX - 1, &n) == 0 ? (int)n : -1;
}

/* Does the name fit the form?  Then its ranks. */
static bool parse_name(size_t form, const char *name, int *ret_tensor, int *ret_pipeline)
{
    *ret_tensor = number_behind(name, "tp_rank_");
    *ret_pipeline = number_behind(name, "pp_rank_");
    if (*ret_tensor < 0 || *ret_pipeline < 0)
        return false;
    char *again = rank_name(form, *ret_tensor, *ret_pipeline);
    bool same = strcmp(tern_fs_basename(again), name) == 0;
    free(again);
    return same;
}

/* Which form the folder has, and how many ranks. */
static int find_ranks(struct reader *r, struct tern_err *err)
{
    for (r->form = 0; r->form < FORMS; r->form++) {
        const char *below = forms[r->form].dir;
        char *dir = below ? tern_fs_join(r->dir, below) : tern_strdup(r->dir);
        DIR *d = TERN_AGAIN_PTR(opendir(dir));
        int t, p;
        free(dir);
        for (struct dirent *e; d && (e = readdir(d));) {
            if (!parse_name(r->form, e->d_name, &t, &p))
                continue;
            r->tensor = t + 1 > r->tensor ? t + 1 : r->tensor;
            r->pipeline = p + 1 > r->pipeline ? p + 1 : r->pipeline;
        }
        if (d)
            closedir(d);
        if (r->tensor)
            return 0;
    }
    return tern_err_set(err, TERN_USAGE,
                        "%s: holds no files of NxD's ranks "
                        "(model/dp_rank_00_tp_rank_00_pp_rank_00.pt, or tp_rank_00_pp_rank_00)",
                        r->dir);
}

static struct rank *rank_of(const struct reader *r, int tensor, int pipeline)
{
    return &r->ranks[pipeline * r->tensor + tensor];
}

/* The weights lie at the top, or below "model". */
static int find_top(const struct reader *r, struct rank *k, struct tern_err *err)
{
    bool below = false;

    for (size_t i = 0; i < k->file.n; i++) {
        if (k->file.tensors[i].outer == 0)
            return 0;
        below |= tern_str_starts(k->file.tensors[i].name, "model.");
    }
    k->skip = strlen("model.");
    return below
               ? 0
               : tern_err_set(err, TERN_USAGE, "%s/%s: has no tensors at the top or below 'model'",
                              r->dir, k->name);
}

static int open_rank(struct reader *r, int tensor, int pipeline, struct tern_err *err)
{
    struct rank *k = rank_of(r, tensor, pipeline);
    char *name = rank_name(r->form, tensor, pipeline);

    k->name = name;
    if (forms[r->form].old && !r->xser) {
        k->name = tern_strf("%s/checkpoint.pt", name);
        free(name);
    }
    char *path = tern_fs_join(r->dir, k->name);
    int rc = 0;
    if (!tern_fs_exists(path))
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: is missing; the folder has files of %d tensor and %d pipeline ranks",
                          path, r->tensor, r->pipeline);
    if (rc == 0)
        rc = tern_pytorch_open_parts(path, &k->file, err);
    free(path);
    if (rc == 0)
        rc = find_top(r, k, err);
    k->in_list = (unsigned)r->list.n_files;
    return rc == 0 && !r->xser ? tern_convert_foreign_file(&r->list, k->name, k->file.bytes, err)
                               : rc;
}

static int open_ranks(struct reader *r, struct tern_err *err)
{
    char *name = rank_name(r->form, 0, 0), *tensors = tern_strf("%s/%s.tensors", r->dir, name);

    r->xser = tern_fs_exists(tensors);
    free(tensors);
    free(name);
    r->ranks = tern_alloc((size_t)(r->tensor * r->pipeline), sizeof *r->ranks, r->dir, err);
    if (!r->ranks)
        return -1;
    for (int p = 0; p < r->pipeline; p++)
        for (int t = 0; t < r->tensor; t++)
            if (open_rank(r, t, p, err) < 0)
                return -1;
    return 0;
}

/* ------------------------------------------------------------------ tensors of ranks */

static const struct tern_pytorch_tensor *look_up(const struct rank *k, const char *name)
{
    for (size_t i = 0; i < k->file.n; i++) {
        const struct tern_pytorch_tensor *t = &k->file.tensors[i];
        if (t->outer == k->skip && strcmp(t->name + k->skip, name) == 0)
            return t;
    }
    return NULL;
}

/* The pipeline rank that holds the tensor, or -1. */
static int stage_of(const struct reader *r, const char *name)
{
    for (int p = 0; p < r->pipeline; p++)
        if (look_up(rank_of(r, 0, p), name))
            return p;
    return -1;
}

/* xser: the tensor that a reference stands for, in a file of its own. */
static int open_tensor(struct reader *r, const struct rank *k, int64_t number, struct found *to,
                       struct tern_err *err)
{
    char *name = tern_strf("%s.tensors/tensor_%lld.pt", k->name, (long long)number);
    char *path = tern_fs_join(r->dir, name);
    int rc = tern_pytorch_open_parts(path, &to->own, err);

    if (rc == 0 && (to->own.n != 1 || to->own.tensors[0].reference >= 0))
        rc = tern_err_set(err, TERN_USAGE, "%s: holds no tensor, or more than one", path);
    to->file = (unsigned)r->list.n_files;
    if (rc == 0)
        rc = tern_convert_foreign_file(&r->list, name, to->own.bytes, err);
    if (rc == 0)
        to->t = to->own.tensors;
    free(path);
    free(name);
    return rc;
}

static void drop_found(struct reader *r)
{
    for (int t = 0; r->found && t < r->tensor; t++)
        tern_pytorch_free(&r->found[t].own);
    if (r->found)
        memset(r->found, 0, (size_t)r->tensor * sizeof *r->found);
}

/* `name` on every tensor rank of its pipeline rank. */
static int find(struct reader *r, const char *name, struct tern_err *err)
{
    int p = stage_of(r, name);

    drop_found(r);
    if (p < 0)
        return tern_err_set(err, TERN_USAGE, "%s: no rank holds '%s'", r->dir, name);
    for (int t = 0; t < r->tensor; t++) {
        const struct rank *k = rank_of(r, t, p);
        struct found *f = &r->found[t];
        f->t = look_up(k, name);
        f->file = k->in_list;
        if (!f->t)
            return tern_err_set(err, TERN_USAGE, "%s/%s: has no tensor '%s', as other ranks have",
                                r->dir, k->name, name);
        if ((f->t->reference >= 0) != r->xser)
            return tern_err_set(err, TERN_USAGE, "%s/%s: tensor '%s' is %s", r->dir, k->name, name,
                                r->xser
                                    ? "in this file, and not in its folder .tensors"
                                    : "not in this file (xser), and there is no folder .tensors");
        if (r->xser && open_tensor(r, k, f->t->reference, f, err) < 0)
            return -1;
        if (f->t->type != r->found[0].t->type || f->t->ndim != r->found[0].t->ndim ||
            memcmp(f->t->shape, r->found[0].t->shape, sizeof f->t->shape) != 0)
            return tern_err_set(
                err, TERN_USAGE,
                "%s/%s: tensor '%s' has another shape or type than on tensor rank 0", r->dir,
                k->name, name);
    }
    return 0;
}

/* ------------------------------------------------------------------ the layout */

/* How q, k and v are kept, and how often each key head is, as layer 0 has them. */
static int find_form(struct reader *r, const struct tern_model_config *c,
                     struct tern_convert_nxd *to, struct tern_err *err)
{
    static const struct {
        const char *name;
        enum tern_convert_nxd_qkv qkv;
    } names[] = {
        {"model.layers.0.self_attn.qkv_proj.weight_qkv", TERN_CONVERT_NXD_FUSED},
        {"model.layers.0.self_attn.qkv_proj.weight_k", TERN_CONVERT_NXD_SPLIT},
        {"model.layers.0.self_attn.qkv_proj.weight", TERN_CONVERT_NXD_COALESCED},
        {"model.layers.0.self_attn.k_proj.weight", TERN_CONVERT_NXD_SEPARATE},
    };
    size_t i = 0;

    while (i < 4 && stage_of(r, names[i].name) < 0)
        i++;
    if (i == 4)
        return tern_err_set(err, TERN_USAGE,
                            "%s: no rank holds q, k and v of layer 0 under a name of NxD's Llama",
                            r->dir);
    if (find(r, names[i].name, err) < 0)
        return -1;
    to->qkv = names[i].qkv;
    /* Heads of all ranks together. */
    const struct tern_pytorch_tensor *t = r->found[0].t;
    int64_t rows = t->ndim == 2 && t->shape[1] == (uint64_t)c->dim && t->shape[0] <= INT32_MAX
                       ? (int64_t)t->shape[0]
                       : 0;
    int64_t heads = rows * r->tensor / c->head_dim, keys = c->kv_heads, copies = 1;
    if (to->qkv == TERN_CONVERT_NXD_FUSED)
        copies = (heads - c->heads) / (2 * keys);
    if (to->qkv == TERN_CONVERT_NXD_SPLIT)
        copies = heads / keys;
    if (to->qkv == TERN_CONVERT_NXD_SEPARATE || to->qkv == TERN_CONVERT_NXD_SPLIT)
        heads -= copies * keys;
    else
        heads -= c->heads + 2 * copies * keys;
    if (rows == 0 || heads != 0 || copies < 1 || copies > RANKS_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s: '%s' of its %d tensor ranks is not of a model with this config",
                            r->dir, names[i].name, r->tensor);
    to->kv_replicator = (int)copies;
    return 0;
}

static int plan(struct reader *r, const struct tern_model_config *c, enum tern_convert_nxd_hw hw,
                struct tern_err *err)
{
    struct tern_convert_nxd o = {.tensor = r->tensor, .hw = hw};

    if (find_form(r, c, &o, err) < 0)
        return -1;
    if (tern_convert_nxd_plan(c, &o, r->dir, &r->plan, NULL) < 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: the files of its %d tensor ranks are not of a model with this "
                            "config",
                            r->dir, r->tensor);
    size_t slots = (size_t)r->plan.slots;
    r->runs = tern_alloc(slots, sizeof *r->runs, r->dir, err);
    r->pieces = tern_alloc(slots * (size_t)r->tensor, sizeof *r->pieces, r->dir, err);
    r->seen = tern_alloc((size_t)c->kv_heads, sizeof *r->seen, r->dir, err);
    return r->runs && r->pieces && r->seen ? 0 : -1;
}

/* ------------------------------------------------------------------ pieces of the model's tensors
 */

/* Rows or columns [run] of the whole, which lie on tensor rank `t` from `local` on. */
static struct tern_ckpt_piece piece(const struct reader *r, int t, int axis,
                                    const struct tern_model_tensor *whole,
                                    struct tern_convert_nxd_run run, int64_t local)
{
    const struct found *f = &r->found[t];
    struct tern_ckpt_piece p = {.file = f->file, .offset = f->t->offset};

    for (int d = 0; d < whole->ndim; d++) {
        p.shape[d] = (uint64_t)whole->shape[d];
        p.stride[d] = f->t->stride[d];
    }
    p.start[axis] = (uint64_t)run.start;
    p.shape[axis] = (uint64_t)run.count;
    p.offset += (uint64_t)local * f->t->stride[axis] * tern_ckpt_type_bytes(f->t->type);
    return p;
}

/* The source's part on rank `t`, from `local` on; each key head once.  How many pieces. */
static size_t add_pieces(struct reader *r, const struct tern_model_tensor *whole, int axis, int t,
                         int64_t *local, struct tern_ckpt_piece *to)
{
    bool keys = whole->kind == TERN_MODEL_K || whole->kind == TERN_MODEL_V;
    size_t n = 0, runs = tern_convert_nxd_runs(&r->plan, whole, t, r->runs);
    int64_t head = r->plan.config.head_dim;

    for (size_t i = 0; i < runs; i++) {
        struct tern_convert_nxd_run run = r->runs[i];
        int64_t step = keys ? head : run.count;
        for (int64_t at = 0; at < run.count; at += step, *local += step) {
            struct tern_convert_nxd_run one = {run.start + at, step};
            if (keys && r->seen[one.start / head])
                continue;
            if (keys)
                r->seen[one.start / head] = true;
            to[n++] = piece(r, t, axis, whole, one, *local);
        }
    }
    return n;
}

/* One of NxD's tensors: those of the model that it is made of. */
static int take(struct reader *r, const struct tern_convert_nxd_tensor *t, struct tern_err *err)
{
    int64_t base = 0;

    if (find(r, t->name, err) < 0)
        return -1;
    const struct tern_pytorch_tensor *first = r->found[0].t;
    if (first->ndim != t->ndim || memcmp(first->shape, t->shape, (size_t)t->ndim * 8) != 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: tensor '%s' has not the shape on a rank that the config implies",
                            r->dir, t->name);
    for (int i = 0; i < t->sources; i++) {
        struct tern_model_tensor whole;
        size_t n = 0;
        int64_t local = base;
        tern_model_tensor(&r->plan.config, t->source[i], &whole);
        memset(r->seen, 0, (size_t)r->plan.config.kv_heads * sizeof *r->seen);
        if (t->axis < 0) {
            r->pieces[n++] =
                piece(r, 0, 0, &whole, (struct tern_convert_nxd_run){0, whole.shape[0]}, 0);
        } else {
            for (int k = 0; k < r->tensor; k++) {
                local = base;
                n += add_pieces(r, &whole, t->axis, k, &local, r->pieces + n);
            }
        }
        base = local;
        struct tern_ckpt_info info = {.name = whole.name, .type = first->type, .ndim = whole.ndim};
        for (int d = 0; d < whole.ndim; d++)
            info.shape[d] = (uint64_t)whole.shape[d];
        if (tern_convert_foreign_array(&r->list, &info, r->pieces, n, err) < 0)
            return -1;
    }
    return 0;
}

static int take_all(struct reader *r, struct tern_err *err)
{
    struct tern_convert_nxd_tensor *t;
    size_t n;

    /* All layers: which pipeline rank has them is looked up. */
    if (tern_convert_nxd_list(&r->plan, 0, &t, &n, err) < 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!r->plan.config.tied || strcmp(t[i].name, "lm_head.weight") != 0)
            rc = take(r, &t[i], err);
    free(t);
    return rc;
}

/* ------------------------------------------------------------------ copies of key heads */

/* How far copy `i` of a key head is from the first one, as a share of their squares. */
static int compare(struct tern_ckpt *c, int head, int i, float *room, size_t n, double *ret_share,
                   struct tern_err *err)
{
    char first[32], other[32];
    double square = 0, off = 0;

    snprintf(first, sizeof first, "%d.0", head);
    snprintf(other, sizeof other, "%d.%d", head, i);
    if (tern_ckpt_read(c, first, TERN_CKPT_F32, NULL, NULL, room, err) < 0 ||
        tern_ckpt_read(c, other, TERN_CKPT_F32, NULL, NULL, room + n, err) < 0)
        return -1;
    for (size_t k = 0; k < n; k++) {
        double x = room[k], y = room[n + k];
        square += x * x + y * y;
        off += (x - y) * (x - y);
    }
    *ret_share = square > 0 ? off / square : 0;
    return 0;
}

/* The key heads of layer 0 on all ranks as arrays "HEAD.COPY". */
static struct tern_ckpt *open_copies(struct reader *r, const struct tern_model_tensor *k,
                                     int64_t before, struct tern_err *err)
{
    struct tern_convert_foreign f = {.dir = r->dir};
    int64_t head = r->plan.config.head_dim;
    int *copies = tern_alloc((size_t)r->plan.config.kv_heads, sizeof *copies, r->dir, err);
    int rc = copies ? 0 : -1;

    for (int t = 0; rc == 0 && t < r->tensor; t++) {
        unsigned from = r->found[t].file;
        size_t runs = tern_convert_nxd_runs(&r->plan, k, t, r->runs);
        int64_t local = before;
        rc = tern_convert_foreign_file(&f, r->list.names[from], r->list.bytes[from], err);
        for (size_t i = 0; i < runs; i++) {
            struct tern_convert_nxd_run one = {0, head};
            for (int64_t at = 0; rc == 0 && at < r->runs[i].count; at += head, local += head) {
                int64_t h = (r->runs[i].start + at) / head;
                char name[32];
                snprintf(name, sizeof name, "%d.%d", (int)h, copies[h]++);
                struct tern_ckpt_piece p = piece(r, t, 0, k, one, local);
                struct tern_ckpt_info info = {
                    name, r->found[t].t->type, 2, {(uint64_t)head, (uint64_t)k->shape[1]}};
                p.file = (unsigned)t;
                rc = tern_convert_foreign_array(&f, &info, &p, 1, err);
            }
        }
    }
    free(copies);
    if (rc == 0)
        return tern_convert_foreign_open(&f, err);
    tern_convert_foreign_free(&f);
    return NULL;
}

/* A trainer keeps copies of a key head alike; where they are not, the ranks are of the other chip.
 */
static int check_copies(struct reader *r, struct tern_err *err)
{
    const struct tern_model_config *c = &r->plan.config;
    bool fused = r->plan.qkv == TERN_CONVERT_NXD_FUSED;
    struct tern_model_tensor k;
    double share = 0;

    if (r->plan.copies == 1)
        return 0;
    tern_model_tensor(
        c, (size_t)tern_model_tensor_find(c, "model.layers.0.self_attn.k_proj.weight"), &k);
    if (find(r,
             fused ? "model.layers.0.self_attn.qkv_proj.weight_qkv"
                   : "model.layers.0.self_attn.qkv_proj.weight_k",
             err) < 0)
        return -1;
    size_t n = (size_t)c->head_dim * (size_t)c->dim;
    struct tern_ckpt *copies = open_copies(r, &k, fused ? c->dim / r->tensor : 0, err);
    float *room = copies ? tern_alloc(2 * n, sizeof *room, "key heads", err) : NULL;
    int rc = room ? 0 : -1;
    for (int h = 0; rc == 0 && h < c->kv_heads; h++) {
        for (int i = 1; rc == 0 && i < r->plan.copies && share <= 0.1; i++)
            rc = compare(copies, h, i, room, n, &share, err);
    }
    free(room);
    tern_ckpt_close(copies);
    if (rc == 0 && share > 0.1) {
        const char *hw = r->plan.hw == TERN_CONVERT_NXD_TRN1 ? "trn1" : "trn2";
        return tern_err_set(err, TERN_USAGE,
                            "%s: the copies of a key head differ from each other, when they are "
                            "sought as on %s. Is --hw %s right?",
                            r->dir, hw, hw);
    }
    return rc;
}

/* ------------------------------------------------------------------ the whole */

struct tern_ckpt *tern_convert_open_nxd(const char *dir, const struct tern_model_config *c,
                                        enum tern_convert_nxd_hw hw, struct tern_err *err)
{
    struct reader r = {.dir = dir, .list = {.dir = dir}};
    struct tern_ckpt *opened = NULL;

    int rc = find_ranks(&r, err);
    if (rc == 0) {
        r.found = tern_alloc((size_t)r.tensor, sizeof *r.found, dir, err);
        rc = r.found ? open_ranks(&r, err) : -1;
    }
    if (rc == 0)
        rc = plan(&r, c, hw, err);
    if (rc == 0)
        rc = check_copies(&r, err);
    if (rc == 0)
        rc = take_all(&r, err);
    if (rc == 0)
        opened = tern_convert_foreign_open(&r.list, err);
    drop_found(&r);
    for (int i = 0; r.ranks && i < r.tensor * r.pipeline; i++) {
        tern_pytorch_free(&r.ranks[i].file);
        free(r.ranks[i].name);
    }
    tern_convert_foreign_free(&r.list);
    free(r.ranks);
    free(r.found);
    free(r.runs);
    free(r.pieces);
    free(r.seen);
    return opened;
}

int tern_convert_open_from_nxd(struct tern_convert_export *x, const char *path,
                               const struct tern_convert_from_nxd *from, struct tern_err *err)
{
    const char *at = from->config ? from->config : path;
    char *file = tern_str_ends(at, ".json") ? tern_strdup(at) : tern_fs_join(at, "config.json");
    int rc = 0;

    if (!from->config && !tern_fs_exists(file))
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: has no config.json, as NxD keeps none. Name the model's: --config",
                          path);
    if (rc == 0)
        x->config_json = tern_json_load(file, CONFIG_MAX, err);
    if (!x->config_json || tern_model_config_load(file, &x->config, err) < 0)
        rc = -1;
    free(file);
    if (rc == 0)
        x->c = tern_convert_open_nxd(path, &x->config, from->hw, err);
    return x->c ? 0 : -1;
}
