/* Single-precision products over registers of the CPU's own width.  gemm_avx512.c, gemm_avx2.c and
 * gemm_bf16.c include it once; they are compiled for that instruction set (the Makefile's FLAGS).
 * They define PRODUCTS (the table's name) and PRODUCTS_NAME; alone it is nothing.  Faster than
 * OpenBLAS's kernels, which pack more than they need and spend long on edges when K or N is a few
 * hundred.  It beats those for SkylakeX on all of the model's shapes, those for Zen and Haswell on
 * few (tern_tensor_gemm_use).
 *
 * As in Goto and van de Geijn (ACM TOMS 34:3, 2008), the other way round.  A panel of B lies packed
 * in the second-level cache while slivers of A stream past it.  So a sliver's rows of C are written
 * in long runs.  The innermost loop keeps a TALL x WIDE tile of C in registers.
 *
 * An element of C is a chain of fused multiply-adds over k in blocks of DEPTH. It has the same bits
 * wherever the tile's edges lie, so for any number of threads.
 *
 * Packed operands consist of cells of four bytes: a float, or two neighbours along k in bf16 where
 * gemm_bf16.c defines PAIRS. VDPBF16PS multiplies and adds such a pair in one instruction. */
#ifdef PRODUCTS
#include <immintrin.h>

#include "core/tensor/kernels.h"

/* clang knows GCC's pragma by another name. */
#ifdef __clang__
#define UNROLL_TEXT(n) _Pragma(#n)
#define UNROLL(n) UNROLL_TEXT(unroll n)
#else
#define UNROLL_TEXT(n) _Pragma(#n)
#define UNROLL(n) UNROLL_TEXT(GCC unroll n)
#endif

#ifdef __AVX512F__
#include "core/tensor/gemm_lanes16.h"
#else
#include "core/tensor/gemm_lanes8.h"
#endif

enum {
    WIDE = 2 * LANES,             /* columns of a tile: two registers */
    SPACE = TALL * DEPTH + LANES, /* of a sliver; its last row is stored as a whole register */
    RUN = 16, /* rows of cells of A that are read in one go where they run across the slivers */
    BUFFER_BYTES = (PANEL + (HEIGHT / TALL) * SPACE) * (int)sizeof(float),
};

/* A matrix that is read across its rows, ld apart, from one that has left - 1 more behind it. */
struct across {
    const void *at;
    size_t ld;
    int left;
    bool half;
};

#ifdef PAIRS
#include "core/tensor/gemm_pairs.h"
#else
#include "core/tensor/gemm_floats.h"
#endif

/* Cells that hold so many steps of k. */
static inline int cells(int k)
{
    return (k + CELL - 1) / CELL;
}

/* What is done with a tile's sums. */
struct finish {
    float alpha, beta;
    float *c;
    size_t ld;
    mask left, right; /* the columns that exist */
};

__attribute__((always_inline)) static inline void finish_row(const struct finish f, const bool add,
                                                             int i, int half, vec sum)
{
    float *c = f.c + (size_t)i * f.ld + (size_t)(LANES * half);
    mask m = half ? f.right : f.left;
    vec x = sum * splat(f.alpha);

    if (add)
        x = fma_add(splat(f.beta), load_part(m, c), x);
    store_part(c, m, x);
}

__attribute__((always_inline)) static inline void finish_rows(const struct finish f, const int rows,
                                                              const int halves, vec sum[TALL][2])
{
    if (f.beta != 0) {
        UNROLL(16)
        for (int i = 0; i < rows; i++)
            for (int h = 0; h < halves; h++)
                finish_row(f, true, i, h, sum[i][h]);
        return;
    }
    UNROLL(16)
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < halves; h++)
            finish_row(f, false, i, h, sum[i][h]);
}

/* op(A)[rows, K]: its cell (i, k) is at[i * row + k * step]. */
struct left {
    const float *at;
    size_t row, step;
};

