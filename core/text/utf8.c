/* Three tables, looked up by half bytes for 16 bytes together, find each pair of bytes that cannot
 * stand beside each other.  Keiser, Lemire, "Validating UTF-8 in less than one instruction per
 * byte" (2021). */
#include "core/text/utf8.h"

#include "core/base/str.h"

#include <stdint.h>
#include <string.h>

/* One character after the other, from `at` on. */
static size_t good_slowly(const char *s, size_t at, size_t len)
{
    while (at < len) {
        uint64_t eight;
        if (len - at >= sizeof eight) {
            memcpy(&eight, s + at, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += sizeof eight;
                continue;
            }
        }
        size_t n = tern_str_utf8(s + at, len - at);
        if (n == 0)
            break;
        at += n;
    }
    return at;
}

#ifdef __x86_64__
#include <immintrin.h>

/* What a pair of bytes may be guilty of; it is where all three tables have the bit. */
enum {
    SHORT = 1 << 0,     /* a lead byte without a continuation */
    LONG = 1 << 1,      /* a continuation behind ASCII */
    OVER3 = 1 << 2,     /* E0 80 .. E0 9F */
    LARGE = 1 << 3,     /* F4 90 and more */
    SURROGATE = 1 << 4, /* ED A0 .. ED BF */
    OVER2 = 1 << 5,     /* C0, C1 */
    OVER4 = 1 << 6,     /* F0 80 .. F0 8F; F5 80 and more, which OVER4 has the place for */
    TWO = 1 << 7,       /* two continuations: right behind a lead of three or four */
    CARRY = SHORT | LONG | TWO,
};

#define ALL_FOUR(x) x, x, x, x

__attribute__((target("ssse3"))) static __m128i wrong_pairs(__m128i v, __m128i before)
{
    const __m128i first_high =
        _mm_setr_epi8(ALL_FOUR(LONG), ALL_FOUR(LONG), ALL_FOUR((char)TWO), SHORT | OVER2, SHORT,
                      SHORT | OVER3 | SURROGATE, SHORT | LARGE | OVER4);
    const __m128i first_low = _mm_setr_epi8(
        (char)(CARRY | OVER3 | OVER2 | OVER4), (char)(CARRY | OVER2), (char)CARRY, (char)CARRY,
        (char)(CARRY | LARGE), (char)(CARRY | LARGE | OVER4), (char)(CARRY | LARGE | OVER4),
        (char)(CARRY | LARGE | OVER4), (char)(CARRY | LARGE | OVER4), (char)(CARRY | LARGE | OVER4),
        (char)(CARRY | LARGE | OVER4), (char)(CARRY | LARGE | OVER4), (char)(CARRY | LARGE | OVER4),
        (char)(CARRY | LARGE | OVER4 | SURROGATE), (char)(CARRY | LARGE | OVER4),
        (char)(CARRY | LARGE | OVER4));
    const __m128i second_high = _mm_setr_epi8(
        ALL_FOUR(SHORT), ALL_FOUR(SHORT), (char)(LONG | OVER2 | TWO | OVER3 | OVER4),
        (char)(LONG | OVER2 | TWO | OVER3 | LARGE), (char)(LONG | OVER2 | TWO | SURROGATE | LARGE),
        (char)(LONG | OVER2 | TWO | SURROGATE | LARGE), ALL_FOUR(SHORT));
    const __m128i low = _mm_set1_epi8(0x0f);
    const __m128i one = _mm_alignr_epi8(v, before, 15);
    const __m128i wrong = _mm_and_si128(
        _mm_and_si128(_mm_shuffle_epi8(first_high, _mm_and_si128(_mm_srli_epi16(one, 4), low)),
                      _mm_shuffle_epi8(first_low, _mm_and_si128(one, low))),
        _mm_shuffle_epi8(second_high, _mm_and_si128(_mm_srli_epi16(v, 4), low)));
    /* Third bytes of three, third and fourth of four: there two continuations are right. */
    const __m128i third =
        _mm_subs_epu8(_mm_alignr_epi8(v, before, 14), _mm_set1_epi8((char)(0xe0 - 0x80)));
    const __m128i fourth =
        _mm_subs_epu8(_mm_alignr_epi8(v, before, 13), _mm_set1_epi8((char)(0xf0 - 0x80)));
    const __m128i due = _mm_and_si128(_mm_or_si128(third, fourth), _mm_set1_epi8((char)0x80));

    return _mm_xor_si128(wrong, due);
}

/* Up to some character's beginning: everything before is good, and what follows is a block with
 * something wrong or the last bytes. */
__attribute__((target("ssse3"))) static size_t good_blocks(const char *s, size_t len)
{
    __m128i before = _mm_setzero_si128();
    bool open = false; /* the block before may end inside a character */
    size_t at = 0;

    for (; len - at >= 16; at += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(s + at));
        bool high = _mm_movemask_epi8(v) != 0;
        if (high || open) {
            __m128i wrong = wrong_pairs(v, before);
            if (_mm_movemask_epi8(_mm_cmpeq_epi8(wrong, _mm_setzero_si128())) != 0xffff)
                break;
        }
        open = high;
        before = v;
    }
    /* A character may have begun in the block before. */
    for (int i = 0; i < 4 && at > 0 && ((unsigned char)s[at - 1] & 0x80); i++) {
        at--;
        if (((unsigned char)s[at] & 0xc0) == 0xc0)
            break;
    }
    return at;
}

size_t tern_text_utf8_good(const char *s, size_t len)
{
    size_t at = len >= 16 && __builtin_cpu_supports("ssse3") ? good_blocks(s, len) : 0;

    return good_slowly(s, at, len);
}
#else
size_t tern_text_utf8_good(const char *s, size_t len)
{
    return good_slowly(s, 0, len);
}
#endif

size_t tern_text_utf8_bad(const char *s, size_t len)
{
    size_t bad = 0;

    for (size_t at = tern_text_utf8_good(s, len); at < len;
         at += tern_text_utf8_good(s + at, len - at)) {
        bad++;
        at++;
    }
    return bad;
}
