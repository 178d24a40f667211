/* Inside the room: best-fit-decreasing. */
#ifndef TERN_DATA_PACK_H
#define TERN_DATA_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* Bins that hold things: those of bin b are things[first[b]] to things[first[b + 1] - 1], the
 * largest first. */
struct tern_data_bins {
    uint32_t *things; /* [n] */
    uint32_t *first;  /* [n_bins + 1] */
    uint32_t n, n_bins;
};

/* Put things of sizes[0 .. Put things of sizes[0 ..  n-1], 1 to `room` each (0: not a thing), into
 * bins of size `room`.  The largest goes first (of equal ones the first), into the bin with the
 * least room that it fits in (of equal ones the newest).  `n` is below 2^32 - 1.  Time: n, whatever
 * the sizes; memory: 16 n bytes beside `sizes`, of which at most 8 n are kept. */
int tern_data_bins_fit(const uint32_t *sizes, uint32_t n, uint32_t room,
                       struct tern_data_bins *ret_bins, struct tern_err *err);
void tern_data_bins_free(struct tern_data_bins *b);

#endif
