/* Rows as JSON objects: what a record of JSONL says, in nested columns. */
#include "core/arrow/read.h"

#include "core/base/assert.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which fields are read ---- */

static int not_read(const struct tern_arrow *a, const char *path, const struct tern_arrow_node *n,
                    struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: column '%.400s' is of type %.200s, which this tern does not read",
                        a->path, path, n->words);
}

static int use_fields(struct tern_arrow *a, int at, const char *path,
                      const struct tern_arrow_fields *fields, struct tern_err *err);

/* Node `at`, whose path is `path`. */
static int use_node(struct tern_arrow *a, int at, const char *path,
                    const struct tern_arrow_fields *fields, struct tern_err *err)
{
    struct tern_arrow_node *n = &a->node[at];
    char *items;
    int rc;

    n->used = true;
    if (n->dictionary)
        return not_read(a, path, n, err);
    if (n->type == TERN_ARROW_T_STRUCT)
        return use_fields(a, at, path, fields, err);
    if (!tern_arrow_is_list(n->type))
        return n->kind == TERN_ARROW_OTHER && n->type != TERN_ARROW_T_NULL
                   ? not_read(a, path, n, err)
                   : 0;
    if (at + 1 >= n->end || a->node[at + 1].end != n->end)
        return tern_arrow_bad(a, "a list without a type of its own", err);
    items = tern_strf("%s[]", path);
    rc = use_node(a, at + 1, items, fields, err);
    free(items);
    return rc;
}

/* What follows the name of what holds it. */
static const char *short_name(const struct tern_arrow *a, const struct tern_arrow_node *n)
{
    return n->parent < 0 ? n->name : n->name + strlen(a->node[n->parent].name) + 1;
}

static int use_fields(struct tern_arrow *a, int at, const char *path,
                      const struct tern_arrow_fields *fields, struct tern_err *err)
{
    const int end = a->node[at].end;
    int rc = 0;

    for (int i = at + 1; i < end && rc == 0; i = a->node[i].end) {
        char *name = tern_strf("%s.%s", path, short_name(a, &a->node[i]));
        if (fields->reads(fields->arg, name))
            rc = use_node(a, i, name, fields, err);
        free(name);
    }
    return rc;
}

int tern_arrow_use_record(struct tern_arrow *a, const struct tern_arrow_fields *fields,
                          struct tern_err *err)
{
    size_t n = 0;

    for (int i = 0; i < a->n_nodes; i = a->node[i].end) {
        if (!fields->reads(fields->arg, a->node[i].name))
            continue;
        if (use_node(a, i, a->node[i].name, fields, err) < 0)
            return -1;
        n++;
    }
    a->records = true;
    if (n)
        return 0;
    char *found = tern_arrow_list_columns(a);
    tern_err_set(err, TERN_USAGE, "%s: none of its columns is a field of records (found: %s)",
                 a->path, found);
    free(found);
    return -1;
}

/* ---- values ---- */

/* Bytes that are not UTF-8 stay as they are: the reader of the text knows what is wanted then. */
static void put_string(struct tern_buf *to, const char *s, size_t len)
{
    size_t from = 0;

    tern_buf_puts(to, "\"");
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c >= ' ' && c != '"' && c != '\\')
            continue;
        tern_buf_add(to, s + from, i - from);
        if (c < ' ')
            tern_buf_printf(to, "\\u%04x", c);
        else
            tern_buf_printf(to, "\\%c", c);
        from = i + 1;
    }
    tern_buf_add(to, s + from, len - from);
    tern_buf_puts(to, "\"");
}

static void put_value(const struct tern_arrow *a, int at, uint64_t row, struct tern_buf *to);

static void put_list(const struct tern_arrow *a, int at, uint64_t row, struct tern_buf *to)
{
    uint64_t i, end, first;

    tern_buf_puts(to, "[");
    tern_arrow_list_range(&a->node[at], row, &first, &end);
    for (i = first; i < end && !to->failed; i++) {
        if (i > first)
            tern_buf_puts(to, ",");
        put_value(a, at + 1, i, to);
    }
    tern_buf_puts(to, "]");
}

static void put_struct(const struct tern_arrow *a, int at, uint64_t row, struct tern_buf *to)
{
    const char *comma = "";

    tern_buf_puts(to, "{");
    for (int i = at + 1; i < a->node[at].end; i = a->node[i].end) {
        const char *name = short_name(a, &a->node[i]);
        if (!a->node[i].used)
            continue;
        tern_buf_puts(to, comma);
        put_string(to, name, strlen(name));
        tern_buf_puts(to, ":");
        put_value(a, i, row, to);
        comma = ",";
    }
    tern_buf_puts(to, "}");
}

/* JSON has no numbers but finite ones. */
static void put_real(struct tern_buf *to, double v)
{
    if (isfinite(v))
        tern_buf_printf(to, "%.17g", v);
    else
        tern_buf_puts(to, "0");
}

/* Whatever holds it is not null. */
static void put_value(const struct tern_arrow *a, int at, uint64_t row, struct tern_buf *to)
{
    const struct tern_arrow_node *n = &a->node[at];
    int64_t v;

    if (n->type == TERN_ARROW_T_NULL || tern_arrow_is_null(n, row)) {
        tern_buf_puts(to, "null");
    } else if (n->type == TERN_ARROW_T_STRUCT) {
        put_struct(a, at, row, to);
    } else if (tern_arrow_is_list(n->type)) {
        put_list(a, at, row, to);
    } else if (n->kind == TERN_ARROW_INT) {
        v = tern_arrow_number(n->values.data, row, n->bits, n->is_signed);
        if (n->is_signed)
            tern_buf_printf(to, "%" PRId64, v);
        else
            tern_buf_printf(to, "%" PRIu64, (uint64_t)v);
    } else if (n->kind == TERN_ARROW_BOOL) {
        tern_buf_puts(to, n->values.data[row / 8] >> (row % 8) & 1 ? "true" : "false");
    } else if (n->kind == TERN_ARROW_REAL) {
        put_real(to, tern_arrow_real_at(n, row));
    } else {
        const uint64_t first = tern_arrow_offset(n, row), end = tern_arrow_offset(n, row + 1);
        put_string(to, (const char *)n->values.data + first, (size_t)(end - first));
    }
}

void tern_arrow_record(const struct tern_arrow *a, uint64_t row, struct tern_buf *to)
{
    const char *comma = "";

    tern_assert_cmp(row, <, a->rows);
    tern_buf_puts(to, "{");
    for (int i = 0; i < a->n_nodes; i = a->node[i].end) {
        const struct tern_arrow_node *n = &a->node[i];
        tern_buf_puts(to, comma);
        put_string(to, n->name, strlen(n->name));
        tern_buf_puts(to, ":");
        if (n->used)
            put_value(a, i, row, to);
        else
            tern_buf_puts(to, "null");
        comma = ",";
    }
    tern_buf_puts(to, "}");
}
