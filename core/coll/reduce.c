#include "core/coll/reduce.h"

#include "core/coll/copy.h"

#include <string.h>

enum {
    ONCE = 8, /* sources that are combined in one go, in registers */
    /* Elements worked on at once.  To begin on a block takes as long as a hundred of them. */
    BLOCK = 512,           /* with temporaries, which stay in the first cache... */
    DEPTH = 34,            /* ...two a level, 2^16 ranks at most */
    ASIDE = 4 * BLOCK,     /* where the result alone is built elsewhere */
    STRAIGHT = 16 * BLOCK, /* where it is built in its place */
};

union block {
    float f32[BLOCK];
    double f64[BLOCK];
    int32_t i32[BLOCK];
    int64_t i64[BLOCK];
    uint8_t u8[BLOCK];
} __attribute__((aligned(64)));

/* d[i] is the combination of s[0..n)[i]; n is from 2 to ONCE. */
typedef void kernel(void *d, const void *const *s, int n, size_t count);

#define INLINE static inline __attribute__((always_inline))

INLINE float widened(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;

    memcpy(&f, &bits, 4);
    return f;
}

#define SAME(v) (v)

/* Every cache line is read once.  When one source was read after the other, even in blocks, lines
 * left the first cache before they were used again.  Shared buffers begin on pages, so equal places
 * of all sources fall into one set of the cache.  A set holds as many lines as the cache has ways.
 * S is the type of a source, T of the combination; `n` is a constant wherever tree() is expanded.
 */
#define KERNEL(name, S, widen, T, combined)                                                        \
    INLINE T name##_two(T a, T b)                                                                  \
    {                                                                                              \
        return (T)(combined);                                                                      \
    }                                                                                              \
    INLINE T name##_tree(const S *const *s, int n, size_t i)                                       \
    {                                                                                              \
        T v = name##_two(widen(s[0][i]), widen(s[1][i]));                                          \
        if (n == 2)                                                                                \
            return v;                                                                              \
        if (n == 3)                                                                                \
            return name##_two(v, widen(s[2][i]));                                                  \
        v = name##_two(v, name##_two(widen(s[2][i]), widen(s[3][i])));                             \
        if (n == 4)                                                                                \
            return v;                                                                              \
        if (n == 5)                                                                                \
            return name##_two(v, widen(s[4][i]));                                                  \
        T w = name##_two(widen(s[4][i]), widen(s[5][i]));                                          \
        if (n == 6)                                                                                \
            return name##_two(v, w);                                                               \
        if (n == 7)                                                                                \
            return name##_two(v, name##_two(w, widen(s[6][i])));                                   \
        return name##_two(v, name##_two(w, name##_two(widen(s[6][i]), widen(s[7][i]))));           \
    }                                                                                              \
    TERN_COLL_CLONES static void name(void *to, const void *const *from, int n, size_t count)      \
    {                                                                                              \
        const S *s[ONCE];                                                                          \
        T *d = to;                                                                                 \
        for (int m = 0; m < n; m++)                                                                \
            s[m] = from[m];                                                                        \
        switch (n) {                                                                               \
            CASE(name, 2)                                                                          \
            CASE(name, 3)                                                                          \
            CASE(name, 4)                                                                          \
            CASE(name, 5)                                                                          \
            CASE(name, 6)                                                                          \
            CASE(name, 7)                                                                          \
            CASE(name, 8)                                                                          \
        }                                                                                          \
    }
/* The compiler's word for "no element of d lies in s": each knows its own. */
#ifdef __clang__
#define NO_OVERLAP _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_OVERLAP _Pragma("GCC ivdep")
#endif
#define CASE(name, n)                                                                              \
    case n:                                                                                        \
        NO_OVERLAP for (size_t i = 0; i < count; i++) d[i] = name##_tree(s, n, i);                 \
        break;

