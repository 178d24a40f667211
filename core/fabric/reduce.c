#include "core/fabric/reduce.h"

#include "core/fabric/copy.h"

#include <string.h>

/* These loops are limited by memory once they are vectorised; -O2 alone does not vectorise them. */
#pragma GCC optimize("O3")

/* Elements worked on at once: sources, temporaries and result of a block stay in the first-level
 * cache for the usual handful of ranks. */
enum { BLOCK = 512, DEPTH = 34 }; /* two temporaries a level, 2^16 ranks at most */

union block {
    float f32[BLOCK];
    double f64[BLOCK];
    int32_t i32[BLOCK];
    int64_t i64[BLOCK];
    uint8_t u8[BLOCK];
} __attribute__((aligned(64)));

typedef void kernel(void *d, const void *a, const void *b, size_t n);

#define KERNEL(name, T, expr)                                                                      \
    static void name(void *dv, const void *av, const void *bv, size_t n)                           \
    {                                                                                              \
        T *d = dv;                                                                                 \
        const T *as = av, *bs = bv;                                                                \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            T a = as[i], b = bs[i];                                                                \
            d[i] = (T)(expr);                                                                      \
        }                                                                                          \
    }
/* a != a: a NaN wins from either side. */
KERNEL(sum_f32, float, a + b)
KERNEL(max_f32, float, (a > b || a != a) ? a : b)
KERNEL(min_f32, float, (a < b || a != a) ? a : b)
KERNEL(sum_f64, double, a + b)
KERNEL(max_f64, double, (a > b || a != a) ? a : b)
KERNEL(min_f64, double, (a < b || a != a) ? a : b)
KERNEL(sum_i32, int32_t, (uint32_t)a + (uint32_t)b)
KERNEL(max_i32, int32_t, a > b ? a : b)
KERNEL(min_i32, int32_t, a < b ? a : b)
KERNEL(sum_i64, int64_t, (uint64_t)a + (uint64_t)b)
KERNEL(max_i64, int64_t, a > b ? a : b)
KERNEL(min_i64, int64_t, a < b ? a : b)
KERNEL(sum_u8, uint8_t, a + b)
KERNEL(max_u8, uint8_t, a > b ? a : b)
KERNEL(min_u8, uint8_t, a < b ? a : b)

static kernel *kernel_of(enum tern_type type, enum tern_op op)
{
    static kernel *const table[][3] = {
        [TERN_F32] = {sum_f32, max_f32, min_f32},  [TERN_F64] = {sum_f64, max_f64, min_f64},
        [TERN_BF16] = {sum_f32, max_f32, min_f32}, [TERN_I32] = {sum_i32, max_i32, min_i32},
        [TERN_I64] = {sum_i64, max_i64, min_i64},  [TERN_U8] = {sum_u8, max_u8, min_u8},
    };
    return table[type][op == TERN_MAX ? 1 : op == TERN_MIN ? 2 : 0];
}

static void widen(float *to, const uint16_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, 4);
    }
}

/* To nearest, ties to even; a NaN stays one. */
static void narrow(uint16_t *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], 4);
        uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        to[i] =
            (bits & 0x7fffffff) > 0x7f800000 ? (uint16_t)(bits >> 16 | 0x40) : (uint16_t)rounded;
    }
}

static void divide(void *v, enum tern_type type, size_t n, int by)
{
    union block *b = v;

    switch (type) {
    case TERN_F32:
    case TERN_BF16:
        for (size_t i = 0; i < n; i++)
            b->f32[i] /= (float)by;
        break;
    case TERN_F64:
        for (size_t i = 0; i < n; i++)
            b->f64[i] /= by;
        break;
    case TERN_I32:
        for (size_t i = 0; i < n; i++)
            b->i32[i] /= by;
        break;
    case TERN_I64:
        for (size_t i = 0; i < n; i++)
            b->i64[i] /= by;
        break;
    case TERN_U8:
        for (size_t i = 0; i < n; i++)
            b->u8[i] = (uint8_t)(b->u8[i] / by);
        break;
    }
}

struct tree {
    const struct tern_reduce *r;
    kernel *combine;
    const void *const *src;
    size_t src_bytes;  /* of one element */
    size_t from, len;  /* the block: elements */
    union block *temp; /* [DEPTH] */
};

static int half_of(int n)
{
    int h = 1;

    while (2 * h < n)
        h *= 2;
    return h;
}

/* The combination of src[lo .. lo + n) over the block, in `to` or, for a single source, in place.
 * Levels below use temp[level..]. */
static const void *combine(const struct tree *t, int lo, int n, int level, void *to)
{
    if (n == 1) {
        const char *s = (const char *)t->src[lo] + t->from * t->src_bytes;
        if (t->r->src_type != TERN_BF16)
            return s;
        widen(to, (const uint16_t *)s, t->len);
        return to;
    }
    int h = half_of(n);
    const void *a = combine(t, lo, h, level + 2, &t->temp[level]);
    const void *b = combine(t, lo + h, n - h, level + 2, &t->temp[level + 1]);
    t->combine(to, a, b, t->len);
    return to;
}

void tern_reduce(const struct tern_reduce *r, void *const *dst, int n_dst, const void *const *src,
                 int n, size_t count, bool past)
{
    union block temp[DEPTH + 2], result;
    struct tree t = {r,   kernel_of(r->src_type, r->op), src, tern_type_bytes(r->src_type), 0, 0,
                     temp};
    size_t bytes = tern_type_bytes(r->dst_type);
    bool divides = r->op == TERN_AVG && r->divide_by > 1;
    /* fp32 values that must still be rounded or divided cannot be built in the destination. */
    bool aside = divides || r->dst_type == TERN_BF16 || past;

    for (; t.from < count; t.from += BLOCK) {
        t.len = count - t.from < BLOCK ? count - t.from : BLOCK;
        char *first = (char *)dst[0] + t.from * bytes;
        const void *v = combine(&t, 0, n, 0, aside ? (void *)&result : first);
        if (divides) {
            if (v != &result)
                v = memcpy(&result, v, t.len * tern_type_bytes(r->src_type));
            divide(&result, r->src_type, t.len, r->divide_by);
        }
        if (r->dst_type == TERN_BF16)
            narrow((uint16_t *)first, v, t.len);
        else if (past)
            tern_copy_past(first, v, t.len * bytes);
        else if (v != first)
            memcpy(first, v, t.len * bytes);
        for (int i = 1; i < n_dst; i++)
            memcpy((char *)dst[i] + t.from * bytes, first, t.len * bytes);
    }
    if (past)
        tern_copy_past_end();
}
