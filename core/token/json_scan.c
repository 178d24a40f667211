/* tokenizer.json as text: where its vocabulary and merges lie, and the strings in them.
 *
 * Format: RFC 8259.  The search for the two places trusts no syntax: what it passes over is read
 * again, by jansson or by json_vocab.c. */
#include "core/token/json.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int tern_token_json_fail(const struct tern_token_json *j, const char *at, struct tern_err *err,
                         const char *fmt, ...)
{
    char what[512];
    size_t line = 1;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    tern_str_mask(what);
    for (const char *s = j->text; (s = memchr(s, '\n', (size_t)(at - s))); s++)
        line++;
    return tern_err_set(err, TERN_USAGE, "%s:%zu: %s (byte %zu)", j->t->path, line, what,
                        (size_t)(at - j->text));
}

static const char *space(const char *s)
{
    while (*s == ' ' || *s == '\n' || *s == '\t' || *s == '\r')
        s++;
    return s;
}

/* ---- the two places ---- */

/* Behind the string that begins at `s`; NULL when it does not end. */
static const char *skip_string(const char *s, const char *end)
{
    for (s++; s < end; s++) {
        if (*s == '"')
            return s + 1;
        s += *s == '\\';
    }
    return NULL;
}

/* Behind the value that begins at `s`; NULL when it does not end. */
static const char *skip_value(const char *s, const char *end, size_t *n_commas)
{
    size_t depth = 0;

    *n_commas = 0;
    do {
        switch (*s) {
        case '"':
            s = skip_string(s, end);
            if (!s)
                return NULL;
            continue;
        case '{':
        case '[':
            depth++;
            break;
        case '}':
        case ']':
            if (depth == 0)
                return s;
            if (--depth == 0)
                return s + 1;
            break;
        case ',':
            if (depth == 0)
                return s;
            ++*n_commas;
            break;
        default:
            break;
        }
        s++;
    } while (s < end);
    return NULL;
}

static bool is_key(const char *s, const char *end, const char *key)
{
    size_t n = strlen(key);

    return (size_t)(end - s) == n + 2 && memcmp(s + 1, key, n) == 0;
}

/* Note vocab and merges of the object at `s`, or those of its "model" when `top`.  NULL when it
 * makes no sense; the place behind it. */
static const char *find_places(struct tern_token_json *j, const char *s, bool top)
{
    const char *end = j->text + j->len;

    for (s = space(s + 1); *s == '"'; s = space(s + 1)) {
        struct tern_token_span value;
        const char *key = s, *key_end = skip_string(s, end);
        if (!key_end)
            return NULL;
        s = space(key_end);
        if (*s != ':')
            return NULL;
        value.at = s = space(s + 1);
        if (top && *s == '{' && is_key(key, key_end, "model")) {
            s = find_places(j, s, false);
        } else {
            s = skip_value(s, end, &value.n_commas);
            value.end = s;
            if (!top && *value.at == '{' && is_key(key, key_end, "vocab"))
                j->vocab = value;
            else if (!top && *value.at == '[' && is_key(key, key_end, "merges"))
                j->merges = value;
        }
        if (!s)
            return NULL;
        s = space(s);
        if (*s != ',')
            break;
    }
    return *s == '}' ? s + 1 : NULL;
}

/* The file without what lies in the two places, but for its line ends if `lines`. */
static void cut(const struct tern_token_json *j, bool lines, struct tern_buf *to)
{
    struct tern_token_span hole[2] = {j->vocab, j->merges};
    const char *at = j->text;

    to->max = 2 * (size_t)TERN_TOKEN_JSON_MAX;
    if (hole[0].at > hole[1].at) {
        hole[0] = j->merges;
        hole[1] = j->vocab;
    }
    for (int i = 0; i < 2; i++) {
        if (!hole[i].at)
            continue;
        tern_buf_add(to, at, (size_t)(hole[i].at + 1 - at));
        for (const char *s = hole[i].at; lines && s < hole[i].end; s++)
            if (*s == '\n')
                tern_buf_add(to, s, 1);
        at = hole[i].end - 1;
    }
    tern_buf_add(to, at, (size_t)(j->text + j->len - at));
}

/* The rest of published files, mostly added tokens, stays below 2 MiB. */
enum { REST_MAX = 16 << 20 };

static json_t *parse_rest(const struct tern_token_json *j, bool lines, struct tern_err *err)
{
    struct tern_buf rest = {0};
    json_t *tree = NULL;

    cut(j, lines, &rest);
    if (rest.len > REST_MAX)
        tern_err_set(err, TERN_USAGE,
                     "%s: damaged, or more than 16 MiB beside model.vocab and model.merges",
                     j->t->path);
    else if (tern_buf_check(&rest, j->t->path, err) == 0)
        tree = tern_json_parse(rest.data ? rest.data : "", rest.len, j->t->path, err);
    tern_buf_free(&rest);
    return tree;
}

