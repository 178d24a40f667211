/* Files as torch.save writes them, for tests: a pickle by its opcodes, and both forms around it.
 *
 *     struct torch_file t = {0};
 *     torch_begin(&t);                            // OrderedDict, and a mark
 *     torch_key(&t, "a"); torch_tensor(&t, &(struct torch_tensor){.storage = torch_storage(&t,
 *         "FloatStorage", 4, data, 12), .ndim = 2, .shape = {3, 4}, .stride = {4, 1}});
 *     torch_end(&t);                              // SETITEMS, STOP
 *     torch_zip(&t, &file);  or  torch_old(&t, &file);
 */
#ifndef TESTS_LIB_TORCH_FILE_H
#define TESTS_LIB_TORCH_FILE_H

#include "core/base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TORCH_STORAGES = 256 };

struct torch_storage {
    const char *type;
    const void *data;
    size_t elements, element;
};

struct torch_file {
    struct tern_buf p; /* the pickle */
    struct torch_storage storages[TORCH_STORAGES];
    int n;
    bool old; /* persistent ids of six, for the older form */
};

struct torch_tensor {
    int storage, ndim;
    uint32_t offset, shape[8], stride[8];
    bool parameter;
};

static inline void torch_byte(struct tern_buf *b, unsigned char c)
{
    tern_buf_add(b, &c, 1);
}

static inline void torch_number(struct tern_buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        torch_byte(b, i < 8 ? (unsigned char)(v >> 8 * i) : 0);
}

static inline void torch_key(struct torch_file *t, const char *s)
{
    torch_byte(&t->p, 'X');
    torch_number(&t->p, strlen(s), 4);
    tern_buf_puts(&t->p, s);
}

static inline void torch_int(struct torch_file *t, uint32_t v)
{
    torch_byte(&t->p, 'J');
    torch_number(&t->p, v, 4);
}

static inline void torch_global(struct torch_file *t, const char *module, const char *name)
{
    tern_buf_printf(&t->p, "c%s\n%s\n", module, name);
}

/* OrderedDict(), with a mark for its items. */
static inline void torch_dict(struct torch_file *t)
{
    torch_global(t, "collections", "OrderedDict");
    tern_buf_puts(&t->p, ")R(");
}

static inline void torch_begin(struct torch_file *t)
{
    tern_buf_add(&t->p, "\x80\x02", 2);
    torch_dict(t);
}

static inline void torch_end(struct torch_file *t)
{
    tern_buf_puts(&t->p, "u.");
}

static inline int torch_storage(struct torch_file *t, const char *type, size_t element,
                                const void *data, size_t elements)
{
    t->storages[t->n] = (struct torch_storage){type, data, elements, element};
    return t->n++;
}

static inline void torch_storage_id(struct torch_file *t, int i)
{
    const struct torch_storage *s = &t->storages[i];
    char key[16];

    snprintf(key, sizeof key, "%d", i);
    tern_buf_puts(&t->p, "(");
    torch_key(t, "storage");
    torch_global(t, "torch", s->type);
    torch_key(t, key);
    torch_key(t, "cpu");
    torch_int(t, (uint32_t)s->elements);
    tern_buf_puts(&t->p, t->old ? "NtQ" : "tQ");
}

static inline void torch_dims(struct torch_file *t, const uint32_t *v, int n)
{
    tern_buf_puts(&t->p, "(");
    for (int d = 0; d < n; d++)
        torch_int(t, v[d]);
    tern_buf_puts(&t->p, "t");
}

static inline void torch_tensor(struct torch_file *t, const struct torch_tensor *x)
{
    if (x->parameter) {
        torch_global(t, "torch._utils", "_rebuild_parameter");
        tern_buf_puts(&t->p, "(");
    }
    torch_global(t, "torch._utils", "_rebuild_tensor_v2");
    tern_buf_puts(&t->p, "(");
    torch_storage_id(t, x->storage);
    torch_int(t, x->offset);
    torch_dims(t, x->shape, x->ndim);
    torch_dims(t, x->stride, x->ndim);
    torch_byte(&t->p, 0x89);
    torch_global(t, "collections", "OrderedDict");
    tern_buf_puts(&t->p, ")RtR");
    if (x->parameter) {
        torch_byte(&t->p, 0x88);
        torch_global(t, "collections", "OrderedDict");
        tern_buf_puts(&t->p, ")RtR");
    }
}

/* ---------------------------------------------------------------- the zip archive */

struct torch_entry {
    char name[64];
    uint64_t at, bytes;
    unsigned method;
};

struct torch_archive {
    struct tern_buf b;
    struct torch_entry e[TORCH_STORAGES + 8];
    int n;
};

