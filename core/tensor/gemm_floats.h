/* Cells of one float for gemm.h. */
#ifndef TERN_TENSOR_GEMM_FLOATS_H
#define TERN_TENSOR_GEMM_FLOATS_H

#ifdef LANES /* alone it is nothing */

enum { CELL = 1 }; /* steps of k in a cell */

static inline vec multiply(vec a, vec b, vec sum)
{
    return fma_add(a, b, sum);
}

/* LANES floats, or as many bf16 widened: those of `m`, and zeros. */
__attribute__((always_inline)) static inline vec load(mask m, const void *from, size_t i,
                                                      const bool half)
{
    return half ? load_half(m, (const uint16_t *)from + i) : load_part(m, (const float *)from + i);
}

/* LANES cells along a row from element i, of `left` that the row still has; and zeros. */
__attribute__((always_inline)) static inline vec load_along(const void *from, size_t i, int left,
                                                            const bool half)
{
    return load(lanes(left), from, i, half);
}

/* Cells of n neighbours in the row from element i, and zeros. */
__attribute__((always_inline)) static inline vec load_across(const struct across *x, size_t i,
                                                             int n)
{
    return load(lanes(n), x->at, i, x->half);
}

#endif /* LANES */
#endif
