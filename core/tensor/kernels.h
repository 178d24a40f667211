/* The inner loops: one table for each kind of CPU, filled from the same source (loops.h).
 *
 * Each works on one thread and on memory that does not overlap, but where it says "in place". */
#ifndef TERN_TENSOR_KERNELS_H
#define TERN_TENSOR_KERNELS_H

#include "core/tensor/tensor.h"

/* AdamW's constants as the loop wants them, from struct tern_tensor_adamw. */
struct tern_tensor_adamw_loop {
    tern_real keep;            /* 1 - lr * weight_decay */
    tern_real beta1, rest1;    /* beta1, 1 - beta1 */
    tern_real beta2, rest2;    /* beta2, 1 - beta2 */
    tern_real step, root, eps; /* lr / (1 - beta1^t), sqrt(1 - beta2^t), eps */
    tern_real grad_scale;
};

struct tern_tensor_kernels {
    const char *name;
    void (*add)(tern_real *to, const tern_real *from, size_t n);
    void (*scale)(tern_real *x, tern_real by, size_t n);
    double (*sum_squares)(const tern_real *x, size_t n);
    void (*adamw)(const struct tern_tensor_adamw_loop *o, tern_real *p, const tern_real *g,
                  tern_real *m, tern_real *v, size_t n);
    tern_real (*dot)(const tern_real *a, const tern_real *b, int n);
    /* y = x * w * by */
    void (*norm)(tern_real *y, const tern_real *x, const tern_real *w, tern_real by, int n);
    /* dx += by * dy * w - x * less */
    void (*norm_dx)(tern_real *dx, const tern_real *dy, const tern_real *x, const tern_real *w,
                    tern_real by, tern_real less, int n);
    /* dw[c0..c1) += sum over rows of dy * x * rstd; rows are C apart */
    void (*norm_dw)(tern_real *dw, const tern_real *dy, const tern_real *x, const tern_real *rstd,
                    int rows, int C, int c0, int c1);
    /* sum of dy * x * w */
    tern_real (*dot3)(const tern_real *dy, const tern_real *x, const tern_real *w, int n);
    void (*swiglu)(tern_real *h, const tern_real *gate, const tern_real *up, int n);
    /* gate and up become their gradients */
    void (*swiglu_back)(tern_real *gate, tern_real *up, const tern_real *dh, int n);
    /* in place, x[2*half]; sin is taken times `sign` */
    void (*rope)(tern_real *x, const tern_real *cos, const tern_real *sin, int half, int sign);
    tern_real (*max)(const tern_real *x, int n); /* n > 0 */
    /* sum of exp(by * (x - max)), `by` positive */
    double (*sum_exp)(const tern_real *x, tern_real max, tern_real by, int n);
    /* x = times * exp(by * (x - max)), in place */
    void (*exp)(tern_real *x, tern_real max, tern_real by, tern_real times, int n);
    /* dp = by * p * (dp - less), in place */
    void (*dscore)(tern_real *dp, const tern_real *p, tern_real less, tern_real by, int n);
};

extern const struct tern_tensor_kernels tern_tensor_kernels_avx512, tern_tensor_kernels_avx2,
    tern_tensor_kernels_plain;

/* The ones in use; plain until start. */
extern const struct tern_tensor_kernels *tern_tensor_k;

/* What the CPU and the system let us use. */
enum tern_tensor_cpu { TERN_TENSOR_CPU_PLAIN, TERN_TENSOR_CPU_AVX2, TERN_TENSOR_CPU_AVX512 };
enum tern_tensor_cpu tern_tensor_cpu(void);

/* Load OpenBLAS, with the right kernels; sets what tern_tensor_blas and _core return and adds words
 * to `why` when the choice was mended. */
int tern_tensor_blas_load(char *why, size_t why_size, struct tern_err *err);
/* Load it again with the kernels of `core`; -1 when it does not take them. */
int tern_tensor_blas_reload(const char *core, struct tern_err *err);

#endif
