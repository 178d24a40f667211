/* NeuronX Distributed's weights in: the ranks' files as one model under Hugging Face's names. */
#include "core/convert/nxd.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/convert/export.h"
#include "core/convert/nxd_adapters.h"
#include "core/convert/nxd_pieces.h"
#include "core/convert/nxd_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_MAX = 1 << 20 };

static const char lm_head[] = "lm_head.weight";

struct reader {
    struct tern_convert_nxd_ranks ranks;
    struct tern_convert_nxd_pieces pieces;
};

/* `name` on every tensor rank of its pipeline rank. */
static int find(struct reader *r, const char *name, bool whole, struct tern_err *err)
{
    int p = tern_convert_nxd_ranks_stage(&r->ranks, name);

    if (p < 0)
        return tern_err_set(err, TERN_USAGE, "%s: no rank holds '%s'", r->ranks.dir, name);
    return tern_convert_nxd_ranks_find(&r->ranks, p, name, whole, err);
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

    while (i < 4 && tern_convert_nxd_ranks_stage(&r->ranks, names[i].name) < 0)
        i++;
    if (i == 4)
        return tern_err_set(err, TERN_USAGE,
                            "%s: no rank holds q, k and v of layer 0 under a name of NxD's Llama",
                            r->ranks.dir);
    if (find(r, names[i].name, /* whole= */ false, err) < 0)
        return -1;
    to->qkv = names[i].qkv;
    /* Heads of all ranks together. */
    const struct tern_pytorch_tensor *t = r->ranks.found[0].t;
    int64_t rows = t->ndim == 2 && t->shape[1] == (uint64_t)c->dim && t->shape[0] <= INT32_MAX
                       ? (int64_t)t->shape[0]
                       : 0;
    int64_t heads = rows * r->ranks.tensor / c->head_dim, keys = c->kv_heads, copies = 1;
    if (to->qkv == TERN_CONVERT_NXD_FUSED)
        copies = (heads - c->heads) / (2 * keys);
    if (to->qkv == TERN_CONVERT_NXD_SPLIT)
        copies = heads / keys;
    if (to->qkv == TERN_CONVERT_NXD_SEPARATE || to->qkv == TERN_CONVERT_NXD_SPLIT)
        heads -= copies * keys;
    else
        heads -= c->heads + 2 * copies * keys;
    if (rows > 0 && heads == 0 && copies >= 1 && copies <= TERN_CONVERT_NXD_RANKS_MAX) {
        to->kv_replicator = (int)copies;
        return 0;
    }
    char shape[100];
    return tern_err_set(err, TERN_USAGE,
                        "%s: '%s' is %s on each of its %d tensor ranks. It is not of a model with "
                        "this config: hidden_size %d, %d query and %d key heads of %d.",
                        r->ranks.dir, names[i].name,
                        tern_convert_nxd_shape(shape, sizeof shape, t->ndim, t->shape),
                        r->ranks.tensor, c->dim, c->heads, c->kv_heads, c->head_dim);
}

static int plan(struct reader *r, const struct tern_model_config *c, enum tern_convert_nxd_hw hw,
                struct tern_err *err)
{
    struct tern_convert_nxd o = {.tensor = r->ranks.tensor, .hw = hw};
    struct tern_err why = {0};

    if (find_form(r, c, &o, err) < 0)
        return -1;
    if (tern_convert_nxd_plan(c, &o, "has", &r->pieces.plan, &why) < 0) {
        char *end = strstr(why.text, ". "); /* an advice to the writer of such files */
        if (end)
            *end = '\0';
        return tern_err_set(err, why.code,
                            "%s: the files of its %d tensor ranks are not of a model with this "
                            "config, which %s",
                            r->ranks.dir, r->ranks.tensor, why.text);
    }
    return tern_convert_nxd_pieces_alloc(&r->pieces, r->ranks.dir, err);
}

/* ------------------------------------------------------------------ the model's tensors */

