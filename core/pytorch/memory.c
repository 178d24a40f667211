/* The memory of a pickle's values, with its ceiling; and messages. */
#include "core/pytorch/pickle.h"

#include "core/base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MEMORY_MAX = 512 << 20, /* 300 bytes a tensor: far more than the largest model has */
    BLOCK = 1 << 20,
};

struct tern_pytorch_block {
    struct tern_pytorch_block *next;
    size_t used, room;
    _Alignas(16) char bytes[];
};

int tern_pytorch_pickle_fail(struct tern_pytorch_pickle *p, const char *fmt, ...)
{
    char text[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tern_str_mask(text); /* names come from the file */
    return tern_err_set(p->err, TERN_USAGE, "%s: %s (byte %zu)", p->path, text, p->at);
}

static int out_of_memory(struct tern_pytorch_pickle *p)
{
    return tern_pytorch_pickle_fail(p, "its pickle needs more than %d MiB of memory",
                                    MEMORY_MAX >> 20);
}

void *tern_pytorch_pickle_alloc(struct tern_pytorch_pickle *p, size_t bytes)
{
    struct tern_pytorch_block *b = p->blocks;

    bytes = (bytes + 15) / 16 * 16;
    if (bytes > MEMORY_MAX || p->used + bytes > MEMORY_MAX) {
        out_of_memory(p);
        return NULL;
    }
    p->used += bytes;
    if (!b || b->room - b->used < bytes) {
        size_t room = bytes > BLOCK ? bytes : BLOCK;
        b = tern_alloc(1, sizeof *b + room, p->path, p->err);
        if (!b)
            return NULL;
        b->room = room;
        b->next = p->blocks;
        p->blocks = b;
    }
    b->used += bytes;
    return b->bytes + b->used - bytes;
}

int tern_pytorch_pickle_grow(struct tern_pytorch_pickle *p, void *v, size_t size, size_t n,
                             size_t *room)
{
    void *old, *more;

    if (n < *room)
        return 0;
    size_t want = *room ? 2 * *room : 4;
    more = tern_pytorch_pickle_alloc(p, want * size);
    if (!more)
        return -1;
    memcpy(&old, v, sizeof old);
    if (n)
        memcpy(more, old, n * size);
    memcpy(v, &more, sizeof more);
    *room = want;
    return 0;
}

struct tern_pytorch_value *tern_pytorch_pickle_new(struct tern_pytorch_pickle *p,
                                                   enum tern_pytorch_kind kind)
{
    struct tern_pytorch_value *v = tern_pytorch_pickle_alloc(p, sizeof *v);

    if (v)
        v->kind = kind;
    return v;
}

int tern_pytorch_pickle_add(struct tern_pytorch_pickle *p, struct tern_pytorch_value *to,
                            struct tern_pytorch_value *v)
{
    if (tern_pytorch_pickle_grow(p, &to->items.v, sizeof(void *), to->items.n, &to->items.room) < 0)
        return -1;
    to->items.v[to->items.n++] = v;
    return 0;
}

void tern_pytorch_pickle_free(struct tern_pytorch_pickle *p)
{
    while (p->blocks) {
        struct tern_pytorch_block *b = p->blocks;
        p->blocks = b->next;
        free(b);
    }
}
