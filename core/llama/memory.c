/* Sizes, and where everything lies in the activations' block. */
#include "core/llama/layers.h"

enum {
    ALIGN = 64, /* bytes: a cache line, a vector register */
    /* Logits held at a time.  Large enough that reading and writing the head's gradient once a
     * chunk is small beside the products.  (With V 32000 and C 288: 512 rows, 74 MB moved for 28
     * GFLOP.) A quarter of it costs a tenth of the step's speed. */
    LOGIT_BYTES = 64 << 20,
    HEAD_ROWS_MIN = 64,
};

/* Hands out aligned pieces of a block, and before that of lent memory; with base NULL it only
 * counts. */
struct carver {
    char *base;
    size_t bytes;
    char *lent;
    size_t lent_bytes;
};

static void *carve_bytes(struct carver *v, size_t bytes)
{
    void *p = v->base ? v->base + v->bytes : NULL;

    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (bytes <= v->lent_bytes) {
        p = v->base ? v->lent : NULL;
        v->lent += v->base ? bytes : 0;
        v->lent_bytes -= bytes;
        return p;
    }
    v->bytes += bytes;
    return p;
}

/* A stored array. */
static void *carve_array(struct carver *v, const struct tern_llama *m, size_t rows, size_t columns)
{
    return carve_bytes(v, rows * columns * tern_llama_element(m));
}

static tern_real *carve(struct carver *v, size_t rows, size_t columns)
{
    return carve_bytes(v, rows * columns * sizeof(tern_real));
}

/* The sizes of arrays on this rank. */
struct widths {
    size_t N, n, C, HD, W, F;
};

static struct widths widths_of(const struct tern_llama *m)
{
    const struct tern_model_shard *s = m->shard;
    int N = m->max_batch * m->seq_len, HD = s->heads * m->c.head_dim;

    return (struct widths){.N = (size_t)N,
                           .n = (size_t)tern_llama_own(m, N),
                           .C = (size_t)m->c.dim,
                           .HD = (size_t)HD,
                           .W = (size_t)(HD + 2 * s->kv_heads * m->c.head_dim),
                           .F = (size_t)s->ffn};
}

static void carve_attended(struct carver *v, const struct tern_llama *m,
                           struct tern_llama_layer_acts *a)
{
    const struct widths w = widths_of(m);

    a->stats = carve(v, w.N, 2 * (size_t)m->shard->heads);
    a->heads = carve_array(v, m, w.N, w.HD);
}

static void carve_rest(struct carver *v, const struct tern_llama *m,
                       struct tern_llama_layer_acts *a)
{
    const struct widths w = widths_of(m);

    a->gate_up = carve_array(v, m, w.N, 2 * w.F);
    a->qkv = carve_array(v, m, w.N, w.W);
    a->mid = carve_array(v, m, w.n, w.C);
    a->rstd = carve(v, w.n, 1);
    a->mid_rstd = carve(v, w.n, 1);
}

/* A layer's gradients are written when the layer above is done with, the embedding's after all
 * layers, unless it is the head, too. */
static void borrow(struct carver *v, const struct tern_llama *m, int layer)
{
    const size_t C = (size_t)m->c.dim;
    size_t from = m->embed, to = m->embed;

    if (layer > 0) {
        from = m->layers[layer - 1].qkv;
        to = m->layers[layer - 1].post_norm + C;
    } else if (!m->shard->head_is_embed) {
        to += (size_t)m->shard->vocab_rows * C;
    }
    from = (from * sizeof(tern_real) + ALIGN - 1) / ALIGN * ALIGN;
    to = to * sizeof(tern_real) / ALIGN * ALIGN;
    v->lent = v->base ? (char *)m->g + from : NULL;
    v->lent_bytes = to > from ? to - from : 0;
}

/* A layer's share of a slot: stored arrays are its own, the rest are `same`.  Large arrays come
 * first, as they find room among gradients while there is some. */
static struct tern_llama_layer_acts carve_kept(struct carver *v, const struct tern_llama *m,
                                               const struct tern_llama_layer_acts *same)
{
    const struct widths w = widths_of(m);
    struct tern_llama_layer_acts a = *same;

    if (!m->training)
        return a;
    if (m->recompute != TERN_LLAMA_RECOMPUTE_FULL)
        carve_rest(v, m, &a);
    a.x = carve_array(v, m, w.n, w.C);
    if (m->recompute == TERN_LLAMA_RECOMPUTE_NONE)
        carve_attended(v, m, &a);
    return a;
}

static void carve_scratch(struct carver *v, struct tern_llama *m)
{
    const struct widths w = widths_of(m);
    struct tern_llama_scratch *a = &m->a;

    a->normed = carve(v, w.N, w.C);
    a->wide = carve(v, w.N, w.F > w.HD ? w.F : w.HD);
    a->attention =
        carve(v, tern_tensor_attention_scratch(m->seq_len, m->c.head_dim, m->threads), 1);
    if (m->shard->head_bucket >= 0) {
        a->logits = carve(v, (size_t)m->head_rows, (size_t)m->shard->vocab_rows);
        a->losses = carve_bytes(v, (size_t)m->head_rows * sizeof(double));
        a->sums = carve_bytes(v, 3 * (size_t)m->head_rows * sizeof(double));
    }
    if (m->lora.rank)
        a->low = carve(v, w.N, 2 * (size_t)m->lora.rank);
    if (m->lora.rank && m->lora.dropout > 0) {
        size_t most = w.F > w.HD ? w.F : w.HD;
        a->dropped = carve(v, w.N, most > w.C ? most : w.C);
    }
    if (m->bf16) {
        a->stream = carve(v, w.n, w.C);
        a->broad = carve(v, w.N, w.W > 2 * w.F ? w.W : 2 * w.F);
        a->norm = carve(v, w.C, 1);
    }
    if (m->n_magnitudes) {
        size_t most = w.F > w.HD ? w.F : w.HD;
        most = most > w.C ? most : w.C;
        a->norms = carve(v, m->n_magnitudes, 1);
        a->rows = carve(v, TERN_LLAMA_NORM_ROWS, most);
        a->squares = carve_bytes(v, most * sizeof(double));
        a->product = carve(v, w.N, most);
    }
    if (m->training) {
        a->dx = carve(v, w.n, w.C);
        a->dnormed = carve(v, w.N, w.C);
        a->dqkv = carve(v, w.N, w.W);
    }
}

