/* PyTorch's zip format out: a pickle of few opcodes, and stored entries. */
#include "core/pytorch/write.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/behind.h"
#include "core/base/fs.h"
#include "core/base/le.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum {
    ALIGN = 64,                 /* of a storage in the file: PyTorch's, for mmap */
    LOCAL = 30,                 /* bytes of a local header before the name */
    CENTRAL = 46,               /* and of its copy in the directory */
    LOCAL_CRC = 14,             /* where the checksum lies in it */
    DATE_1980 = 0x21,           /* the first day that zip can tell */
    FLAG_UTF8 = 0x0800,         /* names are UTF-8 */
    VERSION_PLAIN = 20,         /* of zip that a reader needs */
    VERSION_ZIP64 = 45,         /* likewise */
    EXTRA_ZIP64 = 1,            /* a field of sizes with 64 bits */
    EXTRA_PAD = 'F' | 'B' << 8, /* PyTorch's field of padding */
    MOST_ENTRIES = 0xffff,
};
static const uint32_t saturated = 0xffffffff;

/* ------------------------------------------------------------------ types */

static const struct {
    const char *dtype, *storage;
    unsigned bytes;
} types[] = {
    {"float64", "DoubleStorage", 8}, {"float32", "FloatStorage", 4},
    {"float16", "HalfStorage", 2},   {"bfloat16", "BFloat16Storage", 2},
    {"int64", "LongStorage", 8},     {"int32", "IntStorage", 4},
    {"int16", "ShortStorage", 2},    {"int8", "CharStorage", 1},
    {"uint8", "ByteStorage", 1},     {"bool", "BoolStorage", 1},
};
enum { TYPES = sizeof types / sizeof *types };

static size_t type_find(const char *dtype)
{
    size_t i = 0;

    while (i < TYPES && strcmp(types[i].dtype, dtype) != 0)
        i++;
    return i;
}

unsigned tern_pytorch_dtype_bytes(const char *dtype)
{
    size_t i = type_find(dtype);

    return i < TYPES ? types[i].bytes : 0;
}

/* ------------------------------------------------------------------ the pickle */

/* Opcodes of protocol 2 (CPython, Lib/pickle.py). */
enum op {
    OP_PROTO = 0x80,
    OP_STOP = '.',
    OP_MARK = '(',
    OP_EMPTY_DICT = '}',
    OP_SETITEMS = 'u',
    OP_SETITEM = 's',
    OP_EMPTY_TUPLE = ')',
    OP_TUPLE = 't',
    OP_TUPLE1 = 0x85,
    OP_TRUE = 0x88,
    OP_FALSE = 0x89,
    OP_BINUNICODE = 'X',
    OP_BININT = 'J',
    OP_LONG1 = 0x8a,
    OP_GLOBAL = 'c',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_NEWOBJ = 0x81,
    OP_BUILD = 'b',
};

struct tern_pytorch_object {
    struct tern_buf text;
    uint64_t *storage; /* [n]: bytes of each */
    size_t n, cap;
    int depth; /* dicts that are open */
};

static void op(struct tern_pytorch_object *p, enum op o)
{
    uint8_t byte = (uint8_t)o;

    tern_buf_add(&p->text, &byte, 1);
}

static void global(struct tern_pytorch_object *p, const char *module, const char *name)
{
    op(p, OP_GLOBAL);
    tern_buf_printf(&p->text, "%s\n%s\n", module, name);
}

struct tern_pytorch_object *tern_pytorch_object_new(void)
{
    struct tern_pytorch_object *p = tern_alloc(1, sizeof *p, "pickle", NULL);

    if (!p)
        abort();
    op(p, OP_PROTO);
    tern_buf_add(&p->text, "\2", 1);
    return p;
}

void tern_pytorch_object_free(struct tern_pytorch_object *p)
{
    if (!p)
        return;
    tern_buf_free(&p->text);
    free(p->storage);
    free(p);
}

void tern_pytorch_object_dict(struct tern_pytorch_object *p)
{
    op(p, OP_EMPTY_DICT);
    op(p, OP_MARK);
    p->depth++;
}

