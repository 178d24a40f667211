/* Kernels on plain arrays. Matrix products are OpenBLAS's; in float on AVX-512, and on AVX2 where
 * it is no slower, they are a kernel's of our own. The rest is loops of our own.
 *
 * Arrays are row-major, shapes stand in brackets, `ld` is the distance between rows in elements.
 * Every kernel shares its work among the process's threads (OpenMP) unless it is called inside a
 * parallel region.  Sums are taken in an order that the thread count does not change, except inside
 * tern_tensor_gemm.  Its result is the same bit for bit for the same BLAS, core type and threads.
 * Nothing is allocated after tern_tensor_start; nothing fails.
 *
 * The loops exist for AVX-512, AVX2 and plain x86-64; the best that the CPU has is taken at start.
 * They add in the same order, so that all three give the same bits.
 *
 * tern_real is float.  A test-only build has double (-DTERN_REAL=double).
 */
#ifndef TERN_TENSOR_TENSOR_H
#define TERN_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

#ifndef TERN_REAL
#define TERN_REAL float
#endif
typedef TERN_REAL tern_real;

/* ---------------------------------------------------------------- start
 *
 * Loads OpenBLAS and picks the kernels.  OpenBLAS chooses its own kernels when it is loaded, by a
 * table of CPUs that ends with its release.  0.3.21 takes a newer Xeon for a Prescott, a newer EPYC
 * for a Haswell.  Where its choice leaves vector units idle it is loaded again with the right
 * OPENBLAS_CORETYPE; a user's own OPENBLAS_CORETYPE is left alone.
 *
 * Call it once in main, before other threads and any kernel (it changes the environment for a
 * moment).  A second call does nothing.  `threads` 0 takes OMP_NUM_THREADS, else the CPUs this
 * process may use divided by `local_ranks`, and not below 1.  `local_ranks`: processes of this kind
 * on this node, at least 1. */
int tern_tensor_start(int threads, int local_ranks, struct tern_err *err);

/* The threads that start would take with the same arguments now: by OMP_NUM_THREADS and the CPUs
 * this process may use, unless `threads` is above 0. */
int tern_tensor_start_threads(int threads, int local_ranks);

/* Bytes of buffers that products keep in a process of so many threads, by start's choices on this
 * CPU; `half`: also with B in bf16.  Needs no start.  OpenBLAS's share is 1 MiB a thread, as
 * measured with matrices of 512 (0.7 to 1.1); large ones take up to 3.3, small beside themselves.
 */
uint64_t tern_tensor_room_bytes(int threads, bool half);

/* What was chosen, for the log and the manifest; valid after start, never freed. */
int tern_tensor_threads(void);
const char *tern_tensor_blas(void);    /* "OpenBLAS 0.3.21" */
const char *tern_tensor_core(void);    /* "SkylakeX": its core type */
const char *tern_tensor_kernels(void); /* "avx512", "avx2" or "plain": our own loops */
/* All of it in one line, with the reason when the core type was mended; for rank 0 to log once. */
const char *tern_tensor_describe(void);

/* The OPENBLAS_CORETYPE that other programs need on this CPU because OpenBLAS misjudges it, and in
 * `ret_taken_for` the core type that it takes.  NULL when it judges well, is not there, or the
 * variable is set already.  Needs no start; loads OpenBLAS for a moment (4 to 20 ms) on CPUs that
 * not every release knows. */
const char *tern_tensor_blas_advice(char *ret_taken_for, size_t size);

/* The name of the kernels that start takes (tern_tensor_kernels).  Needs no start. */
const char *tern_tensor_kernels_expected(void);
/* For tests: take the named kernels instead.  -1 when this CPU lacks them. */
int tern_tensor_kernels_use(const char *name);
/* For tests and benchmarks: products by "avx512" or "avx2" (ours) or "openblas".  NULL chooses as
 * start does: ours where OpenBLAS's core type is one of the CPU's own best vectors (AVX-512:
 * SkylakeX and later; AVX2: Haswell, Zen), so that a user who sets another core type gets its bits.
 * On AVX2 ours take only products of few columns or steps with A not transposed, and attention's: a
 * matter of shapes alone.  -1 when this CPU or tern_real has no such kernel. */
int tern_tensor_gemm_use(const char *name);

