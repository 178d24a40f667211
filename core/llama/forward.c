/* The forward pass of a shard, layer by layer. */
#include "core/llama/layers.h"

struct tern_tensor_heads tern_llama_heads(const struct tern_llama *m,
                                          const struct tern_llama_batch *b)
{
    return (struct tern_tensor_heads){.B = b->B,
                                      .T = b->T,
                                      .H = m->shard->heads,
                                      .K = m->shard->kv_heads,
                                      .D = m->c.head_dim,
                                      .starts = b->starts};
}

/* m->a.normed: the norm of x over all tokens; saves rstd of the own ones. */
static int norm(struct tern_llama *m, tern_real *rstd, const tern_real *x, size_t w, int N,
                struct tern_err *err)
{
    tern_real *own = tern_llama_own_rows(m, m->a.normed, N);
    int n = tern_llama_own(m, N);

    tern_tensor_rmsnorm(own, rstd, x, tern_llama_norm_weights(m, w), n, m->c.dim, m->c.norm_eps);
    tern_llama_round_input(m, own, (size_t)n * (size_t)m->c.dim);
    return tern_llama_gather(m, m->a.normed, N, err);
}

/* to[n,C] = base + x[N,in] w[C,in]^T, the product (w is o or down) summed over the tensor ranks.
 * `base` may be `to`. */
static int fan_in(struct tern_llama *m, const struct tern_llama_use *u, tern_real *to,
                  const tern_real *base, const tern_real *x, struct tern_err *err)
{
    const struct tern_llama_layer_at *at = &m->layers[u->layer];
    bool down = u->kind == TERN_MODEL_DOWN;
    size_t w = down ? at->down : at->o;
    int in = down ? m->shard->ffn : m->shard->heads * m->c.head_dim;
    int N = u->b->B * u->b->T, C = m->c.dim;
    size_t own = (size_t)tern_llama_own(m, N) * (size_t)C;

    if (m->tensor == 1 && !tern_llama_scales(m, u->layer, u->kind)) {
        if (to != base)
            tern_tensor_copy(to, base, own);
        tern_llama_product_add(m, w, to, x, N, in, C);
        tern_llama_adapt(m, u, to, C, x);
        return 0;
    }
    tern_llama_product(m, w, m->a.normed, x, N, in, C);
    tern_llama_adapt(m, u, m->a.normed, C, x);
    if (tern_llama_sum(m, m->a.normed, N, err) < 0)
        return -1;
    if (to != base)
        tern_tensor_copy(to, base, own);
    tern_tensor_add(to, tern_llama_own_rows(m, m->a.normed, N), own);
    return 0;
}

tern_real *tern_llama_attend(struct tern_llama *m, struct tern_llama_layer_acts *a,
                             const tern_real *qkv, const struct tern_llama_batch *b)
{
    const struct tern_tensor_heads heads = tern_llama_heads(m, b);
    tern_real *out = tern_llama_work(m, a->heads, m->a.wide);

    tern_tensor_attention(out, a->stats, qkv, &heads, m->a.attention);
    tern_llama_keep(m, a->heads, out, (size_t)(b->B * b->T) * (size_t)(heads.H * heads.D));
    return out;
}

/* qkv[N,W] from the normed input. */
static tern_real *project(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                          const struct tern_llama_batch *b)
{
    const struct tern_tensor_heads heads = tern_llama_heads(m, b);
    int N = b->B * b->T, C = m->c.dim, HD = heads.H * heads.D, KD = heads.K * heads.D;
    int W = HD + 2 * KD;
    tern_real *qkv = tern_llama_work(m, a->qkv, m->a.broad);

    tern_llama_product(m, m->layers[layer].qkv, qkv, m->a.normed, N, C, W);
    tern_llama_adapt(m, &(struct tern_llama_use){layer, TERN_MODEL_Q, b}, qkv, W, m->a.normed);
    tern_llama_adapt(m, &(struct tern_llama_use){layer, TERN_MODEL_K, b}, qkv + HD, W, m->a.normed);
    tern_llama_adapt(m, &(struct tern_llama_use){layer, TERN_MODEL_V, b}, qkv + HD + KD, W,
                     m->a.normed);
    tern_llama_round(m, qkv, (size_t)N * (size_t)W);
    tern_tensor_rope(qkv, m->cos, m->sin, &heads, 1);
    tern_llama_keep(m, a->qkv, qkv, (size_t)N * (size_t)W);
    return qkv;
}

