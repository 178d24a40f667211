#include "core/base/json.h"

#include "core/base/fs.h"

#include <math.h>
#include <stdlib.h>

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

int tern_json_print(FILE *to, const json_t *j, struct tern_err *err)
{
    if (json_dumpf(j, to, JSON_INDENT(1) | JSON_ENCODE_ANY) < 0 || fputc('\n', to) == EOF)
        return tern_err_sys(err, "cannot write JSON");
    return 0;
}
