#include "core/llama/layers.h"

/* Logits are made, used and forgotten head_rows positions at a time: of all [N,V] only that much
 * is ever held. */
void tern_llama_head(struct tern_llama *m, const struct tern_llama_batch *b, double grad_scale,
                     struct tern_llama_loss *loss)
{
    struct tern_llama_acts *a = &m->a;
    int n = b->B * b->T, C = m->c.dim, V = m->c.vocab;

    *loss = (struct tern_llama_loss){0};
    tern_tensor_rmsnorm(a->normed, a->out_rstd, a->out, m->w.norm, n, C, m->c.norm_eps);
    for (int r = 0; r < n; r += m->head_rows) {
        int rows = n - r < m->head_rows ? n - r : m->head_rows;
        const uint8_t *mask = b->mask ? b->mask + r : NULL;
        tern_real *x = a->normed + (size_t)r * (size_t)C;

        tern_llama_linear(a->logits, x, m->w.head, rows, C, V, 0);
        tern_tensor_cross_entropy(a->logits, a->losses, b->targets + r, mask, grad_scale, rows, V);
        for (int i = 0; i < rows; i++) {
            loss->sum += a->losses[i];
            loss->n += !mask || mask[i];
        }
        if (grad_scale != 0)
            tern_llama_linear_backward(a->dnormed + (size_t)r * (size_t)C, m->g.head, a->logits, x,
                                       m->w.head, rows, C, V);
    }
    if (grad_scale == 0)
        return;
    tern_tensor_zero(a->dx, (size_t)n * (size_t)C);
    tern_tensor_rmsnorm_backward(a->dx, m->g.norm, a->dnormed, a->out, m->w.norm, a->out_rstd, n,
                                 C);
}
