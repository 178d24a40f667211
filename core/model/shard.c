/* The parts of a model that each of several ranks holds. */
#include "core/model/model.h"

#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct tern_model_place tern_model_whole = {.tensor = 1, .pipeline = 1, .interleave = 1};

int tern_model_place_check(const struct tern_model_config *c, const struct tern_model_place *p,
                           const char *what, struct tern_err *err)
{
    int chunks = p->pipeline * p->interleave;

    if (p->tensor < 1 || p->pipeline < 1 || p->interleave < 1)
        return tern_err_set(err, TERN_USAGE, "%s: parallel degrees must be at least 1", what);
    if (c->heads % p->tensor)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %d attention heads do not divide over %d tensor ranks", what,
                            c->heads, p->tensor);
    if (c->kv_heads % p->tensor && p->tensor % c->kv_heads)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %d key heads and %d tensor ranks: one must divide the other", what,
                            c->kv_heads, p->tensor);
    if (c->ffn < p->tensor || c->vocab < p->tensor)
        return tern_err_set(
            err, TERN_USAGE,
            "%s: intermediate size %d and vocabulary %d are too small to be cut over "
            "%d tensor ranks",
            what, c->ffn, c->vocab, p->tensor);
    if (c->layers < chunks)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %d layers are fewer than the %d chunks of %d pipeline stages",
                            what, c->layers, chunks, p->pipeline);
    return 0;
}

/* Where tensor rank t begins of n things that need not divide. */
static int64_t cut(int64_t n, int t, int ranks)
{
    return n * t / ranks;
}

/* Layers of the chunks before chunk g.  The remainder goes to chunks in the middle: the last chunk
 * also has the head's product, and the first has the embedding and the most micro-batches. */
static int layers_before(int layers, int g, int chunks)
{
    int more = layers % chunks, from = (chunks - more) / 2;
    int extra = g < from ? 0 : g - from < more ? g - from : more;

    return layers / chunks * g + extra;
}

/* The rows or columns of `t` along its split axis that lie on this tensor rank. */
static void slice(const struct tern_model_config *c, const struct tern_model_place *p,
                  struct tern_model_part *part)
{
    const struct tern_model_tensor *t = &part->whole;
    int axis = t->split_axis, ranks = p->tensor, sharers = 1;

    part->start[0] = part->start[1] = 0;
    part->shape[0] = t->shape[0];
    part->shape[1] = t->ndim > 1 ? t->shape[1] : 1;
    part->replicas = 1;
    part->owner = true;
    if (axis < 0) {
        part->replicas = ranks;
        part->owner = p->tensor_rank == 0;
        part->sum = TERN_MODEL_SUM_SEQUENCE;
    } else {
        bool kv = t->kind == TERN_MODEL_K || t->kind == TERN_MODEL_V;
        if (kv && ranks > c->kv_heads)
            sharers = ranks / c->kv_heads;
        /* Heads must stay whole: q and o divide evenly, and so do k and v among their sharers. */
        part->start[axis] = cut(t->shape[axis], p->tensor_rank / sharers, ranks / sharers);
        part->shape[axis] =
            cut(t->shape[axis], p->tensor_rank / sharers + 1, ranks / sharers) - part->start[axis];
        part->replicas = sharers;
        part->owner = p->tensor_rank % sharers == 0;
        part->sum = sharers > 1 ? TERN_MODEL_SUM_KV_HEADS : TERN_MODEL_SUM_NONE;
    }
    part->count = (uint64_t)(part->shape[0] * part->shape[1]);
}

/* Appends the whole model's tensor `index`; `joins`: to the unit before it. */
static void add_part(struct tern_model_shard *s, const struct tern_model_config *c, size_t index,
                     int bucket, bool joins)
{
    struct tern_model_part *part = &s->parts[s->n_parts];

    tern_model_tensor(c, index, &part->whole);
    part->index = index;
    slice(c, &s->place, part);
    part->offset = s->params;
    s->params += part->count;
    if (!joins)
        s->units[s->n_units++] = (struct tern_model_unit){
            .offset = part->offset, .width = part->shape[1], .part = s->n_parts, .bucket = bucket};
    struct tern_model_unit *u = &s->units[s->n_units - 1];
    u->rows += part->shape[0];
    u->parts++;
    part->unit = (int)s->n_units - 1;
    s->n_parts++;
}

