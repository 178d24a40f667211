/* FlatBuffers (https://flatbuffers.dev/internals), as much as Arrow's messages need.
 *
 *   table    i32 back to its vtable, then its fields
 *   vtable   u16 its bytes, u16 the table's bytes, then u16 for each field: its place in the table,
 * 0 where it is absent vector   u32 count, items;  string: the same of bytes;  both are referred to
 * by u32 forward
 *
 * Reading: a place outside the buffer sets `bad`, and what is read is 0, empty or absent.  The
 * caller looks at `bad` before it believes anything.
 */
#ifndef TERN_ARROW_FLAT_H
#define TERN_ARROW_FLAT_H

#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_arrow_flat {
    const uint8_t *data;
    size_t len;
    bool bad;
};

struct tern_arrow_table {
    struct tern_arrow_flat *flat;
    size_t at, vtable; /* at 0: absent, and so are all of its fields */
    unsigned vtable_bytes, bytes;
};

struct tern_arrow_vector {
    size_t at; /* of item 0 */
    uint32_t n;
};

struct tern_arrow_table tern_arrow_flat_root(struct tern_arrow_flat *f);
/* Field `id`, a number of `bytes` (1, 2, 4 or 8). */
int64_t tern_arrow_flat_int(const struct tern_arrow_table *t, unsigned id, unsigned bytes,
                            int64_t absent);
struct tern_arrow_table tern_arrow_flat_table(const struct tern_arrow_table *t, unsigned id);
/* Items of `item_bytes`, which all lie in the buffer. */
struct tern_arrow_vector tern_arrow_flat_vector(const struct tern_arrow_table *t, unsigned id,
                                                size_t item_bytes);
struct tern_arrow_table tern_arrow_flat_item(struct tern_arrow_flat *f,
                                             const struct tern_arrow_vector *v, uint32_t i);
/* Not NUL-terminated; NULL where it is absent. */
const char *tern_arrow_flat_string(const struct tern_arrow_table *t, unsigned id, size_t *ret_len);
/* A number of a struct or vector at `at`, little-endian. */
int64_t tern_arrow_flat_at(const struct tern_arrow_flat *f, size_t at, unsigned bytes);

/* ---- building: parents first, then children, whose places are filled in ---- */

enum { TERN_ARROW_FIELDS = 8 };

/* A table with fields of bytes[i] (0: absent), zeros; ret_place[i]: where field i is. */
size_t tern_arrow_build_table(struct tern_buf *b, const uint8_t *bytes, unsigned n,
                              size_t ret_place[TERN_ARROW_FIELDS]);
void tern_arrow_build_int(struct tern_buf *b, size_t place, int64_t v, unsigned bytes);
/* Let the reference at `place` lead to `to`. */
void tern_arrow_build_ref(struct tern_buf *b, size_t place, size_t to);
/* A string for the reference at `place`. */
void tern_arrow_build_string(struct tern_buf *b, size_t place, const char *s);
/* `n` items of `bytes` each, zeros, for the reference at `place`; returns where item 0 is. */
size_t tern_arrow_build_vector(struct tern_buf *b, size_t place, uint32_t n, size_t bytes);
void tern_arrow_build_align(struct tern_buf *b, size_t to);

#endif
