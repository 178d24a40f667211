/* Logits, loss and the gradient of both, some positions at a time. */
#include "core/llama/layers.h"

#include <math.h>

/* Softmax cross entropy of rows whose vocabulary lies on several ranks.  They combine the largest
 * logit, then the sum of exponentials and the target's logit; no rank has a whole row.  In place as
 * tern_tensor_cross_entropy. */
static int entropy(struct tern_llama *m, const int32_t *targets, const uint8_t *mask,
                   double grad_scale, int rows, struct tern_err *err)
{
    const struct tern_model_shard *s = m->shard;
    struct tern_llama_scratch *a = &m->a;
    int V = (int)s->vocab_rows;

    if (m->tensor == 1) {
        tern_tensor_cross_entropy(a->logits, a->losses, targets, mask, grad_scale, rows, V);
        return 0;
    }
    const struct tern_tensor_vocab v = {
        .targets = targets, .mask = mask, .first = (int)s->vocab_start, .n = rows, .V = V};
    double *max = a->sums, *sum = max + rows, *picked = sum + rows;

    tern_tensor_vocab_max(max, a->logits, &v);
    if (m->peers.all_reduce_doubles(m->peers.ctx, max, (size_t)rows, true, err) < 0)
        return -1;
    tern_tensor_vocab_sum(sum, picked, a->logits, max, &v);
    if (m->peers.all_reduce_doubles(m->peers.ctx, sum, 2 * (size_t)rows, false, err) < 0)
        return -1;
    for (int r = 0; r < rows; r++)
        a->losses[r] = mask && !mask[r] ? 0 : log(sum[r]) + max[r] - picked[r];
    if (grad_scale != 0)
        tern_tensor_vocab_gradient(a->logits, sum, &v, grad_scale);
    return 0;
}

/* Logits are made, used and forgotten head_rows positions at a time: never all [N,V] are held. */
int tern_llama_head(struct tern_llama *m, int chunk, int slot, const struct tern_llama_batch *b,
                    double grad_scale, struct tern_llama_loss *loss, struct tern_err *err)
{
    struct tern_llama_slot *s = &m->chunks[chunk].slots[slot];
    struct tern_llama_scratch *a = &m->a;
    int N = b->B * b->T, n = tern_llama_own(m, N), C = m->c.dim, V = (int)m->shard->vocab_rows;
    size_t own = (size_t)n * (size_t)C;
    const tern_real *out = tern_llama_recall(m, s->out, a->stream, own);
    tern_real *y = tern_llama_own_rows(m, a->normed, N);
    struct tern_llama_loss sum = {0};

    tern_tensor_rmsnorm(y, s->out_rstd, out, tern_llama_norm_weights(m, m->norm), n, C,
                        m->c.norm_eps);
    tern_llama_round_input(m, y, own);
    if (tern_llama_gather(m, a->normed, N, err) < 0)
        return -1;
    for (int r = 0; r < N; r += m->head_rows) {
        int rows = N - r < m->head_rows ? N - r : m->head_rows;
        const uint8_t *mask = b->mask ? b->mask + r : NULL;
        tern_real *x = a->normed + (size_t)r * (size_t)C;

        tern_llama_product(m, m->head, a->logits, x, rows, C, V);
        tern_llama_round(m, a->logits, (size_t)rows * (size_t)V);
        if (entropy(m, b->targets + r, mask, grad_scale, rows, err) < 0)
            return -1;
        for (int i = 0; i < rows; i++) {
            sum.sum += a->losses[i];
            sum.n += !mask || mask[i];
        }
        if (grad_scale == 0)
            continue;
        tern_llama_round_input(m, a->logits, (size_t)rows * (size_t)V);
        tern_llama_product_grad(m, m->head, a->logits, x, rows, C, V);
        tern_llama_product_dx(m, m->head, a->dnormed + (size_t)r * (size_t)C, a->logits, rows, C,
                              V);
    }
    *loss = sum;
    if (grad_scale == 0)
        return 0;
    if (tern_llama_sum(m, a->dnormed, N, err) < 0)
        return -1;
    y = tern_llama_own_rows(m, a->dnormed, N);
    tern_llama_round(m, y, own);
    tern_tensor_zero(a->dx, own);
    tern_tensor_rmsnorm_backward(
        a->dx, tern_llama_grad(m, m->norm), y,
        &(struct tern_tensor_norm){.x = out,
                                   .w = tern_llama_norm_weights(m, m->norm),
                                   .rstd = s->out_rstd,
                                   .n = n,
                                   .C = C});
    tern_llama_round(m, a->dx, own);
    return 0;
}