/* One of NxD's tensors: those of the model that it is made of. */
static int take(struct reader *r, const struct tern_convert_nxd_tensor *t, struct tern_err *err)
{
    int64_t base = 0;

    if (find(r, t->name, t->axis < 0, err) < 0)
        return -1;
    const struct tern_pytorch_tensor *first = r->ranks.found[0].t;
    if (first->ndim != t->ndim || memcmp(first->shape, t->shape, (size_t)t->ndim * 8) != 0) {
        char own[100], want[100];
        return tern_err_set(err, TERN_USAGE,
                            "%s: tensor '%s' is %s on each of its %d tensor ranks, and the config "
                            "implies %s",
                            r->ranks.dir, t->name,
                            tern_convert_nxd_shape(own, sizeof own, first->ndim, first->shape),
                            r->ranks.tensor,
                            tern_convert_nxd_shape(want, sizeof want, t->ndim, t->shape));
    }
    for (int i = 0; i < t->sources; i++) {
        struct tern_model_tensor whole;
        tern_model_tensor(&r->pieces.plan.config, t->source[i], &whole);
        size_t n = tern_convert_nxd_pieces_find(&r->pieces, &r->ranks, &whole, t->axis, &base);
        struct tern_ckpt_info info = {.name = whole.name, .type = first->type, .ndim = whole.ndim};
        if (strcmp(t->name, lm_head) == 0)
            info.name = lm_head; /* a tied one has the embedding as its source */
        for (int d = 0; d < whole.ndim; d++)
            info.shape[d] = (uint64_t)whole.shape[d];
        if (tern_convert_foreign_array(&r->ranks.list, &info, r->pieces.at, n, err) < 0)
            return -1;
    }
    return 0;
}

/* RoPE's frequencies, which older models keep with their weights. */
static bool may_be_left(const void *user, const char *name)
{
    (void)user;
    return tern_str_ends(name, ".rotary_emb.inv_freq");
}

