/* Which tensor goes into which file of an export. */
#ifndef TERN_CONVERT_SHARDS_H
#define TERN_CONVERT_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/ckpt/ckpt.h"

/* shard[i] of `n` tensors of bytes[i], by the rule of huggingface_hub's
 * split_state_dict_into_shards_factory.  A file is filled in this order until the next tensor would
 * pass `max_bytes`.  A larger tensor has a file of its own, and the one being filled goes on behind
 * it.  Files are numbered from 0 as they are closed.  Returns how many files. */
unsigned tern_convert_deal_shards(const uint64_t *bytes, size_t n, uint64_t max_bytes,
                                  unsigned *shard);
/* Put the tensors, and shard[] with them, into the order of their files; inside a file the order
 * stays. */
int tern_convert_sort_shards(struct tern_ckpt_info *tensors, unsigned *shard, size_t n,
                             unsigned n_shards, struct tern_err *err);

#endif
