/* Cells of the batch that was read. */
#include "core/arrow/read.h"

#include "core/base/assert.h"

#include <math.h>
#include <string.h>

static const struct tern_arrow_node *cell(const struct tern_arrow *a, size_t column, uint64_t row)
{
    tern_assert_cmp(column, <, a->n_columns);
    const struct tern_arrow_node *n = &a->node[a->column_node[column]];
    tern_assert(n->used && row < a->rows, "%s: row %llu of %llu", n->name, (unsigned long long)row,
                (unsigned long long)a->rows);
    return n;
}

bool tern_arrow_is_list(enum tern_arrow_type t)
{
    return t == TERN_ARROW_T_LIST || t == TERN_ARROW_T_LARGE_LIST || t == TERN_ARROW_T_FIXED_LIST;
}

bool tern_arrow_is_null(const struct tern_arrow_node *n, uint64_t i)
{
    return n->nulls && n->valid.len && !(n->valid.data[i / 8] >> (i % 8) & 1);
}

/* Neither it nor a struct around it is null. */
static bool is_there(const struct tern_arrow *a, const struct tern_arrow_node *n, uint64_t row)
{
    for (;; n = &a->node[n->parent]) {
        if (tern_arrow_is_null(n, row))
            return false;
        if (n->parent < 0)
            return true;
    }
}

uint64_t tern_arrow_offset(const struct tern_arrow_node *n, uint64_t i)
{
    uint64_t at = 0;

    memcpy(&at, n->offsets.data + (n->wide ? 8 : 4) * i, n->wide ? 8 : 4);
    return at;
}

int64_t tern_arrow_number(const void *data, uint64_t i, unsigned bits, bool is_signed)
{
    uint64_t v = 0;
    const unsigned bytes = bits / 8, shift = 64 - bits;

    memcpy(&v, (const uint8_t *)data + i * bytes, bytes);
    return is_signed ? (int64_t)(v << shift) >> shift : (int64_t)v;
}

bool tern_arrow_text(const struct tern_arrow *a, size_t column, uint64_t row, const char **ret_text,
                     size_t *ret_len)
{
    const struct tern_arrow_node *n = cell(a, column, row);

    tern_assert(n->kind == TERN_ARROW_TEXT || n->kind == TERN_ARROW_BINARY, "%s", n->name);
    if (!is_there(a, n, row))
        return false;
    const uint64_t first = tern_arrow_offset(n, row);
    *ret_text = (const char *)n->values.data + first;
    *ret_len = (size_t)(tern_arrow_offset(n, row + 1) - first);
    return true;
}

bool tern_arrow_int(const struct tern_arrow *a, size_t column, uint64_t row, int64_t *ret_v)
{
    const struct tern_arrow_node *n = cell(a, column, row);

    tern_assert(n->kind == TERN_ARROW_INT || n->kind == TERN_ARROW_BOOL, "%s", n->name);
    if (!is_there(a, n, row))
        return false;
    *ret_v = n->kind == TERN_ARROW_BOOL
                 ? n->values.data[row / 8] >> (row % 8) & 1
                 : tern_arrow_number(n->values.data, row, n->bits, n->is_signed);
    return true;
}

/* IEEE 754's binary16. */
static double half(unsigned h)
{
    const unsigned exponent = h >> 10 & 31, fraction = h & 1023;
    const double sign = h >> 15 ? -1 : 1;

    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, (int)exponent - 25) : ldexp(fraction, -24));
}

double tern_arrow_real_at(const struct tern_arrow_node *n, uint64_t i)
{
    uint16_t h;
    float f;
    double d;

    if (n->bits == 16) {
        memcpy(&h, n->values.data + 2 * i, sizeof h);
        return half(h);
    }
    if (n->bits == 32) {
        memcpy(&f, n->values.data + 4 * i, sizeof f);
        return (double)f;
    }
    memcpy(&d, n->values.data + 8 * i, sizeof d);
    return d;
}

bool tern_arrow_real(const struct tern_arrow *a, size_t column, uint64_t row, double *ret_v)
{
    const struct tern_arrow_node *n = cell(a, column, row);

    tern_assert(n->kind == TERN_ARROW_REAL, "%s", n->name);
    if (!is_there(a, n, row))
        return false;
    *ret_v = tern_arrow_real_at(n, row);
    return true;
}

/* The places of a list's items. */
void tern_arrow_list_range(const struct tern_arrow_node *n, uint64_t row, uint64_t *ret_first,
                           uint64_t *ret_end)
{
    if (n->type == TERN_ARROW_T_FIXED_LIST) {
        *ret_first = row * (uint64_t)n->list_size;
        *ret_end = *ret_first + (uint64_t)n->list_size;
    } else {
        *ret_first = tern_arrow_offset(n, row);
        *ret_end = tern_arrow_offset(n, row + 1);
    }
}

/* A null list of fixed size has null numbers. */
bool tern_arrow_items_null(const struct tern_arrow *a, int list)
{
    const struct tern_arrow_node *n = &a->node[list];
    uint64_t i, end;

    if (n->kind != TERN_ARROW_INTS || n[1].valid.len == 0)
        return false;
    for (uint64_t row = 0; row < n->length; row++) {
        if (!is_there(a, n, row))
            continue;
        for (tern_arrow_list_range(n, row, &i, &end); i < end; i++)
            if (!(n[1].valid.data[i / 8] >> (i % 8) & 1))
                return true;
    }
    return false;
}

bool tern_arrow_ints(const struct tern_arrow *a, size_t column, uint64_t row,
                     struct tern_arrow_ints *ret_ints)
{
    const struct tern_arrow_node *n = cell(a, column, row), *item = n + 1;
    uint64_t first, end;

    tern_assert(n->kind == TERN_ARROW_INTS, "%s", n->name);
    if (!is_there(a, n, row))
        return false;
    tern_arrow_list_range(n, row, &first, &end);
    *ret_ints = (struct tern_arrow_ints){.data = item->values.data + first * (item->bits / 8),
                                         .n = (size_t)(end - first),
                                         .bits = item->bits,
                                         .is_signed = item->is_signed};
    return true;
}

int64_t tern_arrow_ints_at(const struct tern_arrow_ints *v, size_t i)
{
    tern_assert_cmp(i, <, v->n);
    return tern_arrow_number(v->data, i, v->bits, v->is_signed);
}
