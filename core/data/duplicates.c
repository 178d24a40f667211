/* A hash goes to a part by ten bits, and there to the first free slot from its place on
 * (open addressing).  A place is proportional to 64 others, so that a part can have any
 * number of slots. */
#include "core/data/duplicates.h"

#include "core/base/str.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PARTS = 1024,
    SLOTS_MIN = 8, /* of a part in use */
    /* A part is at most 7/8 full, and grows by a fifth.  It is at least 0.729 full from then on,
     * and 16 bytes / 0.729 are 22 a document.  At 7/8 a search looks at 33 slots on average, which
     * lie side by side. */
    FULL = 7,
    OF = 8,
    MAP_BYTES = 1 << 16, /* from here on pages of their own, which go back to the system */
};

struct hash {
    uint64_t high, low; /* zeros: an empty slot */
};

struct part {
    struct hash *slots;
    size_t n, cap;
};

struct tern_data_duplicates {
    struct part parts[PARTS];
    bool zero; /* was the hash of zeros seen? */
    uint64_t bytes, peak;
};

struct tern_data_duplicates *tern_data_duplicates_new(struct tern_err *err)
{
    return tern_alloc(1, sizeof(struct tern_data_duplicates), "hashes of documents", err);
}

static struct hash *slots_new(size_t n)
{
    const size_t bytes = n * sizeof(struct hash);

    if (bytes < MAP_BYTES)
        return calloc(n, sizeof(struct hash));
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void slots_free(struct hash *slots, size_t n)
{
    if (n * sizeof *slots < MAP_BYTES)
        free(slots);
    else
        munmap(slots, n * sizeof *slots);
}

/* The slot of a hash, or the empty one that it would have. */
static size_t find(const struct part *p, struct hash h)
{
    size_t at = (size_t)((unsigned __int128)h.low * p->cap >> 64);

    while ((p->slots[at].high || p->slots[at].low) &&
           (p->slots[at].high != h.high || p->slots[at].low != h.low))
        at = at + 1 == p->cap ? 0 : at + 1;
    return at;
}

static int grow(struct tern_data_duplicates *d, struct part *p, struct tern_err *err)
{
    struct part more = {.n = p->n, .cap = p->cap + p->cap / 5 + 1};

    if (more.cap < SLOTS_MIN)
        more.cap = SLOTS_MIN;
    more.slots = slots_new(more.cap);
    if (!more.slots) {
        errno = ENOMEM;
        return tern_err_sys(err, "hashes of documents (%llu MiB so far)",
                            (unsigned long long)(d->bytes >> 20));
    }
    d->bytes += more.cap * sizeof *more.slots;
    if (d->bytes > d->peak)
        d->peak = d->bytes;
    for (size_t i = 0; i < p->cap; i++)
        if (p->slots[i].high || p->slots[i].low)
            more.slots[find(&more, p->slots[i])] = p->slots[i];
    slots_free(p->slots, p->cap);
    d->bytes -= p->cap * sizeof *p->slots;
    *p = more;
    return 0;
}

int tern_data_duplicates_add(struct tern_data_duplicates *d,
                             const uint8_t hash[TERN_DATA_DUPLICATES_HASH], struct tern_err *err)
{
    struct hash h;

    memcpy(&h, hash, sizeof h);
    if (h.high == 0 && h.low == 0) {
        bool seen = d->zero;
        d->zero = true;
        return !seen;
    }
    struct part *p = &d->parts[h.high % PARTS];
    size_t at = p->cap ? find(p, h) : 0;
    if (p->cap && (p->slots[at].high || p->slots[at].low))
        return 0;
    if ((p->n + 1) * OF > p->cap * FULL) {
        if (grow(d, p, err) < 0)
            return -1;
        at = find(p, h);
    }
    p->slots[at] = h;
    p->n++;
    return 1;
}

void tern_data_duplicates_memory(const struct tern_data_duplicates *d, uint64_t *ret_now,
                                 uint64_t *ret_peak)
{
    *ret_now = sizeof *d + d->bytes;
    *ret_peak = sizeof *d + d->peak;
}

void tern_data_duplicates_free(struct tern_data_duplicates *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < PARTS; i++)
        slots_free(d->parts[i].slots, d->parts[i].cap);
    free(d);
}
