/* Single-precision products by AVX-512, faster on the model's shapes than OpenBLAS's kernels for
 * SkylakeX, which pack more than they need and spend long on edges when K or N is a few hundred.
 *
 * As in Goto and van de Geijn (ACM TOMS 34:3, 2008), the other way round: a panel of B lies packed
 * in the second-level cache while slivers of A stream past it, so that a sliver's rows of C are
 * written in long runs.  The innermost loop keeps a TALL x WIDE tile of C in 28 registers.
 *
 * An element of C is a chain of fused multiply-adds over k in blocks of DEPTH: the same bits
 * wherever the tile's edges lie, so for any number of threads. */
#include <immintrin.h>

/* after the intrinsics: they carry their own targets */
#pragma GCC optimize("O3")
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#include "core/tensor/kernels.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    TALL = 14, /* rows of a tile: 28 sums, 2 of B and one of A are 31 of 32 registers */
    WIDE = 32, /* columns: two registers */
    /* Of k in a block: a sliver of A is 28 KiB of the 32 to 48 that a first-level cache has, and
     * C is read and written again only every 512 steps. */
    DEPTH = 512,
    PANEL = 1 << 18,    /* floats of packed B: 1 MiB, the second-level cache of the smallest Xeon */
    HEIGHT = 74 * TALL, /* rows of A packed at a time: 2 MiB, in the third-level cache */
    TOGETHER = 24,      /* slivers packed side by side where A's rows run across them */
    SPACE = TALL * DEPTH + 16, /* of a sliver; 16: the last row is stored as a whole register */
    HUGE_PAGE = 2 << 20,
    BUFFER_BYTES = (PANEL + (HEIGHT / TALL) * SPACE) * (int)sizeof(float),
};

typedef __mmask16 mask;

static mask lanes(int n)
{
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (mask)((1U << n) - 1);
}

/* What is done with a tile's sums. */
struct finish {
    float alpha, beta;
    float *c;
    size_t ld;
    mask left, right; /* the columns that exist */
};

__attribute__((always_inline)) static inline void finish_row(const struct finish *f, int i,
                                                             int half, __m512 sum)
{
    float *c = f->c + (size_t)i * f->ld + (size_t)(16 * half);
    mask m = half ? f->right : f->left;
    __m512 x = _mm512_mul_ps(sum, _mm512_set1_ps(f->alpha));

    if (f->beta != 0)
        x = _mm512_fmadd_ps(_mm512_set1_ps(f->beta), _mm512_maskz_loadu_ps(m, c), x);
    _mm512_mask_storeu_ps(c, m, x);
}

/* C[rows, 16 halves] from op(A)[rows, K], whose element (i, k) is a[i * row + k * step], and
 * b[K][ld_b]. */
__attribute__((always_inline)) static inline void tile(const int rows, const int halves, int K,
                                                       const float *a, const size_t row,
                                                       size_t step, const float *b, size_t ld_b,
                                                       const struct finish *f)
{
    __m512 sum[TALL][2];

    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        for (int h = 0; h < halves; h++)
            __builtin_prefetch(f->c + (size_t)i * f->ld + (size_t)(16 * h), 1);
    }
    for (int k = 0; k < K; k++, a += step, b += ld_b) {
        __m512 b0 = _mm512_loadu_ps(b), b1 = halves > 1 ? _mm512_loadu_ps(b + 16) : b0;

#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            __m512 ai = _mm512_set1_ps(a[(size_t)i * row]);

            sum[i][0] = _mm512_fmadd_ps(ai, b0, sum[i][0]);
            if (halves > 1)
                sum[i][1] = _mm512_fmadd_ps(ai, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < halves; h++)
            finish_row(f, i, h, sum[i][h]);
}

/* Of each height: A by columns (`step` apart) or by rows (TERN_TENSOR_NEAR_LD apart), 16 or 32
 * columns of C. */
typedef void tile_fn(int K, const float *a, size_t step, const float *b, size_t ld_b,
                     const struct finish *f);
// clang-format off
#define TILE(name, rows, halves, row, step)                                                        \
    static void name##_##rows(int K, const float *a, size_t ld, const float *b, size_t ld_b,       \
                              const struct finish *f)                                              \
    {                                                                                              \
        (void)ld;                                                                                  \
        tile(rows, halves, K, a, row, step, b, ld_b, f);                                           \
    }
#define TILES(rows)                                                                                \
    TILE(columns16, rows, 1, 1, ld)                                                                \
    TILE(columns32, rows, 2, 1, ld)                                                                \
    TILE(rows16, rows, 1, TERN_TENSOR_NEAR_LD, 1)                                                  \
    TILE(rows32, rows, 2, TERN_TENSOR_NEAR_LD, 1)
TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6) TILES(7)
TILES(8) TILES(9) TILES(10) TILES(11) TILES(12) TILES(13) TILES(14)
#define NAMES(rows) {{rows16_##rows, rows32_##rows}, {columns16_##rows, columns32_##rows}}
static tile_fn *const tiles[TALL + 1][2][2] = {
    {{NULL}}, NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5), NAMES(6), NAMES(7),
    NAMES(8), NAMES(9), NAMES(10), NAMES(11), NAMES(12), NAMES(13), NAMES(14),
};
// clang-format on

static void transpose(__m512 r[16])
{
    __m512 t[16];

#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 4)
        for (int h = 0; h < 2; h++) {
            __m512d lo = (__m512d)t[i + h], hi = (__m512d)t[i + h + 2];

            r[i + 2 * h] = (__m512)_mm512_unpacklo_pd(lo, hi);
            r[i + 2 * h + 1] = (__m512)_mm512_unpackhi_pd(lo, hi);
        }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++)
        for (int h = 0; h < 16; h += 8) {
            t[i + h] = _mm512_shuffle_f32x4(r[i + h], r[i + h + 4], 0x88);
            t[i + h + 4] = _mm512_shuffle_f32x4(r[i + h], r[i + h + 4], 0xdd);
        }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}

/* 16 floats, or as many bf16 widened: those of `m`, and zeros. */
__attribute__((always_inline)) static inline __m512 load(mask m, const void *from, size_t i,
                                                         const bool half)
{
    if (!half)
        return _mm512_maskz_loadu_ps(m, (const float *)from + i);
    __m256i x = _mm256_maskz_loadu_epi16(m, (const uint16_t *)from + i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

__attribute__((always_inline)) static inline void turn_any(float *to, int ld_to, const void *from,
                                                           int ld, int w, int K, const bool half)
{
    for (int k = 0; k < K; k += 16) {
        int n = K - k < 16 ? K - k : 16;
        mask m = lanes(n);
        __m512 r[16];

#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            r[i] = i < w ? load(m, from, (size_t)i * (size_t)ld + (size_t)k, half)
                         : _mm512_setzero_ps();
        transpose(r);
        for (int i = 0; i < n; i++)
            _mm512_storeu_ps(to + (size_t)(k + i) * (size_t)ld_to, r[i]);
    }
}

/* to[k][i] = from[i][k] for i < w <= 16 and k < K; rows of `to` are ld_to apart, and the floats up
 * to the 16th of each are overwritten. */
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
    size_t sliver = (size_t)K * WIDE;

    for (int k = 0; k < K; k++, to += WIDE) {
        float *at = to;
        size_t row = (size_t)k * (size_t)ldb;
        int j = 0;

        for (; j + WIDE <= n; j += WIDE, at += sliver) {
            _mm512_store_ps(at, load(0xffff, B, row + (size_t)j, half));
            _mm512_store_ps(at + 16, load(0xffff, B, row + (size_t)j + 16, half));
        }
        if (j < n) {
            _mm512_store_ps(at, load(lanes(n - j), B, row + (size_t)j, half));
            _mm512_store_ps(at + 16, load(lanes(n - j - 16), B, row + (size_t)j + 16, half));
        }
    }
}

/* Columns of op(B), n of them, as slivers b[K][WIDE]. */
static void pack_b(float *to, bool turned, struct tern_tensor_matrix B, int ldb, int n, int K)
{
    size_t sliver = (size_t)K * WIDE;

    for (int j = 0; j < n && turned; j += 16) {
        float *at = to + (size_t)(j / WIDE) * sliver + (size_t)(j % WIDE);
        const void *from = tern_tensor_from(B, (size_t)j * (size_t)ldb).at;
        int w = n - j < 16 ? n - j : 16;

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
};

static void cut_rows(struct slivers *s, int m)
{
    s->parts = (m + TALL - 1) / TALL;
    for (int p = 0; p <= s->parts; p++)
        s->at[p] = m * p / s->parts;
}

static void pack_a(float *to, bool turned, const float *A, int lda, const struct slivers *s, int p0,
                   int p1, int K)
{
    if (!turned) {
        for (int p = p0; p < p1; p++) {
            int rows = s->at[p + 1] - s->at[p];

            turn(to + (size_t)p * SPACE, rows, A + (size_t)s->at[p] * (size_t)lda, lda, rows, K);
        }
        return;
    }
    for (int k = 0; k < K; k++, A += lda)
        for (int p = p0; p < p1; p++) {
            int rows = s->at[p + 1] - s->at[p];

            _mm512_storeu_ps(to + (size_t)p * SPACE + (size_t)(k * rows),
                             _mm512_maskz_loadu_ps(lanes(rows), A + s->at[p]));
        }
}

/* This thread's buffers: the panel, then the slivers of A. */
static __thread float *buffer;

bool tern_tensor_gemm_avx512_ready(void)
{
    void *p = NULL;

    if (!buffer && posix_memalign(&p, HUGE_PAGE, BUFFER_BYTES) == 0) {
        madvise(p, BUFFER_BYTES, MADV_HUGEPAGE);
        buffer = p;
    }
    return buffer != NULL;
}

/* n in equal parts of at most `most`. */
static int even(int n, int most)
{
    int parts = (n + most - 1) / most;

    return (n + parts - 1) / parts;
}

/* C[m,n] from the packed slivers p0 .. p1-1 of A and the packed panel. */
static void sweep(const float *a, const struct slivers *s, int p0, int p1, const float *panel,
                  int n, int K, const struct finish *whole)
{
    for (int p = p0; p < p1; p++) {
        int rows = s->at[p + 1] - s->at[p];
        struct finish f = *whole;

        f.c += (size_t)s->at[p] * f.ld;
        for (int j = 0; j < n; j += WIDE, f.c += WIDE) {
            f.left = lanes(n - j);
            f.right = lanes(n - j - 16);
            tiles[rows][1][n - j > 16](K, a + (size_t)p * SPACE, (size_t)rows,
                                       panel + (size_t)j * (size_t)K, WIDE, &f);
        }
    }
}

void tern_tensor_gemm_avx512(bool ta, bool tb, int M, int N, int K, float alpha, const float *A,
                             int lda, struct tern_tensor_matrix B, int ldb, float beta, float *C,
                             int ldc)
{
    float *panel = buffer, *packed = buffer + PANEL;
    int deep = even(K, DEPTH), high = even(M, HEIGHT);
    int wide = (even(N, PANEL / deep / WIDE * WIDE) + WIDE - 1) / WIDE * WIDE;
    struct slivers s;

    for (int r = 0; r < M; r += high) {
        cut_rows(&s, M - r < high ? M - r : high);
        for (int k = 0; k < K; k += deep)
            for (int j = 0; j < N; j += wide) {
                int n = N - j < wide ? N - j : wide, depth = K - k < deep ? K - k : deep;
                const float *a = A + (ta ? (size_t)k * (size_t)lda + (size_t)r
                                         : (size_t)r * (size_t)lda + (size_t)k);
                const struct tern_tensor_matrix b =
                    tern_tensor_from(B, tb ? (size_t)j * (size_t)ldb + (size_t)k
                                           : (size_t)k * (size_t)ldb + (size_t)j);
                const struct finish f = {.alpha = alpha,
                                         .beta = k ? 1 : beta,
                                         .c = C + (size_t)r * (size_t)ldc + j,
                                         .ld = (size_t)ldc};

                pack_b(panel, tb, b, ldb, n, depth);
                for (int p = 0, end; p < s.parts; p = end) {
                    end = p + TOGETHER < s.parts ? p + TOGETHER : s.parts;
                    if (j == 0)
                        pack_a(packed, ta, a, lda, &s, p, end, depth);
                    sweep(packed, &s, p, end, panel, n, depth, &f);
                }
            }
    }
}

void tern_tensor_gemm_near_avx512(bool ta, int M, int N, int K, const float *A, int lda,
                                  const float *B, int ldb, bool add, float *C, int ldc)
{
    int parts = (M + TALL - 1) / TALL;

    for (int p = 0; p < parts; p++) {
        int r = M * p / parts, rows = M * (p + 1) / parts - r;

        for (int j = 0; j < N; j += WIDE) {
            const struct finish f = {.alpha = 1,
                                     .beta = add ? 1 : 0,
                                     .c = C + (size_t)r * (size_t)ldc + j,
                                     .ld = (size_t)ldc,
                                     .left = lanes(N - j),
                                     .right = lanes(N - j - 16)};

            tiles[rows][ta][N - j > 16](K, A + (ta ? (size_t)r : (size_t)r * (size_t)lda),
                                        (size_t)lda, B + j, (size_t)ldb, &f);
        }
    }
}

void tern_tensor_turn_avx512(float *to, int ld_to, const float *from, int ld, int rows, int columns)
{
    float last[16 * 16];

    for (int i = 0; i < rows; i += 16) {
        int w = rows - i < 16 ? rows - i : 16;
        const float *row = from + (size_t)i * (size_t)ld;

        if (w == 16) {
            turn(to + i, ld_to, row, ld, w, columns);
            continue;
        }
        for (int k = 0; k < columns; k += 16) {
            int n = columns - k < 16 ? columns - k : 16;

            turn(last, 16, row + k, ld, w, n);
            for (int c = 0; c < n; c++)
                _mm512_mask_storeu_ps(to + (size_t)(k + c) * (size_t)ld_to + i, lanes(w),
                                      _mm512_loadu_ps(last + 16 * c));
        }
    }
}
