/* Reading: messages, batches and cells. */
#include "core/arrow/read.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char file_magic[6] = {'A', 'R', 'R', 'O', 'W', '1'};

int tern_arrow_bad(const struct tern_arrow *a, const char *why, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: damaged Arrow file: %s", a->path, why);
}

/* ---- messages ---- */

static int meta_read(struct tern_arrow *a, size_t len, struct tern_err *err)
{
    if (len > a->meta_cap) {
        free(a->meta);
        a->meta_cap = 0;
        a->meta = tern_alloc(len, 1, "an Arrow message", err);
        if (!a->meta)
            return -1;
        a->meta_cap = len;
    }
    return tern_fs_pread(a->fd, a->meta, len, a->at + 8, a->path, err);
}

/* The end mark, or the footer where there is none. */
static int at_end(struct tern_arrow *a, struct tern_err *err)
{
    if (a->at != a->end)
        return tern_arrow_bad(a, "more follows its end mark", err);
    a->ended = true;
    return 0;
}

/* 1: `ret_header` is that of the next message, in a->meta; 0 at the end. */
static int next_message(struct tern_arrow *a, struct tern_arrow_flat *flat, int64_t *ret_type,
                        struct tern_arrow_table *ret_header, struct tern_err *err)
{
    int32_t head[2];

    if (a->at == a->end && a->footer)
        return at_end(a, err);
    if (a->end - a->at < sizeof head)
        return tern_err_set(err, TERN_USAGE,
                            "%s: ends without Arrow's end mark; it may have been cut off", a->path);
    if (tern_fs_pread(a->fd, head, sizeof head, a->at, a->path, err) < 0)
        return -1;
    if (head[0] != -1)
        return tern_arrow_bad(a, "no message where one is expected", err);
    if (head[1] == 0) {
        a->at += sizeof head;
        return at_end(a, err);
    }
    if (head[1] < 0 || head[1] > TERN_ARROW_META_MAX ||
        (uint64_t)head[1] > a->end - a->at - sizeof head)
        return tern_arrow_bad(a, "a message is longer than the file", err);
    if (meta_read(a, (size_t)head[1], err) < 0)
        return -1;
    *flat = (struct tern_arrow_flat){.data = a->meta, .len = (size_t)head[1]};
    const struct tern_arrow_table m = tern_arrow_flat_root(flat);
    const int64_t version = tern_arrow_flat_int(&m, 0, 2, 0);
    const int64_t body = tern_arrow_flat_int(&m, 3, 8, 0);
    *ret_type = tern_arrow_flat_int(&m, 1, 1, 0);
    *ret_header = tern_arrow_flat_table(&m, 2);
    a->body = a->at + sizeof head + (uint64_t)head[1];
    if (flat->bad || !ret_header->at)
        return tern_arrow_bad(a, "a message leads astray", err);
    if (version != 3 && version != 4) /* V4, V5 */
        return tern_arrow_bad(a, "messages of a version that is not known", err);
    if (body < 0 || (uint64_t)body > a->end - a->body)
        return tern_arrow_bad(a, "a record batch is longer than the file", err);
    a->body_bytes = (uint64_t)body;
    a->at = a->body + a->body_bytes;
    return 1;
}

/* ---- opening ---- */

/* File form: "ARROW1", two bytes, the stream, the footer, i32 its length, "ARROW1". */
static int find_stream(struct tern_arrow *a, struct tern_err *err)
{
    char head[8], tail[10];
    int32_t footer;

    if (a->size < sizeof head)
        return tern_err_set(err, TERN_USAGE, "%s: not an Arrow file (too short)", a->path);
    if (tern_fs_pread(a->fd, head, sizeof head, 0, a->path, err) < 0)
        return -1;
    a->end = a->size;
    if (memcmp(head, file_magic, sizeof file_magic) != 0)
        return memcmp(head, "\xff\xff\xff\xff", 4) == 0
                   ? 0
                   : tern_err_set(err, TERN_USAGE,
                                  "%s: not an Arrow IPC file, or one from before Arrow 0.15",
                                  a->path);
    a->footer = true;
    a->at = sizeof head;
    if (a->size < sizeof head + sizeof tail)
        return tern_arrow_bad(a, "it has no footer; it may have been cut off", err);
    if (tern_fs_pread(a->fd, tail, sizeof tail, a->size - sizeof tail, a->path, err) < 0)
        return -1;
    memcpy(&footer, tail, sizeof footer);
    if (memcmp(tail + 4, file_magic, sizeof file_magic) != 0 || footer < 0 ||
        (uint64_t)footer > a->size - sizeof head - sizeof tail)
        return tern_arrow_bad(a, "it has no footer; it may have been cut off", err);
    a->end = a->size - sizeof tail - (uint64_t)footer;
    return 0;
}