static int take_all(struct reader *r, struct tern_err *err)
{
    struct tern_convert_nxd_tensor *t;
    size_t n;

    /* All layers: which pipeline rank has them is looked up. */
    if (tern_convert_nxd_list(&r->pieces.plan, 0, &t, &n, err) < 0)
        return -1;
    int rc = 0;
    tern_progress_phase("tensors", "finding them");
    tern_progress_expect(n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        tern_progress_add(1);
        if (r->pieces.plan.config.tied && strcmp(t[i].name, lm_head) == 0 &&
            tern_convert_nxd_ranks_stage(&r->ranks, lm_head) < 0)
            continue; /* it is the embedding */
        rc = take(r, &t[i], err);
    }
    free(t);
    return rc == 0 ? tern_convert_nxd_ranks_check_rest(
                         &r->ranks, may_be_left, /* user= */ NULL,
                         "The config names none of this name, or another pipeline rank has it, "
                         "too. Is it the config of this model?",
                         err)
                   : -1;
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
    struct tern_convert_foreign f = {.dir = r->ranks.dir};
    int64_t head = r->pieces.plan.config.head_dim;
    int *copies =
        tern_alloc((size_t)r->pieces.plan.config.kv_heads, sizeof *copies, r->ranks.dir, err);
    int rc = copies ? 0 : -1;

    for (int t = 0; rc == 0 && t < r->ranks.tensor; t++) {
        unsigned from = r->ranks.found[t].file;
        size_t runs = tern_convert_nxd_runs(&r->pieces.plan, k, t, r->pieces.runs);
        int64_t local = before;
        rc = tern_convert_foreign_file(&f, r->ranks.list.names[from], r->ranks.list.bytes[from],
                                       err);
        for (size_t i = 0; i < runs; i++) {
            struct tern_convert_nxd_run one = {0, head};
            for (int64_t at = 0; rc == 0 && at < r->pieces.runs[i].count;
                 at += head, local += head) {
                int64_t h = (r->pieces.runs[i].start + at) / head;
                char name[32];
                snprintf(name, sizeof name, "%d.%d", (int)h, copies[h]++);
                struct tern_ckpt_piece p = tern_convert_nxd_piece(&r->ranks, t, 0, k, one, local);
                struct tern_ckpt_info info = {.name = name,
                                              .type = r->ranks.found[t].t->type,
                                              .ndim = 2,
                                              .shape = {(uint64_t)head, (uint64_t)k->shape[1]}};
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
    const struct tern_model_config *c = &r->pieces.plan.config;
    bool fused = r->pieces.plan.qkv == TERN_CONVERT_NXD_FUSED;
    struct tern_model_tensor k;
    double share = 0;

    if (r->pieces.plan.copies == 1)
        return 0;
    tern_model_tensor(
        c, (size_t)tern_model_tensor_find(c, "model.layers.0.self_attn.k_proj.weight"), &k);
    if (find(r,
             fused ? "model.layers.0.self_attn.qkv_proj.weight_qkv"
                   : "model.layers.0.self_attn.qkv_proj.weight_k",
             /* whole= */ false, err) < 0)
        return -1;
    size_t n = (size_t)c->head_dim * (size_t)c->dim;
    struct tern_ckpt *copies = open_copies(r, &k, fused ? c->dim / r->ranks.tensor : 0, err);
    float *room = copies ? tern_alloc(2 * n, sizeof *room, "key heads", err) : NULL;
    int rc = room ? 0 : -1;
    for (int h = 0; rc == 0 && h < c->kv_heads; h++) {
        for (int i = 1; rc == 0 && i < r->pieces.plan.copies && share <= 0.1; i++)
            rc = compare(copies, h, i, room, n, &share, err);
    }
    free(room);
    tern_ckpt_close(copies);
    if (rc == 0 && share > 0.1) {
        const char *hw = r->pieces.plan.hw == TERN_CONVERT_NXD_TRN1 ? "trn1" : "trn2";
        return tern_err_set(err, TERN_USAGE,
                            "%s: the copies of a key head differ from each other, when they are "
                            "sought as on %s. Is --hw %s right?",
                            r->ranks.dir, hw, hw);
    }
    return rc;
}

/* ------------------------------------------------------------------ the whole */

static bool is_folder(const char *path)
{
    struct stat st;

    return TERN_AGAIN(stat(path, &st)) == 0 && S_ISDIR(st.st_mode);
}

struct tern_ckpt *tern_convert_open_nxd(const char *dir, const struct tern_model_config *c,
                                        const struct tern_convert_from_nxd *from,
                                        struct tern_err *err)
{
    struct reader r = {.ranks = {.dir = dir, .stop = from->stop, .list = {.dir = dir}}};
    struct tern_ckpt *opened = NULL;

    if (tern_convert_nxd_ranks_open(&r.ranks, err) == 0 && plan(&r, c, from->hw, err) == 0 &&
        check_copies(&r, err) == 0 && take_all(&r, err) == 0)
        opened = tern_convert_foreign_open(&r.ranks.list, err);
    tern_progress_phase(/* bytes */ NULL, /* what= */ NULL);
    tern_convert_nxd_ranks_free(&r.ranks);
    tern_convert_nxd_pieces_free(&r.pieces);
    return opened;
}

int tern_convert_open_from_nxd(struct tern_convert_export *x, const char *path,
                               const struct tern_convert_from_nxd *from, struct tern_err *err)
{
    char *shards = tern_fs_join(path, "shards"); /* Optimum Neuron's, with the config beside them */
    const char *at = from->config ? from->config : path, *dir = is_folder(shards) ? shards : path;
    char *file = tern_str_ends(at, ".json") ? tern_strdup(at) : tern_fs_join(at, "config.json");
    char *adapters = NULL;
    int rc = 0;

    if (tern_convert_nxd_adapters_find(path, &adapters, NULL) != 0)
        rc = tern_err_set(
            err, TERN_USAGE,
            "%s: holds adapters alone. Put them into their base first: tern ckpt merge", path);
    else if (!from->config && !tern_fs_exists(file))
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: has no config.json, as NxD keeps none. Name the model's: --config",
                          path);
    if (rc == 0)
        x->config_json = tern_json_python_load(file, CONFIG_MAX, err);
    if (x->config_json && tern_model_config_load(file, &x->config, err) == 0)
        x->c = tern_convert_open_nxd(dir, &x->config, from, err);
    free(adapters);
    free(file);
    free(shards);
    return x->c ? 0 : -1;
}
