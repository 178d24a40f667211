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
    tern_tensor_rmsnorm(tern_llama_own_rows(m, m->a.normed, N), rstd, x, m->w + w,
                        tern_llama_own(m, N), m->c.dim, m->c.norm_eps);
    return tern_llama_gather(m, m->a.normed, N, err);
}

/* to[n,C] = base + x[N,in] w[C,in]^T, the product (w is o or down) summed over the tensor ranks. */
static int fan_in(struct tern_llama *m, int layer, enum tern_model_kind kind,
                  const struct tern_llama_batch *b, tern_real *to, const tern_real *base,
                  const tern_real *x, struct tern_err *err)
{
    bool down = kind == TERN_MODEL_DOWN;
    size_t w = down ? m->layers[layer].down : m->layers[layer].o;
    int in = down ? m->shard->ffn : m->shard->heads * m->c.head_dim;
    int N = b->B * b->T, C = m->c.dim;
    size_t own = (size_t)tern_llama_own(m, N) * (size_t)C;

    if (m->tensor == 1) {
        tern_tensor_copy(to, base, own);
        tern_llama_linear(to, x, m->w + w, N, in, C, 1);
        tern_llama_adapt(m, layer, kind, b, to, C, x);
        return 0;
    }
    tern_llama_linear(m->a.normed, x, m->w + w, N, in, C, 0);
    tern_llama_adapt(m, layer, kind, b, m->a.normed, C, x);
    if (tern_llama_sum(m, m->a.normed, N, err) < 0)
        return -1;
    tern_tensor_copy(to, base, own);
    tern_tensor_add(to, tern_llama_own_rows(m, m->a.normed, N), own);
    return 0;
}

void tern_llama_attend(struct tern_llama *m, struct tern_llama_layer_acts *a,
                       const struct tern_llama_batch *b)
{
    const struct tern_tensor_heads heads = tern_llama_heads(m, b);

    tern_tensor_attention(a->heads, a->stats, a->qkv, &heads, m->a.attention);
}

int tern_llama_layer_inner(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                           const struct tern_llama_batch *b, struct tern_err *err)
{
    const struct tern_llama_layer_at *at = &m->layers[layer];
    const struct tern_tensor_heads heads = tern_llama_heads(m, b);
    int N = b->B * b->T, C = m->c.dim, F = m->shard->ffn, HD = heads.H * heads.D;
    int KD = heads.K * heads.D, W = HD + 2 * KD;

    if (norm(m, a->rstd, a->x, at->input_norm, N, err) < 0)
        return -1;
    tern_llama_linear(a->qkv, m->a.normed, m->w + at->qkv, N, C, W, 0);
    tern_llama_adapt(m, layer, TERN_MODEL_Q, b, a->qkv, W, m->a.normed);
    tern_llama_adapt(m, layer, TERN_MODEL_K, b, a->qkv + HD, W, m->a.normed);
    tern_llama_adapt(m, layer, TERN_MODEL_V, b, a->qkv + HD + KD, W, m->a.normed);
    tern_tensor_rope(a->qkv, m->cos, m->sin, &heads, 1);
    tern_llama_attend(m, a, b);
    if (fan_in(m, layer, TERN_MODEL_O, b, a->mid, a->x, a->heads, err) < 0 ||
        norm(m, a->mid_rstd, a->mid, at->post_norm, N, err) < 0)
        return -1;
    tern_llama_linear(a->gate_up, m->a.normed, m->w + at->gate_up, N, C, 2 * F, 0);
    tern_llama_adapt(m, layer, TERN_MODEL_GATE, b, a->gate_up, 2 * F, m->a.normed);
    tern_llama_adapt(m, layer, TERN_MODEL_UP, b, a->gate_up + F, 2 * F, m->a.normed);
    return 0;
}

/* Each tensor rank looks up the ids of its rows of the table; the others' are zero there. */
static int embed(struct tern_llama *m, tern_real *x, const struct tern_llama_batch *b,
                 struct tern_err *err)
{
    const struct tern_model_shard *s = m->shard;
    int N = b->B * b->T, C = m->c.dim;

    if (m->tensor == 1) {
        tern_tensor_embed(x, m->w + m->embed, b->tokens, N, C);
        return 0;
    }
    tern_tensor_embed_part(m->a.normed, m->w + m->embed, b->tokens, N, C, (int)s->vocab_start,
                           (int)s->vocab_rows);
    if (tern_llama_sum(m, m->a.normed, N, err) < 0)
        return -1;
    tern_tensor_copy(x, tern_llama_own_rows(m, m->a.normed, N),
                     (size_t)tern_llama_own(m, N) * (size_t)C);
    return 0;
}

int tern_llama_forward(struct tern_llama *m, int chunk, int slot, const struct tern_llama_batch *b,
                       struct tern_err *err)
{
    const struct tern_llama_chunk *k = &m->chunks[chunk];
    struct tern_llama_slot *s = &k->slots[slot];
    int F = m->shard->ffn, N = b->B * b->T;

    if (k->is->embeds && embed(m, s->layers[0].x, b, err) < 0)
        return -1;
    for (int l = 0; l < k->is->layers; l++) {
        int layer = k->is->at + l;
        struct tern_llama_layer_acts *a = &s->layers[l];
        tern_real *next = l + 1 < k->is->layers ? s->layers[l + 1].x : s->out;

        if (tern_llama_layer_inner(m, layer, a, b, err) < 0)
            return -1;
        tern_tensor_swiglu(m->a.wide, a->gate_up, N, F);
        if (fan_in(m, layer, TERN_MODEL_DOWN, b, next, a->mid, m->a.wide, err) < 0)
            return -1;
    }
    return 0;
}
