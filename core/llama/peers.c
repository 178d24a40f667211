/* Where the maths meets other tensor ranks: Megatron-LM's f and g (arXiv 1909.08053), and with
 * `sequence` their halves (arXiv 2205.05198). */
#include "core/llama/layers.h"

int tern_llama_own(const struct tern_llama *m, int tokens)
{
    return m->sequence ? tokens / m->tensor : tokens;
}

tern_real *tern_llama_own_rows(const struct tern_llama *m, tern_real *all, int tokens)
{
    if (!m->sequence)
        return all;
    return all + (size_t)m->tensor_rank * (size_t)tern_llama_own(m, tokens) * (size_t)m->c.dim;
}

int tern_llama_gather(const struct tern_llama *m, tern_real *all, int tokens, struct tern_err *err)
{
    if (!m->sequence)
        return 0;
    return m->peers.all_gather(m->peers.ctx, tern_llama_own_rows(m, all, tokens), all,
                               (size_t)tern_llama_own(m, tokens) * (size_t)m->c.dim, err);
}

int tern_llama_gather_from(const struct tern_llama *m, tern_real *x, tern_real *all, int tokens,
                           tern_real **ret_x, struct tern_err *err)
{
    *ret_x = m->sequence ? all : x;
    if (!m->sequence)
        return 0;
    return m->peers.all_gather(m->peers.ctx, x, all,
                               (size_t)tern_llama_own(m, tokens) * (size_t)m->c.dim, err);
}

int tern_llama_sum(const struct tern_llama *m, tern_real *all, int tokens, struct tern_err *err)
{
    size_t own = (size_t)tern_llama_own(m, tokens) * (size_t)m->c.dim;

    if (m->tensor == 1)
        return 0;
    if (m->sequence)
        return m->peers.reduce_scatter(m->peers.ctx, all, tern_llama_own_rows(m, all, tokens), own,
                                       err);
    return m->peers.all_reduce(m->peers.ctx, all, own, err);
}