/* The unit that multiplies numbers of bf16 (`rounded` of struct tern_tensor_gemm): "avx512_bf16",
 * or "fp32": such products are made as all others. */
const char *tern_tensor_bf16_unit(void);
/* Is it a unit that rounds what it multiplies?  Else the caller does. */
bool tern_tensor_bf16_rounds(void);
/* Take the named unit, or with NULL the faster one, as start does, unless TERN_BF16_UNIT names one:
 * a table of CPUs in unit.c decides.  -1 when this CPU or build lacks it. */
int tern_tensor_bf16_use(const char *name);
/* The unit that start takes.  Needs no start. */
const char *tern_tensor_bf16_unit_expected(void);
/* The same with its reason, for the log.  Needs no start. */
const char *tern_tensor_bf16_describe(void);

/* ---------------------------------------------------------------- matrix products */

/* C[M,N] = alpha * op(A) op(B) + beta * C.  op(A) is [M,K]: A itself, or the transpose of A[K,M]
 * when `ta`; likewise op(B)[K,N].  beta 0 ignores the contents of C.  Rows (or columns, whichever
 * are more) are dealt to the threads.
 *
 * With B in bf16 it is widened piece by piece on its way into the product.  Where the kernel is our
 * own, the bits are those of the product of the widened matrix; else OpenBLAS's of its pieces. */
struct tern_tensor_gemm {
    bool ta, tb;
    int M, N, K;
    int lda, ldb, ldc; /* 0: rows follow each other */
    tern_real alpha, beta;
    /* A and B hold numbers that bf16 has (others are rounded to these): where there is a unit for
     * them (tern_tensor_bf16_unit), it makes the product.  It counts numbers and sums below 2^-126
     * as 0.  The bits do not depend on threads. */
    bool rounded;
};
void tern_tensor_gemm(const struct tern_tensor_gemm *g, const tern_real *A, const tern_real *B,
                      tern_real *C);
void tern_tensor_gemm_bf16(const struct tern_tensor_gemm *g, const tern_real *A, const uint16_t *B,
                           tern_real *C);

/* y[n,out] = x[n,in] w[out,in]^T, or y += it with `add`: for few rows, where reading w takes the
 * time.  The bits of a row depend neither on the other rows nor on threads, nor on vectors. */
struct tern_tensor_few {
    int n, in, out;
    bool add;
};
void tern_tensor_few_rows(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                          const tern_real *w);
void tern_tensor_few_rows_bf16(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                               const uint16_t *w);
/* The same for many rows, by tern_tensor_gemm in blocks of columns that do not depend on threads.
 * The bits of a row depend on n, not on threads. */
void tern_tensor_many_rows(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                           const tern_real *w);
void tern_tensor_many_rows_bf16(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                                const uint16_t *w);

/* ---------------------------------------------------------------- whole arrays, n elements */

void tern_tensor_zero(tern_real *x, size_t n);
void tern_tensor_copy(tern_real *to, const tern_real *from, size_t n);
void tern_tensor_add(tern_real *to, const tern_real *from, size_t n);
void tern_tensor_scale(tern_real *x, tern_real by, size_t n);
/* In double; blocks of fixed size are summed in order. */
double tern_tensor_sum_squares(const tern_real *x, size_t n);

/* One AdamW step (Loshchilov and Hutter, arXiv 1711.05101) in torch.optim.AdamW's order:
 *     g *= grad_scale;  p -= lr * weight_decay * p;  m += (1 - beta1) (g - m);
 *     v = beta2 v + (1 - beta2) g^2;
 *     p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
 * `step` counts from 1.  The gradient array is left as it is.  grad_scale carries the clip. */
struct tern_tensor_adamw {
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
    uint64_t step;
};
void tern_tensor_adamw(const struct tern_tensor_adamw *o, tern_real *p, const tern_real *g,
                       tern_real *m, tern_real *v, size_t n);

/* bf16, the upper half of a float: to the nearest, ties to even; NaN stays NaN.  (A double goes
 * through float.) */
void tern_tensor_to_bf16(uint16_t *to, const tern_real *from, size_t n);
/* To one of the two neighbours, the nearer the likelier, so that the mean is right. The choice for
 * element i is a function of (seed, stream, first + i) alone. */
void tern_tensor_to_bf16_random(uint16_t *to, const tern_real *from, size_t n, uint64_t seed,
                                uint64_t stream, uint64_t first);
