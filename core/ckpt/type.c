/* Element types of arrays on disk, and conversions between them. */
#include "core/ckpt/ckpt.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [TERN_CKPT_F64] = {"F64", 8},   [TERN_CKPT_F32] = {"F32", 4}, [TERN_CKPT_F16] = {"F16", 2},
    [TERN_CKPT_BF16] = {"BF16", 2}, [TERN_CKPT_I64] = {"I64", 8}, [TERN_CKPT_I32] = {"I32", 4},
    [TERN_CKPT_I16] = {"I16", 2},   [TERN_CKPT_I8] = {"I8", 1},   [TERN_CKPT_U64] = {"U64", 8},
    [TERN_CKPT_U32] = {"U32", 4},   [TERN_CKPT_U16] = {"U16", 2}, [TERN_CKPT_U8] = {"U8", 1},
    [TERN_CKPT_BOOL] = {"BOOL", 1}, [TERN_CKPT_OTHER] = {"", 1},
};
enum { TYPES = sizeof types / sizeof *types };

size_t tern_ckpt_type_bytes(enum tern_ckpt_type type)
{
    return types[type].bytes;
}

const char *tern_ckpt_type_name(enum tern_ckpt_type type)
{
    return types[type].name;
}

const char *tern_ckpt_info_type(const struct tern_ckpt_info *info)
{
    return info->type == TERN_CKPT_OTHER ? info->other : types[info->type].name;
}

int tern_ckpt_type_parse(const char *name, enum tern_ckpt_type *type)
{
    for (int i = 0; i < TERN_CKPT_OTHER; i++) {
        if (strcmp(types[i].name, name) == 0) {
            *type = (enum tern_ckpt_type)i;
            return 0;
        }
    }
    return -1;
}

static bool is_float(enum tern_ckpt_type t)
{
    return t == TERN_CKPT_F64 || t == TERN_CKPT_F32 || t == TERN_CKPT_F16 || t == TERN_CKPT_BF16;
}

bool tern_ckpt_can_convert(enum tern_ckpt_type to, enum tern_ckpt_type from)
{
    return to == from || (is_float(to) && is_float(from));
}

static float f32_of_bf16(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

static uint16_t bf16_of_f32(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40); /* stays NaN when the low half alone said so */
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* By way of float; a double that float rounds onto a tie of bfloat16 is put back on its side. */
static uint16_t bf16_of_f64(double d)
{
    float f = (float)d;
    uint32_t u;

    memcpy(&u, &f, 4);
    if ((u & 0xffffu) == 0x8000u && isfinite(f) && (double)f != d) {
        u += fabs(d) > fabs((double)f) ? 1u : -1u;
        memcpy(&f, &u, 4);
    }
    return bf16_of_f32(f);
}

/* IEEE 754 binary16, by integers: not every compiler has a type for it. */
static double f64_of_f16(uint16_t h)
{
    int exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;
    double d = exponent == 0x1f ? (mantissa ? (double)NAN : (double)INFINITY)
               : exponent       ? ldexp(0x400 + mantissa, exponent - 25)
                                : ldexp(mantissa, -24);

    return copysign(d, h & 0x8000 ? -1.0 : 1.0);
}

/* To the nearest, ties to even, in one rounding. */
static uint16_t f16_of_f64(double d)
{
    enum { DROPPED = 52 - 10, BIAS = 15, LEAST = -14, TINY = -25 };
    uint64_t u;

    memcpy(&u, &d, 8);
    uint32_t sign = (uint32_t)(u >> 48) & 0x8000u;
    int exponent = (int)(u >> 52 & 0x7ff) - 1023;
    uint64_t mantissa = u & ((1ull << 52) - 1);
    if (exponent == 1024 && mantissa) /* NaN, quiet, with what of its payload there is room for */
        return (uint16_t)(sign | 0x7e00u | (uint32_t)(mantissa >> DROPPED));
    if (exponent > BIAS)
        return (uint16_t)(sign | 0x7c00u);
    if (exponent < TINY)
        return (uint16_t)sign;
    /* A subnormal has the leading one in its mantissa, and drops as much more as it is smaller. */
    bool normal = exponent >= LEAST;
    int drop = normal ? DROPPED : DROPPED + LEAST - exponent;
    if (!normal)
        mantissa |= 1ull << 52;
    uint64_t kept = mantissa >> drop, rest = mantissa & ((1ull << drop) - 1),
             half = 1ull << (drop - 1);
    uint32_t h = (normal ? (uint32_t)(exponent + BIAS) << 10 : 0) + (uint32_t)kept;
    h += rest > half ||
         (rest == half && (kept & 1)); /* may carry into the exponent, up to infinity */
    return (uint16_t)(sign | h);
}

/* F16C does eight at once. */
#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx,f16c"))) static size_t f16_of_f32_f16c(void *to, const void *from,
                                                                  size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps((const float *)((const char *)from + 4 * i));
        _mm_storeu_si128((__m128i *)((char *)to + 2 * i),
                         _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

__attribute__((target("avx,f16c"))) static size_t f32_of_f16_f16c(void *to, const void *from,
                                                                  size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i v = _mm_loadu_si128((const __m128i *)((const char *)from + 2 * i));
        _mm256_storeu_ps((float *)((char *)to + 4 * i), _mm256_cvtph_ps(v));
    }
    return i;
}
#endif

/* Elements done by the fast way; the caller does the rest. */
static size_t f16_fast(void *to, enum tern_ckpt_type to_type, const void *from, size_t n)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports(
            "avx2")) /* no CPU has that without F16C, which clang does not name */
        return to_type == TERN_CKPT_F16 ? f16_of_f32_f16c(to, from, n)
                                        : f32_of_f16_f16c(to, from, n);
