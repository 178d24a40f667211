/* Combining vectors in a fixed order. */
#ifndef TERN_COLL_REDUCE_H
#define TERN_COLL_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/call.h"

/* What arrives at each of `n_dst` places is the combination of src[0..n), `count` elements each, in
 * a binary tree over the index.  A destination may be one of the sources.  Types are equal, or one
 * is BF16 and the other F32; BF16 is combined in fp32.  With TERN_AVG the result is divided by
 * `divide_by`; 0 leaves it a sum, for a further stage.  With `past`, for one destination that the
 * caches cannot hold, it is written past them (core/fabric/copy.h). */
struct tern_coll_reduce {
    enum tern_type src_type, dst_type;
    enum tern_op op;
    int divide_by;
};
void tern_coll_reduce(const struct tern_coll_reduce *r, void *const *dst, int n_dst,
                      const void *const *src, int n, size_t count, bool past);

#endif
