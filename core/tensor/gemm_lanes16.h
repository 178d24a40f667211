/* Registers of 16 floats for gemm.h: AVX-512. */
#ifndef TERN_TENSOR_GEMM_LANES16_H
#define TERN_TENSOR_GEMM_LANES16_H

#ifdef __AVX512F__ /* alone it is nothing */

#include <immintrin.h>

#include <stdint.h>

#define LANES 16

enum {
    TALL = 14, /* rows of a tile: 28 sums, 2 of B and one of A are 31 of 32 registers */
    /* Of k in a block: a sliver of A is 28 KiB of the 32 to 48 that a first-level cache has.  C is
     * read and written again only every 512 steps.  As for AVX2, so that both give the same bits.
     */
    DEPTH = 512,
    PANEL = 1 << 18,    /* floats of packed B: 1 MiB, the second-level cache of the smallest Xeon */
    HEIGHT = 74 * TALL, /* rows of A packed at a time: 2 MiB, in the third-level cache */
    TOGETHER = 24,      /* slivers packed side by side where A's rows run across them */
};

typedef __m512 vec;
typedef __mmask16 mask; /* some of a register's lanes: the first n */

static inline mask lanes(int n)
{
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (mask)((1U << n) - 1);
}

static inline vec splat(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec fma_add(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec load_all(const float *x)
{
    return _mm512_loadu_ps(x);
}

static inline void store_all(float *x, vec v)
{
    _mm512_storeu_ps(x, v);
}

/* The floats of `m`, and zeros. */
static inline vec load_part(mask m, const float *x)
{
    return _mm512_maskz_loadu_ps(m, x);
}

static inline void store_part(float *x, mask m, vec v)
{
    _mm512_mask_storeu_ps(x, m, v);
}

/* The bf16 of `m` widened, and zeros. */
static inline vec load_half(mask m, const uint16_t *x)
{
    __m256i half = _mm256_maskz_loadu_epi16(m, x);

    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline void transpose(vec r[16])
{
    vec t[16];

    UNROLL(8)
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL(8)
    for (int i = 0; i < 16; i += 4)
        for (int h = 0; h < 2; h++) {
            __m512d lo = (__m512d)t[i + h], hi = (__m512d)t[i + h + 2];

            r[i + 2 * h] = (vec)_mm512_unpacklo_pd(lo, hi);
            r[i + 2 * h + 1] = (vec)_mm512_unpackhi_pd(lo, hi);
        }
    UNROLL(8)
    for (int i = 0; i < 4; i++)
        for (int h = 0; h < 16; h += 8) {
            t[i + h] = _mm512_shuffle_f32x4(r[i + h], r[i + h + 4], 0x88);
            t[i + h + 4] = _mm512_shuffle_f32x4(r[i + h], r[i + h + 4], 0xdd);
        }
    UNROLL(8)
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}

#endif /* __AVX512F__ */
#endif
