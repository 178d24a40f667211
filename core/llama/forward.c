#include "core/llama/layers.h"

/* The layer's output goes to `next`, which may be its input. */
static void layer_forward(struct tern_llama *m, const struct tern_llama_layer_weights *w,
                          struct tern_llama_layer_acts *a, tern_real *next, int B, int T)
{
    const struct tern_model_config *c = &m->c;
    const struct tern_tensor_heads heads = {B, T, c->heads, c->kv_heads, c->head_dim, NULL};
    int n = B * T, C = c->dim, F = c->ffn, HD = c->heads * c->head_dim;
    int W = HD + 2 * c->kv_heads * c->head_dim;
    size_t residual = (size_t)n * (size_t)C;

    tern_tensor_rmsnorm(m->a.normed, a->rstd, a->x, w->input_norm, n, C, c->norm_eps);
    tern_llama_linear(a->qkv, m->a.normed, w->qkv, n, C, W, 0);
    tern_tensor_rope(a->qkv, m->cos, m->sin, &heads, 1);
    tern_tensor_attention(a->heads, a->stats, a->qkv, &heads, m->a.attention);
    tern_tensor_copy(a->mid, a->x, residual);
    tern_llama_linear(a->mid, a->heads, w->o, n, HD, C, 1);

    tern_tensor_rmsnorm(m->a.normed, a->mid_rstd, a->mid, w->post_norm, n, C, c->norm_eps);
    tern_llama_linear(a->gate_up, m->a.normed, w->gate_up, n, C, 2 * F, 0);
    tern_tensor_swiglu(m->a.wide, a->gate_up, n, F);
    tern_tensor_copy(next, a->mid, residual);
    tern_llama_linear(next, m->a.wide, w->down, n, F, C, 1);
}

void tern_llama_forward(struct tern_llama *m, const struct tern_llama_batch *b)
{
    tern_tensor_embed(m->a.layers[0].x, m->w.embed, b->tokens, b->B * b->T, m->c.dim);
    for (int l = 0; l < m->c.layers; l++)
        layer_forward(m, &m->w.layers[l], &m->a.layers[l],
                      l + 1 < m->c.layers ? m->a.layers[l + 1].x : m->a.out, b->B, b->T);
}
