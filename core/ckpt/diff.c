#include "core/ckpt/diff.h"

#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ckpt/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 19 }; /* elements that are read at once: 4 MiB of doubles a side */

struct squares {
    double large, middle, small;
};

struct diff {
    struct tern_ckpt *a, *b;
    const struct tern_ckpt_diff_how *how;
    void *of_a, *of_b;            /* [PIECE] of eight bytes */
    struct squares apart, length; /* of the array that is read: sum (a - b)^2, sum a^2 */
};

/* ------------------------------------------------------------------ by digests */

static bool same_type(const struct tern_ckpt_info *a, const struct tern_ckpt_info *b)
{
    return a->type == b->type && strcmp(a->other, b->other) == 0;
}

/* Both sides are cut alike, and every slice has a digest. */
static bool are_comparable(const struct tern_ckpt_table_entry *x,
                           const struct tern_ckpt_table_entry *y)
{
    bool alike = x->n == y->n;

    for (size_t i = 0; alike && i < x->n; i++) {
        const struct tern_ckpt_slice *s = &x->slices[i], *t = &y->slices[i];
        alike = s->digested && t->digested &&
                memcmp(s->start, t->start, sizeof s->start[0] * (size_t)x->info.ndim) == 0 &&
                memcmp(s->shape, t->shape, sizeof s->shape[0] * (size_t)x->info.ndim) == 0;
    }
    return alike;
}

static enum tern_ckpt_change by_digests(const struct tern_ckpt_table_entry *x,
                                        const struct tern_ckpt_table_entry *y)
{
    if (!same_type(&x->info, &y->info))
        return TERN_CKPT_CHANGED;
    if (!are_comparable(x, y))
        return TERN_CKPT_UNKNOWN;
    for (size_t i = 0; i < x->n; i++)
        if (memcmp(x->slices[i].sha256, y->slices[i].sha256, sizeof x->slices[i].sha256) != 0)
            return TERN_CKPT_CHANGED;
    return TERN_CKPT_SAME;
}

/* ------------------------------------------------------------------ by values */

/* A sum of squares whose squares neither overflow nor vanish. Large and small ones are scaled by
 * powers of two and added up apart. (Blue, A Portable Fortran Program to Find the Euclidean Norm of
 * a Vector, 1978.) */
static void add_square(struct squares *s, double x)
{
    const double of = fabs(x);

    if (of > 0x1p500)
        s->large += (of * 0x1p-600) * (of * 0x1p-600);
    else if (of < 0x1p-500)
        s->small += (of * 0x1p600) * (of * 0x1p600);
    else
        s->middle += of * of;
}

static double root(const struct squares *s)
{
    if (s->large > 0)
        return sqrt(s->large + s->middle * 0x1p-600 * 0x1p-600) * 0x1p600;
    if (s->middle > 0)
        return sqrt(s->middle + s->small * 0x1p-600 * 0x1p-600);
    return sqrt(s->small) * 0x1p-600;
}

static void take_distance(struct diff *d, double a, double apart, struct tern_ckpt_diff_row *row)
{
    add_square(&d->apart, apart);
    add_square(&d->length, isfinite(a) ? a : 0);
    row->largest = apart > row->largest ? apart : row->largest;
}

static bool is_float(enum tern_ckpt_type t)
{
    return tern_ckpt_can_convert(TERN_CKPT_F64, t);
}

/* Elements of one type are the same when their bits are, as digests have it: 0.0 is not -0.0.  Of
 * two types their values and signs count. */
static void compare_floats(struct diff *d, size_t n, struct tern_ckpt_diff_row *row)
{
    enum { SOME = 512 };
    const enum tern_ckpt_type of_a = row->a.type, of_b = row->b.type;
    const size_t size_a = tern_ckpt_type_bytes(of_a), size_b = tern_ckpt_type_bytes(of_b);
    double a[SOME], b[SOME];

    for (size_t at = 0; at < n; at += SOME) {
        const size_t some = n - at < SOME ? n - at : SOME;
        const char *x = (const char *)d->of_a + at * size_a,
                   *y = (const char *)d->of_b + at * size_b;
        tern_ckpt_convert(a, TERN_CKPT_F64, x, of_a, some);
        tern_ckpt_convert(b, TERN_CKPT_F64, y, of_b, some);
        for (size_t i = 0; i < some; i++) {
            const bool both = isnan(a[i]) && isnan(b[i]);
            const bool equal = of_a == of_b
                                   ? memcmp(x + i * size_a, y + i * size_a, size_a) == 0
                                   : both || (a[i] == b[i] && !signbit(a[i]) == !signbit(b[i]));
            const double apart = both || a[i] == b[i] ? 0 : fabs(a[i] - b[i]);
            row->changed += !equal;
            take_distance(d, a[i], isnan(apart) ? (double)INFINITY : apart, row);
        }
    }
}

