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

json_t *tern_json_text(const char *s)
{
    if (!s)
        return json_null();
    json_t *whole = json_string(s);
    struct tern_buf b = {0};

    if (whole)
        return whole;
    while (*s) {
        size_t n = 1;
        json_t *one = NULL; /* jansson knows what a character is */
        for (; n <= 4 && n <= strlen(s) && !(one = json_stringn(s, n)); n++)
            ;
        if (one)
            tern_buf_add(&b, s, n);
        else
            tern_buf_puts(&b, "\xef\xbf\xbd");
        s += one ? n : 1;
        json_decref(one);
    }
    whole = json_string(b.data);
    tern_buf_free(&b);
    return whole;
}

int tern_json_print(FILE *to, const json_t *j, struct tern_err *err)
{
    if (json_dumpf(j, to, JSON_INDENT(1) | JSON_ENCODE_ANY) < 0 || fputc('\n', to) == EOF)
        return tern_err_sys(err, "cannot write JSON");
    return 0;
}
