/* The inner loops: one table for each kind of CPU, filled from the same source (loops.h).
 *
 * Each works on one thread and on memory that does not overlap, but where it says "in place". */
#ifndef TERN_TENSOR_KERNELS_H
#define TERN_TENSOR_KERNELS_H

#include "core/tensor/tensor.h"

/* AdamW's constants for the loop, from struct tern_tensor_adamw. */
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
    /* y = x * w * by */
    void (*norm)(tern_real *y, const tern_real *x, const tern_real *w, tern_real by, int n);
    /* dx += by * dy * w - x * less */
    void (*norm_dx)(tern_real *dx, const tern_real *dy, const tern_real *x, const tern_real *w,
                    tern_real by, tern_real less, int n);
    /* dw[c0..c1) += sum over rows of dy * x * rstd */
    void (*norm_dw)(tern_real *dw, const tern_real *dy, const struct tern_tensor_norm *f, int c0,
                    int c1);
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
    /* the same, and x becomes its terms */
    double (*exp_sum)(tern_real *x, tern_real max, tern_real by, int n);
    /* Scores of TERN_TENSOR_NEAR_LD queries, a column each: s[n][64].  Row k counts for column c
     * when from[c] <= k <= to[c]; of each column at least one row counts.  What does not becomes 0.
     */
    /* s = exp(by * (s - max)); max and sum of each column are set */
    void (*softmax)(tern_real *s, int n, const tern_real *from, const tern_real *to, tern_real by,
                    tern_real *max, tern_real *sum);
    /* s = exp(by * (s - max)) * times */
    void (*softmax_again)(tern_real *s, int n, const tern_real *from, const tern_real *to,
                          tern_real by, const tern_real *max, const tern_real *times);
    /* ds = by * p * (ds - sum over rows of p * ds) */
    void (*softmax_back)(tern_real *ds, const tern_real *p, int n, tern_real by);
    /* x[n][64] *= by[64] */
    void (*columns)(tern_real *x, const tern_real *by, int n);
    /* y = x * by, or 0 where the 32 bits of (key, first + i) are less than `below`; y may be x */
    void (*dropout)(tern_real *y, const tern_real *x, uint64_t key, uint64_t first, uint32_t below,
                    tern_real by, int n);
    void (*to_bf16)(uint16_t *to, const tern_real *from, size_t n);
    void (*to_bf16_random)(uint16_t *to, const tern_real *from, uint64_t key, uint64_t first,
                           size_t n);
    void (*from_bf16)(tern_real *to, const uint16_t *from, size_t n);
    /* y[rows] = the products of rows w[rows][ld], of n elements, with x[n], and those already in y
     * where `add` */
    void (*dots)(tern_real *y, const tern_real *x, const tern_real *w, size_t ld, int rows, int n,
                 bool add);
    void (*dots_bf16)(tern_real *y, const tern_real *x, const uint16_t *w, size_t ld, int rows,
                      int n, bool add);
    /* y[n] = the sum of by[r] * x[r][n] over the rows, which follow each other */
    void (*mix)(tern_real *y, const tern_real *x, const tern_real *by, int rows, int n);
};

extern const struct tern_tensor_kernels tern_tensor_kernels_avx512, tern_tensor_kernels_avx2,
    tern_tensor_kernels_plain;

/* The ones in use; plain until start. */
extern const struct tern_tensor_kernels *tern_tensor_k;

/* The vectors that the CPU and the system allow. */
enum tern_tensor_cpu { TERN_TENSOR_CPU_PLAIN, TERN_TENSOR_CPU_AVX2, TERN_TENSOR_CPU_AVX512 };
enum tern_tensor_cpu tern_tensor_cpu(void);

/* A CPU as CPUID describes it. */
struct tern_tensor_cpu_id {
    char vendor[13];    /* "AuthenticAMD", "GenuineIntel"; empty: not x86-64 */
    unsigned signature; /* eax of leaf 1: family and model, as tern_tensor_cpu_family reads them */
    bool bf16;          /* AVX512_BF16 (pairs of bf16 are multiplied), usable beside AVX-512 */
};

