/* Best-fit-decreasing: sizes are sorted by counting. A set of the rooms that some bin has finds the
 * bin with the least room that is enough. */
#include "core/data/pack.h"

#include "core/base/str.h"

#include <stdlib.h>

enum { NONE = UINT32_MAX };

/* Numbers 0 .. size-1: a bit each, and above every 64 of them a bit that says whether any is in.
 * Six levels hold 2^36. */
enum { LEVELS = 6 };
struct set {
    uint64_t *level[LEVELS];
    uint64_t bits[LEVELS];
    unsigned n;
};

static int set_open(struct set *s, uint32_t size, struct tern_err *err)
{
    uint64_t words = size;

    do {
        s->bits[s->n] = words;
        words = (words + 63) / 64;
        s->level[s->n] = tern_alloc(words, sizeof(uint64_t), "packing", err);
        if (!s->level[s->n])
            return -1;
        s->n++;
    } while (words > 1);
    return 0;
}

static void set_close(struct set *s)
{
    for (unsigned l = 0; l < s->n; l++)
        free(s->level[l]);
}

static void set_add(struct set *s, uint32_t x)
{
    for (unsigned l = 0; l < s->n; l++, x /= 64)
        s->level[l][x / 64] |= UINT64_C(1) << x % 64;
}

static void set_remove(struct set *s, uint32_t x)
{
    for (unsigned l = 0; l < s->n; l++, x /= 64) {
        s->level[l][x / 64] &= ~(UINT64_C(1) << x % 64);
        if (s->level[l][x / 64])
            break;
    }
}

/* The least number from x on, or NONE. */
static uint32_t set_find(const struct set *s, uint64_t x)
{
    for (unsigned l = 0; l < s->n && x < s->bits[l]; l++) {
        uint64_t rest = s->level[l][x / 64] >> x % 64;
        if (rest) {
            x += (uint64_t)__builtin_ctzll(rest);
            while (l-- > 0)
                x = x * 64 + (uint64_t)__builtin_ctzll(s->level[l][x]);
            return (uint32_t)x;
        }
        x = x / 64 + 1; /* the level above knows of later words */
    }
    return NONE;
}

/* Numbers of things by falling size; *ret_n of them, as those of size 0 are left out. */
static uint32_t *sort(const uint32_t *sizes, uint32_t n, uint32_t room, uint32_t *ret_n,
                      struct tern_err *err)
{
    uint32_t *at = tern_alloc((size_t)room + 1, sizeof *at, "packing", err);
    uint32_t *order = NULL, all = 0;

    if (!at)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        at[sizes[i]]++;
    for (uint32_t size = room; size > 0; size--) {
        uint32_t count = at[size];
        at[size] = all;
        all += count;
    }
    order = tern_alloc(all, sizeof *order, "packing", err);
    for (uint32_t i = 0; order && i < n; i++)
        if (sizes[i])
            order[at[sizes[i]]++] = i;
    free(at);
    *ret_n = all;
    return order;
}

/* bin_of[k]: the bin of the k-th thing of `order`.  Returns how many bins there are. */
static uint32_t fit(const uint32_t *sizes, const uint32_t *order, uint32_t n, uint32_t room,
                    uint32_t *bin_of, struct tern_err *err)
{
    struct set rooms = {0};
    /* Bins of one room are a list: newest[room], then before[bin]. */
    uint32_t *newest = tern_alloc((size_t)room + 1, sizeof *newest, "packing", err);
    uint32_t *before = tern_alloc(n, sizeof *before, "packing", err);
    uint32_t bins = NONE;

    if (!newest || !before || set_open(&rooms, room + 1, err) < 0)
        goto out;
    for (uint32_t r = 0; r <= room; r++)
        newest[r] = NONE;
    bins = 0;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t size = sizes[order[k]];
        uint32_t left = set_find(&rooms, size), bin;
        if (left == NONE) {
            left = room;
            bin = bins++;
        } else {
            bin = newest[left];
            newest[left] = before[bin];
            if (newest[left] == NONE)
                set_remove(&rooms, left);
        }
        bin_of[k] = bin;
        left -= size;
        before[bin] = newest[left];
        newest[left] = bin;
        set_add(&rooms, left);
    }
out:
    set_close(&rooms);
    free(newest);
    free(before);
    return bins;
}

/* The things of each bin, in their order. */
static int deal(const uint32_t *order, const uint32_t *bin_of, struct tern_data_bins *b,
                struct tern_err *err)
{
    b->first = tern_alloc((size_t)b->n_bins + 2, sizeof *b->first, "packing", err);
    b->things = tern_alloc(b->n, sizeof *b->things, "packing", err);
    if (!b->first || !b->things)
        return -1;
    uint32_t *at = b->first + 1; /* where a bin's next thing goes; at last, its end */
    for (uint32_t k = 0; k < b->n; k++)
        at[bin_of[k] + 1]++;
    for (uint32_t i = 0; i < b->n_bins; i++)
        at[i + 1] += at[i];
    for (uint32_t k = 0; k < b->n; k++)
        b->things[at[bin_of[k]]++] = order[k];
    return 0;
}

int tern_data_bins_fit(const uint32_t *sizes, uint32_t n, uint32_t room,
                       struct tern_data_bins *ret_bins, struct tern_err *err)
{
    struct tern_data_bins b = {0};
    uint32_t *order = sort(sizes, n, room, &b.n, err);
    uint32_t *bin_of = order ? tern_alloc(b.n, sizeof *bin_of, "packing", err) : NULL;
    int rc = -1;

    if (bin_of)
        b.n_bins = fit(sizes, order, b.n, room, bin_of, err);
    if (bin_of && b.n_bins != NONE)
        rc = deal(order, bin_of, &b, err);
    free(order);
    free(bin_of);
    if (rc < 0)
        tern_data_bins_free(&b);
    else
        *ret_bins = b;
    return rc;
}

void tern_data_bins_free(struct tern_data_bins *b)
{
    free(b->things);
    free(b->first);
    *b = (struct tern_data_bins){0};
}