void tern_pytorch_object_end(struct tern_pytorch_object *p)
{
    tern_assert(p->depth > 0);
    op(p, OP_SETITEMS);
    p->depth--;
}

void tern_pytorch_object_text(struct tern_pytorch_object *p, const char *utf8)
{
    uint8_t len[4];

    tern_le_put32(len, (uint32_t)strlen(utf8));
    op(p, OP_BINUNICODE);
    tern_buf_add(&p->text, len, sizeof len);
    tern_buf_puts(&p->text, utf8);
}

void tern_pytorch_object_int(struct tern_pytorch_object *p, int64_t n)
{
    uint8_t bytes[9], *to = bytes;

    if (n >= INT32_MIN && n <= INT32_MAX) {
        op(p, OP_BININT);
        to = tern_le_put32(to, (uint32_t)n);
    } else {
        op(p, OP_LONG1);
        *to++ = 8;
        to = tern_le_put64(to, (uint64_t)n);
    }
    tern_buf_add(&p->text, bytes, (size_t)(to - bytes));
}

void tern_pytorch_object_bool(struct tern_pytorch_object *p, bool is)
{
    op(p, is ? OP_TRUE : OP_FALSE);
}

void tern_pytorch_object_dtype(struct tern_pytorch_object *p, const char *dtype)
{
    tern_assert(type_find(dtype) < TYPES, "%s", dtype);
    global(p, "torch", dtype);
}

static void sizes(struct tern_pytorch_object *p, const uint64_t *n, int ndim)
{
    op(p, OP_MARK);
    for (int d = 0; d < ndim; d++)
        tern_pytorch_object_int(p, (int64_t)n[d]);
    op(p, OP_TUPLE);
}

void tern_pytorch_object_size(struct tern_pytorch_object *p, const struct tern_pytorch_array *t)
{
    global(p, "torch", "Size");
    sizes(p, t->shape, t->ndim);
    op(p, OP_TUPLE1);
    op(p, OP_REDUCE);
}

/* ("storage", torch.FloatStorage, "0", "cpu", elements), a persistent id. */
static void storage(struct tern_pytorch_object *p, size_t type, uint64_t elements)
{
    char key[24];

    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 16;
        p->storage = realloc(p->storage, p->cap * sizeof *p->storage);
        if (!p->storage)
            abort();
    }
    snprintf(key, sizeof key, "%zu", p->n);
    p->storage[p->n++] = elements * types[type].bytes;
    op(p, OP_MARK);
    tern_pytorch_object_text(p, "storage");
    global(p, "torch", types[type].storage);
    tern_pytorch_object_text(p, key);
    tern_pytorch_object_text(p, "cpu");
    tern_pytorch_object_int(p, (int64_t)elements);
    op(p, OP_TUPLE);
    op(p, OP_BINPERSID);
}

/* torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks). */
void tern_pytorch_object_tensor(struct tern_pytorch_object *p, const struct tern_pytorch_array *t)
{
    size_t type = type_find(t->dtype);
    uint64_t stride[TERN_PYTORCH_DIMS], elements = 1;

    tern_assert(type < TYPES && t->ndim >= 0 && t->ndim <= TERN_PYTORCH_DIMS, "%s, %d axes",
                t->dtype, t->ndim);
    for (int d = t->ndim - 1; d >= 0; d--) {
        stride[d] = elements;
        tern_assert(t->shape[d] == 0 || elements <= (uint64_t)INT64_MAX / 8 / t->shape[d]);
        elements *= t->shape[d];
    }
    global(p, "torch._utils", "_rebuild_tensor_v2");
    op(p, OP_MARK);
    storage(p, type, elements);
    tern_pytorch_object_int(p, 0);
    sizes(p, t->shape, t->ndim);
    sizes(p, stride, t->ndim);
    tern_pytorch_object_bool(p, false);
    global(p, "collections", "OrderedDict");
    op(p, OP_EMPTY_TUPLE);
    op(p, OP_REDUCE);
    op(p, OP_TUPLE);
    op(p, OP_REDUCE);
}

