#include "core/llama/layers.h"

void tern_llama_linear(tern_real *y, const tern_real *x, const tern_real *w, int n, int in, int out,
                       tern_real beta)
{
    tern_tensor_gemm(false, true, n, out, in, 1, x, in, w, in, beta, y, out);
}

void tern_llama_linear_backward(tern_real *dx, tern_real *dw, const tern_real *dy,
                                const tern_real *x, const tern_real *w, int n, int in, int out)
{
    if (dw)
        tern_tensor_gemm(true, false, out, in, n, 1, dy, out, x, in, 1, dw, in);
    if (dx)
        tern_tensor_gemm(false, false, n, in, out, 1, dy, out, w, in, 0, dx, in);
}