int tern_token_json_open(struct tern_token_json *j, struct tern_err *err)
{
    if (tern_fs_read(j->t->path, TERN_TOKEN_JSON_MAX, &j->text, &j->len, err) < 0)
        return -1;
    const char *s = space(j->text);
    if (*s != '{' || !find_places(j, s, true))
        j->vocab.at = j->merges.at = NULL;
    j->tree = parse_rest(j, false, NULL);
    if (!j->tree) /* again, for a message with the right line */
        j->tree = parse_rest(j, true, err);
    return j->tree ? 0 : -1;
}

void tern_token_json_close(struct tern_token_json *j)
{
    tern_token_names_free(j->names);
    json_decref(j->tree);
    free(j->text);
}

/* ---- the strings in them ---- */

bool tern_token_json_take(struct tern_token_cursor *c, char ch)
{
    c->at = space(c->at);
    if (*c->at != ch)
        return false;
    c->at++;
    return true;
}

int tern_token_json_number(struct tern_token_cursor *c, uint32_t max, uint32_t *v)
{
    const char *s = space(c->at), *first = s;
    uint64_t n = 0;

    for (; *s >= '0' && *s <= '9' && n <= max; s++)
        n = 10 * n + (uint64_t)(*s - '0');
    bool whole = s > first && (*first != '0' || s == first + 1) && !strchr(".eE", *s);
    if (!whole || n > max)
        return tern_token_json_fail(
            c->json, first, c->err,
            whole ? "id %.*s... is too large for a vocabulary of this size" : "'%.*s' is no id",
            (int)strcspn(first, ",} \n") > 20 ? 20 : (int)strcspn(first, ",} \n"), first);
    c->at = s;
    *v = (uint32_t)n;
    return 0;
}

static bool hex4(const char *s, uint32_t *v)
{
    *v = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            digit = (uint32_t)((c | 32) - 'a' + 10);
        else
            return false;
        *v = *v << 4 | digit;
    }
    return true;
}

static size_t put_utf8(uint32_t code, char *to)
{
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(n == 1 ? code : (0xf00u >> n & 0xf0) | code);
    return n;
}

/* The character that the escape at `s` (behind the backslash) stands for, written to `to`.  Bytes
 * of the escape in *taken; 0 when it is none. */
static size_t escape(const char *s, char *to, size_t *taken)
{
    static const char from[] = "\"\\/bfnrt", plain[] = "\"\\/\b\f\n\r\t";
    const char *known = *s ? strchr(from, *s) : NULL;
    uint32_t code, low;

    if (known) {
        *to = plain[known - from];
        *taken = 1;
        return 1;
    }
    if (*s != 'u' || !hex4(s + 1, &code) || (code >= 0xdc00 && code < 0xe000))
        return 0;
    *taken = 5;
    if (code >= 0xd800 && code < 0xdc00) {
        if (s[5] != '\\' || s[6] != 'u' || !hex4(s + 7, &low) || low < 0xdc00 || low >= 0xe000)
            return 0;
        code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
        *taken = 11;
    }
    return put_utf8(code, to);
}

static int bad_string(struct tern_token_cursor *c, const char *at, const char *why)
{
    return tern_token_json_fail(c->json, at, c->err, "a string %s", why);
}

/* The rest of a string from `s`, its first backslash, on: what is before it stands in scratch. */
static int unescape(struct tern_token_cursor *c, const char *s, size_t len, size_t *ret_len)
{
    unsigned n;
    size_t taken;

    while (*s != '"') {
        if (len + 4 > c->cap)
            return bad_string(c, s, "is longer than 4096 bytes");
        if (*s == '\\') {
            n = (unsigned)escape(s + 1, c->scratch + len, &taken);
            if (n == 0)
                return bad_string(c, s, "has a bad escape");
            s += 1 + taken;
            len += n;
            continue;
        }
        tern_token_utf8_decode(s, 4, &n);
        if ((uint8_t)*s < 0x20 || n == 0)
            return bad_string(c, s, n ? "holds a control character" : "is not UTF-8");
        memcpy(c->scratch + len, s, n);
        s += n;
        len += n;
    }
    c->at = s + 1;
    *ret_len = len;
    return 0;
}

int tern_token_json_string(struct tern_token_cursor *c, const char **ret_s, size_t *ret_len)
{
    const char *first, *s;
    unsigned n;

    if (!tern_token_json_take(c, '"'))
        return tern_token_json_fail(c->json, c->at, c->err, "a string should stand here");
    for (first = s = c->at; *s != '"'; s += n) {
        if (*s == '\\')
            break;
        if ((uint8_t)*s < 0x20)
            return bad_string(c, s, *s ? "holds a control character" : "does not end");
        n = 1;
        if ((uint8_t)*s >= 0x80)
            tern_token_utf8_decode(s, 4, &n);
        if (n == 0)
            return bad_string(c, s, "is not UTF-8");
    }
    const size_t len = (size_t)(s - first);
    if (len > TERN_PIECE_BYTES_MAX)
        return bad_string(c, first, "is longer than 4096 bytes");
    if (*s == '"') {
        c->at = s + 1;
        *ret_s = first;
        *ret_len = len;
        return 0;
    }
    memcpy(c->scratch, first, len);
    *ret_s = c->scratch;
    return unescape(c, s, len, ret_len);
}
