#include "core/llama/layers.h"

/* m->a.normed again from the saved rstd, over all tokens. */
static int norm_again(struct tern_llama *m, const tern_real *rstd, const tern_real *x, size_t w,
                      int N, struct tern_err *err)
{
    tern_tensor_rmsnorm_again(tern_llama_own_rows(m, m->a.normed, N), rstd, x, m->w + w,
                              tern_llama_own(m, N), m->c.dim);
    return tern_llama_gather(m, m->a.normed, N, err);
}

/* m->a.dnormed holds this rank's addends to a norm's output gradient: to dx and the norm's own. */
static int norm_backward(struct tern_llama *m, tern_real *dx, size_t w, const tern_real *x,
                         const tern_real *rstd, int N, struct tern_err *err)
{
    if (tern_llama_sum(m, m->a.dnormed, N, err) < 0)
        return -1;
    tern_tensor_rmsnorm_backward(dx, tern_llama_grad(m, w), tern_llama_own_rows(m, m->a.dnormed, N),
                                 x, m->w + w, rstd, tern_llama_own(m, N), m->c.dim);
    return 0;
}

/* What the forward pass did not keep. */
static int again(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                 const struct tern_llama_batch *b, struct tern_err *err)
{
    if (m->recompute == TERN_LLAMA_RECOMPUTE_FULL)
        return tern_llama_layer_inner(m, layer, a, b, err);
    if (m->recompute == TERN_LLAMA_RECOMPUTE_SELECTIVE)
        tern_llama_attend(m, a, b);
    return 0;
}

/* Beside a weight whose input is m->a.normed. */
static void adapt(struct tern_llama *m, int layer, enum tern_model_kind kind,
                  const struct tern_llama_batch *b, const tern_real *dy, int ldy,
                  const tern_real *x)
{
    tern_llama_adapt_grads(m, layer, kind, b, dy, ldy, x);
    tern_llama_adapt_dx(m, layer, kind, b, m->a.dnormed);
}

/* dx is the gradient of the layer's output on entry, of its input on return. */
static int layer_backward(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                          const struct tern_llama_batch *b, tern_real *dx, struct tern_err *err)
{
    const struct tern_llama_layer_at *at = &m->layers[layer];
    const struct tern_tensor_heads heads = tern_llama_heads(m, b);
    int N = b->B * b->T, C = m->c.dim, F = m->shard->ffn, HD = heads.H * heads.D;
    int KD = heads.K * heads.D, W = HD + 2 * KD;
    tern_real *normed = m->a.normed, *dnormed = m->a.dnormed, *wide = m->a.wide, *dy;

    if (again(m, layer, a, b, err) < 0 || tern_llama_gather_from(m, dx, dnormed, N, &dy, err) < 0)
        return -1;
    /* `wide` is the product of gate and up until down's gradient has used it, then its gradient. */
    tern_tensor_swiglu(wide, a->gate_up, N, F);
    tern_llama_linear_backward(NULL, tern_llama_grad(m, at->down), dy, wide, NULL, N, F, C);
    tern_llama_adapt_grads(m, layer, TERN_MODEL_DOWN, b, dy, C, wide);
    tern_llama_linear_backward(wide, NULL, dy, NULL, m->w + at->down, N, F, C);
    tern_llama_adapt_dx(m, layer, TERN_MODEL_DOWN, b, wide);
    tern_tensor_swiglu_backward(a->gate_up, wide, N, F);
    if (norm_again(m, a->mid_rstd, a->mid, at->post_norm, N, err) < 0)
        return -1;
    tern_llama_linear_backward(dnormed, tern_llama_grad(m, at->gate_up), a->gate_up, normed,
                               m->w + at->gate_up, N, C, 2 * F);
    adapt(m, layer, TERN_MODEL_GATE, b, a->gate_up, 2 * F, normed);
    adapt(m, layer, TERN_MODEL_UP, b, a->gate_up + F, 2 * F, normed);
    if (norm_backward(m, dx, at->post_norm, a->mid, a->mid_rstd, N, err) < 0 ||
        tern_llama_gather_from(m, dx, dnormed, N, &dy, err) < 0)
        return -1;

    tern_llama_linear_backward(wide, tern_llama_grad(m, at->o), dy, a->heads, m->w + at->o, N, HD,
                               C);
    tern_llama_adapt_grads(m, layer, TERN_MODEL_O, b, dy, C, a->heads);
    tern_llama_adapt_dx(m, layer, TERN_MODEL_O, b, wide);
    tern_tensor_attention_backward(m->a.dqkv, wide, a->qkv, a->stats, &heads, m->a.attention);
    tern_tensor_rope(m->a.dqkv, m->cos, m->sin, &heads, -1);
    if (norm_again(m, a->rstd, a->x, at->input_norm, N, err) < 0)
        return -1;
    tern_llama_linear_backward(dnormed, tern_llama_grad(m, at->qkv), m->a.dqkv, normed,
                               m->w + at->qkv, N, C, W);
    adapt(m, layer, TERN_MODEL_Q, b, m->a.dqkv, W, normed);
    adapt(m, layer, TERN_MODEL_K, b, m->a.dqkv + HD, W, normed);
    adapt(m, layer, TERN_MODEL_V, b, m->a.dqkv + HD + KD, W, normed);
    return norm_backward(m, dx, at->input_norm, a->x, a->rstd, N, err);
}

static int say_ready(const struct tern_llama_ready *ready, int bucket, struct tern_err *err)
{
    return ready ? ready->bucket(ready->ctx, bucket, err) : 0;
}

static int embed_backward(struct tern_llama *m, tern_real *dx, const struct tern_llama_batch *b,
                          struct tern_err *err)
{
    const struct tern_model_shard *s = m->shard;
    int N = b->B * b->T, C = m->c.dim;
    tern_real *dy;

    if (m->tensor == 1) {
        tern_tensor_embed_backward(m->g + m->embed, dx, b->tokens, N, C);
        return 0;
    }
    if (tern_llama_gather_from(m, dx, m->a.dnormed, N, &dy, err) < 0)
        return -1;
    tern_tensor_embed_backward_part(m->g + m->embed, dy, b->tokens, N, C, (int)s->vocab_start,
                                    (int)s->vocab_rows);
    return 0;
}

int tern_llama_backward(struct tern_llama *m, int chunk, int slot, const struct tern_llama_batch *b,
                        tern_real *dx, const struct tern_llama_ready *ready, struct tern_err *err)
{
    const struct tern_llama_chunk *k = &m->chunks[chunk];
    struct tern_llama_slot *s = &k->slots[slot];

    for (int l = k->is->layers - 1; l >= 0; l--)
        if (layer_backward(m, k->is->at + l, &s->layers[l], b, dx, err) < 0 ||
            say_ready(ready, k->is->bucket + l, err) < 0)
            return -1;
    if (!k->is->embeds || !m->g)
        return 0;
    if (embed_backward(m, dx, b, err) < 0)
        return -1;
    return say_ready(ready, m->shard->embed_bucket, err);
}