/* This process's CPU, or the one that a test pretends; NULL ends that.  `id` stays the caller's,
 * and no product may be made on a CPU that is pretended. */
struct tern_tensor_cpu_id tern_tensor_cpu_id(void);
void tern_tensor_cpu_pretend(const struct tern_tensor_cpu_id *id);
/* Family and model of a signature, extended parts included (Intel 64 and IA-32 Architectures
 * Software Developer's Manual, volume 2, CPUID). */
void tern_tensor_cpu_family(unsigned signature, int *ret_family, int *ret_model);

/* Does every OpenBLAS since 0.3.13 know this CPU?  Then it need not be loaded, which takes
 * 20 ms. */
bool tern_tensor_cpu_well_known(void);

/* A matrix of one type or the other: tern_real, or bf16 with `half`. */
struct tern_tensor_matrix {
    const void *at;
    bool half;
};

static inline struct tern_tensor_matrix tern_tensor_from(struct tern_tensor_matrix x, size_t i)
{
    return (struct tern_tensor_matrix){
        (const char *)x.at + i * (x.half ? sizeof(uint16_t) : sizeof(tern_real)), x.half};
}

/* C = op(A) B + beta C without packing, for attention's small products, whose operands lie in a
 * cache.  alpha is 1, beta 0 or 1, B not transposed, no distance between rows 0.  lda is
 * TERN_TENSOR_NEAR_LD where A is not transposed.  Up to 15 floats after each row of B are read. */
enum { TERN_TENSOR_NEAR_LD = 64 };
void tern_tensor_gemm_near(const struct tern_tensor_gemm *g, const tern_real *A, const tern_real *B,
                           tern_real *C);

/* Products of floats by a kernel of our own, on this thread alone. There is one table for each kind
 * of CPU, filled from the same source (gemm.h). */
struct tern_tensor_products {
    const char *name;
    /* To be called before gemm: allocates this thread's buffers once (false: no memory). */
    bool (*ready)(void);
    /* tern_tensor_gemm, K > 0, no distance between rows 0 */
    void (*gemm)(const struct tern_tensor_gemm *g, const float *A, struct tern_tensor_matrix B,
                 float *C);
    /* tern_tensor_gemm_near */
    void (*near)(const struct tern_tensor_gemm *g, const float *A, const float *B, float *C);
    /* tern_tensor_turn */
    void (*turn)(float *to, int ld_to, const float *from, int ld, int rows, int columns);
};

extern const struct tern_tensor_products tern_tensor_products_avx512, tern_tensor_products_avx2;
/* Both operands are rounded to bf16 as they are packed; `gemm` alone, NULL where the compiler did
 * not know AVX512_BF16. */
extern const struct tern_tensor_products tern_tensor_products_bf16;

/* The unit for bf16, and NULL where products of bf16 are made as all others. */
extern const struct tern_tensor_products *tern_tensor_pairs;
/* Choose it: by TERN_BF16_UNIT, else the faster one. */
int tern_tensor_bf16_start(struct tern_err *err);

/* This thread's room for packed operands, of at least so many bytes, aligned for huge pages; the
 * next call may move it.  It goes with the thread.  NULL: no memory. */
float *tern_tensor_buffer(size_t bytes);

/* to[columns][ld_to] = the transpose of from[rows][ld]. */
void tern_tensor_turn(tern_real *to, int ld_to, const tern_real *from, int ld, int rows,
                      int columns);

/* Load OpenBLAS, with the right kernels; sets the texts of tern_tensor_blas and _core, and adds to
 * `why` when the choice was mended. */
int tern_tensor_blas_load(char *why, size_t why_size, struct tern_err *err);
/* Load it again with the kernels of `core`; -1 when it does not take them. */
int tern_tensor_blas_reload(const char *core, struct tern_err *err);

#endif
