/* Blocks of objects on this machine's disk: files in TERN_CACHE, named for the digest of what they
 * hold a block of.
 *
 *   blocks/ab/cdef...   one block: struct head, the bytes
 *   lock                held while the oldest are removed
 *
 * A file appears by a rename and is compared with its checksum whenever it is read. A file that
 * does not match is removed. So neither kill -9, a power cut nor a damaged disk gives wrong bytes.
 * Any number of processes may share the folder.  A cache that cannot be written keeps nothing. */
#ifndef TERN_STORE_CACHE_H
#define TERN_STORE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/hash.h"

struct tern_store_cache;
/* NULL where nothing is to be kept (TERN_CACHE_BYTES=0, no folder). */
struct tern_store_cache *tern_store_cache_open(void);
void tern_store_cache_close(struct tern_store_cache *c);

/* `key`: of the object's URL, its ETag and the block's place.  True, and the block, if it is there
 * with exactly `len` bytes. */
bool tern_store_cache_get(struct tern_store_cache *c, const uint8_t key[TERN_SHA256_BYTES],
                          void *to, size_t len);
bool tern_store_cache_has(struct tern_store_cache *c, const uint8_t key[TERN_SHA256_BYTES]);
void tern_store_cache_drop(struct tern_store_cache *c, const uint8_t key[TERN_SHA256_BYTES]);
/* True if it was kept. */
bool tern_store_cache_put(struct tern_store_cache *c, const uint8_t key[TERN_SHA256_BYTES],
                          const void *data, size_t len);

#endif
