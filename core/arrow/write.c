/* Writing a stream of record batches whose columns are lists of whole numbers. */
#include "core/arrow/flat.h"
#include "core/arrow/read.h"

#include "core/base/assert.h"
#include "core/base/fs.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 8, COLUMNS_MAX = 16, V5 = 4 };

struct tern_arrow_writer {
    int fd; /* -1: bytes are counted */
    char *path;
    uint64_t bytes;
    struct {
        char *name;
        unsigned bits;
    } column[COLUMNS_MAX];
    size_t n;
    struct tern_arrow_bytes offsets; /* i32 [rows + 1] */
};

static size_t padded(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static int put(struct tern_arrow_writer *w, const void *data, size_t len, struct tern_err *err)
{
    const uint64_t at = w->bytes;

    w->bytes += len;
    return w->fd < 0 ? 0 : tern_fs_write_at(w->fd, at, data, len, w->path, err);
}

/* ---- messages ---- */

/* A Message whose header is to be written at `*ret_header`. */
static void message_begin(struct tern_buf *b, enum tern_arrow_header type, uint64_t body,
                          size_t *ret_header)
{
    /* version i16, header_type u8, header, bodyLength i64 */
    static const uint8_t bytes[] = {2, 1, 4, 8};
    size_t root = b->len, place[TERN_ARROW_FIELDS];

    tern_buf_add(b, (uint32_t[]){0}, 4);
    tern_arrow_build_ref(b, root, tern_arrow_build_table(b, bytes, 4, place));
    tern_arrow_build_int(b, place[0], V5, 2);
    tern_arrow_build_int(b, place[1], type, 1);
    tern_arrow_build_int(b, place[3], (int64_t)body, 8);
    *ret_header = place[2];
}

/* The message, framed: the continuation mark, its length, itself up to a multiple of 8. */
static int message_write(struct tern_arrow_writer *w, struct tern_buf *b, struct tern_err *err)
{
    tern_arrow_build_align(b, ALIGN);
    if (tern_buf_check(b, w->path, err) < 0)
        return -1;
    const int32_t head[2] = {-1, (int32_t)b->len};
    return put(w, head, sizeof head, err) < 0 || put(w, b->data, b->len, err) < 0 ? -1 : 0;
}

/* ---- the schema ---- */

/* A Field with `type` and its children's vector to be filled in. */
static void build_field(struct tern_buf *b, size_t ref, const char *name, enum tern_arrow_type type,
                        size_t ret_place[TERN_ARROW_FIELDS])
{
    /* name, nullable, type_type, type, dictionary, children */
    static const uint8_t bytes[] = {4, 1, 1, 4, 0, 4};

    tern_arrow_build_ref(b, ref, tern_arrow_build_table(b, bytes, 6, ret_place));
    tern_arrow_build_int(b, ret_place[1], 1, 1);
    tern_arrow_build_int(b, ret_place[2], type, 1);
    tern_arrow_build_string(b, ret_place[0], name);
}

static void build_list(struct tern_buf *b, size_t ref, const char *name, unsigned bits)
{
    static const uint8_t of_int[] = {4, 1}; /* bitWidth, is_signed */
    size_t list[TERN_ARROW_FIELDS], item[TERN_ARROW_FIELDS], type[TERN_ARROW_FIELDS];

    build_field(b, ref, name, TERN_ARROW_T_LIST, list);
    tern_arrow_build_ref(b, list[3], tern_arrow_build_table(b, NULL, 0, type));
    build_field(b, tern_arrow_build_vector(b, list[5], 1, 4), "item", TERN_ARROW_T_INT, item);
    tern_arrow_build_ref(b, item[3], tern_arrow_build_table(b, of_int, 2, type));
    tern_arrow_build_int(b, type[0], bits, 4);
    tern_arrow_build_int(b, type[1], 1, 1);
    tern_arrow_build_vector(b, item[5], 0, 4);
}

static int write_schema(struct tern_arrow_writer *w, const char *note_key, const char *note,
                        struct tern_err *err)
{
    /* endianness, fields, custom_metadata */
    const uint8_t bytes[] = {0, 4, note ? 4 : 0}, of_note[] = {4, 4};
    struct tern_buf b = {0};
    size_t header, schema[TERN_ARROW_FIELDS], pair[TERN_ARROW_FIELDS];

    message_begin(&b, TERN_ARROW_SCHEMA, /* body= */ 0, &header);
    tern_arrow_build_ref(&b, header, tern_arrow_build_table(&b, bytes, 3, schema));
    const size_t fields = tern_arrow_build_vector(&b, schema[1], (uint32_t)w->n, 4);
    for (size_t i = 0; i < w->n; i++)
        build_list(&b, fields + 4 * i, w->column[i].name, w->column[i].bits);
    if (note) {
        const size_t ref = tern_arrow_build_vector(&b, schema[2], 1, 4);
        tern_arrow_build_ref(&b, ref, tern_arrow_build_table(&b, of_note, 2, pair));
        tern_arrow_build_string(&b, pair[0], note_key);
        tern_arrow_build_string(&b, pair[1], note);
    }
    const int rc = message_write(w, &b, err);
    tern_buf_free(&b);
    return rc;
}

struct tern_arrow_writer *tern_arrow_writer_new(int fd, const char *path,
                                                const struct tern_arrow_lists *columns, size_t n,
                                                const char *note_key, const char *note,
                                                struct tern_err *err)
{
    struct tern_arrow_writer *w = tern_alloc(1, sizeof *w, "an Arrow file", err);

    if (!w)
        return NULL;
    tern_assert(n <= COLUMNS_MAX, "%zu columns", n);
    w->fd = fd;
    w->path = tern_strdup(path);
    w->n = n;
    for (size_t i = 0; i < n; i++) {
        w->column[i].name = tern_strdup(columns[i].name);
        w->column[i].bits = columns[i].bits;
    }
    if (write_schema(w, note_key, note, err) == 0)
        return w;
    tern_arrow_writer_free(w);
    return NULL;
}

/* ---- batches ---- */

/* The RecordBatch: two arrays a column, the list's and its numbers', four buffers, no nulls. */
static void build_batch(const struct tern_arrow_writer *w, struct tern_buf *b, uint32_t rows,
                        uint32_t length)
{
    static const uint8_t bytes[] = {8, 4, 4}; /* length, nodes, buffers */
    const size_t offsets = ((size_t)rows + 1) * 4;
    uint64_t at = 0;
    size_t header, place[TERN_ARROW_FIELDS], body = 0;

    for (size_t i = 0; i < w->n; i++)
        body += padded(offsets) + padded((size_t)rows * length * (w->column[i].bits / 8));
    message_begin(b, TERN_ARROW_BATCH, body, &header);
    tern_arrow_build_ref(b, header, tern_arrow_build_table(b, bytes, 3, place));
    tern_arrow_build_int(b, place[0], rows, 8);
    const size_t nodes = tern_arrow_build_vector(b, place[1], (uint32_t)(2 * w->n), 16);
    const size_t buffers = tern_arrow_build_vector(b, place[2], (uint32_t)(4 * w->n), 16);
    for (size_t i = 0; i < w->n; i++) {
        const size_t numbers = (size_t)rows * length * (w->column[i].bits / 8);
        const uint64_t part[8] = {
            at, 0, at, offsets, at + padded(offsets), 0, at + padded(offsets), numbers};
        tern_arrow_build_int(b, nodes + 32 * i, rows, 8);
        tern_arrow_build_int(b, nodes + 32 * i + 16, (int64_t)rows * length, 8);
        for (size_t k = 0; k < 8; k++)
            tern_arrow_build_int(b, buffers + 64 * i + 8 * k, (int64_t)part[k], 8);
        at += padded(offsets) + padded(numbers);
    }
    tern_assert_cmp(at, ==, body);
}

static int write_padded(struct tern_arrow_writer *w, const void *data, size_t len,
                        struct tern_err *err)
{
    static const char zeros[ALIGN];

    return put(w, data, len, err) < 0 || put(w, zeros, padded(len) - len, err) < 0 ? -1 : 0;
}

int tern_arrow_writer_batch(struct tern_arrow_writer *w, uint32_t rows, uint32_t length,
                            const void *const *values, struct tern_err *err)
{
    const size_t offsets = ((size_t)rows + 1) * 4;
    struct tern_buf b = {0};

    tern_assert((uint64_t)rows * length <= INT32_MAX, "%u rows of %u", rows, length);
    if (tern_arrow_reserve(&w->offsets, offsets, err) < 0)
        return -1;
    for (uint32_t i = 0; i <= rows; i++)
        ((int32_t *)(void *)w->offsets.data)[i] = (int32_t)(i * length);
    build_batch(w, &b, rows, length);
    int rc = message_write(w, &b, err);
    tern_buf_free(&b);
    for (size_t i = 0; i < w->n && rc == 0; i++) {
        const size_t numbers = (size_t)rows * length * (w->column[i].bits / 8);
        if (write_padded(w, w->offsets.data, offsets, err) < 0 ||
            write_padded(w, values[i], numbers, err) < 0)
            rc = -1;
    }
    return rc;
}

int tern_arrow_writer_end(struct tern_arrow_writer *w, struct tern_err *err)
{
    const int32_t end[2] = {-1, 0};

    return put(w, end, sizeof end, err);
}

uint64_t tern_arrow_writer_bytes(const struct tern_arrow_writer *w)
{
    return w->bytes;
}

void tern_arrow_writer_free(struct tern_arrow_writer *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n; i++)
        free(w->column[i].name);
    free(w->offsets.data);
    free(w->path);
    free(w);
}
