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

/* 64 bytes of text from the start of a word, a bit a byte.  Bits from `known` on mean nothing. */
struct window {
    const char *s;
    unsigned known;
    uint64_t letter, number, space, other;
    uint64_t blank; /* U+0020 */
    uint64_t line;  /* CR, LF */
    uint64_t quote; /* apostrophes */
    uint64_t more;  /* bytes of a character behind its first */
};

/* A byte of each is ~0 or 0; the bits of four, 64. */
#define BITS(of, v)                                                                                \
    ((uint64_t)(uint32_t)_mm_movemask_epi8(of(v[0])) |                                             \
     (uint64_t)(uint32_t)_mm_movemask_epi8(of(v[1])) << 16 |                                       \
     (uint64_t)(uint32_t)_mm_movemask_epi8(of(v[2])) << 32 |                                       \
     (uint64_t)(uint32_t)_mm_movemask_epi8(of(v[3])) << 48)

static inline __m128i equal(__m128i v, char c)
{
    return _mm_cmpeq_epi8(v, _mm_set1_epi8(c));
}

static inline __m128i between(__m128i v, char first, char last)
{
    v = _mm_sub_epi8(v, _mm_set1_epi8(first));
    return _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8((char)(last - first))), v);
}

static inline __m128i is_high(__m128i v)
{
    return v;
}

static inline __m128i is_letter(__m128i v)
{
    return between(_mm_or_si128(v, _mm_set1_epi8(0x20)), 'a', 'z');
}

static inline __m128i is_number(__m128i v)
{
    return between(v, '0', '9');
}

static inline __m128i is_blank(__m128i v)
{
    return equal(v, ' ');
}

static inline __m128i is_control(__m128i v)
{
    return between(v, '\t', '\r');
}

static inline __m128i is_line(__m128i v)
{
    return _mm_or_si128(equal(v, '\r'), equal(v, '\n'));
}

static inline __m128i is_quote(__m128i v)
{
    return equal(v, '\'');
}

static inline uint64_t low_bits(unsigned n)
{
    return n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0;
}

/* Characters above U+007F, whose first bytes are among `high`.  The window ends before white space
 * and numbers: they count by characters, not by bytes. */
static struct window classify(struct window w, uint64_t high)
{
    unsigned bytes;

    while (high) {
        unsigned at = (unsigned)__builtin_ctzll(high);
        unsigned class = class_at(w.s + at, &bytes);
        uint64_t all = low_bits(bytes) << at;
        if (class == TERN_UNICODE_LETTER) {
            w.letter |= all;
        } else if (class == TERN_UNICODE_OTHER) {
            w.other |= all;
        } else {
            w.known = at;
            break;
        }
        w.more |= all & (all - 1);
        high &= ~all;
    }
    return w;
}

/* 64 bytes are at `s`, of which `known` are text. */
static inline struct window look(const char *s, unsigned known)
{
    __m128i v[4];

    for (int k = 0; k < 4; k++)
        v[k] = _mm_loadu_si128((const __m128i *)(const void *)(s + 16 * k));
    struct window w = {.s = s, .known = known};
    uint64_t high = BITS(is_high, v);
    w.letter = BITS(is_letter, v);
    w.number = BITS(is_number, v);
    w.blank = BITS(is_blank, v);
    w.space = BITS(is_control, v);
    w.line = w.space ? BITS(is_line, v) : 0;
    w.quote = BITS(is_quote, v);
    w.space |= w.blank;
    w.other = ~(w.letter | w.number | w.space | high);
    high &= low_bits(known);
    if (high)
        w = classify(w, high);
    w.quote &= low_bits(w.known);
    return w;
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

static inline uint64_t starts_llama3(const struct window *w, bool by_three)
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
    /* Behind the last CR or LF of white space, if that is known to be the last. */
    for (uint64_t left = plain & ~(plain << 1) & ((w->line & space) << 1); left; left &= left - 1) {
        uint64_t first = left & -left, end = (plain + first) & ~plain;
        if (end & ~w->line & low_bits(w->known))
            starts |= first;
    }
    return starts | contractions(w, other, /* fold= */ true, &inside);
}

static inline unsigned count_bits(uint64_t v)
{
#ifdef __POPCNT__
    return (unsigned)__builtin_popcountll(v);
#else
    v -= v >> 1 & 0x5555555555555555u;
    v = (v & 0x3333333333333333u) + (v >> 2 & 0x3333333333333333u);
    return (unsigned)(((v + (v >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
#endif
}

/* The places of the two lowest bits, which are taken away; anything where there are none.  Bit 63
 * never is one. */
static inline uint64_t put_two(uint64_t bits, uint32_t from, uint32_t *places)
{
    const uint64_t guard = (uint64_t)1 << 63;

    places[0] = from + (uint32_t)__builtin_ctzll(bits | guard);
    bits &= bits - 1;
    places[1] = from + (uint32_t)__builtin_ctzll(bits | guard);
    return bits & (bits - 1);
}

/* Find ends of words up to 64 bytes behind `s`, of which `known` are text.  Returns how many, and
 * moves *at to the last.  Ends are written in groups of eight: that branch is predicted more often
 * than one for each end. */
static inline size_t window_ends(enum tern_split how, const char *s, unsigned known, size_t *at,
                                 uint32_t *ends)
{
    struct window w = look(s, known);
    uint64_t starts;
    uint32_t from = (uint32_t)*at;

    starts = how == TERN_SPLIT_GPT2 ? starts_gpt2(&w) : starts_llama3(&w, how == TERN_SPLIT_LLAMA3);
    starts &= w.known ? low_bits(w.known - 1) & ~(uint64_t)1 : 0;
    if (!starts)
        return 0;
    *at += 63 - (unsigned)__builtin_clzll(starts);
    unsigned n = count_bits(starts);
    for (unsigned done = 0; done < n; done += 8, ends += 8) {
        starts = put_two(put_two(starts, from, ends), from, ends + 2);
        starts = put_two(put_two(starts, from, ends + 4), from, ends + 6);
    }
    return n;
}

static inline size_t words(enum tern_split how, const char *s, size_t n, uint32_t *ends, size_t max)
{
    enum { MOST = 64 }; /* words in a window, and what is written behind them */
    size_t at = 0, count = 0;
    char last[64] = {0};

    while (at < n && count < max) {
        size_t some = 0;
        if (max - count >= MOST) {
            const char *from = s + at;
            unsigned known = 64;
            if (n - at < 64) {
                from = memcpy(last, from, n - at);
                known = (unsigned)(n - at);
            }
            some = window_ends(how, from, known, &at, ends + count);
        } else if (max >= MOST) {
            break;
        }
        if (some == 0) {
            at += next(how, s + at, n - at);
            ends[count] = (uint32_t)at;
            some = 1;
        }
        count += some;
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
#define LLAMA3_WORDS "(?i:" SHORT ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define LLAMA3_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

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

const char *tern_token_split_expression(enum tern_split how)
{
    /* As the published files of each family spell it. */
    static const char *const expressions[] = {
        [TERN_SPLIT_GPT2] = SHORT "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        [TERN_SPLIT_LLAMA3] = LLAMA3_WORDS "\\p{N}{1,3}" LLAMA3_REST,
        [TERN_SPLIT_QWEN2] = LLAMA3_WORDS "\\p{N}" LLAMA3_REST,
    };

    return expressions[how];
}
