/* Registers of 8 floats for gemm.h: AVX2 with FMA. */
#ifndef TERN_TENSOR_GEMM_LANES8_H
#define TERN_TENSOR_GEMM_LANES8_H

#ifdef __AVX2__ /* alone it is nothing */

#include <immintrin.h>

#include <stdint.h>
#include <string.h>

#define LANES 8

enum {
    TALL = 6, /* rows of a tile: 12 sums, 2 of B and one of A are 15 of 16 registers */
    /* Of k in a block: a sliver of A is 12 KiB of the 32 that a first-level cache has.  As for
     * AVX-512, so that both give the same bits. */
    DEPTH = 512,
    PANEL = 1 << 16,     /* floats of packed B: 256 KiB, half of a Zen's second-level cache */
    HEIGHT = 170 * TALL, /* rows of A packed at a time: 2 MiB, in the third-level cache */
    TOGETHER = 24,       /* slivers packed side by side where A's rows run across them */
};

typedef __m256 vec;
typedef int mask; /* some of a register's lanes: the first n */

static inline mask lanes(int n)
{
    return n >= 8 ? 8 : n <= 0 ? 0 : n;
}

static inline __m256i lane_bits(mask m)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(m), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vec splat(float x)
{
    return _mm256_set1_ps(x);
}

static inline vec fma_add(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec load_all(const float *x)
{
    return _mm256_loadu_ps(x);
}

static inline void store_all(float *x, vec v)
{
    _mm256_storeu_ps(x, v);
}

/* The floats of `m`, and zeros.  Whole registers are the rule, and masked stores slow. */
static inline vec load_part(mask m, const float *x)
{
    return m == LANES ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lane_bits(m));
}

static inline void store_part(float *x, mask m, vec v)
{
    if (m == LANES)
        _mm256_storeu_ps(x, v);
    else
        _mm256_maskstore_ps(x, lane_bits(m), v);
}

/* The bf16 of `m` widened, and zeros. */
static inline vec load_half(mask m, const uint16_t *x)
{
    __m128i half = _mm_setzero_si128();

    if (m == LANES)
        half = _mm_loadu_si128((const __m128i_u *)x);
    else
        memcpy(&half, x, (size_t)m * sizeof(*x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static inline void transpose(vec r[8])
{
    vec t[8];

    UNROLL(4)
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL(2)
    for (int i = 0; i < 8; i += 4)
        for (int h = 0; h < 2; h++) {
            __m256d lo = (__m256d)t[i + h], hi = (__m256d)t[i + h + 2];

            r[i + 2 * h] = (vec)_mm256_unpacklo_pd(lo, hi);
            r[i + 2 * h + 1] = (vec)_mm256_unpackhi_pd(lo, hi);
        }
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    UNROLL(8)
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}

#endif /* __AVX2__ */
#endif