static void add_layer(struct tern_model_shard *s, const struct tern_model_config *c, int layer)
{
    enum { PER_LAYER = TERN_MODEL_POST_NORM - TERN_MODEL_Q + 1 };
    size_t first = 1 + (size_t)layer * PER_LAYER;

    for (size_t k = 0; k < PER_LAYER; k++) {
        int kind = TERN_MODEL_Q + (int)k;
        add_part(s, c, first + k, s->n_buckets,
                 kind == TERN_MODEL_K || kind == TERN_MODEL_V || kind == TERN_MODEL_UP ||
                     kind == TERN_MODEL_POST_NORM);
    }
    s->n_buckets++;
    s->n_layers++;
}

static void add_chunk(struct tern_model_shard *s, const struct tern_model_config *c, int at)
{
    const struct tern_model_place *p = &s->place;
    int chunks = p->pipeline * p->interleave, g = at * p->pipeline + p->stage;
    size_t in_layers = tern_model_tensors(c) - 1 - (c->tied ? 0 : 1);
    struct tern_model_chunk *k = &s->chunks[at];

    k->first = layers_before(c->layers, g, chunks);
    k->layers = layers_before(c->layers, g + 1, chunks) - k->first;
    k->at = s->n_layers;
    k->embeds = g == 0;
    k->heads = g == chunks - 1;
    if (k->embeds) {
        s->embed_bucket = s->n_buckets++;
        add_part(s, c, 0, s->embed_bucket, false);
    }
    k->bucket = s->n_buckets;
    for (int l = 0; l < k->layers; l++)
        add_layer(s, c, k->first + l);
    if (!k->heads)
        return;
    s->head_bucket = s->n_buckets++;
    add_part(s, c, in_layers, s->head_bucket, false);
    s->head_is_embed = c->tied && p->pipeline == 1;
    s->head_is_copy = c->tied && p->pipeline > 1;
    if (!c->tied) {
        add_part(s, c, in_layers + 1, s->head_bucket, false);
    } else if (s->head_is_copy) {
        add_part(s, c, 0, s->head_bucket, false);
        s->parts[s->n_parts - 1].owner = false;
        s->parts[s->n_parts - 1].whole.kind = TERN_MODEL_HEAD;
    }
}

struct tern_model_shard *tern_model_shard_new(const struct tern_model_config *c,
                                              const struct tern_model_place *p,
                                              struct tern_err *err)
{
    struct tern_model_shard *s;
    size_t most = tern_model_tensors(c) + 1;

    if (tern_model_place_check(c, p, "model", err) < 0)
        return NULL;
    s = tern_alloc(1, sizeof *s, "a shard's table", err);
    if (!s)
        return NULL;
    s->place = *p;
    s->embed_bucket = s->head_bucket = -1;
    s->parts = tern_alloc(most, sizeof *s->parts, "a shard's table", err);
    s->units = tern_alloc(most, sizeof *s->units, "a shard's table", err);
    s->chunks = tern_alloc((size_t)p->interleave, sizeof *s->chunks, "a shard's table", err);
    if (!s->parts || !s->units || !s->chunks) {
        tern_model_shard_free(s);
        return NULL;
    }
    s->heads = c->heads / p->tensor;
    s->kv_heads = c->kv_heads < p->tensor ? 1 : c->kv_heads / p->tensor;
    s->ffn =
        (int)(cut(c->ffn, p->tensor_rank + 1, p->tensor) - cut(c->ffn, p->tensor_rank, p->tensor));
    s->vocab_start = cut(c->vocab, p->tensor_rank, p->tensor);
    s->vocab_rows = cut(c->vocab, p->tensor_rank + 1, p->tensor) - s->vocab_start;
    for (s->n_chunks = 0; s->n_chunks < p->interleave; s->n_chunks++)
        add_chunk(s, c, s->n_chunks);
    return s;
}

void tern_model_shard_free(struct tern_model_shard *s)
{
    if (!s)
        return;
    free(s->parts);
    free(s->units);
    free(s->chunks);
    free(s);
}

/* ---------------------------------------------------------------- adapters */

bool tern_model_adapter_beside(const struct tern_model_adapters *a, enum tern_model_kind kind)
{
    return a->rank > 0 && kind >= TERN_MODEL_Q && kind <= TERN_MODEL_DOWN &&
           (a->targets >> (kind - TERN_MODEL_Q) & 1);
}

