/* A linear layer's products, forward and backward. */
#include "core/llama/layers.h"

void tern_llama_linear(tern_real *y, const tern_real *x, const tern_real *w, int n, int in, int out)
{
    const struct tern_tensor_gemm g = {.tb = true, .M = n, .N = out, .K = in, .alpha = 1};

    tern_tensor_gemm(&g, x, w, y);
}

/* y = x w^T + beta y, where g has n, out, in and beta. */
static void multiply(const struct tern_llama *m, const struct tern_tensor_gemm *g, size_t at,
                     tern_real *y, const tern_real *x)
{
    if (m->bf16)
        tern_tensor_gemm_bf16(g, x, m->w_bf16 + at, y);
    else
        tern_tensor_gemm(g, x, m->w + at, y);
}

void tern_llama_product(const struct tern_llama *m, size_t at, tern_real *y, const tern_real *x,
                        int n, int in, int out)
{
    const struct tern_tensor_gemm g = {
        .tb = true, .M = n, .N = out, .K = in, .alpha = 1, .rounded = m->bf16};

    multiply(m, &g, at, y, x);
}

void tern_llama_product_add(const struct tern_llama *m, size_t at, tern_real *y, const tern_real *x,
                            int n, int in, int out)
{
    const struct tern_tensor_gemm g = {
        .tb = true, .M = n, .N = out, .K = in, .alpha = 1, .beta = 1, .rounded = m->bf16};

    multiply(m, &g, at, y, x);
}

void tern_llama_product_grad(const struct tern_llama *m, size_t at, const tern_real *dy,
                             const tern_real *x, int n, int in, int out)
{
    const struct tern_tensor_gemm g = {
        .ta = true, .M = out, .N = in, .K = n, .alpha = 1, .beta = 1, .rounded = m->bf16};

    if (m->g)
        tern_tensor_gemm(&g, dy, x, m->g + at);
}

void tern_llama_product_dx(const struct tern_llama *m, size_t at, tern_real *dx,
                           const tern_real *dy, int n, int in, int out)
{
    const struct tern_tensor_gemm g = {.M = n, .N = in, .K = out, .alpha = 1, .rounded = m->bf16};

    if (m->bf16)
        tern_tensor_gemm_bf16(&g, dy, m->w_bf16 + at, dx);
    else
        tern_tensor_gemm(&g, dy, m->w + at, dx);
}

const tern_real *tern_llama_norm_weights(const struct tern_llama *m, size_t at)
{
    if (!m->bf16)
        return m->w + at;
    tern_tensor_from_bf16(m->a.norm, m->w_bf16 + at, (size_t)m->c.dim);
    return m->a.norm;
}
