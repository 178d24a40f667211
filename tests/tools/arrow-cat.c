/* Prints an Arrow file's columns and cells as JSON lines:  arrow-cat FILE [COLUMN...]
 *
 * The first line is [["name", "type"], ...] of all columns, each further line the cells of a row,
 * of the columns named or of all that can be read. */
#include "core/arrow/arrow.h"
#include "core/base/json.h"

#include <stdlib.h>

static json_t *hex(const char *data, size_t len)
{
    char *text = malloc(2 * len + 1);

    text[0] = '\0';
    for (size_t i = 0; i < len; i++)
        sprintf(text + 2 * i, "%02x", (unsigned char)data[i]);
    json_t *j = json_string(text);
    free(text);
    return j;
}

static json_t *list(const struct tern_arrow_ints *v)
{
    json_t *j = json_array();

    for (size_t i = 0; i < v->n; i++)
        json_array_append_new(j, json_integer(tern_arrow_ints_at(v, i)));
    return j;
}

static json_t *cell(const struct tern_arrow *a, size_t column, uint64_t row)
{
    const char *text;
    size_t len;
    int64_t i;
    double real;
    struct tern_arrow_ints ints;

    switch (tern_arrow_column(a, column)->kind) {
    case TERN_ARROW_TEXT:
        return tern_arrow_text(a, column, row, &text, &len) ? json_stringn(text, len) : json_null();
    case TERN_ARROW_BINARY:
        return tern_arrow_text(a, column, row, &text, &len) ? hex(text, len) : json_null();
    case TERN_ARROW_INT:
        return tern_arrow_int(a, column, row, &i) ? json_integer(i) : json_null();
    case TERN_ARROW_BOOL:
        return tern_arrow_int(a, column, row, &i) ? json_boolean((int)i) : json_null();
    case TERN_ARROW_REAL:
        return tern_arrow_real(a, column, row, &real) ? tern_json_real(real) : json_null();
    case TERN_ARROW_INTS:
        return tern_arrow_ints(a, column, row, &ints) ? list(&ints) : json_null();
    case TERN_ARROW_OTHER:
        break;
    }
    return json_null();
}

static void line(json_t *j)
{
    tern_json_line(stdout, j);
    json_decref(j);
}

static int cat(struct tern_arrow *a, char **names, int n_names, struct tern_err *err)
{
    size_t use[4096], n = 0;
    json_t *head = json_array();
    int rc;

    for (size_t i = 0; i < tern_arrow_n_columns(a); i++) {
        const struct tern_arrow_column *c = tern_arrow_column(a, i);
        json_array_append_new(head, json_pack("[s, s]", c->name, c->type));
        if (n_names == 0 && c->kind != TERN_ARROW_OTHER)
            use[n++] = i;
    }
    line(head);
    for (int i = 0; i < n_names; i++) {
        const int c = tern_arrow_find(a, names[i], err);
        if (c < 0)
            return -1;
        use[n++] = (size_t)c;
    }
    for (size_t i = 0; i < n; i++)
        if (tern_arrow_use(a, use[i], err) < 0)
            return -1;
    while ((rc = tern_arrow_next(a, err)) > 0)
        for (uint64_t row = 0; row < tern_arrow_rows(a); row++) {
            json_t *cells = json_array();
            for (size_t i = 0; i < n; i++)
                json_array_append_new(cells, cell(a, use[i], row));
            line(cells);
        }
    return rc;
}

int main(int argc, char **argv)
{
    struct tern_err err = {0};
    struct tern_arrow *a = argc > 1 ? tern_arrow_open(argv[1], &err) : NULL;
    const int rc = a ? cat(a, argv + 2, argc - 2, &err) : -1;

    tern_arrow_close(a);
    if (rc < 0)
        fprintf(stderr, "arrow-cat: %s\n", err.text);
    return rc < 0 ? (int)err.code : 0;
}
