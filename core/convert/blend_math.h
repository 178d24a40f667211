/* The arithmetic of blends, on pieces of a tensor that lie in memory.  Every function may be called
 * by any thread. */
#ifndef TERN_CONVERT_BLEND_MATH_H
#define TERN_CONVERT_BLEND_MATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---------------------------------------------------------------- linear, slerp */

/* ret[i] = sum of weights[k] x[k][i], over `divisor`. */
void tern_convert_blend_mean(const double *const *x, const double *weights, size_t n_models,
                             double divisor, size_t n, double *ret);

/* The factors of a and b at `t` of the arc, from their squared lengths and their product.  Nearly
 * parallel vectors (their cosine is beyond 0.9995 or -0.9995) lie on a line.  A vector of a length
 * up to 1e-8 counts as it is. */
void tern_convert_blend_arc(double aa, double bb, double ab, double t, double *ret_a,
                            double *ret_b);

/* ---------------------------------------------------------------- ties: the greatest magnitudes */

/* The k greatest magnitudes of many values that are seen twice, in pieces:
 *
 *     top_begin(&t, k);  top_add(&t, ...)...;  top_next(&t);  top_add(&t, ...)...;  top_next(&t);
 *
 * The first pass counts the upper 16 bits of a magnitude, the second the lower 15 of those that
 * share the k-th one's upper bits. */
struct tern_convert_blend_top {
    uint64_t counts[1 << 16];
    int pass;
    uint32_t least; /* bits of the smallest magnitude that stays; whole after two passes */
    uint64_t equal; /* how many of that magnitude stay: the first ones */
};

void tern_convert_blend_top_begin(struct tern_convert_blend_top *t, uint64_t k);
void tern_convert_blend_top_add(struct tern_convert_blend_top *t, const float *x, size_t n);
void tern_convert_blend_top_next(struct tern_convert_blend_top *t);
/* How many of `x` have just the smallest magnitude that stays. */
uint64_t tern_convert_blend_top_equals(const struct tern_convert_blend_top *t, const float *x,
                                       size_t n);
/* Zero what does not stay; `before`: values of the smallest magnitude in front of these. */
void tern_convert_blend_top_keep(const struct tern_convert_blend_top *t, uint64_t before, float *x,
                                 size_t n);
/* The k of `n` elements at `density`: rounded down, at least one. */
uint64_t tern_convert_blend_top_of(uint64_t n, double density);

/* ---------------------------------------------------------------- dare: a random part */

/* The stream of random numbers for a tensor of model `k`. */
uint64_t tern_convert_blend_stream(const char *tensor, size_t k);

struct tern_convert_blend_part {
    uint64_t seed, stream;
    double density;
};

/* Does element `i` of the tensor stay? */
bool tern_convert_blend_stays(const struct tern_convert_blend_part *p, uint64_t i);
/* Zero what does not stay of elements first .. first + n, and multiply the others by `scale`. */
void tern_convert_blend_part_keep(const struct tern_convert_blend_part *p, uint64_t first,
                                  float scale, float *x, size_t n);
/* L1 norms of all elements and of those that stay, added to what is there. */
void tern_convert_blend_part_norms(const struct tern_convert_blend_part *p, uint64_t first,
                                   const float *x, size_t n, double *ret_all, double *ret_kept);
/* The factor that gives the kept part the norm of the whole; 1 where either is below 1e-7. */
float tern_convert_blend_rescale(double all, double kept);

/* ---------------------------------------------------------------- ties, dare: the sum */

struct tern_convert_blend_sum {
    const float *weights; /* [n_models] */
    size_t n_models;
    bool signs;     /* only differences of the sign that their weighted sum has (0: +) count */
    bool normalize; /* see blend.h */
    double lambda;
};

/* ret[i] = base[i] + lambda sum of weights[k] x[k][i]. */
void tern_convert_blend_add(const struct tern_convert_blend_sum *s, const float *base,
                            const float *const *x, size_t n, double *ret);

#endif
