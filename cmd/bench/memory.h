/* The limit of memory: the bytes that a rank must at least read and write in a call inside a node.
 * All ranks move them at once, each in memory of its own, without waiting for another.
 *
 *   all_reduce      every value is read and written once:        S read, S written, in place
 *   reduce_scatter  every rank's share is read, one is written:  S read, S/n written
 *   all_gather      what others have is copied:                  S read, S written
 *                   or, past the caches, own is put to all:      S/n read, S written
 *                   in place, the same but for the own share
 *   broadcast       the same, by all but the root:               S read, S written
 *
 * S is the size of the whole buffer.  It is no bound in the strict sense.  Ranks that read the same
 * bytes one after the other may find them in a cache, so that a call takes less. */
#ifndef TERN_CMD_BENCH_MEMORY_H
#define TERN_CMD_BENCH_MEMORY_H

#include <stddef.h>

enum bench_work { BENCH_IN_PLACE, BENCH_GATHER_UP, BENCH_SPREAD, BENCH_SPREAD_REST, BENCH_COPY };

/* One call's worth.  `to` and `from` hold `bytes` each; `parts`: ranks, which share a cache of
 * `cache` bytes.  Bytes beyond the cache are written past it, which is quicker.  IN_PLACE leaves
 * `to` as it is. */
void bench_memory_move(enum bench_work work, void *to, const void *from, size_t bytes, int parts,
                       size_t cache);

#endif
