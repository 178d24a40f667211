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

size_t tern_token_split_next(enum tern_split how, const char *s, size_t n)
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
#define SPACES "\\s+(?!\\S)|\\s+"

enum tern_split tern_token_split_named(const char *regex)
{
    static const struct {
        enum tern_split how;
        const char *regex;
    } names[] = {
        {TERN_SPLIT_GPT2, SHORT "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES},
        {TERN_SPLIT_GPT2, "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(regex, names[i].regex) == 0)
            return names[i].how;
    return TERN_SPLIT_NONE;
}