/* Element i, and whether it is below zero: 64 bits of either kind. */
static uint64_t integer_at(const char *from, size_t i, enum tern_ckpt_type type, bool *ret_minus)
{
    const size_t size = tern_ckpt_type_bytes(type);
    const bool has_sign = type == TERN_CKPT_I64 || type == TERN_CKPT_I32 || type == TERN_CKPT_I16 ||
                          type == TERN_CKPT_I8;
    uint64_t v = 0;

    memcpy(&v, from + i * size, size); /* little-endian, as all that tern runs on */
    *ret_minus = has_sign && v >> (8 * size - 1);
    if (*ret_minus && size < 8)
        v |= UINT64_MAX << 8 * size;
    return v;
}

static void compare_integers(struct diff *d, size_t n, struct tern_ckpt_diff_row *row)
{
    for (size_t i = 0; i < n; i++) {
        bool minus_a, minus_b;
        const uint64_t a = integer_at(d->of_a, i, row->a.type, &minus_a);
        const uint64_t b = integer_at(d->of_b, i, row->a.type, &minus_b);
        const bool above = minus_a == minus_b ? a > b : minus_b;
        row->changed += a != b;
        take_distance(d, (double)(minus_a ? -a : a), (double)(above ? a - b : b - a), row);
    }
}

static void compare_bytes(const char *a, const char *b, size_t n, struct tern_ckpt_diff_row *row)
{
    for (size_t i = 0; i < n; i++)
        row->changed += a[i] != b[i];
}

/* Elements start .. start + shape of both. */
static int compare_piece(struct diff *d, const uint64_t *start, const uint64_t *shape,
                         struct tern_ckpt_diff_row *row, struct tern_err *err)
{
    size_t n = 1;

    if (d->how->stop && *d->how->stop)
        return tern_err_set(err, TERN_FAILED, "interrupted");
    for (int k = 0; k < row->a.ndim; k++)
        n *= (size_t)shape[k];
    if (tern_ckpt_read(d->a, row->a.name, row->a.type, start, shape, d->of_a, err) < 0 ||
        tern_ckpt_read(d->b, row->b.name, row->b.type, start, shape, d->of_b, err) < 0)
        return -1;
    if (is_float(row->a.type))
        compare_floats(d, n, row);
    else if (row->a.type == TERN_CKPT_OTHER)
        compare_bytes(d->of_a, d->of_b, n, row);
    else
        compare_integers(d, n, row);
    tern_progress_add(n * (tern_ckpt_type_bytes(row->a.type) + tern_ckpt_type_bytes(row->b.type)));
    return 0;
}

/* Dimensions from `k` on, in pieces of at most PIECE elements. */
static int compare_from(struct diff *d, int k, uint64_t *start, uint64_t *shape,
                        struct tern_ckpt_diff_row *row, struct tern_err *err)
{
    uint64_t below = 1;

    for (int j = k + 1; j < row->a.ndim; j++)
        below *= row->a.shape[j];
    if (k == row->a.ndim)
        return compare_piece(d, start, shape, row, err);
    const uint64_t whole = row->a.shape[k], at_once = below <= PIECE ? PIECE / below : 1;
    for (uint64_t i = 0; i < whole; i += shape[k]) {
        start[k] = i;
        shape[k] = whole - i < at_once ? whole - i : at_once;
        for (int j = k + 1; below <= PIECE && j < row->a.ndim; j++) {
            start[j] = 0;
            shape[j] = row->a.shape[j];
        }
        if ((below <= PIECE ? compare_piece(d, start, shape, row, err)
                            : compare_from(d, k + 1, start, shape, row, err)) < 0)
            return -1;
    }
    return 0;
}

/* Can elements be compared? */
static bool has_values(const struct tern_ckpt_info *a, const struct tern_ckpt_info *b)
{
    return same_type(a, b) || (is_float(a->type) && is_float(b->type));
}