static int open_file(struct tern_arrow *a, struct tern_err *err)
{
    struct stat st;
    struct tern_arrow_flat flat;
    struct tern_arrow_table header;
    int64_t type;

    a->fd = TERN_AGAIN(open(a->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (a->fd < 0 || TERN_AGAIN(fstat(a->fd, &st)) < 0) {
        tern_err_sys(err, "%s: cannot open", a->path);
        if (err && err->code == TERN_FAILED)
            err->code = TERN_USAGE;
        return -1;
    }
    if (!S_ISREG(st.st_mode))
        return tern_err_set(err, TERN_USAGE, "%s: not a regular file", a->path);
    a->size = (uint64_t)st.st_size;
    if (find_stream(a, err) < 0)
        return -1;
    const int rc = next_message(a, &flat, &type, &header, err);
    if (rc < 0)
        return -1;
    if (rc == 0 || type != TERN_ARROW_SCHEMA)
        return tern_arrow_bad(a, "it does not begin with a schema", err);
    return tern_arrow_schema_read(a, &header, err);
}

struct tern_arrow *tern_arrow_open(const char *path, struct tern_err *err)
{
    struct tern_arrow *a = tern_alloc(1, sizeof *a, "an Arrow file", err);

    if (!a)
        return NULL;
    a->path = tern_strdup(path);
    a->fd = -1;
    if (open_file(a, err) == 0)
        return a;
    tern_arrow_close(a);
    return NULL;
}

void tern_arrow_close(struct tern_arrow *a)
{
    if (!a)
        return;
    if (a->fd >= 0)
        close(a->fd);
    for (int i = 0; i < a->n_nodes; i++) {
        struct tern_arrow_node *n = &a->node[i];
        free(n->name);
        free(n->words);
        free(n->valid.data);
        free(n->offsets.data);
        free(n->values.data);
    }
    free(a->node);
    free(a->column);
    free(a->column_node);
    free(a->meta);
    free(a->packed.data);
    free(a->path);
    free(a);
}

/* ---- columns ---- */

size_t tern_arrow_n_columns(const struct tern_arrow *a)
{
    return a->n_columns;
}

const struct tern_arrow_column *tern_arrow_column(const struct tern_arrow *a, size_t column)
{
    tern_assert_cmp(column, <, a->n_columns);
    return &a->column[column];
}

int tern_arrow_find(const struct tern_arrow *a, const char *name, struct tern_err *err)
{
    char *found;

    for (size_t i = 0; i < a->n_columns; i++)
        if (strcmp(a->column[i].name, name) == 0)
            return (int)i;
    found = tern_arrow_list_columns(a);
    tern_err_set(err, TERN_USAGE, "%s: no column '%s' (found: %s)", a->path, name, found);
    free(found);
    return -1;
}

char *tern_arrow_list_columns(const struct tern_arrow *a)
{
    enum { NAMED = 20 };
    struct tern_buf list = {.max = 600};

    for (size_t i = 0; i < a->n_columns && i < NAMED; i++)
        tern_buf_printf(&list, "%s%s", i ? ", " : "", a->column[i].name);
    if (list.data)
        tern_str_mask(list.data);
    char *words =
        tern_strf("%s%s", list.data ? list.data : "none", a->n_columns > NAMED ? ", ..." : "");
    tern_buf_free(&list);
    return words;
}

int tern_arrow_use(struct tern_arrow *a, size_t column, struct tern_err *err)
{
    const struct tern_arrow_column *c = tern_arrow_column(a, column);

    if (c->kind == TERN_ARROW_OTHER)
        return tern_err_set(err, TERN_USAGE,
                            "%s: column '%s' is of type %.200s, which this tern does not read",
                            a->path, c->name, c->type);
    for (int i = a->column_node[column]; i >= 0; i = a->node[i].parent)
        a->node[i].used = true;
    if (c->kind == TERN_ARROW_INTS)
        a->node[a->column_node[column] + 1].used = true;
    return 0;
}

void tern_arrow_progress(const struct tern_arrow *a, uint64_t *ret_done, uint64_t *ret_all)
{
    *ret_done = a->at;
    *ret_all = a->size;
}

/* ---- a batch ---- */

/* Buffer k of the batch, `need` bytes of it. */
static int load_one(struct tern_arrow *a, const struct tern_arrow_flat *flat,
                    const struct tern_arrow_vector *buffers, size_t k, uint64_t need,
                    struct tern_arrow_bytes *to, struct tern_err *err)
{
    tern_assert_cmp(k, <, buffers->n);
    const int64_t offset = tern_arrow_flat_at(flat, buffers->at + 16 * k, 8),
                  len = tern_arrow_flat_at(flat, buffers->at + 16 * k + 8, 8);

    if (offset < 0 || len < 0)
        return tern_arrow_bad(a, "a column lies outside its record batch", err);
    if (tern_arrow_body_read(a, (uint64_t)offset, (uint64_t)len, to, err) < 0)
        return -1;
    return to->len < need ? tern_arrow_bad(a, "a column is shorter than its rows", err) : 0;
}

static int64_t offset_at(const struct tern_arrow_node *n, uint64_t i)
{
    int32_t narrow;
    int64_t wide;

    if (n->wide) {
        memcpy(&wide, n->offsets.data + 8 * i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, n->offsets.data + 4 * i, sizeof narrow);
    return narrow;
}

/* They never fall, and end inside what they point into. */
static int check_offsets(const struct tern_arrow *a, const struct tern_arrow_node *n, uint64_t most,
                         struct tern_err *err)
{
    int64_t last = 0;

    for (uint64_t i = 0; n->offsets.len && i <= n->length; i++) {
        const int64_t at = offset_at(n, i);
        if (at < last)
            return tern_arrow_bad(a, "the places of a column's rows are out of order", err);
        last = at;
    }
    return (uint64_t)last > most ? tern_arrow_bad(a, "a row ends outside its column", err) : 0;
}

static uint64_t value_bytes(const struct tern_arrow_node *n)
{
    return n->kind == TERN_ARROW_BOOL ? (n->length + 7) / 8 : n->length * (n->bits / 8);
}

/* The arrays of one node that is in use; its length is below 2^56. */
static int load_node(struct tern_arrow *a, const struct tern_arrow_flat *flat,
                     const struct tern_arrow_vector *buffers, int at, struct tern_err *err)
{
    struct tern_arrow_node *n = &a->node[at];
    const bool list = tern_arrow_is_list(n->type);
    size_t k = n->first_buffer;

    n->valid.len = 0;
    if (n->type == TERN_ARROW_T_NULL)
        return 0;
    if (n->nulls && load_one(a, flat, buffers, k, (n->length + 7) / 8, &n->valid, err) < 0)
        return -1;
    k++;
    if (n->type == TERN_ARROW_T_STRUCT || n->type == TERN_ARROW_T_FIXED_LIST)
        return 0;
    if (n->kind == TERN_ARROW_TEXT || n->kind == TERN_ARROW_BINARY || list) {
        const uint64_t need = n->length ? (n->length + 1) * (n->wide ? 8 : 4) : 0;
        if (load_one(a, flat, buffers, k++, need, &n->offsets, err) < 0)
            return -1;
        if (n->length == 0)
            n->offsets.len = 0;
    }
    if (list)
        return check_offsets(a, n, a->node[at + 1].length, err);
    if (load_one(a, flat, buffers, k, value_bytes(n), &n->values, err) < 0)
        return -1;
    if (n->bits == 0 && n->kind != TERN_ARROW_BOOL)
        return check_offsets(a, n, n->values.len, err);
    if (!a->records && n->nulls && n->parent >= 0 && tern_arrow_items_null(a, n->parent))
        return tern_err_set(err, TERN_USAGE,
                            "%s: column '%s' has lists with nulls among their numbers, which this "
                            "tern does not read",
                            a->path, a->node[n->parent].name);
    return 0;
}

/* Lengths of nested arrays fit those of what holds them. */
static int check_node(const struct tern_arrow *a, int at, struct tern_err *err)
{
    const struct tern_arrow_node *n = &a->node[at],
                                 *up = n->parent < 0 ? NULL : &a->node[n->parent];
    uint64_t want = a->rows, got = n->length;

    if (up && tern_arrow_is_list(up->type)) {
        want = 0;
        if (up->type == TERN_ARROW_T_FIXED_LIST &&
            __builtin_mul_overflow(up->length, (uint64_t)up->list_size, &want))
            want = UINT64_MAX;
        return got < want ? tern_arrow_bad(a, "lists are longer than their items", err) : 0;
    }
    if (up)
        want = up->length;
    return got != want ? tern_arrow_bad(a, "columns have different numbers of rows", err) : 0;
}

/* Give each node its numbers and the place of its buffers. */
static int place_nodes(struct tern_arrow *a, const struct tern_arrow_flat *flat,
                       const struct tern_arrow_table *batch, size_t n_buffers, struct tern_err *err)
{
    const struct tern_arrow_vector nodes = tern_arrow_flat_vector(batch, 1, 16),
                                   views = tern_arrow_flat_vector(batch, 4, 8);
    size_t k = 0, view = 0;

    if (flat->bad || nodes.n != (uint32_t)a->n_nodes)
        return tern_arrow_bad(a, "a record batch has other columns than the schema", err);
    for (int i = 0; i < a->n_nodes; i++) {
        struct tern_arrow_node *n = &a->node[i];
        const int64_t length = tern_arrow_flat_at(flat, nodes.at + 16 * (size_t)i, 8),
                      nulls = tern_arrow_flat_at(flat, nodes.at + 16 * (size_t)i + 8, 8);
        if (length < 0 || length >= INT64_C(1) << 56 || nulls < 0 || nulls > length)
            return tern_arrow_bad(a, "a column has an impossible length", err);
        n->length = (uint64_t)length;
        n->nulls = (uint64_t)nulls;
        n->first_buffer = k;
        k += n->n_buffers;
        if (n->views) {
            const int64_t more =
                view < views.n ? tern_arrow_flat_at(flat, views.at + 8 * view++, 8) : -1;
            if (more < 0 || (uint64_t)more > n_buffers)
                return tern_arrow_bad(a, "a record batch lacks the counts of its views", err);
            k += (size_t)more;
        }
    }
    return k == n_buffers
               ? 0
               : tern_arrow_bad(a, "a record batch has other columns than the schema", err);
}

static int read_codec(struct tern_arrow *a, const struct tern_arrow_table *batch,
                      struct tern_err *err)
{
    const struct tern_arrow_table c = tern_arrow_flat_table(batch, 3);

    a->codec = c.at ? (int)tern_arrow_flat_int(&c, 0, 1, TERN_ARROW_LZ4) : TERN_ARROW_PLAIN;
    if (a->codec == TERN_ARROW_LZ4)
        return tern_err_set(err, TERN_USAGE,
                            "%s: compressed by LZ4, which this tern does not read. Write it "
                            "without compression or with Zstandard.",
                            a->path);
    if (a->codec != TERN_ARROW_PLAIN && a->codec != TERN_ARROW_ZSTD)
        return tern_arrow_bad(a, "compressed in a way that is not known", err);
    return 0;
}

/* Rows of null and of structs have no bytes of their own. Without a limit a few bytes would be a
 * record batch that never ends. */
static int check_records(const struct tern_arrow *a, struct tern_err *err)
{
    uint64_t bytes = 0;

    for (int i = 0; i < a->n_nodes; i++) {
        const struct tern_arrow_node *n = &a->node[i];
        if (n->used)
            bytes += n->valid.len + n->offsets.len + n->values.len;
    }
    return a->rows / 8 > bytes
               ? tern_err_set(err, TERN_USAGE, "%s: the columns that are read have no values",
                              a->path)
               : 0;
}

static int load_batch(struct tern_arrow *a, struct tern_arrow_flat *flat,
                      const struct tern_arrow_table *batch, struct tern_err *err)
{
    const int64_t rows = tern_arrow_flat_int(batch, 0, 8, 0);
    const struct tern_arrow_vector buffers = tern_arrow_flat_vector(batch, 2, 16);

    if (rows < 0)
        return tern_arrow_bad(a, "a record batch of less than no rows", err);
    a->rows = (uint64_t)rows;
    if (place_nodes(a, flat, batch, buffers.n, err) < 0 || read_codec(a, batch, err) < 0)
        return -1;
    if (flat->bad)
        return tern_arrow_bad(a, "a message leads astray", err);
    for (int i = 0; i < a->n_nodes; i++)
        if (a->node[i].used &&
            (check_node(a, i, err) < 0 || load_node(a, flat, &buffers, i, err) < 0))
            return -1;
    return a->records ? check_records(a, err) : 0;
}

int tern_arrow_next(struct tern_arrow *a, struct tern_err *err)
{
    struct tern_arrow_flat flat;
    struct tern_arrow_table header;
    int64_t type;
    int rc;

    a->rows = 0;
    if (a->ended)
        return 0;
    while ((rc = next_message(a, &flat, &type, &header, err)) > 0) {
        if (type == TERN_ARROW_DICTIONARY) /* of columns that cannot be used */
            continue;
        if (type != TERN_ARROW_BATCH)
            return tern_arrow_bad(a, "a message that is no record batch", err);
        if (load_batch(a, &flat, &header, err) == 0)
            return 1;
        a->rows = 0;
        return -1;
    }
    return rc;
}

uint64_t tern_arrow_rows(const struct tern_arrow *a)
{
    return a->rows;
}
