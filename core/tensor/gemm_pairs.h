/* Cells of two bf16 for gemm.h: neighbours along k, the first in the lower half.  What is given in
 * float is rounded, to the nearest, ties to even; numbers below 2^-126 become 0, here as in the
 * product.  A last step of k that has no neighbour gets 0. */
#ifndef TERN_TENSOR_GEMM_PAIRS_H
#define TERN_TENSOR_GEMM_PAIRS_H

#ifdef LANES /* alone it is nothing */

enum { CELL = 2 }; /* steps of k in a cell */

/* Of each cell: sum = sum + a1 b1, rounded, then sum + a0 b0, rounded. */
static inline vec multiply(vec a, vec b, vec sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/* LANES bf16 from element i: those of `m`, and zeros. */
__attribute__((always_inline)) static inline __m256i load_bf16(mask m, const void *from, size_t i,
                                                               const bool half)
{
    if (half)
        return _mm256_maskz_loadu_epi16(m, (const uint16_t *)from + i);
    return (__m256i)_mm512_cvtneps_pbh(load_part(m, (const float *)from + i));
}

static inline __m512i join(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* LANES cells along a row from element i, of `left` that the row still has; and zeros. */
__attribute__((always_inline)) static inline vec load_along(const void *from, size_t i, int left,
                                                            const bool half)
{
    return (vec)join(load_bf16(lanes(left), from, i, half),
                     load_bf16(lanes(left - LANES), from, i + LANES, half));
}

/* Cells of n neighbours in the row from element i and in the next row, and zeros. */
__attribute__((always_inline)) static inline vec load_across(const struct across *x, size_t i,
                                                             int n)
{
    const __m512i order =
        _mm512_add_epi32(_mm512_set1_epi32(LANES << 16),
                         _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                                            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
                                                              12, 13, 14, 15)));
    __m256i first = load_bf16(lanes(n), x->at, i, x->half);
    __m256i second =
        x->left > 1 ? load_bf16(lanes(n), x->at, i + x->ld, x->half) : _mm256_setzero_si256();

    return (vec)_mm512_permutexvar_epi16(order, join(first, second));
}

#endif /* LANES */
#endif
