#include "core/token/split.h"

#include <stdint.h>
#include <string.h>

#include "core/token/unicode.h"

static unsigned class_at(const char *s, unsigned *ret_bytes)
{
    return tern_unicode_class(tern_unicode_decode(s, ret_bytes));
}

/* The end of the run of `class` that goes on at `at`. */
static size_t run(const char *s, size_t at, size_t n, unsigned class)
{
    unsigned bytes;

    while (at < n && class_at(s + at, &bytes) == class)
        at += bytes;
    return at;
}

/* Bytes of the contraction at `s`, which is an apostrophe: 0 for none.  Only `fold` takes capitals
 * and U+017F, which folds to s. */
static size_t contraction(const char *s, size_t n, bool fold)
{
    uint8_t a, b;

    if (n < 2)
        return 0;
    a = (uint8_t)s[1];
    b = n > 2 ? (uint8_t)s[2] : 0;
    if (fold && a == 0xc5 && b == 0xbf)
        return 3;
    if (fold) {
        a |= a >= 'A' && a <= 'Z' ? 0x20 : 0;
        b |= b >= 'A' && b <= 'Z' ? 0x20 : 0;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* The white space at `at`, before which nothing but white space is in the word: its run, without
 * the last character where more text follows (`\s+(?!\S)|\s+`); with `lines`, up to its last CR or
 * LF where it has one (`\s*[\r\n]+`). */
static size_t space(const char *s, size_t n, bool lines)
{
    size_t at = 0, last = 0, line = 0;
    unsigned bytes;

    for (; at < n && class_at(s + at, &bytes) == TERN_UNICODE_SPACE; at += bytes) {
        last = at;
        if (s[at] == '\r' || s[at] == '\n')
            line = at + 1;
    }
    if (lines && line)
        return line;
    return at == n || last == 0 ? at : last;
}

static size_t gpt2(const char *s, size_t n)
{
    unsigned bytes;
    size_t at = *s == '\'' ? contraction(s, n, /* fold= */ false) : 0;

    if (at)
        return at;
    at = *s == ' ' && n > 1;
    unsigned class = class_at(s + at, &bytes);
    if (class == TERN_UNICODE_SPACE)
        return space(s, n, /* lines= */ false);
    return run(s, at + bytes, n, class);
}

/* [^\s\p{L}\p{N}]+[\r\n]* from `at`. */
static size_t signs(const char *s, size_t at, size_t n)
{
    at = run(s, at, n, TERN_UNICODE_OTHER);
    while (at < n && (s[at] == '\r' || s[at] == '\n'))
        at++;
    return at;
}

static size_t llama3(const char *s, size_t n, unsigned digits)
{
    unsigned bytes, more, following = TERN_UNICODE_SPACE;
    size_t at = *s == '\'' ? contraction(s, n, /* fold= */ true) : 0;

    if (at)
        return at;
    unsigned class = class_at(s, &bytes);
    at = bytes;
    if (class == TERN_UNICODE_LETTER)
        return run(s, at, n, TERN_UNICODE_LETTER);
    if (class == TERN_UNICODE_NUMBER) {
        while (--digits && at < n && class_at(s + at, &bytes) == TERN_UNICODE_NUMBER)
            at += bytes;
        return at;
    }
    if (at < n)
        following = class_at(s + at, &more);
    if (following == TERN_UNICODE_LETTER && *s != '\r' && *s != '\n')
        return run(s, at + more, n, TERN_UNICODE_LETTER);
    if (class == TERN_UNICODE_OTHER || (*s == ' ' && following == TERN_UNICODE_OTHER))
        return signs(s, at, n);
    return space(s, n, /* lines= */ true);
}

static size_t next(enum tern_split how, const char *s, size_t n)
{
    switch (how) {
    case TERN_SPLIT_GPT2:
        return gpt2(s, n);
    case TERN_SPLIT_LLAMA3:
        return llama3(s, n, 3);
    case TERN_SPLIT_QWEN2:
        return llama3(s, n, 1);
    default:
        return n;
    }
}

size_t tern_token_split_next(enum tern_split how, const char *s, size_t n)
{
    return next(how, s, n);
}

/* ---- many words at once ---- */

#ifdef __SSE2__
#include <emmintrin.h>

/* 64 bytes of text from the start of a word, a bit a byte.  Nothing is known of bytes from `known`
 * on: their bits are 0. */
struct window {
    const char *s;
    unsigned known;
    uint64_t letter, number, space, other;
    uint64_t blank; /* U+0020 */
    uint64_t line;  /* CR, LF */
    uint64_t quote; /* apostrophes */
    uint64_t more;  /* bytes of a character behind its first */
};

#define BITS(vector) ((uint64_t)(uint32_t)_mm_movemask_epi8(vector))
#define BETWEEN(v, first, last)                                                                    \
    between(v, _mm_set1_epi8((char)(first)), _mm_set1_epi8((char)((last) - (first))))
#define EQUAL(v, c) _mm_cmpeq_epi8(v, _mm_set1_epi8(c))

static inline __m128i between(__m128i v, __m128i first, __m128i more)
{
    v = _mm_sub_epi8(v, first);
    return _mm_cmpeq_epi8(_mm_min_epu8(v, more), v);
}

static inline uint64_t low_bits(unsigned n)
{
    return n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0;
}

/* Characters above U+007F, whose first bytes are among `high`.  The window ends before white space
 * and numbers: they count by characters, not by bytes. */
static void classify(struct window *w, uint64_t high)
{
    unsigned bytes;

    while (high) {
        unsigned at = (unsigned)__builtin_ctzll(high);
        uint32_t code;
        uint8_t first = (uint8_t)w->s[at];
        bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        if (at + bytes > w->known) {
            w->known = at;
            break;
        }
        code = tern_unicode_decode(w->s + at, &bytes);
        unsigned class = tern_unicode_class(code);
        uint64_t all = low_bits(bytes) << at;
        if (class == TERN_UNICODE_LETTER) {
            w->letter |= all;
        } else if (class == TERN_UNICODE_OTHER) {
            w->other |= all;
        } else {
            w->known = at;
            break;
        }
        w->more |= all & (all - 1) & ~((uint64_t)1 << at);
        high &= ~all;
    }
}

/* 64 bytes are at `s`, of which `known` are text. */
static inline void look(struct window *w, const char *s, unsigned known)
{
    uint64_t high = 0;

    memset(w, 0, sizeof *w);
    w->s = s;
    w->known = known;
    for (unsigned k = 0; k < 64; k += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(s + k));
        __m128i blank = EQUAL(v, ' ');
        w->letter |= BITS(BETWEEN(_mm_or_si128(v, _mm_set1_epi8(0x20)), 'a', 'z')) << k;
        w->number |= BITS(BETWEEN(v, '0', '9')) << k;
        w->space |= BITS(_mm_or_si128(BETWEEN(v, '\t', '\r'), blank)) << k;
        w->blank |= BITS(blank) << k;
        w->line |= BITS(_mm_or_si128(EQUAL(v, '\r'), EQUAL(v, '\n'))) << k;
        w->quote |= BITS(EQUAL(v, '\'')) << k;
        high |= BITS(v) << k;
    }
    w->other = ~(w->letter | w->number | w->space | high);
    high &= low_bits(known);
    if (high)
        classify(w, high);
    uint64_t mask = low_bits(w->known);
    w->letter &= mask;
    w->number &= mask;
    w->space &= mask;
    w->blank &= mask;
    w->line &= mask;
    w->other &= mask;
}

/* Where a word begins with an apostrophe, its end is marked if it is a contraction; *ret_inside
 * gets the places behind the apostrophes. */
static inline uint64_t contractions(const struct window *w, uint64_t begin, bool fold,
                                    uint64_t *ret_inside)
{
    uint64_t ends = 0, inside = 0;

    for (uint64_t left = begin & w->quote; left; left &= left - 1) {
        unsigned at = (unsigned)__builtin_ctzll(left);
        size_t bytes = contraction(w->s + at, w->known - at, fold);
        if (bytes) {
            inside |= (uint64_t)2 << at;
            ends |= at + bytes < 64 ? (uint64_t)1 << (at + bytes) : 0;
        }
    }
    *ret_inside = inside;
    return ends;
}

/* Where words begin.  Right for every place but the last that is known: there, what follows may
 * count. */
static inline uint64_t starts_gpt2(const struct window *w)
{
    uint64_t after_blank = w->blank << 1, inside, ends;
    uint64_t other = w->other & ~(w->other << 1) & ~after_blank;
    uint64_t starts = (w->letter & ~(w->letter << 1)) | (w->number & ~(w->number << 1));

    starts = (starts & ~after_blank) | other;
    /* White space: the first, and the last of several. */
    starts |= w->space & ~((w->space << 1) & (w->space >> 1));
    ends = contractions(w, other, /* fold= */ false, &inside);
    return (starts & ~inside) | ends;
}

/* Numbers by up to three digits. */
static inline uint64_t threes(uint64_t number)
{
    uint64_t starts = number & ~(number << 1);

    if (number & number << 1 & number << 2 & number << 3) {
        for (uint64_t left = starts; left; left &= left - 1) {
            unsigned at = (unsigned)__builtin_ctzll(left);
            for (unsigned k = at; k < 64 && number >> k & 1; k++)
                starts |= (uint64_t)((k - at) % 3 == 0) << k;
        }
    }
    return starts;
}

/* As above; *known falls where white space must be known to its end. */
static inline uint64_t starts_llama3(const struct window *w, bool by_three, unsigned *known)
{
    uint64_t other = w->other & ~(w->other << 1) & ~(w->blank << 1);
    /* CR and LF directly behind other characters belong to those. */
    uint64_t tail = w->line & ~(w->line + ((w->other << 1) & w->line));
    uint64_t space = w->space & ~tail, plain = space & ~w->line, starts, inside;
    /* One other character that begins a word goes with letters behind it. */
    uint64_t attached = other << 1;

    if (w->more)
        for (int k = 0; k < 3; k++)
            attached = (attached & ~w->more) | (attached & w->more) << 1;
    starts = w->letter & ~(w->letter << 1) & ~attached & ~(plain << 1);
    starts |= by_three ? threes(w->number) : w->number;
    starts |= other;
    starts |= space & ~(space << 1);
    starts |= plain & ~(space >> 1);
    /* Behind the last CR or LF of white space. */
    for (uint64_t left = plain & ~(plain << 1) & ((w->line & space) << 1); left; left &= left - 1) {
        unsigned at = (unsigned)__builtin_ctzll(left);
        uint64_t end = (plain + ((uint64_t)1 << at)) & ~plain;
        if (!(end & low_bits(w->known))) {
            *known = at + 1;
            break;
        }
        if (!(end & w->line))
            starts |= (uint64_t)1 << at;
    }
    return starts | contractions(w, other, /* fold= */ true, &inside);
}

/* Ends of words up to 64 bytes behind `s`, of which `known` are text: how many. */
static inline size_t window_ends(enum tern_split how, const char *s, unsigned known, uint32_t at,
                                 uint32_t *ends)
{
    struct window w;
    uint64_t starts;
    size_t n = 0;

    look(&w, s, known);
    known = w.known;
    if (how == TERN_SPLIT_GPT2)
        starts = starts_gpt2(&w);
    else
        starts = starts_llama3(&w, how == TERN_SPLIT_LLAMA3, &known);
    starts &= known ? low_bits(known - 1) & ~(uint64_t)1 : 0;
    for (; starts; starts &= starts - 1)
        ends[n++] = at + (uint32_t)__builtin_ctzll(starts);
    return n;
}

static inline size_t words(enum tern_split how, const char *s, size_t n, uint32_t *ends, size_t max)
{
    enum { MOST = 64 }; /* words in a window */
    size_t at = 0, count = 0;
    char last[64] = {0};

    while (at < n && count < max) {
        size_t some = 0;
        if (max - count >= MOST) {
            if (n - at >= 64) {
                some = window_ends(how, s + at, 64, (uint32_t)at, ends + count);
            } else {
                memcpy(last, s + at, n - at);
                some = window_ends(how, last, (unsigned)(n - at), (uint32_t)at, ends + count);
            }
        }
        if (some == 0)
            ends[count + some++] = (uint32_t)(at + next(how, s + at, n - at));
        count += some;
        at = ends[count - 1];
    }
    return count;
}

size_t tern_token_split_words(enum tern_split how, const char *s, size_t n, uint32_t *ends,
                              size_t max)
{
    switch (how) {
    case TERN_SPLIT_GPT2:
        return words(TERN_SPLIT_GPT2, s, n, ends, max);
    case TERN_SPLIT_LLAMA3:
        return words(TERN_SPLIT_LLAMA3, s, n, ends, max);
    case TERN_SPLIT_QWEN2:
        return words(TERN_SPLIT_QWEN2, s, n, ends, max);
    default:
        if (n == 0 || max == 0)
            return 0;
        *ends = (uint32_t)n;
        return 1;
    }
}
#else
size_t tern_token_split_words(enum tern_split how, const char *s, size_t n, uint32_t *ends,
                              size_t max)
{
    size_t at = 0, count = 0;

    while (at < n && count < max)
        ends[count++] = (uint32_t)(at += next(how, s + at, n - at));
    return count;
}
#endif

/* Numbers since Unicode 16.0. */
static bool is_new_number(uint32_t code)
{
    return code - 0x11de0 < 10 || code - 0x16ff4 < 3;
}

size_t tern_token_split_digit(const char *s, size_t n)
{
    unsigned bytes;

    for (size_t at = 0; at < n; at += bytes) {
        uint32_t code = tern_unicode_decode(s + at, &bytes);
        if (tern_unicode_class(code) == TERN_UNICODE_NUMBER || is_new_number(code))
            return at ? at : bytes;
    }
    return n;
}

#define SHORT "'s|'t|'re|'ve|'m|'ll|'d"
enum { PARTS = 7, SPELLINGS = 3 };

enum tern_split tern_token_split_named(const char *regex)
{
    /* The parts of each way in their order, and the spellings of each.  Possessive ones (++) find
     * the same, as nothing that follows could use what they keep. */
    static const struct {
        enum tern_split how;
        const char *parts[PARTS][SPELLINGS];
    } ways[] = {
        {TERN_SPLIT_GPT2,
         {{SHORT, "'(?:[sdmt]|ll|ve|re)"},
          {" ?\\p{L}+", " ?\\p{L}++", " ?[\\p{L}]+"},
          {" ?\\p{N}+", " ?\\p{N}++", " ?[\\p{N}]+"},
          {" ?[^\\s\\p{L}\\p{N}]+", " ?[^\\s\\p{L}\\p{N}]++"},
          {"\\s+(?!\\S)"},
          {"\\s+", "\\s"}}},
        {TERN_SPLIT_LLAMA3,
         {{"(?i:" SHORT ")", "'(?i:[sdmt]|ll|ve|re)"},
          {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+",
           "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++"},
          {"\\p{N}{1,3}"},
          {" ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*",
           " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+"},
          {"\\s*[\\r\\n]+", "\\s*[\\r\\n]"},
          {"\\s+(?!\\S)"},
          {"\\s+", "\\s"}}},
    };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *at = regex;
        enum tern_split how = ways[i].how;
        for (int part = 0; part < PARTS && ways[i].parts[part][0]; part++) {
            size_t taken = 0;
            if (part)
                at += *at == '|';
            for (int k = 0; k < SPELLINGS && ways[i].parts[part][k]; k++) {
                size_t len = strlen(ways[i].parts[part][k]);
                if (strncmp(at, ways[i].parts[part][k], len) == 0 &&
                    (at[len] == '|' || at[len] == '\0'))
                    taken = len;
            }
            if (!taken && how == TERN_SPLIT_LLAMA3 && strncmp(at, "\\p{N}|", 6) == 0) {
                how = TERN_SPLIT_QWEN2;
                taken = 5;
            }
            if (!taken)
                goto other;
            at += taken;
        }
        if (*at == '\0')
            return how;
    other:;
    }
    return TERN_SPLIT_NONE;
}