/* C[rows, LANES halves] from op(A)[rows, K] and b[K][ld_b]; K counts cells. */
__attribute__((always_inline)) static inline void tile(const int rows, const int halves, int K,
                                                       struct left a, const float *b, size_t ld_b,
                                                       const struct finish *f)
{
    vec sum[TALL][2];

    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = (vec){0};
        for (int h = 0; h < halves; h++)
            __builtin_prefetch(f->c + (size_t)i * f->ld + (size_t)(LANES * h), 1);
    }
    for (int k = 0; k < K; k++, a.at += a.step, b += ld_b) {
        vec b0 = load_all(b), b1 = halves > 1 ? load_all(b + LANES) : b0;

        UNROLL(16)
        for (int i = 0; i < rows; i++) {
            vec ai = splat(a.at[(size_t)i * a.row]);

            sum[i][0] = multiply(ai, b0, sum[i][0]);
            if (halves > 1)
                sum[i][1] = multiply(ai, b1, sum[i][1]);
        }
    }
    struct finish g = *f;
    if (g.left == lanes(LANES) && (halves == 1 || g.right == lanes(LANES))) {
        g.left = g.right = lanes(LANES); /* known to the compiler: no masks */
        finish_rows(g, rows, halves, sum);
    } else {
        finish_rows(g, rows, halves, sum);
    }
}

/* Of each height: A by columns (`step` apart) or by rows (TERN_TENSOR_NEAR_LD apart), one or two
 * registers of columns of C. */
typedef void tile_fn(int K, const float *a, size_t step, const float *b, size_t ld_b,
                     const struct finish *f);
// clang-format off
#define TILE(name, rows, halves, row, step)                                                        \
    static void name##_##rows(int K, const float *a, size_t ld, const float *b, size_t ld_b,       \
                              const struct finish *f)                                              \
    {                                                                                              \
        (void)ld;                                                                                  \
        tile(rows, halves, K, (struct left){a, row, step}, b, ld_b, f);                            \
    }
#ifdef PAIRS /* have no product without packing */
#define TILES(rows) TILE(columns1, rows, 1, 1, ld) TILE(columns2, rows, 2, 1, ld)
#define NAMES(rows) {{NULL, NULL}, {columns1_##rows, columns2_##rows}}
#else
#define TILES(rows)                                                                                \
    TILE(columns1, rows, 1, 1, ld)                                                                 \
    TILE(columns2, rows, 2, 1, ld)                                                                 \
    TILE(rows1, rows, 1, TERN_TENSOR_NEAR_LD, 1)                                                  \
    TILE(rows2, rows, 2, TERN_TENSOR_NEAR_LD, 1)
#define NAMES(rows) {{rows1_##rows, rows2_##rows}, {columns1_##rows, columns2_##rows}}
#endif
TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6)
#if LANES == 16
TILES(7) TILES(8) TILES(9) TILES(10) TILES(11) TILES(12) TILES(13) TILES(14)
#endif
static tile_fn *const tiles[TALL + 1][2][2] = {
    {{NULL}}, NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5), NAMES(6),
#if LANES == 16
    NAMES(7), NAMES(8), NAMES(9), NAMES(10), NAMES(11), NAMES(12), NAMES(13), NAMES(14),
#endif
};
// clang-format on

__attribute__((always_inline)) static inline void turn_any(float *to, int ld_to, const void *from,
                                                           int ld, int w, int K, const bool half)
{
    for (int k = 0; k < K; k += LANES * CELL, to += LANES * ld_to) {
        int n = cells(K - k) < LANES ? cells(K - k) : LANES;
        vec r[LANES];

        UNROLL(16)
        for (int i = 0; i < LANES; i++)
            r[i] = i < w ? load_along(from, (size_t)i * (size_t)ld + (size_t)k, K - k, half)
                         : (vec){0};
        transpose(r);
        for (int i = 0; i < n; i++)
            store_all(to + (size_t)i * (size_t)ld_to, r[i]);
    }
}

/* to[c][i] = cell c of from[i][K], for i < w <= LANES. Rows of `to` are ld_to apart, and the floats
 * up to the LANES-th of each are overwritten. */
static void turn(float *to, int ld_to, const float *from, int ld, int w, int K)
{
    turn_any(to, ld_to, from, ld, w, K, false);
}

static void turn_half(float *to, int ld_to, const uint16_t *from, int ld, int w, int K)
{
    turn_any(to, ld_to, from, ld, w, K, true);
}

