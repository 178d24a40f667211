/* The backward pass of a shard, layer by layer. */
#include "core/llama/layers.h"

/* m->a.normed again from the saved rstd, over all tokens. */
static int norm_again(struct tern_llama *m, const tern_real *rstd, const tern_real *x, size_t w,
                      int N, struct tern_err *err)
{
    tern_real *own = tern_llama_own_rows(m, m->a.normed, N);
    int n = tern_llama_own(m, N);

    tern_tensor_rmsnorm_again(own, rstd, x, tern_llama_norm_weights(m, w), n, m->c.dim);
    tern_llama_round_input(m, own, (size_t)n * (size_t)m->c.dim);
    return tern_llama_gather(m, m->a.normed, N, err);
}

/* m->a.dnormed holds this rank's addends to a norm's output gradient: to dx and the norm's own. */
static int norm_backward(struct tern_llama *m, tern_real *dx, size_t w, const tern_real *x,
                         const tern_real *rstd, int N, struct tern_err *err)
{
    tern_real *dy = tern_llama_own_rows(m, m->a.dnormed, N);
    int n = tern_llama_own(m, N), C = m->c.dim;

    if (tern_llama_sum(m, m->a.dnormed, N, err) < 0)
        return -1;
    tern_llama_round(m, dy, (size_t)n * (size_t)C);
    tern_tensor_rmsnorm_backward(
        dx, tern_llama_grad(m, w), dy,
        &(struct tern_tensor_norm){
            .x = x, .w = tern_llama_norm_weights(m, w), .rstd = rstd, .n = n, .C = C});
    tern_llama_round(m, dx, (size_t)n * (size_t)C);
    return 0;
}

static tern_real *recall_qkv(struct tern_llama *m, struct tern_llama_layer_acts *a,
                             const struct tern_llama_batch *b)
{
    const struct tern_tensor_heads h = tern_llama_heads(m, b);

    return tern_llama_recall(m, a->qkv, m->a.broad,
                             (size_t)(b->B * b->T) * (size_t)((h.H + 2 * h.K) * h.D));
}

/* Compute again what the forward pass did not store. */
static int again(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                 const struct tern_llama_batch *b, struct tern_err *err)
{
    if (m->recompute == TERN_LLAMA_RECOMPUTE_FULL)
        return tern_llama_layer_inner(m, layer, a, b, err);
    if (m->recompute == TERN_LLAMA_RECOMPUTE_SELECTIVE)
        tern_llama_attend(m, a, recall_qkv(m, a, b), b);
    return 0;
}

/* The adapter beside a weight whose input is m->a.normed. */
static void adapt(struct tern_llama *m, int layer, enum tern_model_kind kind,
                  const struct tern_llama_batch *b, const tern_real *dy, int ldy,
                  const tern_real *x)
{
    tern_llama_adapt_grads(m, &(struct tern_llama_use){layer, kind, b}, dy, ldy, x);
    tern_llama_adapt_dx(m, &(struct tern_llama_use){layer, kind, b}, m->a.dnormed);
}