void tern_llama_carve_counts(const struct tern_llama *m, size_t *ret_slots, size_t *ret_layer_acts)
{
    *ret_slots = *ret_layer_acts = 0;
    for (int k = 0; k < m->shard->n_chunks; k++) {
        *ret_slots += (size_t)m->chunks[k].n_slots;
        *ret_layer_acts += (size_t)(m->chunks[k].n_slots * m->shard->chunks[k].layers);
    }
}

size_t tern_llama_carve(struct tern_llama *m, char *base)
{
    const struct widths w = widths_of(m);
    struct carver v = {.base = base};
    struct tern_llama_layer_acts same = {0};
    size_t slot = 0, acts = 0;

    m->cos = carve(&v, (size_t)m->seq_len, (size_t)m->c.head_dim / 2);
    m->sin = carve(&v, (size_t)m->seq_len, (size_t)m->c.head_dim / 2);
    if (!m->training)
        same.x = carve_array(&v, m, w.n, w.C);
    if (!m->training || m->recompute != TERN_LLAMA_RECOMPUTE_NONE)
        carve_attended(&v, m, &same);
    if (!m->training || m->recompute == TERN_LLAMA_RECOMPUTE_FULL)
        carve_rest(&v, m, &same);
    for (int k = 0; k < m->shard->n_chunks; k++) {
        for (int s = 0; s < m->chunks[k].n_slots; s++, slot++) {
            struct tern_llama_slot filled = {.layers = base ? m->layer_acts + acts : NULL};
            for (int l = 0; l < m->shard->chunks[k].layers; l++, acts++) {
                if (m->lends)
                    borrow(&v, m, l);
                struct tern_llama_layer_acts a = carve_kept(&v, m, &same);
                v.lent_bytes = 0;
                if (base)
                    m->layer_acts[acts] = a;
            }
            filled.out = m->training ? carve_array(&v, m, w.n, w.C) : same.x;
            filled.out_rstd = carve(&v, w.n, 1);
            if (base)
                m->slots[slot] = filled;
        }
    }
    carve_scratch(&v, m);
    return v.bytes;
}

int tern_llama_size(struct tern_llama *m, const struct tern_llama_options *o, struct tern_err *err)
{
    const struct tern_model_place *place = o->place ? o->place : &tern_model_whole;
    int64_t N = (int64_t)o->max_batch * o->seq_len;

    *m = (struct tern_llama){.c = *o->config,
                             .tensor = place->tensor,
                             .tensor_rank = place->tensor_rank,
                             .max_batch = o->max_batch,
                             .seq_len = o->seq_len,
                             .training = o->training,
                             .sequence = o->sequence && place->tensor > 1,
                             .bf16 = o->bf16,
                             .recompute = o->recompute};
    if (o->peers)
        m->peers = *o->peers;
    if (o->adapters)
        m->lora = *o->adapters;
    if (tern_model_config_check(o->config, "model", err) < 0)
        return -1;
    if (o->max_batch < 1 || o->seq_len < 1 || N > 1 << 24)
        return tern_err_set(err, TERN_USAGE,
                            "a micro-batch of %d rows of %d positions: both must be at least 1, "
                            "and their product at most 16777216",
                            o->max_batch, o->seq_len);
    if (m->sequence && N % place->tensor)
        return tern_err_set(err, TERN_USAGE,
                            "a micro-batch of %d rows of %d positions does not divide over %d "
                            "tensor ranks, as parallel.sequence wants",
                            o->max_batch, o->seq_len, place->tensor);
    m->shard = tern_model_shard_new(o->config, place, err);
    if (!m->shard)
        return -1;
    m->lends = o->one_micro_batch && o->training && !m->lora.rank && place->pipeline == 1 &&
               m->shard->n_chunks == 1;
    if (m->lora.rank) {
        m->lora_shard = tern_model_shard_adapters(o->config, place, &m->lora, err);
        if (!m->lora_shard)
            return -1;
    }
    /* By the largest part of the vocabulary: tensor ranks combine their logits' sums chunk by
     * chunk. So chunks must be of one size where the vocabulary does not divide. */
    int64_t widest = (o->config->vocab + place->tensor - 1) / place->tensor;
    int64_t rows = LOGIT_BYTES / (int64_t)sizeof(tern_real) / widest;
    rows = rows < HEAD_ROWS_MIN ? HEAD_ROWS_MIN : rows / 16 * 16;
    m->head_rows = (int)(rows < N ? rows : N);
    m->params = m->shard->params;
    return 0;
}
