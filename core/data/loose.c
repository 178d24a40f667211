#include "core/data/loose.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MAX_DEPTH = 512 };

struct scan {
    const char *at, *end;
};

static void blanks(struct scan *s)
{
    while (s->at < s->end && strchr(" \t\r\n", *s->at) && *s->at)
        s->at++;
}

/* The next byte that is no blank; '\0' at the end. */
static char peek(struct scan *s)
{
    blanks(s);
    return s->at < s->end ? *s->at : '\0';
}

static bool take(struct scan *s, char c)
{
    if (peek(s) != c || s->at == s->end)
        return false;
    s->at++;
    return true;
}

static bool hex4(struct scan *s, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        static const char digits[] = "0123456789abcdefABCDEF";
        const char *d = s->at < s->end && *s->at ? strchr(digits, *s->at) : NULL;
        if (!d)
            return false;
        size_t v = (size_t)(d - digits);
        *code = *code << 4 | (uint32_t)(v < 16 ? v : v - 6);
    }
    return true;
}

static void put(struct tern_buf *to, uint32_t c)
{
    char b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    if (n == 1)
        b[0] = (char)c;
    else
        b[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c >> 6 * (n - 1));
    for (size_t i = 1; i < n; i++)
        b[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
    tern_buf_add(to, b, n);
}

/* The rest of an escape, behind the backslash. */
static bool escape(struct scan *s, struct tern_buf *to)
{
    static const char from[] = "\"\\/bfnrt", is[] = "\"\\/\b\f\n\r\t";
    const char *e = s->at < s->end && *s->at ? strchr(from, *s->at) : NULL;
    uint32_t code, low;

    if (e) {
        s->at++;
        put(to, (unsigned char)is[e - from]);
        return true;
    }
    if (s->at == s->end || *s->at++ != 'u' || !hex4(s, &code))
        return false;
    if (code >= 0xd800 && code < 0xdc00 && s->end - s->at >= 6 && s->at[0] == '\\' &&
        s->at[1] == 'u') {
        struct scan after = {s->at + 2, s->end};
        if (hex4(&after, &low) && low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            s->at = after.at;
        }
    }
    put(to, code);
    return true;
}

/* A string, behind its first quote; cleared first. */
static bool string(struct scan *s, struct tern_buf *to)
{
    tern_buf_clear(to);
    while (s->at < s->end && *s->at != '"') {
        const char *from = s->at;
        while (s->at < s->end && *s->at != '"' && *s->at != '\\' && (unsigned char)*s->at >= ' ')
            s->at++;
        tern_buf_add(to, from, (size_t)(s->at - from));
        if (s->at < s->end && *s->at == '\\') {
            s->at++;
            if (!escape(s, to))
                return false;
        } else if (s->at < s->end && *s->at != '"') {
            return false; /* a control character */
        }
    }
    return s->at < s->end && *s->at++ == '"';
}

static size_t digits(struct scan *s)
{
    const char *from = s->at;

    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return (size_t)(s->at - from);
}

static bool word(struct scan *s, const char *w)
{
    size_t n = strlen(w);

    if ((size_t)(s->end - s->at) < n || memcmp(s->at, w, n) != 0)
        return false;
    s->at += n;
    return true;
}

static bool number(struct scan *s)
{
    bool minus = word(s, "-");

    if (word(s, "Infinity") || (!minus && word(s, "NaN")))
        return true;
    if (!word(s, "0") && digits(s) == 0)
        return false;
    if (word(s, ".") && digits(s) == 0)
        return false;
    if (!word(s, "e") && !word(s, "E"))
        return true;
    if (!word(s, "+"))
        word(s, "-");
    return digits(s) > 0;
}

static bool value(struct scan *s, struct tern_buf *scratch, int depth);

/* Members or elements, behind the bracket, to the other one. */
static bool inside(struct scan *s, struct tern_buf *scratch, char last, int depth)
{
    if (depth > MAX_DEPTH)
        return false;
    if (take(s, last))
        return true;
    do {
        if (last == '}' && !(take(s, '"') && string(s, scratch) && take(s, ':')))
            return false;
        if (!value(s, scratch, depth))
            return false;
    } while (take(s, ','));
    return take(s, last);
}

static bool value(struct scan *s, struct tern_buf *scratch, int depth)
{
    switch (peek(s)) {
    case '"':
        s->at++;
        return string(s, scratch);
    case '{':
        s->at++;
        return inside(s, scratch, '}', depth + 1);
    case '[':
        s->at++;
        return inside(s, scratch, ']', depth + 1);
    default:
        return word(s, "true") || word(s, "false") || word(s, "null") || number(s);
    }
}

enum tern_data_loose_found tern_data_loose_field(const char *line, size_t len, const char *field,
                                                 struct tern_buf *to)
{
    struct scan s = {line, line + len};
    struct tern_buf scratch = {.max = to->max};
    enum tern_data_loose_found found = TERN_DATA_LOOSE_NO_FIELD;
    bool good = take(&s, '{');

    if (good && !take(&s, '}')) {
        do {
            good = take(&s, '"') && string(&s, &scratch) && take(&s, ':');
            bool ours = good && scratch.len == strlen(field) &&
                        (!scratch.len || memcmp(scratch.data, field, scratch.len) == 0);
            if (ours && peek(&s) == '"') {
                s.at++;
                good = string(&s, to);
                found = TERN_DATA_LOOSE_STRING;
            } else if (good) {
                good = value(&s, &scratch, 0);
                found = ours ? TERN_DATA_LOOSE_NO_STRING : found;
            }
        } while (good && take(&s, ','));
        good = good && take(&s, '}');
    }
    blanks(&s);
    tern_buf_free(&scratch);
    return good && s.at == s.end ? found : TERN_DATA_LOOSE_NO_JSON;
}