int tern_model_adapter_arrays(const struct tern_model_adapters *a)
{
    return a->dora ? 3 : 2;
}

/* Array `which` beside the weight `w`; the caller sets its offset.  An array that its weight does
 * not cut is whole on all tensor ranks, each of which has addends of its gradient. */
static struct tern_model_part adapter(const struct tern_model_part *w,
                                      const struct tern_model_adapters *a,
                                      const struct tern_model_place *p, int which)
{
    static const char *const names[] = {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector"};
    const int64_t width = which < 2 ? a->rank : 1;
    const char *name = w->whole.name;
    int axis = which ? 0 : 1; /* that it shares with its weight */
    struct tern_model_part part = *w;
    struct tern_model_tensor *t = &part.whole;

    t->ndim = which < 2 ? 2 : 1;
    t->shape[1 - axis] = width;
    t->count = (uint64_t)(t->shape[0] * t->shape[1]);
    t->split_axis = w->whole.split_axis == axis ? axis : -1;
    snprintf(t->name, sizeof t->name, "base_model.model.%.*s.%s",
             (int)(strlen(name) - strlen(".weight")), name, names[which]);
    part.start[1 - axis] = 0;
    part.shape[1 - axis] = width;
    if (t->split_axis < 0) {
        part.start[axis] = 0;
        part.shape[axis] = w->whole.shape[axis];
        part.replicas = p->tensor;
        part.owner = p->tensor_rank == 0;
        part.sum = TERN_MODEL_SUM_TENSOR;
    }
    part.count = (uint64_t)(part.shape[0] * part.shape[1]);
    return part;
}

struct tern_model_shard *tern_model_shard_adapters(const struct tern_model_config *c,
                                                   const struct tern_model_place *p,
                                                   const struct tern_model_adapters *a,
                                                   struct tern_err *err)
{
    struct tern_model_shard *s = tern_model_shard_new(c, p, err);
    struct tern_model_part *parts = NULL;
    struct tern_model_unit *units = NULL;
    size_t n = 0;

    if (!s)
        return NULL;
    const int arrays = tern_model_adapter_arrays(a);
    parts = tern_alloc(3 * s->n_parts, sizeof *parts, "the adapters' table", err);
    units = tern_alloc(3 * s->n_parts, sizeof *units, "the adapters' table", err);
    if (!parts || !units) {
        free(parts);
        free(units);
        tern_model_shard_free(s);
        return NULL;
    }
    s->params = 0;
    for (size_t i = 0; i < s->n_parts; i++) {
        const struct tern_model_part *w = &s->parts[i];
        for (int k = 0; k < arrays && tern_model_adapter_beside(a, w->whole.kind); k++, n++) {
            parts[n] = adapter(w, a, p, k);
            parts[n].offset = s->params;
            parts[n].unit = (int)n;
            units[n] = (struct tern_model_unit){.offset = s->params,
                                                .rows = parts[n].shape[0],
                                                .width = parts[n].shape[1],
                                                .part = n,
                                                .parts = 1,
                                                .bucket = s->units[w->unit].bucket};
            s->params += parts[n].count;
        }
    }
    free(s->parts);
    free(s->units);
    s->parts = parts;
    s->units = units;
    s->n_parts = s->n_units = n;
    return s;
}

uint64_t tern_model_adapter_params(const struct tern_model_config *c,
                                   const struct tern_model_adapters *a)
{
    uint64_t n = 0;

    for (size_t i = 0; i < tern_model_tensors(c); i++) {
        struct tern_model_tensor t;
        tern_model_tensor(c, i, &t);
        if (tern_model_adapter_beside(a, t.kind))
            n += (uint64_t)a->rank * (uint64_t)(t.shape[0] + t.shape[1]) +
                 (a->dora ? (uint64_t)t.shape[0] : 0);
    }
    return n;
}

void tern_model_unit_cut(const struct tern_model_unit *u, int rank, int ranks, int64_t *ret_from,
                         int64_t *ret_to)
{
    int64_t each = u->rows / ranks;

    *ret_from = each * rank;
    *ret_to = rank == ranks - 1 ? u->rows : *ret_from + each;
}
