/* JSON as Python's json reads it, in jansson's values.
 *
 * A token that jansson does not read (NaN, a number without bound, half of a surrogate pair, NUL)
 * becomes a string.  The string is a mark, and the token as it was written.  So it does no harm in
 * a key that is not used.  A key that is used has a string in it, which is refused.  The token can
 * be written again. */
#include "core/base/json.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A text's own strings that begin with this character are marked, too. */
#define ESCAPED "\\u0001"
static const char mark[] = "\x01python:", mark_escaped[] = ESCAPED "python:";

static bool is_hex4(const char *s, const char *end, unsigned long *ret_code)
{
    char digits[5] = "";

    if (end - s < 4)
        return false;
    memcpy(digits, s, 4);
    *ret_code = strtoul(digits, NULL, 16);
    return strspn(digits, "0123456789abcdefABCDEF") == 4;
}

/* Behind the escape at `s`, or behind two that are a surrogate pair. */
static const char *skip_escape(const char *s, const char *end, bool *odd, bool *good)
{
    unsigned long code, low;

    if (end - s < 2 || s[1] != 'u') {
        *good = *good && end - s >= 2 && s[1] && strchr("\"\\/bfnrt", s[1]);
        return end - s < 2 ? end : s + 2;
    }
    if (!is_hex4(s + 2, end, &code)) {
        *good = false;
        return s + 2;
    }
    s += 6;
    const bool first = code >= 0xd800 && code < 0xdc00, second = code >= 0xdc00 && code < 0xe000;
    if (first && end - s >= 2 && s[0] == '\\' && s[1] == 'u' && is_hex4(s + 2, end, &low) &&
        low >= 0xdc00 && low < 0xe000)
        return s + 6;
    *odd = *odd || first || second || code == 0;
    return s;
}

/* Behind the string whose first quote is at `s`; NULL where it does not end.  *ret_odd: jansson
 * does not read it, though Python does. */
static const char *skip_string(const char *s, const char *end, bool *ret_odd)
{
    const size_t n = strlen(ESCAPED);
    bool odd = (size_t)(end - s) > n && memcmp(s + 1, ESCAPED, n) == 0, good = true;

    for (s++; s < end && *s != '"';)
        s = *s == '\\' ? skip_escape(s, end, &odd, &good) : s + 1;
    *ret_odd = odd && good;
    return s < end ? s + 1 : NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Behind digits, of which there must be one; else NULL. */
static const char *skip_digits(const char *s)
{
    if (!is_digit(*s))
        return NULL;
    while (is_digit(*s))
        s++;
    return s;
}

/* Is it a number of JSON's that is beyond jansson's integers, or beyond a double? */
static bool is_beyond(const char *number)
{
    const char *s = number + (*number == '-');
    bool whole = true;

    s = *s == '0' ? s + 1 : skip_digits(s);
    if (s && *s == '.') {
        whole = false;
        s = skip_digits(s + 1);
    }
    if (s && (*s == 'e' || *s == 'E')) {
        whole = false;
        s++;
        s = skip_digits(*s == '+' || *s == '-' ? s + 1 : s);
    }
    if (!s || *s)
        return false;
    errno = 0;
    if (whole)
        strtoll(number, NULL, 10);
    return whole ? errno == ERANGE : isinf(strtod(number, NULL));
}

/* Behind the number at `s`. */
static const char *skip_number(const char *s, const char *end, bool *ret_odd)
{
    enum { SURE = 18 }; /* digits of every integer that fits */
    const char *from = s;
    bool exponent = false;

    for (; s < end && *s && strchr("0123456789+-.eE", *s); s++)
        exponent = exponent || *s == 'e' || *s == 'E';
    *ret_odd = false;
    if (s - from > SURE || exponent) {
        char *number = tern_strf("%.*s", (int)(s - from), from);
        *ret_odd = is_beyond(number);
        free(number);
    }
    return s;
}

/* Behind the token at `s`, or one byte that is none; NULL in a string that does not end. */
static const char *skip_token(const char *s, const char *end, bool *ret_odd)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};

    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        const size_t n = strlen(words[k]);
        if ((size_t)(end - s) >= n && memcmp(s, words[k], n) == 0) {
            *ret_odd = true;
            return s + n;
        }
    }
    if (*s == '"')
        return skip_string(s, end, ret_odd);
    if (*s == '-' || is_digit(*s))
        return skip_number(s, end, ret_odd);
    *ret_odd = false;
    return s + 1;
}

static void put_marked(struct tern_buf *to, const char *s, const char *end)
{
    tern_buf_printf(to, "\"%s", mark_escaped);
    for (; s < end; s++) {
        if (*s == '"' || *s == '\\')
            tern_buf_add(to, "\\", 1);
        tern_buf_add(to, s, 1);
    }
    tern_buf_add(to, "\"", 1);
}

json_t *tern_json_python_parse(const char *text, size_t len, const char *what, struct tern_err *err)
{
    const char *end = text + len, *kept = text, *next;
    struct tern_buf b = {.max = 8 * len + 4096}; /* a token of three bytes becomes 20 */
    bool odd;

    for (const char *s = text; s < end && (next = skip_token(s, end, &odd)); s = next) {
        if (!odd)
            continue;
        tern_buf_add(&b, kept, (size_t)(s - kept));
        put_marked(&b, s, next);
        kept = next;
    }
    if (kept == text)
        return tern_json_parse(text, len, what, err);
    tern_buf_add(&b, kept, (size_t)(end - kept));
    json_t *j =
        tern_buf_check(&b, what, err) < 0 ? NULL : tern_json_parse(b.data, b.len, what, err);
    tern_buf_free(&b);
    return j;
}

json_t *tern_json_python_load(const char *path, size_t max, struct tern_err *err)
{
    char *text;
    size_t len;

    if (tern_fs_read(path, max, &text, &len, err) < 0)
        return NULL;
    json_t *j = tern_json_python_parse(text, len, path, err);
    free(text);
    return j;
}

char *tern_json_python_restore(char *text)
{
    const size_t n = strlen(mark_escaped);
    const char *kept = text, *next;
    struct tern_buf b = {0};
    bool odd;

    if (!text || !strstr(text, mark_escaped))
        return text;
    const char *end = text + strlen(text);
    b.max = (size_t)(end - text) + 1;
    for (const char *s = text; s < end && (next = skip_token(s, end, &odd)); s = next) {
        if (*s != '"' || (size_t)(next - s) < n + 2 || memcmp(s + 1, mark_escaped, n) != 0)
            continue;
        tern_buf_add(&b, kept, (size_t)(s - kept));
        for (const char *c = s + 1 + n; c < next - 1; c++) {
            c += *c == '\\';
            tern_buf_add(&b, c, 1);
        }
        kept = next;
    }
    tern_buf_add(&b, kept, (size_t)(end - kept));
    free(text);
    return b.data;
}

const char *tern_json_python_shown(const char *s)
{
    return s && tern_str_starts(s, mark) ? s + strlen(mark) : s;
}