int tern_llama_layer_inner(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                           const struct tern_llama_batch *b, struct tern_err *err)
{
    const struct tern_llama_layer_at *at = &m->layers[layer];
    int N = b->B * b->T, C = m->c.dim, F = m->shard->ffn;
    size_t own = (size_t)tern_llama_own(m, N) * (size_t)C;
    const tern_real *x = tern_llama_recall(m, a->x, m->a.stream, own);
    tern_real *mid = tern_llama_work(m, a->mid, m->a.stream);
    tern_real *gate_up = tern_llama_work(m, a->gate_up, m->a.broad);

    if (norm(m, a->rstd, x, at->input_norm, N, err) < 0)
        return -1;
    const tern_real *heads = tern_llama_attend(m, a, project(m, layer, a, b), b);
    if (fan_in(m, &(struct tern_llama_use){layer, TERN_MODEL_O, b}, mid, x, heads, err) < 0)
        return -1;
    tern_llama_keep(m, a->mid, mid, own);
    if (norm(m, a->mid_rstd, mid, at->post_norm, N, err) < 0)
        return -1;
    tern_llama_product(m, at->gate_up, gate_up, m->a.normed, N, C, 2 * F);
    tern_llama_adapt(m, &(struct tern_llama_use){layer, TERN_MODEL_GATE, b}, gate_up, 2 * F,
                     m->a.normed);
    tern_llama_adapt(m, &(struct tern_llama_use){layer, TERN_MODEL_UP, b}, gate_up + F, 2 * F,
                     m->a.normed);
    tern_llama_keep(m, a->gate_up, gate_up, (size_t)N * (size_t)(2 * F));
    return 0;
}

static void look_up(const struct tern_llama *m, tern_real *y, const int32_t *ids, int n)
{
    const struct tern_model_shard *s = m->shard;
    int first = (int)s->vocab_start, rows = (int)s->vocab_rows, C = m->c.dim;

    if (m->bf16)
        tern_tensor_embed_bf16(y, m->w_bf16 + m->embed, ids, n, C, first, rows);
    else if (m->tensor == 1)
        tern_tensor_embed(y, m->w + m->embed, ids, n, C);
    else
        tern_tensor_embed_part(y, m->w + m->embed, ids, n, C, first, rows);
}

/* Each tensor rank looks up the ids of its rows of the table; the others' are zero there. */
static int embed(struct tern_llama *m, void *x, const struct tern_llama_batch *b,
                 struct tern_err *err)
{
    int N = b->B * b->T;
    tern_real *to = m->tensor == 1 ? tern_llama_work(m, x, m->a.stream) : m->a.normed;

    look_up(m, to, b->tokens, N);
    if (tern_llama_sum(m, to, N, err) < 0)
        return -1;
    tern_llama_keep(m, x, tern_llama_own_rows(m, to, N),
                    (size_t)tern_llama_own(m, N) * (size_t)m->c.dim);
    return 0;
}

int tern_llama_forward(struct tern_llama *m, int chunk, int slot, const struct tern_llama_batch *b,
                       struct tern_err *err)
{
    const struct tern_llama_chunk *k = &m->chunks[chunk];
    struct tern_llama_slot *s = &k->slots[slot];
    int F = m->shard->ffn, N = b->B * b->T;
    size_t own = (size_t)tern_llama_own(m, N) * (size_t)m->c.dim;

    if (k->is->embeds && embed(m, s->layers[0].x, b, err) < 0)
        return -1;
    for (int l = 0; l < k->is->layers; l++) {
        int layer = k->is->at + l;
        struct tern_llama_layer_acts *a = &s->layers[l];
        void *next = l + 1 < k->is->layers ? s->layers[l + 1].x : s->out;
        tern_real *to = tern_llama_work(m, next, m->a.stream);

        if (tern_llama_adapter_norms(m, layer, err) < 0 ||
            tern_llama_layer_inner(m, layer, a, b, err) < 0)
            return -1;
        tern_tensor_swiglu(m->a.wide, tern_llama_work(m, a->gate_up, m->a.broad), N, F);
        tern_llama_round_input(m, m->a.wide, (size_t)N * (size_t)F);
        if (fan_in(m, &(struct tern_llama_use){layer, TERN_MODEL_DOWN, b}, to,
                   tern_llama_work(m, a->mid, m->a.stream), m->a.wide, err) < 0)
            return -1;
        tern_llama_keep(m, next, to, own);
    }
    return 0;
}
