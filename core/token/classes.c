#include "core/token/classes.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum tern_class tern_token_class(uint8_t b)
{
    if ((uint8_t)((b | 0x20) - 'a') < 26)
        return TERN_CLASS_LETTER;
    if ((uint8_t)(b - '0') < 10)
        return TERN_CLASS_DIGIT;
    return b >= 0x80 ? TERN_CLASS_BEYOND : b == ' ' ? TERN_CLASS_SPACE : TERN_CLASS_OTHER;
}

#ifdef __SSE2__

/* Bytes of `v` that are in first .. first + n - 1. */
static inline uint64_t in_range(__m128i v, uint8_t first, uint8_t n)
{
    /* Compared as signed numbers: the range begins at the least of them. */
    __m128i from = _mm_sub_epi8(v, _mm_set1_epi8((char)(first + 128)));

    return (uint64_t)_mm_movemask_epi8(_mm_cmplt_epi8(from, _mm_set1_epi8((char)(n - 128))));
}

static void classes64(const char *s, uint64_t mask[TERN_CLASSES])
{
    const __m128i lower = _mm_set1_epi8(0x20);

    memset(mask, 0, TERN_CLASSES * sizeof *mask);
    for (int k = 0; k < 64; k += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(s + k));
        mask[TERN_CLASS_LETTER] |= in_range(_mm_or_si128(v, lower), 'a', 26) << k;
        mask[TERN_CLASS_SPACE] |= (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, lower)) << k;
        mask[TERN_CLASS_DIGIT] |= in_range(v, '0', 10) << k;
        mask[TERN_CLASS_BEYOND] |= (uint64_t)_mm_movemask_epi8(v) << k;
    }
    /* A byte beyond ASCII is no letter when its bit 0x20 is set: the range ends at 'z'. */
    mask[TERN_CLASS_OTHER] = ~(mask[TERN_CLASS_LETTER] | mask[TERN_CLASS_SPACE] |
                               mask[TERN_CLASS_DIGIT] | mask[TERN_CLASS_BEYOND]);
}

#else

static void classes64(const char *s, uint64_t mask[TERN_CLASSES])
{
    memset(mask, 0, TERN_CLASSES * sizeof *mask);
    for (int i = 0; i < 64; i++)
        mask[tern_token_class((uint8_t)s[i])] |= (uint64_t)1 << i;
}

#endif

void tern_token_classes(const char *s, size_t n, uint64_t mask[TERN_CLASSES])
{
    char last[64] = "";

    if (n >= sizeof last) {
        classes64(s, mask);
        return;
    }
    memcpy(last, s, n);
    classes64(last, mask);
    for (int c = 0; c < TERN_CLASSES; c++)
        mask[c] &= ((uint64_t)1 << n) - 1;
}