/* From dx, the gradient of the layer's output, to that of `mid`, in its place. */
static int ffn_backward(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                        const struct tern_llama_batch *b, tern_real *dx, struct tern_err *err)
{
    const struct tern_llama_layer_at *at = &m->layers[layer];
    int N = b->B * b->T, C = m->c.dim, F = m->shard->ffn;
    size_t own = (size_t)tern_llama_own(m, N) * (size_t)C, NF = (size_t)N * (size_t)F;
    tern_real *normed = m->a.normed, *dnormed = m->a.dnormed, *wide = m->a.wide, *dy;

    if (tern_llama_gather_from(m, dx, dnormed, N, &dy, err) < 0)
        return -1;
    tern_real *gate_up = tern_llama_recall(m, a->gate_up, m->a.broad, 2 * NF);
    /* `wide` is the product of gate and up until down's gradient has used it, then its gradient. */
    if (tern_llama_learns(m, layer, TERN_MODEL_DOWN)) {
        tern_tensor_swiglu(wide, gate_up, N, F);
        tern_llama_round_input(m, wide, NF);
    }
    tern_llama_product_grad(m, at->down, dy, wide, N, F, C);
    dy = tern_llama_adapt_scale(m, &(struct tern_llama_use){layer, TERN_MODEL_DOWN, b}, dy, C, wide,
                                dy != dx);
    tern_llama_adapt_grads(m, &(struct tern_llama_use){layer, TERN_MODEL_DOWN, b}, dy, C, wide);
    tern_llama_product_dx(m, at->down, wide, dy, N, F, C);
    tern_llama_adapt_dx(m, &(struct tern_llama_use){layer, TERN_MODEL_DOWN, b}, wide);
    tern_llama_round(m, wide, NF);
    tern_tensor_swiglu_backward(gate_up, wide, N, F);
    tern_llama_round_input(m, gate_up, 2 * NF);
    const tern_real *mid = tern_llama_recall(m, a->mid, m->a.stream, own);
    if ((tern_llama_learns(m, layer, TERN_MODEL_GATE) ||
         tern_llama_learns(m, layer, TERN_MODEL_UP)) &&
        norm_again(m, a->mid_rstd, mid, at->post_norm, N, err) < 0)
        return -1;
    tern_llama_adapt_scale(m, &(struct tern_llama_use){layer, TERN_MODEL_GATE, b}, gate_up, 2 * F,
                           normed, true);
    tern_llama_adapt_scale(m, &(struct tern_llama_use){layer, TERN_MODEL_UP, b}, gate_up + F, 2 * F,
                           normed, true);
    tern_llama_product_grad(m, at->gate_up, gate_up, normed, N, C, 2 * F);
    tern_llama_product_dx(m, at->gate_up, dnormed, gate_up, N, C, 2 * F);
    adapt(m, layer, TERN_MODEL_GATE, b, gate_up, 2 * F, normed);
    adapt(m, layer, TERN_MODEL_UP, b, gate_up + F, 2 * F, normed);
    return norm_backward(m, dx, at->post_norm, mid, a->mid_rstd, N, err);
}

/* From dx, the gradient of `mid`, to that of the layer's input, in its place; the latter is made
 * only when `wanted`. */
static int attention_backward(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                              const struct tern_llama_batch *b, tern_real *dx, bool wanted,
                              struct tern_err *err)
{
    const struct tern_llama_layer_at *at = &m->layers[layer];
    const struct tern_tensor_heads heads = tern_llama_heads(m, b);
    int N = b->B * b->T, C = m->c.dim, HD = heads.H * heads.D, KD = heads.K * heads.D;
    int W = HD + 2 * KD;
    size_t own = (size_t)tern_llama_own(m, N) * (size_t)C;
    tern_real *normed = m->a.normed, *dnormed = m->a.dnormed, *wide = m->a.wide;
    tern_real *dqkv = m->a.dqkv, *dy;

