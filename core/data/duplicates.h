/* Which documents were seen before: a set of hashes of their texts.  Hashes must be strong, as the
 * first 128 bits of SHA-256 are: two texts with one hash count as the same document. */
#ifndef TERN_DATA_DUPLICATES_H
#define TERN_DATA_DUPLICATES_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

enum { TERN_DATA_DUPLICATES_HASH = 16 }; /* bytes */

/* Takes at most 24 bytes a document, once there are a million.  Each of its 1,024 parts grows by
 * itself, so that the peak is a thousandth above that.  One thread at a time. */
struct tern_data_duplicates;
struct tern_data_duplicates *tern_data_duplicates_new(struct tern_err *err);
/* 1: new, and seen from now on; 0: seen before; -1 without memory. */
int tern_data_duplicates_add(struct tern_data_duplicates *d,
                             const uint8_t hash[TERN_DATA_DUPLICATES_HASH], struct tern_err *err);
/* Bytes of memory, now and at most so far. */
void tern_data_duplicates_memory(const struct tern_data_duplicates *d, uint64_t *ret_now,
                                 uint64_t *ret_peak);
void tern_data_duplicates_free(struct tern_data_duplicates *d); /* NULL is fine */

#endif