void tern_tensor_from_bf16(tern_real *to, const uint16_t *from, size_t n);
/* tern_tensor_to_bf16 of one number. */
uint16_t tern_tensor_bf16(tern_real x);
/* Round x to bf16 in place; `to` gets it in bf16 (NULL: not wanted). */
void tern_tensor_round_bf16(tern_real *x, uint16_t *to, size_t n);

/* ---------------------------------------------------------------- rows */

/* y[n,C] = x * rstd * w, rstd[n] = 1 / sqrt(mean(x^2) + eps) (Zhang and Sennrich, arXiv
 * 1910.07467). */
void tern_tensor_rmsnorm(tern_real *y, tern_real *rstd, const tern_real *x, const tern_real *w,
                         int n, int C, double eps);
/* Again y from a saved rstd. */
void tern_tensor_rmsnorm_again(tern_real *y, const tern_real *rstd, const tern_real *x,
                               const tern_real *w, int n, int C);
/* dx[n,C] += ..., dw[C] += ... (NULL: not wanted) for dy[n,C], and the arrays of the forward pass.
 */
struct tern_tensor_norm {
    const tern_real *x, *w, *rstd; /* [n,C], [C], [n] */
    int n, C;
};
void tern_tensor_rmsnorm_backward(tern_real *dx, tern_real *dw, const tern_real *dy,
                                  const struct tern_tensor_norm *f);

/* y[n,C] = table[ids[i]]; and dtable[ids[i]] += dy[i], rows of equal id in order of i. */
void tern_tensor_embed(tern_real *y, const tern_real *table, const int32_t *ids, int n, int C);
void tern_tensor_embed_backward(tern_real *dtable, const tern_real *dy, const int32_t *ids, int n,
                                int C);

/* The same where only ids first .. first+rows-1 have a row in the table: y of the others is zero,
 * and their dy is left out. */
void tern_tensor_embed_part(tern_real *y, const tern_real *table, const int32_t *ids, int n, int C,
                            int first, int rows);
void tern_tensor_embed_backward_part(tern_real *dtable, const tern_real *dy, const int32_t *ids,
                                     int n, int C, int first, int rows);
/* tern_tensor_embed_part of a table in bf16. */
void tern_tensor_embed_bf16(tern_real *y, const uint16_t *table, const int32_t *ids, int n, int C,
                            int first, int rows);

/* h[n,F] = silu(gate) * up where gate_up[n,2F] holds a row's gate, then its up (Shazeer, arXiv
 * 2002.05202). */
void tern_tensor_swiglu(tern_real *h, const tern_real *gate_up, int n, int F);
/* gate_up[n,2F] becomes its own gradient for dh[n,F]. */
void tern_tensor_swiglu_backward(tern_real *gate_up, const tern_real *dh, int n, int F);

/* Softmax cross entropy of logits[n,V] against targets[n], in place.  Logits become grad_scale *
 * (softmax - onehot), or stay when grad_scale is 0.  A row whose mask byte is 0 (`mask` NULL: none)
 * has no loss and no gradient.  losses[n] in double. */
void tern_tensor_cross_entropy(tern_real *logits, double *losses, const int32_t *targets,
                               const uint8_t *mask, double grad_scale, int n, int V);

/* The same where each rank holds the logits[n,V] of V words from word `first` on:
 *
 *     tern_tensor_vocab_max(max, logits, v);                    all-reduce max[n] by MAX
 *     tern_tensor_vocab_sum(sum, picked, logits, max, v);       all-reduce sum, picked by SUM
 *     loss[r] = log(sum[r]) + max[r] - picked[r]
 *     tern_tensor_vocab_gradient(logits, sum, v, grad_scale);
 *
 * sum[n] is of exponentials of logits less max, which replace the logits; picked[n] is the target's
 * logit, 0 on ranks that do not hold it.  V may be 0 (max is then -infinity).  With all words on
 * one rank the bits are those of tern_tensor_cross_entropy. */
struct tern_tensor_vocab {
    const int32_t *targets; /* [n] */
    const uint8_t *mask;    /* [n] or NULL; of the gradient alone */
    int first, n, V;
};
void tern_tensor_vocab_max(double *max, const tern_real *logits, const struct tern_tensor_vocab *v);
void tern_tensor_vocab_sum(double *sum, double *picked, tern_real *logits, const double *max,
                           const struct tern_tensor_vocab *v);
