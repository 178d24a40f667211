#include "core/arrow/flat.h"

#include "core/base/assert.h"

#include <string.h>

/* ---- reading ---- */

static bool inside(struct tern_arrow_flat *f, size_t at, size_t bytes)
{
    if (at <= f->len && bytes <= f->len - at)
        return true;
    f->bad = true;
    return false;
}

int64_t tern_arrow_flat_at(const struct tern_arrow_flat *f, size_t at, unsigned bytes)
{
    uint64_t v = 0;

    memcpy(&v, f->data + at, bytes);
    const unsigned shift = 64 - 8 * bytes;
    return (int64_t)(v << shift) >> shift;
}

static uint32_t u32_at(const struct tern_arrow_flat *f, size_t at)
{
    return (uint32_t)tern_arrow_flat_at(f, at, 4);
}

static struct tern_arrow_table table_at(struct tern_arrow_flat *f, size_t at)
{
    const struct tern_arrow_table none = {.flat = f};
    struct tern_arrow_table t = {.flat = f, .at = at};

    if (!inside(f, at, 4))
        return none;
    const int64_t vtable = (int64_t)at - tern_arrow_flat_at(f, at, 4);
    if (vtable < 0 || !inside(f, (size_t)vtable, 4)) {
        f->bad = true;
        return none;
    }
    t.vtable = (size_t)vtable;
    t.vtable_bytes = (uint16_t)tern_arrow_flat_at(f, t.vtable, 2);
    t.bytes = (uint16_t)tern_arrow_flat_at(f, t.vtable + 2, 2);
    if (t.vtable_bytes < 4 || t.bytes < 4 || !inside(f, t.vtable, t.vtable_bytes) ||
        !inside(f, at, t.bytes)) {
        f->bad = true;
        return none;
    }
    return t;
}

struct tern_arrow_table tern_arrow_flat_root(struct tern_arrow_flat *f)
{
    if (!inside(f, 0, 4))
        return (struct tern_arrow_table){.flat = f};
    return table_at(f, u32_at(f, 0));
}

/* Where field `id` is; 0 where it is absent. */
static size_t field(const struct tern_arrow_table *t, unsigned id, unsigned bytes)
{
    const unsigned slot = 4 + 2 * id;

    if (t->at == 0 || slot + 2 > t->vtable_bytes)
        return 0;
    const unsigned place = (uint16_t)tern_arrow_flat_at(t->flat, t->vtable + slot, 2);
    if (place == 0)
        return 0;
    if (place < 4 || place + bytes > t->bytes) {
        t->flat->bad = true;
        return 0;
    }
    return t->at + place;
}

int64_t tern_arrow_flat_int(const struct tern_arrow_table *t, unsigned id, unsigned bytes,
                            int64_t absent)
{
    const size_t at = field(t, id, bytes);

    return at ? tern_arrow_flat_at(t->flat, at, bytes) : absent;
}

/* What the reference at `at` leads to: `bytes` of it are inside, else 0. */
static size_t follow(struct tern_arrow_flat *f, size_t at, size_t bytes)
{
    const size_t to = at + u32_at(f, at);

    return to != at && inside(f, to, bytes) ? to : (f->bad = true, 0);
}

struct tern_arrow_table tern_arrow_flat_table(const struct tern_arrow_table *t, unsigned id)
{
    const size_t at = field(t, id, 4), to = at ? follow(t->flat, at, 4) : 0;

    return to ? table_at(t->flat, to) : (struct tern_arrow_table){.flat = t->flat};
}

struct tern_arrow_vector tern_arrow_flat_vector(const struct tern_arrow_table *t, unsigned id,
                                                size_t item_bytes)
{
    const size_t at = field(t, id, 4), to = at ? follow(t->flat, at, 4) : 0;
    struct tern_arrow_vector v = {0};

    if (to && inside(t->flat, to + 4, (size_t)u32_at(t->flat, to) * item_bytes))
        v = (struct tern_arrow_vector){to + 4, u32_at(t->flat, to)};
    return v;
}

struct tern_arrow_table tern_arrow_flat_item(struct tern_arrow_flat *f,
                                             const struct tern_arrow_vector *v, uint32_t i)
{
    tern_assert_cmp(i, <, v->n);
    const size_t to = follow(f, v->at + (size_t)i * 4, 4);

    return to ? table_at(f, to) : (struct tern_arrow_table){.flat = f};
}

const char *tern_arrow_flat_string(const struct tern_arrow_table *t, unsigned id, size_t *ret_len)
{
    const struct tern_arrow_vector v = tern_arrow_flat_vector(t, id, 1);

    *ret_len = v.n;
    return v.at ? (const char *)t->flat->data + v.at : NULL;
}

/* ---- building ---- */

static void zeros(struct tern_buf *b, size_t n)
{
    static const char none[64];

    for (; n > sizeof none; n -= sizeof none)
        tern_buf_add(b, none, sizeof none);
    tern_buf_add(b, none, n);
}

void tern_arrow_build_align(struct tern_buf *b, size_t to)
{
    zeros(b, (to - b->len % to) % to);
}

void tern_arrow_build_int(struct tern_buf *b, size_t place, int64_t v, unsigned bytes)
{
    if (!b->failed) {
        tern_assert(place + bytes <= b->len, "%zu + %u of %zu", place, bytes, b->len);
        memcpy(b->data + place, &v, bytes);
    }
}

void tern_arrow_build_ref(struct tern_buf *b, size_t place, size_t to)
{
    tern_arrow_build_int(b, place, (int64_t)(to - place), 4);
}

size_t tern_arrow_build_table(struct tern_buf *b, const uint8_t *bytes, unsigned n,
                              size_t ret_place[TERN_ARROW_FIELDS])
{
    uint16_t place[TERN_ARROW_FIELDS] = {0}, end = 4;

    tern_assert_cmp(n, <=, TERN_ARROW_FIELDS);
    for (unsigned i = 0; i < n; i++) {
        if (bytes[i] == 0)
            continue;
        end = (uint16_t)((end + bytes[i] - 1) / bytes[i] * bytes[i]);
        place[i] = end;
        end = (uint16_t)(end + bytes[i]);
    }
    tern_arrow_build_align(b, 8);
    const size_t vtable = b->len;
    const uint16_t head[2] = {(uint16_t)(4 + 2 * n), end};
    tern_buf_add(b, head, sizeof head);
    tern_buf_add(b, place, n * sizeof place[0]);
    tern_arrow_build_align(b, 8);
    const size_t at = b->len;
    zeros(b, end);
    tern_arrow_build_int(b, at, (int64_t)(at - vtable), 4);
    for (unsigned i = 0; i < n; i++)
        ret_place[i] = at + place[i];
    return at;
}

size_t tern_arrow_build_vector(struct tern_buf *b, size_t place, uint32_t n, size_t bytes)
{
    tern_arrow_build_align(b, 8);
    zeros(b, 4); /* the count stands right before the items, which are aligned */
    tern_buf_add(b, &n, sizeof n);
    tern_arrow_build_ref(b, place, b->len - sizeof n);
    const size_t at = b->len;
    zeros(b, (size_t)n * bytes);
    return at;
}

void tern_arrow_build_string(struct tern_buf *b, size_t place, const char *s)
{
    const size_t len = strlen(s), at = tern_arrow_build_vector(b, place, (uint32_t)len, 1);

    if (!b->failed)
        memcpy(b->data + at, s, len);
    zeros(b, 1);
}