#endif
    (void)to, (void)to_type, (void)from, (void)n;
    return 0;
}

static double load(const void *from, enum tern_ckpt_type type)
{
    double d;
    float f;
    uint16_t b;

    switch (type) {
    case TERN_CKPT_F64:
        memcpy(&d, from, 8);
        return d;
    case TERN_CKPT_F32:
        memcpy(&f, from, 4);
        return (double)f;
    case TERN_CKPT_F16:
        memcpy(&b, from, 2);
        return f64_of_f16(b);
    default:
        memcpy(&b, from, 2);
        return (double)f32_of_bf16(b);
    }
}

static void store(void *to, enum tern_ckpt_type type, double d)
{
    float f = (float)d;
    uint16_t b;

    switch (type) {
    case TERN_CKPT_F64:
        memcpy(to, &d, 8);
        break;
    case TERN_CKPT_F32:
        memcpy(to, &f, 4);
        break;
    case TERN_CKPT_F16:
        b = f16_of_f64(d);
        memcpy(to, &b, 2);
        break;
    default:
        b = bf16_of_f64(d);
        memcpy(to, &b, 2);
        break;
    }
}

void tern_ckpt_convert(void *to, enum tern_ckpt_type to_type, const void *from,
                       enum tern_ckpt_type from_type, size_t n)
{
    size_t w = types[to_type].bytes, r = types[from_type].bytes, i = 0;
    char *t = to;
    const char *f = from;

    if (to_type == from_type) {
        memcpy(to, from, n * w);
        return;
    }
    if (to_type == TERN_CKPT_F32 && from_type == TERN_CKPT_BF16) {
        for (; i < n; i++) {
            uint16_t b;
            memcpy(&b, f + 2 * i, 2);
            float v = f32_of_bf16(b);
            memcpy(t + 4 * i, &v, 4);
        }
    } else if (to_type == TERN_CKPT_BF16 && from_type == TERN_CKPT_F32) {
        for (; i < n; i++) {
            float v;
            memcpy(&v, f + 4 * i, 4);
            uint16_t b = bf16_of_f32(v);
            memcpy(t + 2 * i, &b, 2);
        }
    } else if ((to_type == TERN_CKPT_F16 && from_type == TERN_CKPT_F32) ||
               (to_type == TERN_CKPT_F32 && from_type == TERN_CKPT_F16)) {
        i = f16_fast(to, to_type, from, n);
    }
    for (; i < n; i++)
        store(t + w * i, to_type, load(f + r * i, from_type));
}
