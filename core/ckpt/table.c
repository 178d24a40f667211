#include "core/ckpt/table.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

int tern_ckpt_shape_elements(const uint64_t *shape, int ndim, uint64_t *n)
{
    uint64_t p = 1;

    for (int d = 0; d < ndim; d++)
        if (__builtin_mul_overflow(p, shape[d], &p) || p > (1ull << 62))
            return -1;
    *n = p;
    return 0;
}

int tern_ckpt_shape_bytes(const uint64_t *shape, int ndim, enum tern_ckpt_type type,
                          uint64_t *bytes)
{
    uint64_t n;

    if (tern_ckpt_shape_elements(shape, ndim, &n) < 0 ||
        __builtin_mul_overflow(n, tern_ckpt_type_bytes(type), &n) || n > (1ull << 62))
        return -1;
    *bytes = n;
    return 0;
}

int tern_ckpt_slice_bytes(const struct tern_ckpt_info *info, const struct tern_ckpt_slice *s,
                          uint64_t *bytes)
{
    uint64_t n = 1, way;

    if (!s->strided)
        return tern_ckpt_shape_bytes(s->shape, info->ndim, info->type, bytes);
    for (int d = 0; d < info->ndim; d++)
        if (s->shape[d] == 0 || __builtin_mul_overflow(s->shape[d] - 1, s->stride[d], &way) ||
            __builtin_add_overflow(n, way, &n))
            return -1;
    if (__builtin_mul_overflow(n, tern_ckpt_type_bytes(info->type), &n) || n > (1ull << 62))
        return -1;
    *bytes = n;
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct tern_ckpt_slice *x = a, *y = b;

    for (int d = 0; d < TERN_CKPT_DIMS; d++)
        if (x->start[d] != y->start[d])
            return x->start[d] < y->start[d] ? -1 : 1;
    return 0;
}

static bool overlap(const struct tern_ckpt_slice *x, const struct tern_ckpt_slice *y, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (x->start[d] + x->shape[d] <= y->start[d] || y->start[d] + y->shape[d] <= x->start[d])
            return false;
    return true;
}

int tern_ckpt_table_tiles(const struct tern_ckpt_info *info, struct tern_ckpt_slice *slices,
                          size_t n, struct tern_err *err)
{
    uint64_t whole, sum = 0, part = 0;
    int nd = info->ndim;

    if (tern_ckpt_shape_elements(info->shape, nd, &whole) < 0)
        return tern_err_set(err, TERN_USAGE, "array '%s' has an impossible shape", info->name);
    for (size_t i = 0; i < n; i++) {
        for (int d = 0; d < nd; d++)
            if (slices[i].shape[d] == 0 || slices[i].start[d] > info->shape[d] ||
                slices[i].shape[d] > info->shape[d] - slices[i].start[d])
                return tern_err_set(err, TERN_USAGE,
                                    "array '%s': the slice in shard %u sticks out of it",
                                    info->name, slices[i].shard);
        /* Inside `info`, so neither the product nor the sum of disjoint ones can overflow; of
         * overlapping ones it is held below. */
        tern_ckpt_shape_elements(slices[i].shape, nd, &part);
        if (part > whole - sum)
            return tern_err_set(err, TERN_USAGE, "array '%s' is stored more than once (shard %u)",
                                info->name, slices[i].shard);
        sum += part;
    }
    if (sum != whole)
        return tern_err_set(err, TERN_USAGE,
                            "array '%s' is not whole: %llu of %llu elements are stored", info->name,
                            (unsigned long long)sum, (unsigned long long)whole);
    qsort(slices, n, sizeof *slices, by_start);
    for (size_t i = 0; i < n; i++) {
        uint64_t end = nd ? slices[i].start[0] + slices[i].shape[0] : 1;
        for (size_t j = i + 1; j < n && (nd == 0 || slices[j].start[0] < end); j++)
            if (overlap(&slices[i], &slices[j], nd))
                return tern_err_set(err, TERN_USAGE,
                                    "array '%s': slices of shards %u and %u overlap", info->name,
                                    slices[i].shard, slices[j].shard);
    }
    return 0;
}

static int by_name(const void *a, const void *b, void *entries)
{
    const struct tern_ckpt_table_entry *e = entries;

    return strcmp(e[*(const size_t *)a].info.name, e[*(const size_t *)b].info.name);
}

static int slice_inside(const struct tern_ckpt *c, const struct tern_ckpt_table_entry *e,
                        const struct tern_ckpt_slice *s, struct tern_err *err)
{
    uint64_t bytes;

    if (s->shard >= c->n_shards)
        return tern_err_set(err, TERN_USAGE, "array '%s' names shard %u, and there are %zu",
                            e->info.name, s->shard, c->n_shards);
    const struct tern_ckpt_shard *f = &c->shards[s->shard];
    if (tern_ckpt_slice_bytes(&e->info, s, &bytes) < 0 || s->offset < f->header_bytes ||
        s->offset > f->bytes || bytes > f->bytes - s->offset)
        return tern_err_set(err, TERN_USAGE, "array '%s' reaches outside %s", e->info.name,
                            f->name);
    return 0;
}

int tern_ckpt_table_check(struct tern_ckpt *c, struct tern_err *err)
{
    for (size_t i = 0; i < c->n_entries; i++) {
        struct tern_ckpt_table_entry *e = &c->entries[i];
        for (size_t k = 0; k < e->n; k++)
            if (slice_inside(c, e, &e->slices[k], err) < 0)
                return -1;
        if (tern_ckpt_table_tiles(&e->info, e->slices, e->n, err) < 0)
            return -1;
    }
    c->by_name = tern_alloc(c->n_entries + 1, sizeof *c->by_name, "index of arrays", err);
    if (!c->by_name)
        return -1;
    for (size_t i = 0; i < c->n_entries; i++)
        c->by_name[i] = i;
    qsort_r(c->by_name, c->n_entries, sizeof *c->by_name, by_name, c->entries);
    for (size_t i = 1; i < c->n_entries; i++) {
        const char *name = c->entries[c->by_name[i]].info.name;
        if (strcmp(name, c->entries[c->by_name[i - 1]].info.name) == 0)
            return tern_err_set(err, TERN_USAGE, "array '%s' is there twice", name);
    }
    return 0;
}

struct tern_ckpt_table_entry *tern_ckpt_table_find(const struct tern_ckpt *c, const char *name)
{
    size_t lo = 0, hi = c->n_entries;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        struct tern_ckpt_table_entry *e = &c->entries[c->by_name[mid]];
        int order = strcmp(name, e->info.name);
        if (order == 0)
            return e;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