void tern_pytorch_object_reference(struct tern_pytorch_object *p, int64_t id)
{
    global(p, "torch_xla.utils.serialization", "TensorReference");
    op(p, OP_EMPTY_TUPLE);
    op(p, OP_NEWOBJ);
    op(p, OP_EMPTY_DICT);
    tern_pytorch_object_text(p, "tid");
    tern_pytorch_object_int(p, id);
    op(p, OP_SETITEM);
    op(p, OP_BUILD);
}

/* ------------------------------------------------------------------ the archive */

struct entry {
    char *name;
    uint64_t at, bytes; /* of its header in the file; of its content */
    uint32_t crc;
};

struct tern_pytorch_write {
    struct tern_fs_new file;
    struct tern_behind *behind;
    struct tern_pytorch_object *p;
    char *archive; /* the folder in the zip */
    struct entry *entries;
    size_t n;
    uint64_t at, zip64_from; /* bytes written */
    size_t next;             /* storage */
    uint64_t left;           /* bytes of the open entry that are still to come */
    bool open;
};

static int append(struct tern_pytorch_write *w, const void *data, size_t len, struct tern_err *err)
{
    if (tern_behind_write(w->behind, data, len, err) < 0)
        return -1;
    w->at += len;
    return 0;
}

static bool is_large(const struct tern_pytorch_write *w, uint64_t n)
{
    return n >= w->zip64_from;
}

static uint32_t small(const struct tern_pytorch_write *w, uint64_t n)
{
    return is_large(w, n) ? saturated : (uint32_t)n;
}

/* What a local header and its copy in the directory have in common, from the version on. */
static uint8_t *put_common(const struct tern_pytorch_write *w, const struct entry *e, bool large,
                           uint8_t *to)
{
    to = tern_le_put16(to, large ? VERSION_ZIP64 : VERSION_PLAIN);
    to = tern_le_put16(to, FLAG_UTF8);
    to = tern_le_put16(to, 0); /* stored */
    to = tern_le_put16(to, 0);
    to = tern_le_put16(to, DATE_1980);
    to = tern_le_put32(to, e->crc);
    to = tern_le_put32(to, small(w, e->bytes));
    to = tern_le_put32(to, small(w, e->bytes));
    return tern_le_put16(to, (uint16_t)strlen(e->name));
}

/* The header, padded so that the content begins at a multiple of ALIGN. */
static int entry_begin(struct tern_pytorch_write *w, const char *name, uint64_t bytes,
                       struct tern_err *err)
{
    struct entry *e = &w->entries[w->n++];
    uint8_t head[LOCAL], extra[20 + 4 + ALIGN], *to = head, *x = extra;

    tern_assert(!w->open);
    *e = (struct entry){tern_strf("%s/%s", w->archive, name), w->at, bytes, 0};
    if (is_large(w, bytes)) {
        x = tern_le_put16(x, EXTRA_ZIP64);
        x = tern_le_put16(x, 16);
        x = tern_le_put64(x, bytes);
        x = tern_le_put64(x, bytes);
    }
    size_t n = strlen(e->name), fixed = LOCAL + n + (size_t)(x - extra);
    size_t pad = (ALIGN - (w->at + fixed) % ALIGN) % ALIGN;
    if (pad > 0) {
        pad = pad < 4 ? pad + ALIGN : pad; /* a field has four bytes at least */
        x = tern_le_put16(x, EXTRA_PAD);
        x = tern_le_put16(x, (uint16_t)(pad - 4));
        memset(x, 'Z', pad - 4);
        x += pad - 4;
    }
    to = tern_le_put32(to, 0x04034b50);
    to = put_common(w, e, is_large(w, bytes), to);
    to = tern_le_put16(to, (uint16_t)(x - extra));
    tern_assert_cmp(to - head, ==, LOCAL);
    if (append(w, head, LOCAL, err) < 0 || append(w, e->name, n, err) < 0 ||
        append(w, extra, (size_t)(x - extra), err) < 0)
        return -1;
    tern_assert(w->at % ALIGN == 0, "%s at %llu", e->name, (unsigned long long)w->at);
    w->left = bytes;
    w->open = true;
    return 0;
}

static int entry_add(struct tern_pytorch_write *w, const void *data, size_t len,
                     struct tern_err *err)
{
    struct entry *e = &w->entries[w->n - 1];

