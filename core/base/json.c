#include "core/base/json.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *tern_json_parse(const char *text, size_t len, const char *what, struct tern_err *err)
{
    json_error_t je;
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);

    if (!j)
        tern_err_set(err, TERN_USAGE, "%s:%d: not valid JSON: %s", what, je.line, je.text);
    return j;
}

json_t *tern_json_load(const char *path, size_t max, struct tern_err *err)
{
    char *text;
    size_t len;

    if (tern_fs_read(path, max, &text, &len, err) < 0)
        return NULL;
    json_t *j = tern_json_parse(text, len, path, err);
    free(text);
    return j;
}

json_t *tern_json_real(double v)
{
    if (isnan(v))
        return json_string("NaN");
    if (isinf(v))
        return json_string(v > 0 ? "Infinity" : "-Infinity");
    return json_real(v);
}

void tern_json_set_real(json_t *to, const char *key, const char *class, double v)
{
    json_object_set_new(to, key, isfinite(v) ? json_real(v) : json_null());
    json_object_set_new(to, class, json_integer(isfinite(v) ? 0 : isnan(v) ? 1 : v > 0 ? 2 : 3));
}

json_t *tern_json_text(const char *s)
{
    return tern_json_textn(s, s ? strlen(s) : 0);
}

json_t *tern_json_textn(const char *s, size_t len)
{
    if (!s)
        return json_null();
    json_t *whole = json_stringn(s, len);
    struct tern_buf b = {0};

    if (whole)
        return whole;
    for (const char *end = s + len; s < end;) {
        size_t n = 1;
        json_t *one = NULL; /* jansson decides whether it is a character */
        for (; n <= 4 && n <= (size_t)(end - s) && !(one = json_stringn(s, n)); n++)
            ;
        if (one)
            tern_buf_add(&b, s, n);
        else
            tern_buf_puts(&b, "\xef\xbf\xbd");
        s += one ? n : 1;
        json_decref(one);
    }
    whole = json_stringn(b.data, b.len);
    tern_buf_free(&b);
    return whole;
}

/* jansson escapes ASCII's controls but DEL.  All that is escaped here is below U+10000. */
static int put_json(FILE *to, const json_t *j, size_t flags)
{
    char *text = json_dumps(j, flags | JSON_ENCODE_ANY);
    size_t left = text ? strlen(text) : 0;
    bool good = text != NULL;

    for (const char *s = text; left > 0;) {
        size_t plain = 0;
        while (plain < left && ((s[plain] >= ' ' && s[plain] < 0x7f) || s[plain] == '\n'))
            plain++;
        good &= fwrite(s, 1, plain, to) == plain;
        s += plain;
        left -= plain;
        if (left == 0)
            break;
        const unsigned char *u = (const unsigned char *)s;
        size_t n = tern_str_character(s, left), bytes = n;
        if (n == 0 && u[0] < 0x80)
            bytes = 1, good &= fprintf(to, "\\u%04x", u[0]) > 0;
        else if (n == 0 && u[0] < 0xe0)
            bytes = 2, good &= fprintf(to, "\\u%04x", (u[0] & 0x1f) << 6 | (u[1] & 0x3f)) > 0;
        else if (n == 0)
            bytes = 3,
            good &= fprintf(to, "\\u%04x",
                            (u[0] & 0x0f) << 12 | (u[1] & 0x3f) << 6 | (u[2] & 0x3f)) > 0;
        else
            good &= fwrite(s, 1, n, to) == n;
        s += bytes;
        left -= bytes;
    }
    free(text);
    return good && fputc('\n', to) != EOF ? 0 : -1;
}

int tern_json_print(FILE *to, const json_t *j, struct tern_err *err)
{
    return put_json(to, j, JSON_INDENT(1)) == 0 ? 0 : tern_err_sys(err, "cannot write JSON");
}

void tern_json_line(FILE *to, const json_t *j)
{
    put_json(to, j, JSON_COMPACT);
}