    if (tern_llama_gather_from(m, dx, dnormed, N, &dy, err) < 0)
        return -1;
    const tern_real *out = tern_llama_recall(m, a->heads, m->a.broad, (size_t)N * (size_t)HD);
    dy = tern_llama_adapt_scale(m, &(struct tern_llama_use){layer, TERN_MODEL_O, b}, dy, C, out,
                                dy != dx);
    tern_llama_product_grad(m, at->o, dy, out, N, HD, C);
    tern_llama_product_dx(m, at->o, wide, dy, N, HD, C);
    tern_llama_adapt_grads(m, &(struct tern_llama_use){layer, TERN_MODEL_O, b}, dy, C, out);
    tern_llama_adapt_dx(m, &(struct tern_llama_use){layer, TERN_MODEL_O, b}, wide);
    tern_llama_round(m, wide, (size_t)N * (size_t)HD);
    tern_tensor_attention_backward(dqkv, wide, recall_qkv(m, a, b), a->stats, &heads,
                                   m->a.attention);
    tern_llama_round(m, dqkv, (size_t)N * (size_t)W);
    tern_tensor_rope(dqkv, m->cos, m->sin, &heads, -1);
    tern_llama_round_input(m, dqkv, (size_t)N * (size_t)W);
    const tern_real *x = tern_llama_recall(m, a->x, m->a.stream, own);
    if ((tern_llama_learns(m, layer, TERN_MODEL_Q) || tern_llama_learns(m, layer, TERN_MODEL_K) ||
         tern_llama_learns(m, layer, TERN_MODEL_V)) &&
        norm_again(m, a->rstd, x, at->input_norm, N, err) < 0)
        return -1;
    tern_llama_adapt_scale(m, &(struct tern_llama_use){layer, TERN_MODEL_Q, b}, dqkv, W, normed,
                           true);
    tern_llama_adapt_scale(m, &(struct tern_llama_use){layer, TERN_MODEL_K, b}, dqkv + HD, W,
                           normed, true);
    tern_llama_adapt_scale(m, &(struct tern_llama_use){layer, TERN_MODEL_V, b}, dqkv + HD + KD, W,
                           normed, true);
    tern_llama_product_grad(m, at->qkv, dqkv, normed, N, C, W);
    if (!wanted) {
        tern_llama_adapt_grads(m, &(struct tern_llama_use){layer, TERN_MODEL_Q, b}, dqkv, W,
                               normed);
        tern_llama_adapt_grads(m, &(struct tern_llama_use){layer, TERN_MODEL_K, b}, dqkv + HD, W,
                               normed);
        tern_llama_adapt_grads(m, &(struct tern_llama_use){layer, TERN_MODEL_V, b}, dqkv + HD + KD,
                               W, normed);
        return 0;
    }
    tern_llama_product_dx(m, at->qkv, dnormed, dqkv, N, C, W);
    adapt(m, layer, TERN_MODEL_Q, b, dqkv, W, normed);
    adapt(m, layer, TERN_MODEL_K, b, dqkv + HD, W, normed);
    adapt(m, layer, TERN_MODEL_V, b, dqkv + HD + KD, W, normed);
    return norm_backward(m, dx, at->input_norm, x, a->rstd, N, err);
}

/* dx is the gradient of the layer's output on entry, of its input (when `wanted`) on return. */
static int layer_backward(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                          const struct tern_llama_batch *b, tern_real *dx, bool wanted,
                          struct tern_err *err)
{
    if (again(m, layer, a, b, err) < 0 || ffn_backward(m, layer, a, b, dx, err) < 0)
        return -1;
    return attention_backward(m, layer, a, b, dx, wanted, err);
}

static int report_ready(const struct tern_llama_ready *ready, int bucket, struct tern_err *err)
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

/* Activations lay in this memory: clear it for gradients. */
static void take_back(struct tern_llama *m, size_t from, size_t to)
{
    tern_tensor_zero(m->g + from, to - from);
}

int tern_llama_backward(struct tern_llama *m, int chunk, int slot, const struct tern_llama_batch *b,
                        tern_real *dx, const struct tern_llama_ready *ready, struct tern_err *err)
{
    const struct tern_llama_chunk *k = &m->chunks[chunk];
    struct tern_llama_slot *s = &k->slots[slot];

    if (m->lends && m->written)
        return tern_err_set(err, TERN_FAILED,
                            "bug: gradients of two micro-batches in one's memory");
    m->written = true;
    for (int l = k->is->layers - 1; l >= 0; l--) {
        bool wanted = l > 0 || !k->is->embeds || m->g; /* else only a frozen embedding is left */

        if (m->lends)
            take_back(m, m->layers[l].qkv, m->layers[l].post_norm + (size_t)m->c.dim);
        if (layer_backward(m, k->is->at + l, &s->layers[l], b, dx, wanted, err) < 0 ||
            report_ready(ready, k->is->bucket + l, err) < 0)
            return -1;
    }
    if (!k->is->embeds || !m->g)
        return 0;
    if (m->lends && !m->shard->head_is_embed)
        take_back(m, m->embed, m->embed + (size_t)m->shard->vocab_rows * (size_t)m->c.dim);
    if (embed_backward(m, dx, b, err) < 0)
        return -1;
    return report_ready(ready, m->shard->embed_bucket, err);
}