/* Row by row: memory is read in its own order. */
__attribute__((always_inline)) static inline void pack_rows(float *to, const void *B, int ldb,
                                                            int n, int K, const bool half)
{
    size_t sliver = (size_t)cells(K) * WIDE;

    for (int k = 0; k < K; k += CELL, to += WIDE) {
        const struct across from = {B, (size_t)ldb, K - k, half};
        float *at = to;
        size_t row = (size_t)k * (size_t)ldb;
        int j = 0;

        for (; j + WIDE <= n; j += WIDE, at += sliver) {
            store_all(at, load_across(&from, row + (size_t)j, LANES));
            store_all(at + LANES, load_across(&from, row + (size_t)j + LANES, LANES));
        }
        if (j < n) {
            store_all(at, load_across(&from, row + (size_t)j, n - j));
            store_all(at + LANES, load_across(&from, row + (size_t)j + LANES, n - j - LANES));
        }
    }
}

/* Columns of op(B), n of them, as slivers b[cells][WIDE]. */
static void pack_b(float *to, bool turned, struct tern_tensor_matrix B, int ldb, int n, int K)
{
    size_t sliver = (size_t)cells(K) * WIDE;

    for (int j = 0; j < n && turned; j += LANES) {
        float *at = to + (size_t)(j / WIDE) * sliver + (size_t)(j % WIDE);
        const void *from = tern_tensor_from(B, (size_t)j * (size_t)ldb).at;
        int w = n - j < LANES ? n - j : LANES;

        if (B.half)
            turn_half(at, WIDE, from, ldb, w, K);
        else
            turn(at, WIDE, from, ldb, w, K);
    }
    if (turned)
        return;
    if (B.half)
        pack_rows(to, B.at, ldb, n, K, true);
    else
        pack_rows(to, B.at, ldb, n, K, false);
}

/* Rows of op(A) in slivers: row at[p] is the first of the p-th, at[parts] the number of rows. */
struct slivers {
    int parts, at[HEIGHT / TALL + 1];
    const float *a; /* the block of A that is packed, `depth` of K, in rows lda apart */
    int lda, depth;
    bool turned;
};

static void cut_rows(struct slivers *s, int m)
{
    s->parts = (m + TALL - 1) / TALL;
    for (int p = 0; p <= s->parts; p++)
        s->at[p] = m * p / s->parts;
}

static void pack_a(float *to, const struct slivers *s, int p0, int p1)
{
    const int lda = s->lda, K = s->depth;

    if (!s->turned) {
        for (int p = p0; p < p1; p++) {
            int rows = s->at[p + 1] - s->at[p];

            turn(to + (size_t)p * SPACE, rows, s->a + (size_t)s->at[p] * (size_t)lda, lda, rows, K);
        }
        return;
    }
    for (int k0 = 0; k0 < K; k0 += RUN * CELL)
        for (int p = p0; p < p1; p++) {
            int rows = s->at[p + 1] - s->at[p], k1 = K - k0 < RUN * CELL ? K : k0 + RUN * CELL;
            size_t from = (size_t)k0 * (size_t)lda + (size_t)s->at[p];
            float *at = to + (size_t)p * SPACE + (size_t)(k0 / CELL * rows);
            /* Whole registers where the block has them: what is too much is overwritten. */
            int n = s->at[p] + LANES <= s->at[s->parts] ? LANES : rows;

            for (int k = k0; k < k1; k += CELL, from += CELL * (size_t)lda, at += rows) {
                const struct across rest = {s->a, (size_t)lda, K - k, false};

                store_all(at, load_across(&rest, from, n));
            }
        }
}

static bool ready(void)
{
    return tern_tensor_buffer(BUFFER_BYTES) != NULL;
}

/* n in equal parts of at most `most`. */
static int even(int n, int most)
{
    int parts = (n + most - 1) / most;

    return (n + parts - 1) / parts;
}

/* C[m,n] from the packed slivers p0 .. p1-1 of A and the packed panel. */
static void sweep(const float *a, const struct slivers *s, int p0, int p1, const float *panel,
                  int n, const struct finish *whole)
{
    const int K = cells(s->depth);

    for (int p = p0; p < p1; p++) {
        int rows = s->at[p + 1] - s->at[p];
        struct finish f = *whole;

        f.c += (size_t)s->at[p] * f.ld;
        for (int j = 0; j < n; j += WIDE, f.c += WIDE) {
            f.left = lanes(n - j);
            f.right = lanes(n - j - LANES);
            tiles[rows][1][n - j > LANES](K, a + (size_t)p * SPACE, (size_t)rows,
                                          panel + (size_t)j * (size_t)K, WIDE, &f);
        }
    }
}