    tern_assert(w->open && len <= w->left);
    e->crc = (uint32_t)crc32_z(e->crc, data, len);
    w->left -= len;
    return append(w, data, len, err);
}

static void entry_end(struct tern_pytorch_write *w)
{
    const struct entry *e = &w->entries[w->n - 1];

    tern_assert(w->open && w->left == 0, "%s: %llu bytes are missing", e->name,
                (unsigned long long)w->left);
    w->open = false;
}

/* The checksums, known by now, go back into the headers. */
static int put_checksums(struct tern_pytorch_write *w, struct tern_err *err)
{
    uint8_t crc[4];

    for (size_t i = 0; i < w->n; i++) {
        tern_le_put32(crc, w->entries[i].crc);
        if (tern_behind_patch(w->behind, w->entries[i].at + LOCAL_CRC, crc, 4, err) < 0)
            return -1;
    }
    return 0;
}

static int entry_whole(struct tern_pytorch_write *w, const char *name, const void *data, size_t len,
                       struct tern_err *err)
{
    if (entry_begin(w, name, len, err) < 0 || entry_add(w, data, len, err) < 0)
        return -1;
    entry_end(w);
    return 0;
}

/* Begins the next storage; those without a byte are over at once. */
static int storage_begin(struct tern_pytorch_write *w, struct tern_err *err)
{
    char name[32];

    while (!w->open && w->next < w->p->n) {
        snprintf(name, sizeof name, "data/%zu", w->next);
        uint64_t bytes = w->p->storage[w->next++];
        if (entry_begin(w, name, bytes, err) < 0)
            return -1;
        if (bytes == 0)
            entry_end(w);
    }
    return 0;
}

/* ------------------------------------------------------------------ the directory */

static int central(struct tern_pytorch_write *w, const struct entry *e, struct tern_err *err)
{
    uint8_t head[CENTRAL], extra[4 + 24], *to = head, *x = extra + 4;
    bool large = is_large(w, e->bytes), far = is_large(w, e->at);

    if (large) {
        x = tern_le_put64(x, e->bytes);
        x = tern_le_put64(x, e->bytes);
    }
    if (far)
        x = tern_le_put64(x, e->at);
    size_t n = x == extra + 4 ? 0 : (size_t)(x - extra);
    x = extra;
    x = tern_le_put16(x, EXTRA_ZIP64);
    x = tern_le_put16(x, (uint16_t)(n ? n - 4 : 0));
    to = tern_le_put32(to, 0x02014b50);
    to = tern_le_put16(to, 0); /* made by: no system's attributes */
    to = put_common(w, e, large || far, to);
    to = tern_le_put16(to, (uint16_t)n);
    for (int i = 0; i < 3; i++) /* no comment, disk 0, no attributes */
        to = tern_le_put16(to, 0);
    to = tern_le_put32(to, 0);
    to = tern_le_put32(to, small(w, e->at));
    tern_assert_cmp(to - head, ==, CENTRAL);
    return append(w, head, CENTRAL, err) < 0 || append(w, e->name, strlen(e->name), err) < 0 ||
                   append(w, extra, n, err) < 0
               ? -1
               : 0;
}

static int end(struct tern_pytorch_write *w, uint64_t from, struct tern_err *err)
{
    uint8_t text[56 + 20 + 22], *to = text;
    uint64_t at = w->at, size = at - from;
    const uint16_t few = w->n >= MOST_ENTRIES ? MOST_ENTRIES : (uint16_t)w->n;

    if (is_large(w, from) || is_large(w, size) || few == MOST_ENTRIES) {
        to = tern_le_put32(to, 0x06064b50);
        to = tern_le_put64(to, 44); /* bytes that follow */
        to = tern_le_put16(to, VERSION_ZIP64);
        to = tern_le_put16(to, VERSION_ZIP64);
        to = tern_le_put32(to, 0);
        to = tern_le_put32(to, 0);
        to = tern_le_put64(to, w->n);
        to = tern_le_put64(to, w->n);
        to = tern_le_put64(to, size);
        to = tern_le_put64(to, from);
        to = tern_le_put32(to, 0x07064b50); /* where the record above lies */
        to = tern_le_put32(to, 0);
        to = tern_le_put64(to, at);
        to = tern_le_put32(to, 1);
    }
    to = tern_le_put32(to, 0x06054b50);
    to = tern_le_put32(to, 0);
    to = tern_le_put16(to, few);
    to = tern_le_put16(to, few);
    to = tern_le_put32(to, small(w, size));
    to = tern_le_put32(to, small(w, from));
    to = tern_le_put16(to, 0);
    return append(w, text, (size_t)(to - text), err);
}

