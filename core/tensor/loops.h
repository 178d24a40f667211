/* The bodies of struct tern_tensor_kernels.  Included once by each kernels_*.c, which is compiled
 * for its instruction set (the Makefile's FLAGS).  It defines KERNELS (the table's name) and
 * KERNELS_NAME; alone they are the plain ones.
 *
 * Sums run in a fixed number of lanes, whatever the registers' width, and no multiply-add is fused:
 * every instruction set gives the same bits. */
#include "core/tensor/kernels.h"

#include <math.h>
#include <string.h>

#ifndef KERNELS
#define KERNELS tern_tensor_kernels_plain
#define KERNELS_NAME "plain"
#endif

/* A register: of wider vectors the compiler makes poor code, comparisons lane by lane. */
#if defined(__AVX512F__)
enum { REGISTER = 64 };
#elif defined(__AVX2__)
enum { REGISTER = 32 };
#else
enum { REGISTER = 16 };
#endif
typedef tern_real vec __attribute__((vector_size(REGISTER)));
typedef float vec_f32 __attribute__((vector_size(REGISTER)));
typedef int32_t vec_i32 __attribute__((vector_size(REGISTER)));
typedef __typeof__((vec){0} < (vec){0}) vec_mask;

enum {
    LANES = REGISTER / sizeof(tern_real),
    ADDENDS = 64 / sizeof(tern_real), /* lanes of a sum: */
    PARTS = ADDENDS / LANES,          /* one AVX-512 register, two of AVX2, four of SSE */
    /* Float sums are handed to a double this often: 32 additions a lane keep their rounding error
     * below two units in the last place. */
    BLOCK = 64 * ADDENDS / 2,
};

static inline vec load(const tern_real *x)
{
    vec v;

    memcpy(&v, x, sizeof(v));
    return v;
}

static inline void store(tern_real *x, vec v)
{
    memcpy(x, &v, sizeof(v));
}

/* x[0..n) and zeros, n < LANES. */
static inline vec load_part(const tern_real *x, int n)
{
    vec v = {0};

    memcpy(&v, x, (size_t)n * sizeof(*x));
    return v;
}

static inline void store_part(tern_real *x, vec v, int n)
{
    memcpy(x, &v, (size_t)n * sizeof(*x));
}

static inline vec splat(tern_real x)
{
    return x - (vec){0};
}

static inline vec choose(vec_mask m, vec a, vec b)
{
    return (vec)(((vec_mask)a & m) | ((vec_mask)b & ~m));
}