/* a != a: a NaN wins from either side.  Integers wrap. */
#define KERNELS(type, S, widen, T, sum)                                                            \
    KERNEL(sum_##type, S, widen, T, sum)                                                           \
    KERNEL(max_##type, S, widen, T, (a > b || a != a) ? a : b)                                     \
    KERNEL(min_##type, S, widen, T, (a < b || a != a) ? a : b)

KERNELS(f32, float, SAME, float, a + b)
KERNELS(f64, double, SAME, double, a + b)
KERNELS(bf16, uint16_t, widened, float, a + b)
KERNELS(i32, int32_t, SAME, int32_t, (uint32_t)a + (uint32_t)b)
KERNELS(i64, int64_t, SAME, int64_t, (uint64_t)a + (uint64_t)b)
KERNELS(u8, uint8_t, SAME, uint8_t, a + b)

/* Of BF16 the combination is F32. */
static kernel *kernel_of(enum tern_type src, enum tern_op op)
{
#define ROW(type)                                                                                  \
    {                                                                                              \
        sum_##type, max_##type, min_##type                                                         \
    }
    static kernel *const table[][3] = {
        [TERN_F32] = ROW(f32), [TERN_F64] = ROW(f64), [TERN_BF16] = ROW(bf16),
        [TERN_I32] = ROW(i32), [TERN_I64] = ROW(i64), [TERN_U8] = ROW(u8),
    };
    return table[src][op == TERN_MAX ? 1 : op == TERN_MIN ? 2 : 0];
}

TERN_COLL_CLONES static const void *to_f32(float *to, const uint16_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = widened(from[i]);
    return to;
}

/* To nearest, ties to even; a NaN stays one. */
TERN_COLL_CLONES static const void *narrow(uint16_t *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], 4);
        uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        to[i] =
            (bits & 0x7fffffff) > 0x7f800000 ? (uint16_t)(bits >> 16 | 0x40) : (uint16_t)rounded;
    }
    return to;
}

static void divide(void *v, enum tern_type type, size_t n, int by)
{
    union block *b = v;

    switch (type) {
    case TERN_BF16: /* never in between */
    case TERN_F32:
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
    const void *const *src;
    size_t src_bytes;           /* of one element */
    size_t from, len;           /* the block: elements */
    bool widens;                /* a combination is of another type than a source */
    kernel *sources, *combined; /* of sources, of combinations */
    union block *temp;          /* [DEPTH] */
};

static int half_of(int n)
{
    int h = 1;

    while (2 * h < n)
        h *= 2;
    return h;
}

/* The combination of src[lo .. lo + n) over the block: in `to`, or a single source where it is.
 * Levels below use temp[level..]. */
static const void *combine(const struct tree *t, int lo, int n, int level, void *to)
{
    const void *s[ONCE];
    int h = half_of(n);

    if (n <= ONCE) {
        for (int m = 0; m < n; m++)
            s[m] = (const char *)t->src[lo + m] + t->from * t->src_bytes;
        if (n == 1)
            return t->widens ? to_f32(to, s[0], t->len) : s[0];
        t->sources(to, s, n, t->len);
        return to;
    }
    s[0] = combine(t, lo, h, level + 2, &t->temp[level]);
    s[1] = combine(t, lo + h, n - h, level + 2, &t->temp[level + 1]);
    t->combined(to, s, 2, t->len);
    return to;
}

void tern_coll_reduce(const struct tern_coll_reduce *r, void *const *dst, int n_dst,
                      const void *const *src, int n, size_t count, bool past)
{
    enum tern_type between = r->src_type == TERN_BF16 ? TERN_F32 : r->src_type;
    union block temp[DEPTH], result[ASIDE / BLOCK];
    uint16_t rounded[ASIDE];
    struct tree t = {.src = src,
                     .src_bytes = tern_type_bytes(r->src_type),
                     .widens = between != r->src_type,
                     .sources = kernel_of(r->src_type, r->op),
                     .combined = kernel_of(between, r->op),
                     .temp = temp};
    size_t bytes = tern_type_bytes(r->dst_type);
    bool divides = r->op == TERN_AVG && r->divide_by > 1;
    /* fp32 values that must still be rounded or divided cannot be built in the destination. */
    bool aside = divides || r->dst_type == TERN_BF16 || past;
    size_t most = n > ONCE ? BLOCK : aside ? ASIDE : STRAIGHT;

    for (; t.from < count; t.from += most) {
        t.len = count - t.from < most ? count - t.from : most;
        char *first = (char *)dst[0] + t.from * bytes;
        const void *v = combine(&t, 0, n, 0, aside ? result : (void *)first);
        if (divides) {
            if (v != result)
                v = memcpy(result, v, t.len * tern_type_bytes(between));
            divide(result, between, t.len, r->divide_by);
        }
        if (r->dst_type == TERN_BF16)
            v = narrow(past ? rounded : (uint16_t *)first, v, t.len);
        if (past)
            tern_coll_copy_past(first, v, t.len * bytes);
        else if (v != first)
            memcpy(first, v, t.len * bytes);
        for (int i = 1; i < n_dst; i++)
            memcpy((char *)dst[i] + t.from * bytes, first, t.len * bytes);
    }
    if (past)
        tern_coll_copy_past_end();
}
