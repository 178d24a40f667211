/* The schema: which arrays a batch has, in the order of their buffers. */
#include "core/arrow/read.h"

#include <stdlib.h>
#include <string.h>

/* What Arrow calls a type, and its buffers in a batch. */
static const struct {
    const char *name;
    unsigned n_buffers;
} types[] = {
    [TERN_ARROW_T_NULL] = {"null", 0},
    [TERN_ARROW_T_INT] = {"int", 2},
    [TERN_ARROW_T_FLOAT] = {"float", 2},
    [TERN_ARROW_T_BINARY] = {"binary", 3},
    [TERN_ARROW_T_UTF8] = {"utf8", 3},
    [TERN_ARROW_T_BOOL] = {"bool", 2},
    [7] = {"decimal", 2},
    [8] = {"date", 2},
    [9] = {"time", 2},
    [10] = {"timestamp", 2},
    [11] = {"interval", 2},
    [TERN_ARROW_T_LIST] = {"list", 2},
    [TERN_ARROW_T_STRUCT] = {"struct", 1},
    [TERN_ARROW_T_UNION] = {"union", 1},
    [15] = {"fixed_size_binary", 2},
    [TERN_ARROW_T_FIXED_LIST] = {"fixed_size_list", 1},
    [TERN_ARROW_T_MAP] = {"map", 2},
    [18] = {"duration", 2},
    [TERN_ARROW_T_LARGE_BINARY] = {"large_binary", 3},
    [TERN_ARROW_T_LARGE_UTF8] = {"large_utf8", 3},
    [TERN_ARROW_T_LARGE_LIST] = {"large_list", 2},
    [TERN_ARROW_T_RUN_END] = {"run_end_encoded", 0},
    [TERN_ARROW_T_BINARY_VIEW] = {"binary_view", 2},
    [TERN_ARROW_T_UTF8_VIEW] = {"utf8_view", 2},
    [TERN_ARROW_T_LIST_VIEW] = {"list_view", 3},
    [TERN_ARROW_T_LARGE_LIST_VIEW] = {"large_list_view", 3},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static int too_much(const struct tern_arrow *a, const char *what, int most, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: %s; this tern reads up to %d", a->path, what, most);
}

/* The type's own fields, in Schema.fbs. */
static int read_type(struct tern_arrow *a, struct tern_arrow_node *n,
                     const struct tern_arrow_table *type, struct tern_err *err)
{
    int64_t v;

    switch (n->type) {
    case TERN_ARROW_T_INT:
        v = tern_arrow_flat_int(type, 0, 4, 0);
        if (v != 8 && v != 16 && v != 32 && v != 64)
            return tern_arrow_bad(a, "whole numbers of impossible width", err);
        n->bits = (unsigned)v;
        n->is_signed = tern_arrow_flat_int(type, 1, 1, 0) != 0;
        n->kind = TERN_ARROW_INT;
        n->words = tern_strf("%sint%u", n->is_signed ? "" : "u", n->bits);
        return 0;
    case TERN_ARROW_T_FLOAT:
        v = tern_arrow_flat_int(type, 0, 2, 0);
        if (v < 0 || v > 2)
            return tern_arrow_bad(a, "real numbers of impossible width", err);
        n->bits = 16u << v;
        n->kind = TERN_ARROW_REAL;
        n->words = tern_strf("float%u", n->bits);
        return 0;
    case TERN_ARROW_T_BOOL:
        n->kind = TERN_ARROW_BOOL;
        break;
    case TERN_ARROW_T_UTF8:
    case TERN_ARROW_T_LARGE_UTF8:
        n->kind = TERN_ARROW_TEXT;
        break;
    case TERN_ARROW_T_BINARY:
    case TERN_ARROW_T_LARGE_BINARY:
        n->kind = TERN_ARROW_BINARY;
        break;
    case TERN_ARROW_T_FIXED_LIST:
        n->list_size = tern_arrow_flat_int(type, 0, 4, 0);
        if (n->list_size < 0)
            return tern_arrow_bad(a, "lists of negative length", err);
        break;
    case TERN_ARROW_T_UNION: /* a dense one has offsets, too */
        n->n_buffers += tern_arrow_flat_int(type, 0, 2, 0) == 1;
        break;
    default:
        break;
    }
    n->wide = n->type == TERN_ARROW_T_LARGE_UTF8 || n->type == TERN_ARROW_T_LARGE_BINARY ||
              n->type == TERN_ARROW_T_LARGE_LIST;
    n->views = n->type == TERN_ARROW_T_UTF8_VIEW || n->type == TERN_ARROW_T_BINARY_VIEW;
    n->words = tern_strdup(types[n->type].name);
    return 0;
}

/* "list<int32>"; a list of whole numbers can be used. */
static void name_list(struct tern_arrow *a, int at)
{
    struct tern_arrow_node *n = &a->node[at];
    const bool one = n->end == at + 2;
    const struct tern_arrow_node *item = &a->node[at + 1];

    if (!tern_arrow_is_list(n->type) || n->end <= at + 1)
        return;
    char *words = tern_strf("%s<%s>", n->words, item->words);
    free(n->words);
    n->words = words;
    if (one && item->kind == TERN_ARROW_INT &&
        (n->type != TERN_ARROW_T_FIXED_LIST || n->list_size > 0))
        n->kind = TERN_ARROW_INTS;
}

static int add_nodes(struct tern_arrow *a, const struct tern_arrow_table *field, int parent,
                     int depth, struct tern_err *err);

static int add_children(struct tern_arrow *a, const struct tern_arrow_table *of, unsigned id,
                        int parent, int depth, struct tern_err *err)
{
    const struct tern_arrow_vector v = tern_arrow_flat_vector(of, id, 4);

    for (uint32_t i = 0; i < v.n; i++) {
        const struct tern_arrow_table child = tern_arrow_flat_item(of->flat, &v, i);
        if (add_nodes(a, &child, parent, depth, err) < 0)
            return -1;
    }
    return 0;
}

/* A name of a struct's field is "struct.field". */
static char *full_name(const struct tern_arrow *a, int parent, const char *name, size_t len)
{
    const char *above = parent < 0 ? NULL : a->node[parent].name;

    return tern_strf("%s%s%.*s", above ? above : "", above ? "." : "", (int)len, name ? name : "");
}

/* Room for one more node. */
static int grow(struct tern_arrow *a, struct tern_err *err)
{
    if (a->n_nodes < a->nodes_cap)
        return 0;
    const int cap = a->nodes_cap ? 2 * a->nodes_cap : 16;
    void *v = realloc(a->node, (size_t)cap * sizeof *a->node);
    if (!v)
        return tern_err_sys(err, "%s: columns", a->path);
    a->node = v;
    a->nodes_cap = cap;
    return 0;
}

static int add_nodes(struct tern_arrow *a, const struct tern_arrow_table *field, int parent,
                     int depth, struct tern_err *err)
{
    size_t len;
    const char *name = tern_arrow_flat_string(field, 0, &len);
    const int64_t type = tern_arrow_flat_int(field, 2, 1, 0);
    const struct tern_arrow_table of = tern_arrow_flat_table(field, 3);
    const int at = a->n_nodes;

    if (field->flat->bad || len > 4096 || type < 1 || type >= N_TYPES)
        return tern_arrow_bad(
            a, type >= N_TYPES ? "a column of a type that is not known" : "its schema leads astray",
            err);
    if (at == TERN_ARROW_NODES_MAX)
        return too_much(a, "too many columns", TERN_ARROW_NODES_MAX, err);
    if (depth == TERN_ARROW_DEPTH_MAX)
        return too_much(a, "columns are nested too deeply", TERN_ARROW_DEPTH_MAX, err);
    if (grow(a, err) < 0)
        return -1;
    a->n_nodes++;
    struct tern_arrow_node *n = &a->node[at];
    *n = (struct tern_arrow_node){.parent = parent,
                                  .name = full_name(a, parent, name, len),
                                  .type = (enum tern_arrow_type)type,
                                  .n_buffers = types[type].n_buffers};
    if (read_type(a, n, &of, err) < 0)
        return -1;
    /* A batch has the indices alone, of an INT type that is not used. */
    n->dictionary = tern_arrow_flat_table(field, 4).at != 0;
    if (n->dictionary) {
        n->kind = TERN_ARROW_OTHER;
        n->n_buffers = 2;
        n->views = false;
        char *words = tern_strf("dictionary<%s>", n->words);
        free(n->words);
        n->words = words;
    } else if (add_children(a, field, 5, at, depth + 1, err) < 0) {
        return -1;
    }
    a->node[at].end = a->n_nodes;
    name_list(a, at);
    return 0;
}

/* Columns are the fields outside of lists. */
static int list_columns(struct tern_arrow *a, struct tern_err *err)
{
    a->column = tern_alloc((size_t)a->n_nodes + 1, sizeof *a->column, "columns", err);
    a->column_node = tern_alloc((size_t)a->n_nodes + 1, sizeof *a->column_node, "columns", err);
    if (!a->column || !a->column_node)
        return -1;
    for (int i = 0; i < a->n_nodes; i++) {
        const struct tern_arrow_node *n = &a->node[i];
        a->column_node[a->n_columns] = i;
        a->column[a->n_columns++] =
            (struct tern_arrow_column){.name = n->name, .type = n->words, .kind = n->kind};
        if (n->type != TERN_ARROW_T_STRUCT || n->dictionary)
            i = n->end - 1;
    }
    return 0;
}

int tern_arrow_schema_read(struct tern_arrow *a, const struct tern_arrow_table *schema,
                           struct tern_err *err)
{
    if (tern_arrow_flat_int(schema, 0, 2, 0) != 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: numbers are big-endian; write it on a little-endian machine",
                            a->path);
    if (add_children(a, schema, 1, /* parent= */ -1, /* depth= */ 0, err) < 0)
        return -1;
    if (schema->flat->bad)
        return tern_arrow_bad(a, "its schema leads astray", err);
    return list_columns(a, err);
}