static int by_values(struct diff *d, struct tern_ckpt_diff_row *row, struct tern_err *err)
{
    uint64_t start[TERN_CKPT_DIMS] = {0}, shape[TERN_CKPT_DIMS] = {0};
    const bool same = same_type(&row->a, &row->b);

    if (!has_values(&row->a, &row->b))
        return 0;
    row->elements = 1;
    for (int k = 0; k < row->a.ndim; k++)
        row->elements *= row->a.shape[k];
    d->apart = d->length = (struct squares){0};
    if (row->elements && compare_from(d, 0, start, shape, row, err) < 0)
        return -1;
    row->distance = root(&d->apart);
    row->norm = root(&d->length);
    row->compared = true;
    row->change = row->changed || !same ? TERN_CKPT_CHANGED : TERN_CKPT_SAME;
    return 0;
}

/* ------------------------------------------------------------------ all arrays */

static bool same_shape(const struct tern_ckpt_info *a, const struct tern_ckpt_info *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->ndim) == 0;
}

static int compare(struct diff *d, struct tern_ckpt_diff_row *row, struct tern_err *err)
{
    if (!same_shape(&row->a, &row->b)) {
        row->change = TERN_CKPT_RESHAPED;
        return 0;
    }
    row->change = by_digests(tern_ckpt_table_find(d->a, row->a.name),
                             tern_ckpt_table_find(d->b, row->b.name));
    return d->how->values ? by_values(d, row, err) : 0;
}

/* Bytes that are compared: of arrays that both have, in one shape and of kinds that have values. */
static void expect_bytes(const struct diff *d)
{
    struct tern_ckpt_info a, b;

    for (size_t i = 0; d->how->values && i < tern_ckpt_count(d->a); i++) {
        tern_ckpt_info(d->a, i, &a);
        if (!tern_str_starts(a.name, d->how->prefix_a))
            continue;
        char *name = tern_strf("%s%s", d->how->prefix_b, a.name + strlen(d->how->prefix_a));
        const bool both =
            tern_ckpt_find(d->b, name, &b) && same_shape(&a, &b) && has_values(&a, &b);
        free(name);
        uint64_t bytes = both ? tern_ckpt_type_bytes(a.type) + tern_ckpt_type_bytes(b.type) : 0;
        for (int k = 0; both && k < a.ndim; k++)
            bytes *= a.shape[k];
        tern_progress_expect(bytes);
    }
}

/* Arrays of `from` whose names begin with `prefix`, beside those of `to`; `first`: `from` is a. */
static int go_through(struct diff *d, bool first, struct tern_err *err)
{
    struct tern_ckpt *from = first ? d->a : d->b, *to = first ? d->b : d->a;
    const char *prefix = first ? d->how->prefix_a : d->how->prefix_b;
    const char *other = first ? d->how->prefix_b : d->how->prefix_a;
    int rc = 0;

    for (size_t i = 0; i < tern_ckpt_count(from) && rc == 0; i++) {
        struct tern_ckpt_diff_row row = {.change = first ? TERN_CKPT_ONLY_A : TERN_CKPT_ONLY_B};
        struct tern_ckpt_info *mine = first ? &row.a : &row.b;
        tern_ckpt_info(from, i, mine);
        if (!tern_str_starts(mine->name, prefix))
            continue;
        row.name = mine->name + strlen(prefix);
        char *name = tern_strf("%s%s", other, row.name);
        const bool both = tern_ckpt_find(to, name, first ? &row.b : &row.a);
        free(name);
        if (both && !first)
            continue;
        if (both)
            rc = compare(d, &row, err);
        if (rc == 0)
            rc = d->how->each(d->how->ctx, &row, err);
    }
    return rc;
}

int tern_ckpt_diff(struct tern_ckpt *a, struct tern_ckpt *b, const struct tern_ckpt_diff_how *how,
                   struct tern_err *err)
{
    struct diff d = {.a = a, .b = b, .how = how};
    int rc = 0;

    if (how->values) {
        d.of_a = tern_alloc(PIECE, sizeof(double), "a piece of an array", err);
        d.of_b = tern_alloc(PIECE, sizeof(double), "a piece of an array", err);
        rc = d.of_a && d.of_b ? 0 : -1;
    }
    expect_bytes(&d);
    if (rc == 0)
        rc = go_through(&d, /* first= */ true, err);
    if (rc == 0)
        rc = go_through(&d, /* first= */ false, err);
    free(d.of_a);
    free(d.of_b);
    return rc;
}