static void gemm(const struct tern_tensor_gemm *g, const float *A, struct tern_tensor_matrix B,
                 float *C)
{
    const size_t lda = (size_t)g->lda, ldb = (size_t)g->ldb, ldc = (size_t)g->ldc;
    const int M = g->M, N = g->N, K = g->K;
    float *panel = tern_tensor_buffer(BUFFER_BYTES), *packed = panel + PANEL;
    int steps = even(cells(K), DEPTH), deep = steps * CELL, high = even(M, HEIGHT);
    int wide = (even(N, PANEL / steps / WIDE * WIDE) + WIDE - 1) / WIDE * WIDE;
    struct slivers s = {.lda = g->lda, .turned = g->ta};

    for (int r = 0; r < M; r += high) {
        cut_rows(&s, M - r < high ? M - r : high);
        for (int k = 0; k < K; k += deep)
            for (int j = 0; j < N; j += wide) {
                int n = N - j < wide ? N - j : wide;
                const struct tern_tensor_matrix b = tern_tensor_from(
                    B, g->tb ? (size_t)j * ldb + (size_t)k : (size_t)k * ldb + (size_t)j);
                const struct finish f = {.alpha = (float)g->alpha,
                                         .beta = k ? 1 : (float)g->beta,
                                         .c = C + (size_t)r * ldc + j,
                                         .ld = ldc};

                s.a = A + (g->ta ? (size_t)k * lda + (size_t)r : (size_t)r * lda + (size_t)k);
                s.depth = K - k < deep ? K - k : deep;
                pack_b(panel, g->tb, b, g->ldb, n, s.depth);
                for (int p = 0, end; p < s.parts; p = end) {
                    end = p + TOGETHER < s.parts ? p + TOGETHER : s.parts;
                    if (j == 0)
                        pack_a(packed, &s, p, end);
                    sweep(packed, &s, p, end, panel, n, &f);
                }
            }
    }
}

#ifndef PAIRS
static void near(const struct tern_tensor_gemm *g, const float *A, const float *B, float *C)
{
    const size_t lda = (size_t)g->lda, ldb = (size_t)g->ldb, ldc = (size_t)g->ldc;
    int parts = (g->M + TALL - 1) / TALL;

    for (int p = 0; p < parts; p++) {
        int r = g->M * p / parts, rows = g->M * (p + 1) / parts - r;

        for (int j = 0; j < g->N; j += WIDE) {
            const struct finish f = {.alpha = 1,
                                     .beta = (float)g->beta,
                                     .c = C + (size_t)r * ldc + j,
                                     .ld = ldc,
                                     .left = lanes(g->N - j),
                                     .right = lanes(g->N - j - LANES)};

            tiles[rows][g->ta][g->N - j > LANES](g->K, A + (g->ta ? (size_t)r : (size_t)r * lda),
                                                 lda, B + j, ldb, &f);
        }
    }
}

static void turn_whole(float *to, int ld_to, const float *from, int ld, int rows, int columns)
{
    float last[LANES * LANES];

    for (int i = 0; i < rows; i += LANES) {
        int w = rows - i < LANES ? rows - i : LANES;
        const float *row = from + (size_t)i * (size_t)ld;

        if (w == LANES) {
            turn(to + i, ld_to, row, ld, w, columns);
            continue;
        }
        for (int k = 0; k < columns; k += LANES) {
            int n = columns - k < LANES ? columns - k : LANES;

            turn(last, LANES, row + k, ld, w, n);
            for (int c = 0; c < n; c++)
                store_part(to + (size_t)(k + c) * (size_t)ld_to + i, lanes(w),
                           load_all(last + LANES * c));
        }
    }
}

#endif

const struct tern_tensor_products PRODUCTS = {
    .name = PRODUCTS_NAME,
    .ready = ready,
    .gemm = gemm,
#ifndef PAIRS
    .near = near,
    .turn = turn_whole,
#endif
};
#endif
