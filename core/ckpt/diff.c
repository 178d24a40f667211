#include "core/ckpt/diff.h"

#include "core/base/str.h"
#include "core/ckpt/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 19 }; /* elements that are read at once: 4 MiB of doubles a side */

struct diff {
    struct tern_ckpt *a, *b;
    const struct tern_ckpt_diff_how *how;
    void *of_a, *of_b; /* [PIECE] of eight bytes */
};

/* ------------------------------------------------------------------ by digests */

/* Both sides are cut alike, and every slice has a digest. */
static bool are_comparable(const struct tern_ckpt_table_entry *x,
                           const struct tern_ckpt_table_entry *y)
{
    bool alike = x->n == y->n && x->info.type == y->info.type;

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
    if (x->info.type != y->info.type)
        return TERN_CKPT_CHANGED;
    if (!are_comparable(x, y))
        return TERN_CKPT_UNKNOWN;
    for (size_t i = 0; i < x->n; i++)
        if (memcmp(x->slices[i].sha256, y->slices[i].sha256, sizeof x->slices[i].sha256) != 0)
            return TERN_CKPT_CHANGED;
    return TERN_CKPT_SAME;
}

/* ------------------------------------------------------------------ by values */

static void compare_numbers(const double *a, const double *b, size_t n,
                            struct tern_ckpt_diff_row *row)
{
    double apart = 0, norm = 0, largest = row->largest;
    uint64_t changed = 0;

    for (size_t i = 0; i < n; i++) {
        const double d = a[i] == b[i] || (isnan(a[i]) && isnan(b[i])) ? 0 : fabs(a[i] - b[i]);
        const double far = isnan(d) ? (double)INFINITY : d;
        changed += far > 0;
        apart += far * far;
        norm += isfinite(a[i]) ? a[i] * a[i] : 0;
        largest = far > largest ? far : largest;
    }
    row->changed += changed;
    row->distance += apart;
    row->norm += norm;
    row->largest = largest;
}

static void compare_bytes(const char *a, const char *b, size_t n, size_t bytes,
                          struct tern_ckpt_diff_row *row)
{
    for (size_t i = 0; i < n; i++)
        row->changed += memcmp(a + i * bytes, b + i * bytes, bytes) != 0;
}

/* Elements start .. start + shape of both. */
static int compare_piece(struct diff *d, const uint64_t *start, const uint64_t *shape,
                         struct tern_ckpt_diff_row *row, struct tern_err *err)
{
    const bool numbers = tern_ckpt_can_convert(TERN_CKPT_F64, row->a.type) &&
                         tern_ckpt_can_convert(TERN_CKPT_F64, row->b.type);
    const enum tern_ckpt_type type = numbers ? TERN_CKPT_F64 : row->a.type;
    size_t n = 1;

    if (d->how->stop && *d->how->stop)
        return tern_err_set(err, TERN_FAILED, "interrupted");
    for (int k = 0; k < row->a.ndim; k++)
        n *= (size_t)shape[k];
    if (tern_ckpt_read(d->a, row->a.name, type, start, shape, d->of_a, err) < 0 ||
        tern_ckpt_read(d->b, row->b.name, type, start, shape, d->of_b, err) < 0)
        return -1;
    if (numbers)
        compare_numbers(d->of_a, d->of_b, n, row);
    else
        compare_bytes(d->of_a, d->of_b, n, tern_ckpt_type_bytes(type), row);
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

static int by_values(struct diff *d, struct tern_ckpt_diff_row *row, struct tern_err *err)
{
    uint64_t start[TERN_CKPT_DIMS] = {0}, shape[TERN_CKPT_DIMS] = {0};
    const bool numbers = tern_ckpt_can_convert(TERN_CKPT_F64, row->a.type) &&
                         tern_ckpt_can_convert(TERN_CKPT_F64, row->b.type);

    if (row->a.type == TERN_CKPT_OTHER || row->b.type == TERN_CKPT_OTHER ||
        (!numbers && row->a.type != row->b.type))
        return 0;
    row->elements = 1;
    for (int k = 0; k < row->a.ndim; k++)
        row->elements *= row->a.shape[k];
    if (row->elements && compare_from(d, 0, start, shape, row, err) < 0)
        return -1;
    row->distance = sqrt(row->distance);
    row->norm = sqrt(row->norm);
    row->compared = true;
    row->change = row->changed || row->a.type != row->b.type ? TERN_CKPT_CHANGED : TERN_CKPT_SAME;
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
    if (rc == 0)
        rc = go_through(&d, /* first= */ true, err);
    if (rc == 0)
        rc = go_through(&d, /* first= */ false, err);
    free(d.of_a);
    free(d.of_b);
    return rc;
}