void tern_tensor_vocab_gradient(tern_real *logits, const double *sum,
                                const struct tern_tensor_vocab *v, double grad_scale);

/* y[n,C] = x / (1 - rate), or 0 for a share `rate` of the elements (y may be x): its own gradient,
 * too.  Element c of row r is 0 by a function of (seed, stream, row + r, column + c) alone.  So
 * every layout drops the same. */
struct tern_tensor_dropout {
    double rate; /* from 0, below 1 */
    uint64_t seed, stream;
    uint64_t row, column; /* of the whole array, where x begins */
};
void tern_tensor_dropout(tern_real *y, const tern_real *x, const struct tern_tensor_dropout *d,
                         int n, int C);

/* ---------------------------------------------------------------- attention */

/* How the heads lie in a row: qkv[B*T, (H+2K)*D] holds H query heads, K key heads, K value heads.
 * Query heads h*H/K .. (h+1)*H/K-1 share key head h (Ainslie et al., arXiv 2305.13245). */
struct tern_tensor_heads {
    int B, T;    /* rows of the batch, positions */
    int H, K, D; /* query heads, key/value heads, head size (even) */
    /* [B,T], or NULL: where the document of a position begins in its row.  Position t sees
     * starts[t] .. t and is rotated as position t - starts[t].  Never falls along a row, and
     * starts[t] <= t. */
    const int32_t *starts;
};

/* Rotate-half RoPE (Su et al., arXiv 2104.09864, in Hugging Face's pairing of i with i + D/2) on
 * the queries and keys in place.  cos and sin are [T,D/2].  `sign` -1 undoes it: the backward pass.
 */
void tern_tensor_rope(tern_real *qkv, const tern_real *cos, const tern_real *sin,
                      const struct tern_tensor_heads *a, int sign);

/* Causal softmax attention inside each document, scale 1/sqrt(D): out[B*T,H*D], stats[B,H,T,2].
 * stats has a row's largest score before the scale, and its sum of exponentials, for the backward
 * pass (NULL when not wanted). Works through tiles of query rows against the keys they may see, as
 * in FlashAttention (Dao et al., arXiv 2205.14135): `scratch` holds tern_tensor_attention_scratch
 * elements. */
void tern_tensor_attention(tern_real *out, tern_real *stats, const tern_real *qkv,
                           const struct tern_tensor_heads *a, tern_real *scratch);
/* dqkv[B*T,(H+2K)*D] = ... for dout[B*T,H*D] (written, not added to). */
void tern_tensor_attention_backward(tern_real *dqkv, const tern_real *dout, const tern_real *qkv,
                                    const tern_real *stats, const struct tern_tensor_heads *a,
                                    tern_real *scratch);
/* Elements of scratch for both, for `threads` threads (0: this process's), at up to T positions and
 * heads of size D. */
size_t tern_tensor_attention_scratch(int T, int D, int threads);

/* ---- with keys and values from before: one layer's cache ---- */

struct tern_tensor_cache {
    int H, K, D;                /* as above */
    int positions;              /* room for so many */
    tern_real *keys, *values;   /* [rows,K,positions,D]; keys are rotated */
    const tern_real *cos, *sin; /* [positions,D/2] */
};

/* A position in a row of the cache; the row holds those before it. */
struct tern_tensor_place {
    int row, position;
};

/* qkv[n,(H+2K)*D] are the positions from `p` on of one row.  Queries and keys are rotated in place,
 * and keys and values go into the cache.  out[n,H*D] is their attention to all positions up to
 * their own.  `scratch`: tern_tensor_attention_cached_scratch elements.  The bits depend neither on
 * threads nor on other rows of the cache. */
void tern_tensor_attention_read(tern_real *out, tern_real *qkv, const struct tern_tensor_cache *c,
                                const struct tern_tensor_place *p, int n, tern_real *scratch);
/* The same of one position in each of n different rows of the cache. */
void tern_tensor_attention_step(tern_real *out, tern_real *qkv, const struct tern_tensor_cache *c,
                                const struct tern_tensor_place *places, int n, tern_real *scratch);
/* `threads` 0: this process's. */
size_t tern_tensor_attention_cached_scratch(const struct tern_tensor_cache *c, int threads);

#endif