/* ------------------------------------------------------------------ the file */

static void write_free(struct tern_pytorch_write *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->entries[i].name);
    free(w->entries);
    tern_pytorch_object_free(w->p);
    free(w->archive);
    free(w);
}

struct tern_pytorch_write *tern_pytorch_write_open(const char *path, struct tern_pytorch_object *p,
                                                   const struct tern_pytorch_write_how *how,
                                                   struct tern_err *err)
{
    struct tern_pytorch_write *w = tern_alloc(1, sizeof *w, path, err);

    tern_assert(p->depth == 0);
    op(p, OP_STOP);
    if (!w || tern_buf_check(&p->text, path, err) < 0) {
        tern_pytorch_object_free(p);
        free(w);
        return NULL;
    }
    w->p = p;
    w->zip64_from = how && how->zip64_from ? how->zip64_from : saturated;
    w->archive = tern_strdup(tern_fs_basename(path));
    char *dot = strrchr(w->archive, '.');
    if (dot && dot > w->archive)
        *dot = '\0';
    w->entries = tern_alloc(p->n + 3, sizeof *w->entries, path, err);
    if (!w->entries || tern_fs_new_open(&w->file, path, 0644, err) < 0) {
        write_free(w);
        return NULL;
    }
    w->behind = tern_behind_new(w->file.fd, w->file.path, err);
    if (w->behind && how && how->read_back)
        tern_behind_read_back(w->behind, how->read_back);
    if (!w->behind || entry_whole(w, "data.pkl", p->text.data, p->text.len, err) < 0 ||
        entry_whole(w, "byteorder", "little", 6, err) < 0 || storage_begin(w, err) < 0) {
        tern_pytorch_write_abort(w);
        return NULL;
    }
    return w;
}

int tern_pytorch_write_bytes(struct tern_pytorch_write *w, const void *data, size_t len,
                             struct tern_err *err)
{
    const char *from = data;

    while (len > 0) {
        tern_assert(w->open, "%s: more bytes than its tensors have", w->file.path);
        size_t n = len < w->left ? len : (size_t)w->left;
        if (entry_add(w, from, n, err) < 0)
            return -1;
        if (w->left == 0)
            entry_end(w);
        if (!w->open && storage_begin(w, err) < 0)
            return -1;
        from += n;
        len -= n;
    }
    return 0;
}

int tern_pytorch_write_commit(struct tern_pytorch_write *w, struct tern_err *err)
{
    tern_assert(!w->open && w->next == w->p->n, "%s: a tensor lacks bytes", w->file.path);
    int rc = entry_whole(w, "version", "3\n", 2, err);
    uint64_t from = w->at;

    for (size_t i = 0; rc == 0 && i < w->n; i++)
        rc = central(w, &w->entries[i], err);
    if (rc == 0)
        rc = end(w, from, err);
    tern_assert(rc < 0 || tern_behind_at(w->behind) == w->at, "%s: %llu bytes", w->file.path,
                (unsigned long long)w->at);
    if (rc < 0 || put_checksums(w, err) < 0) {
        tern_pytorch_write_abort(w);
        return -1;
    }
    rc = tern_behind_end(w->behind, err);
    w->behind = NULL;
    if (rc == 0)
        rc = tern_fs_new_commit(&w->file, err);
    else
        tern_fs_new_abort(&w->file);
    write_free(w);
    return rc;
}

void tern_pytorch_write_abort(struct tern_pytorch_write *w)
{
    if (!w)
        return;
    tern_behind_abort(w->behind);
    tern_fs_new_abort(&w->file);
    write_free(w);
}