static inline tern_real add_lanes(tern_real v[ADDENDS])
{
    for (int w = ADDENDS / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            v[i] += v[i + w];
    return v[0];
}

/* exp of each lane.  Floats: 2^n * e^r with r in [-ln2/2, ln2/2] by the polynomial of Cephes' expf
 * (Moshier), within 2 units in the last place.  Arguments are held where the result is normal. */
__attribute__((always_inline)) static inline vec vexp(vec x)
{
    if (sizeof(tern_real) == sizeof(double)) {
        for (int i = 0; i < (int)LANES; i++)
            x[i] = (tern_real)exp((double)x[i]);
        return x;
    }
    const vec_f32 round = (vec_f32){0} + 12582912.0F; /* 1.5 * 2^23: adding it rounds to integers */
    const vec_f32 lo = (vec_f32){0} - 87.3F, hi = (vec_f32){0} + 88.3F;
    vec_f32 f = (vec_f32)x, k, r, p;
    vec_i32 m;

    m = f < lo;
    f = (vec_f32)(((vec_i32)lo & m) | ((vec_i32)f & ~m));
    m = f > hi;
    f = (vec_f32)(((vec_i32)hi & m) | ((vec_i32)f & ~m));
    k = f * 1.44269504088896341F + round;
    m = (vec_i32)k << 23; /* n, moved to the exponent; round's own bits fall out */
    k -= round;
    r = f - k * 0.693359375F;
    r -= k * -2.12194440e-4F;
    p = r * 1.9875691500e-4F + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1.0F;
    return (vec)(vec_f32)((vec_i32)p + m);
}

/* Sum over `at` < n of TERM, an expression of vectors in terms of AT(x) (a load at `at`), in
 * double. */
#define AT(x) (whole ? load((x) + at) : load_part((x) + at, left))
#define SUM(n, TERM)                                                                               \
    double total = 0;                                                                              \
    for (size_t start = 0; start < (size_t)(n); start += BLOCK) {                                  \
        size_t end = (size_t)(n)-start > BLOCK ? start + BLOCK : (size_t)(n), i = start;           \
        vec s0[PARTS] = {{0}}, s1[PARTS] = {{0}};                                                  \
        tern_real sums[ADDENDS];                                                                   \
        for (; i + 2 * ADDENDS <= end; i += 2 * ADDENDS) {                                         \
            enum { whole = 1, left = 0 };                                                          \
            for (size_t p = 0, at = i; p < PARTS; p++, at += LANES)                                \
                s0[p] += TERM;                                                                     \
            for (size_t p = 0, at = i + ADDENDS; p < PARTS; p++, at += LANES)                      \
                s1[p] += TERM;                                                                     \
        }                                                                                          \
        for (; i < end; i += ADDENDS)                                                              \
            for (size_t p = 0, at = i; p < PARTS && at < end; p++, at += LANES) {                  \
                const int left = (int)(end - at), whole = left >= (int)LANES;                      \
                s0[p] += TERM;                                                                     \
            }                                                                                      \
        for (int p = 0; p < PARTS; p++)                                                            \
            store(sums + p * (int)LANES, s0[p] + s1[p]);                                           \
        total += (double)add_lanes(sums);                                                          \
    }

static void add(tern_real *restrict to, const tern_real *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void scale(tern_real *x, tern_real by, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

static double sum_squares(const tern_real *x, size_t n)
{
    SUM(n, AT(x) * AT(x))
    return total;
}

static tern_real dot3(const tern_real *dy, const tern_real *x, const tern_real *w, int n)
{
    SUM(n, AT(dy) * AT(x) * AT(w))
    return (tern_real)total;
}

static inline tern_real root(tern_real x)
{
    return sizeof(x) == sizeof(float) ? (tern_real)sqrtf((float)x) : (tern_real)sqrt((double)x);
}

static void adamw(const struct tern_tensor_adamw_loop *o, tern_real *restrict p,
                  const tern_real *restrict g, tern_real *restrict m, tern_real *restrict v,
                  size_t n)
{
    const struct tern_tensor_adamw_loop c = *o;

    for (size_t i = 0; i < n; i++) {
        tern_real gi = g[i] * c.grad_scale;
        tern_real mi = m[i] * c.beta1 + gi * c.rest1;
        tern_real vi = v[i] * c.beta2 + gi * gi * c.rest2;

        m[i] = mi;
        v[i] = vi;
        p[i] = p[i] * c.keep - c.step * mi / (root(vi) / c.root + c.eps);
    }
}

static void norm(tern_real *restrict y, const tern_real *restrict x, const tern_real *restrict w,
                 tern_real by, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = x[i] * by * w[i];
}

static void norm_dx(tern_real *restrict dx, const tern_real *restrict dy,
                    const tern_real *restrict x, const tern_real *restrict w, tern_real by,
                    tern_real less, int n)
{
    for (int i = 0; i < n; i++)
        dx[i] += by * dy[i] * w[i] - x[i] * less;
}

static void norm_dw(tern_real *dw, const tern_real *dy, const struct tern_tensor_norm *f, int c0,
                    int c1)
{
    const tern_real *x = f->x, *rstd = f->rstd;
    const int rows = f->n, C = f->C;

    for (int c = c0; c < c1; c += LANES) {
        int left = c1 - c, whole = left >= (int)LANES;
        vec total = {0};

        for (int start = 0; start < rows; start += 64) {
            int end = rows - start > 64 ? start + 64 : rows;
            vec s = {0};

            for (int r = start; r < end; r++) {
                size_t at = (size_t)r * (size_t)C + (size_t)c;

                s += AT(dy) * (AT(x) * rstd[r]);
            }
            total += s;
        }
        if (whole)
            store(dw + c, load(dw + c) + total);
        else
            store_part(dw + c, load_part(dw + c, left) + total, left);
    }
}

__attribute__((always_inline)) static inline vec sigmoid(vec x)
{
    return 1 / (1 + vexp(-x));
}

static void swiglu(tern_real *restrict h, const tern_real *restrict gate,
                   const tern_real *restrict up, int n)
{
    int i = 0;

    for (; i + (int)LANES <= n; i += LANES)
        store(h + i, load(gate + i) * sigmoid(load(gate + i)) * load(up + i));
    if (i < n) {
        vec g = load_part(gate + i, n - i);

        store_part(h + i, g * sigmoid(g) * load_part(up + i, n - i), n - i);
    }
}

static void swiglu_back(tern_real *restrict gate, tern_real *restrict up,
                        const tern_real *restrict dh, int n)
{
    for (int at = 0; at < n; at += LANES) {
        int left = n - at, whole = left >= (int)LANES;
        vec g = AT(gate), u = AT(up), d = AT(dh), s = sigmoid(g);
        vec dg = d * u * s * (1 + g * (1 - s)), du = d * g * s;

        if (whole) {
            store(gate + at, dg);
            store(up + at, du);
        } else {
            store_part(gate + at, dg, left);
            store_part(up + at, du, left);
        }
    }
}

static void rope(tern_real *restrict x, const tern_real *restrict cos,
                 const tern_real *restrict sin, int half, int sign)
{
    tern_real by = (tern_real)sign;
    tern_real *restrict lo = x, *restrict hi = x + half;

    for (int i = 0; i < half; i++) {
        tern_real a = lo[i], b = hi[i], s = sin[i] * by;

        lo[i] = a * cos[i] - b * s;
        hi[i] = b * cos[i] + a * s;
    }
}

static tern_real max(const tern_real *x, int n)
{
    tern_real m[ADDENDS], best;
    int i = 0;

    for (int j = 0; j < (int)ADDENDS; j++)
        m[j] = x[0];
    for (; i + (int)ADDENDS <= n; i += ADDENDS)
        for (int j = 0; j < (int)ADDENDS; j++)
            m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
    best = m[0];
    for (int j = 1; j < (int)ADDENDS; j++)
        best = m[j] > best ? m[j] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

/* The sum of by * (x - top)'s exponentials, n < ADDENDS; x becomes them when `keep`. */
static inline double exp_rest(const tern_real *x, tern_real *keep, tern_real top, tern_real by,
                              int n)
{
    tern_real sums[ADDENDS] = {0};

    for (int i = 0; i < n; i += LANES) {
        int left = n - i < (int)LANES ? n - i : (int)LANES;
        vec e = vexp((load_part(x + i, left) - top) * by);

        store_part(sums + i, e, left);
        if (keep)
            store_part(keep + i, e, left);
    }
    return (double)add_lanes(sums);
}

static double sum_exp(const tern_real *x, tern_real top, tern_real by, int n)
{
    int rest = n % (int)ADDENDS, body = n - rest;

    SUM(body, vexp((AT(x) - top) * by))
    return rest > 0 ? total + exp_rest(x + body, NULL, top, by, rest) : total;
}

static double exp_sum(tern_real *x, tern_real top, tern_real by, int n)
{
    int rest = n % (int)ADDENDS, body = n - rest;
    vec e;

    SUM(body, (e = vexp((AT(x) - top) * by), store(x + at, e), e))
    return rest > 0 ? total + exp_rest(x + body, x + body, top, by, rest) : total;
}

/* ---- attention: a register holds so many of the QUERIES columns of a score array ---- */

enum {
    QUERIES = TERN_TENSOR_NEAR_LD,
    /* Rows that are summed in one go: their rounding errors stay below those of the terms. */
    RUN = 64,
};

/* `x` where row k counts for the column, else `other`; rows first .. last count for all. */
static inline vec counted(vec x, vec other, int k, int first, int last, const tern_real *from,
                          const tern_real *to)
{
    if (k >= first && k <= last)
        return x;
    vec at = splat((tern_real)k);
    return choose((at >= load(from)) & (at <= load(to)), x, other);
}

static void count_all(const tern_real *from, const tern_real *to, int *first, int *last)
{
    *first = (int)from[0];
    *last = (int)to[0];
    for (int c = 1; c < QUERIES; c++) {
        *first = (int)from[c] > *first ? (int)from[c] : *first;
        *last = (int)to[c] < *last ? (int)to[c] : *last;
    }
}

static void softmax(tern_real *s, int n, const tern_real *from, const tern_real *to, tern_real by,
                    tern_real *max_, tern_real *sum)
{
    int first, last;

    count_all(from, to, &first, &last);
    for (int c = 0; c < QUERIES; c += LANES) {
        vec top = splat(-(tern_real)INFINITY), total = {0};

        for (int k = 0; k < n; k++) {
            vec x = counted(load(s + k * QUERIES + c), top, k, first, last, from + c, to + c);

            top = choose(x > top, x, top);
        }
        for (int start = 0; start < n; start += RUN) {
            int end = n - start > RUN ? start + RUN : n;
            vec part = {0};

            for (int k = start; k < end; k++) {
                vec e = vexp((load(s + k * QUERIES + c) - top) * by);

                e = counted(e, (vec){0}, k, first, last, from + c, to + c);
                store(s + k * QUERIES + c, e);
                part += e;
            }
            total += part;
        }
        store(max_ + c, top);
        store(sum + c, total);
    }
}

static void softmax_again(tern_real *s, int n, const tern_real *from, const tern_real *to,
                          tern_real by, const tern_real *max_, const tern_real *times)
{
    int first, last;

    count_all(from, to, &first, &last);
    for (int c = 0; c < QUERIES; c += LANES) {
        vec top = load(max_ + c), scale_ = load(times + c);

        for (int k = 0; k < n; k++) {
            vec e = vexp((load(s + k * QUERIES + c) - top) * by) * scale_;

            e = counted(e, (vec){0}, k, first, last, from + c, to + c);
            store(s + k * QUERIES + c, e);
        }
    }
}

static void softmax_back(tern_real *ds, const tern_real *p, int n, tern_real by)
{
    for (int c = 0; c < QUERIES; c += LANES) {
        vec total = {0};

        for (int start = 0; start < n; start += RUN) {
            int end = n - start > RUN ? start + RUN : n;
            vec part = {0};

            for (int k = start; k < end; k++)
                part += load(p + k * QUERIES + c) * load(ds + k * QUERIES + c);
            total += part;
        }
        for (int k = 0; k < n; k++)
            store(ds + k * QUERIES + c,
                  load(p + k * QUERIES + c) * by * (load(ds + k * QUERIES + c) - total));
    }
}

static void columns(tern_real *x, const tern_real *by, int n)
{
    for (int k = 0; k < n; k++)
        for (int c = 0; c < QUERIES; c += LANES)
            store(x + k * QUERIES + c, load(x + k * QUERIES + c) * load(by + c));
}

/* 32 random bits of (key, i), by two rounds of a finaliser, with half of the key before each. Its
 * every output bit depends evenly on every input bit (Wellons's lowbias32). */
static inline uint32_t random_bits(uint64_t key, uint64_t i)
{
    uint32_t x = (uint32_t)i ^ (uint32_t)key;

    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    x = (x ^ x >> 16) + (uint32_t)(key >> 32) + (uint32_t)(i >> 32) * 0x9e3779b9U;
    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    return x ^ x >> 16;
}

static void dropout(tern_real *y, const tern_real *x, uint64_t key, uint64_t first, uint32_t below,
                    tern_real by, int n)
{
    for (int i = 0; i < n; i++) {
        tern_real v = x[i] * by;

        y[i] = random_bits(key, first + (uint64_t)i) < below ? 0 : v;
    }
}

static inline uint32_t bits_of(tern_real x)
{
    float f = (float)x;
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

/* The upper half of u + up, or a quiet NaN. */
static inline uint16_t upper(uint32_t u, uint32_t up)
{
    return (uint16_t)((u & 0x7fffffffU) > 0x7f800000U ? u >> 16 | 0x40U : (u + up) >> 16);
}

static void to_bf16(uint16_t *restrict to, const tern_real *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u = bits_of(from[i]);

        to[i] = upper(u, 0x7fffU + (u >> 16 & 1U));
    }
}

static void to_bf16_random(uint16_t *restrict to, const tern_real *restrict from, uint64_t key,
                           uint64_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = upper(bits_of(from[i]), random_bits(key, first + i) >> 16);
}

static void from_bf16(tern_real *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)from[i] << 16;
        float f;

        memcpy(&f, &u, sizeof(f));
        to[i] = (tern_real)f;
    }
}

#include "core/tensor/dots.h"

const struct tern_tensor_kernels KERNELS = {
    .name = KERNELS_NAME,
    .add = add,
    .scale = scale,
    .sum_squares = sum_squares,
    .adamw = adamw,
    .norm = norm,
    .norm_dx = norm_dx,
    .norm_dw = norm_dw,
    .dot3 = dot3,
    .swiglu = swiglu,
    .swiglu_back = swiglu_back,
    .rope = rope,
    .max = max,
    .sum_exp = sum_exp,
    .exp_sum = exp_sum,
    .softmax = softmax,
    .softmax_again = softmax_again,
    .softmax_back = softmax_back,
    .columns = columns,
    .dropout = dropout,
    .to_bf16 = to_bf16,
    .to_bf16_random = to_bf16_random,
    .from_bf16 = from_bf16,
    .dots = dots,
    .dots_bf16 = dots_bf16,
    .mix = mix,
};