/* Data begin at a multiple of 64, as PyTorch lays them. */
static inline void torch_put(struct torch_archive *a, const char *name, const void *data, size_t n)
{
    struct torch_entry *e = &a->e[a->n++];
    const size_t head = 30 + strlen(name) + 4;
    const size_t pad = (64 - (a->b.len + head) % 64) % 64;

    snprintf(e->name, sizeof e->name, "%s", name);
    e->at = a->b.len;
    e->bytes = n;
    torch_number(&a->b, 0x04034b50, 4);
    torch_number(&a->b, 0, 10);
    torch_number(&a->b, 0, 4);
    torch_number(&a->b, n, 4);
    torch_number(&a->b, n, 4);
    torch_number(&a->b, strlen(name), 2);
    torch_number(&a->b, pad + 4, 2);
    tern_buf_puts(&a->b, name);
    tern_buf_puts(&a->b, "FB");
    torch_number(&a->b, pad, 2);
    for (size_t i = 0; i < pad; i++)
        torch_byte(&a->b, 'Z');
    tern_buf_add(&a->b, data, n);
}

/* The directory: with `wide`, numbers as zip64 has them. */
static inline void torch_close(struct torch_archive *a, bool wide)
{
    const uint64_t at = a->b.len;

    for (int i = 0; i < a->n; i++) {
        const struct torch_entry *e = &a->e[i];
        torch_number(&a->b, 0x02014b50, 4);
        torch_number(&a->b, 0, 6);
        torch_number(&a->b, e->method, 2);
        torch_number(&a->b, 0, 8);
        torch_number(&a->b, wide ? UINT32_MAX : e->bytes, 4);
        torch_number(&a->b, wide ? UINT32_MAX : e->bytes, 4);
        torch_number(&a->b, strlen(e->name), 2);
        torch_number(&a->b, wide ? 28 : 0, 2);
        torch_number(&a->b, 0, 10);
        torch_number(&a->b, wide ? UINT32_MAX : e->at, 4);
        tern_buf_puts(&a->b, e->name);
        if (!wide)
            continue;
        torch_number(&a->b, 1, 2);
        torch_number(&a->b, 24, 2);
        torch_number(&a->b, e->bytes, 8);
        torch_number(&a->b, e->bytes, 8);
        torch_number(&a->b, e->at, 8);
    }
    const uint64_t end = a->b.len;
    if (wide) {
        torch_number(&a->b, 0x06064b50, 4);
        torch_number(&a->b, 44, 8);
        torch_number(&a->b, 0, 12);
        torch_number(&a->b, (uint64_t)a->n, 8);
        torch_number(&a->b, (uint64_t)a->n, 8);
        torch_number(&a->b, end - at, 8);
        torch_number(&a->b, at, 8);
        torch_number(&a->b, 0x07064b50, 4);
        torch_number(&a->b, 0, 4);
        torch_number(&a->b, end, 8);
        torch_number(&a->b, 1, 4);
    }
    torch_number(&a->b, 0x06054b50, 4);
    torch_number(&a->b, 0, 4);
    torch_number(&a->b, wide ? UINT16_MAX : (uint64_t)a->n, 2);
    torch_number(&a->b, wide ? UINT16_MAX : (uint64_t)a->n, 2);
    torch_number(&a->b, wide ? UINT32_MAX : end - at, 4);
    torch_number(&a->b, wide ? UINT32_MAX : at, 4);
    torch_number(&a->b, 0, 2);
}

static inline void torch_put_all(const struct torch_file *t, struct torch_archive *a)
{
    char name[64];

    torch_put(a, "archive/data.pkl", t->p.data, t->p.len);
    torch_put(a, "archive/byteorder", "little", 6);
    for (int i = 0; i < t->n; i++) {
        snprintf(name, sizeof name, "archive/data/%d", i);
        torch_put(a, name, t->storages[i].data, t->storages[i].elements * t->storages[i].element);
    }
    torch_put(a, "archive/version", "3\n", 2);
}

/* *ret_file: free it with tern_buf_free. */
static inline void torch_zip(const struct torch_file *t, struct tern_buf *ret_file)
{
    struct torch_archive a = {0};

    torch_put_all(t, &a);
    torch_close(&a, false);
    *ret_file = a.b;
}

/* ---------------------------------------------------------------- the older form */

static inline void torch_old(const struct torch_file *t, struct tern_buf *ret_file)
{
    static const char head[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
                               "\x80\x02M\xe9\x03.\x80\x02}(X\x0d\0\0\0little_endian\x88u.";
    struct tern_buf b = {0};

    tern_buf_add(&b, head, sizeof head - 1);
    tern_buf_add(&b, t->p.data, t->p.len);
    tern_buf_add(&b, "\x80\x02](", 4);
    for (int i = 0; i < t->n; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        torch_byte(&b, 'X');
        torch_number(&b, strlen(key), 4);
        tern_buf_puts(&b, key);
    }
    tern_buf_puts(&b, "e.");
    for (int i = 0; i < t->n; i++) {
        torch_number(&b, t->storages[i].elements, 8);
        tern_buf_add(&b, t->storages[i].data, t->storages[i].elements * t->storages[i].element);
    }
    *ret_file = b;
}

#endif
