#include "core/llama/layers.h"

void tern_llama_linear(tern_real *y, const tern_real *x, const tern_real *w, int n, int in, int out,
                       tern_real beta)
{
    tern_tensor_gemm(false, true, n, out, in, 1, x, in, w, in, beta, y, out);
}

void tern_llama_product(const struct tern_llama *m, size_t at, tern_real *y, const tern_real *x,
                        int n, int in, int out, tern_real beta)
{
    if (m->bf16)
        tern_tensor_gemm_bf16(false, true, n, out, in, 1, x, in, m->w_bf16 + at, in, beta, y, out);
    else
        tern_llama_linear(y, x, m->w + at, n, in, out, beta);
}

void tern_llama_product_grad(const struct tern_llama *m, size_t at, const tern_real *dy,
                             const tern_real *x, int n, int in, int out)
{
    if (m->g)
        tern_tensor_gemm(true, false, out, in, n, 1, dy, out, x, in, 1, m->g + at, in);
}

void tern_llama_product_dx(const struct tern_llama *m, size_t at, tern_real *dx,
                           const tern_real *dy, int n, int in, int out)
{
    if (m->bf16)
        tern_tensor_gemm_bf16(false, false, n, in, out, 1, dy, out, m->w_bf16 + at, in, 0, dx, in);
    else
        tern_tensor_gemm(false, false, n, in, out, 1, dy, out, m->w + at, in, 0, dx, in);
}

const tern_real *tern_llama_norm_weights(const struct tern_llama *m, size_t at)
{
    if (!m->bf16)
        return m->w + at;
    tern_tensor_from_bf16(m->a.norm, m->w_bf16 + at, (size_t)m->c.dim);
    return m->a.norm;
}
