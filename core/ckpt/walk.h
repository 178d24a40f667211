/* The bytes of one shard, from the first to the last, compared with their digests. */
#ifndef TERN_CKPT_WALK_H
#define TERN_CKPT_WALK_H

#include "core/ckpt/table.h"

/* Reads shard `i` of `c` whole.  `take` (NULL: it is verified alone) gets its bytes in order,
 * before their digest is known: all are right when 0 is returned.  -1 with TERN_USAGE: it is
 * damaged. */
int tern_ckpt_walk(struct tern_ckpt *c, unsigned i,
                   int (*take)(void *ctx, const void *data, size_t n, struct tern_err *err),
                   void *ctx, struct tern_err *err);

#endif
