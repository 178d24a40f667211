#include "core/llama/layers.h"

/* m->a.dx is the gradient of the layer's output on entry, of its input on return. */
static void layer_backward(struct tern_llama *m, const struct tern_llama_layer_weights *w,
                           struct tern_llama_layer_weights *g, struct tern_llama_layer_acts *a,
                           int B, int T)
{
    const struct tern_model_config *c = &m->c;
    const struct tern_tensor_heads heads = {B, T, c->heads, c->kv_heads, c->head_dim, NULL};
    int n = B * T, C = c->dim, F = c->ffn, HD = c->heads * c->head_dim;
    int W = HD + 2 * c->kv_heads * c->head_dim;
    tern_real *dx = m->a.dx, *normed = m->a.normed, *dnormed = m->a.dnormed, *wide = m->a.wide;

    /* `wide` is the product of gate and up until down's gradient has used it, then its gradient. */
    tern_tensor_swiglu(wide, a->gate_up, n, F);
    tern_llama_linear_backward(NULL, g->down, dx, wide, w->down, n, F, C);
    tern_llama_linear_backward(wide, NULL, dx, NULL, w->down, n, F, C);
    tern_tensor_swiglu_backward(a->gate_up, wide, n, F);
    tern_tensor_rmsnorm_again(normed, a->mid_rstd, a->mid, w->post_norm, n, C);
    tern_llama_linear_backward(dnormed, g->gate_up, a->gate_up, normed, w->gate_up, n, C, 2 * F);
    tern_tensor_rmsnorm_backward(dx, g->post_norm, dnormed, a->mid, w->post_norm, a->mid_rstd, n,
                                 C);

    tern_llama_linear_backward(wide, g->o, dx, a->heads, w->o, n, HD, C);
    tern_tensor_attention_backward(m->a.dqkv, wide, a->qkv, a->stats, &heads, m->a.attention);
    tern_tensor_rope(m->a.dqkv, m->cos, m->sin, &heads, -1);
    tern_tensor_rmsnorm_again(normed, a->rstd, a->x, w->input_norm, n, C);
    tern_llama_linear_backward(dnormed, g->qkv, m->a.dqkv, normed, w->qkv, n, C, W);
    tern_tensor_rmsnorm_backward(dx, g->input_norm, dnormed, a->x, w->input_norm, a->rstd, n, C);
}

void tern_llama_backward(struct tern_llama *m, const struct tern_llama_batch *b)
{
    for (int l = m->c.layers - 1; l >= 0; l--)
        layer_backward(m, &m->w.layers[l], &m->g.layers[l], &m->a.layers[l], b->B, b->T);
    tern_tensor_embed_backward(m->g.embed, m->a.dx, b->tokens, b->B * b->T, m->c.dim);
}
