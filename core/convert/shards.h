/* Which tensor goes into which file of an export. */
#ifndef TERN_CONVERT_SHARDS_H
#define TERN_CONVERT_SHARDS_H

#include <stddef.h>
#include <stdint.h>

/* shard[i] of `n` tensors of bytes[i], in this order: a new file begins when the next tensor would
 * pass `max_bytes`.  Returns how many files. */
unsigned tern_convert_deal_shards(const uint64_t *bytes, size_t n, uint64_t max_bytes,
                                  unsigned *shard);

#endif
