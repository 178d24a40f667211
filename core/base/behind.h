/* Writing behind: a thread writes to a file what another one has made.
 *
 *     b = tern_behind_new(fd, path, &err);
 *     tern_behind_write(b, data, n, &err) ...      copied, and written later
 *     tern_behind_patch(b, at, data, n, &err)      in bytes that were written before
 *     tern_behind_end(b, &err)                     all is written, or the first error
 *
 *     [ piece | piece | piece | piece ]   a ring; the storage begins with each piece at once, so
 * that an fsync(2) at the end has little left to do
 *
 * The file is written from its offset 0 on; no other thread writes to it meanwhile.  One thread
 * calls these functions.
 *
 * On request the end reads the file back: each piece has its CRC-32C from before it was written.
 */
#ifndef TERN_BASE_BEHIND_H
#define TERN_BASE_BEHIND_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_behind;
enum { TERN_BEHIND_PATCH = 8 }; /* bytes */

/* `path`, for messages, is borrowed; so is `fd`.  8 MiB of memory.  Where no thread can be
 * had, tern_behind_write writes itself.  NULL: no memory. */
struct tern_behind *tern_behind_new(int fd, const char *path, struct tern_err *err);
/* Before the first byte, where `fd` can be read: tern_behind_end makes the file durable and reads
 * it back from the storage, past the page cache.  It fails (TERN_TEMPFAIL) where a piece is other
 * than it was given.  `how` is copied. */
struct tern_behind_read_back {
    void (*progress)(uint64_t bytes);  /* so many more were read; NULL will do */
    const volatile sig_atomic_t *stop; /* not 0: give up (TERN_FAILED); NULL: never */
};
void tern_behind_read_back(struct tern_behind *b, const struct tern_behind_read_back *how);
/* Waits where all pieces are under way.  -1: this or an earlier write has failed. */
int tern_behind_write(struct tern_behind *b, const void *data, size_t n, struct tern_err *err);
/* `n` bytes, at most TERN_BEHIND_PATCH, at offset `at`; all of them were given to tern_behind_write
 * before, and are patched once. */
int tern_behind_patch(struct tern_behind *b, uint64_t at, const void *data, size_t n,
                      struct tern_err *err);
/* Bytes given so far. */
uint64_t tern_behind_at(const struct tern_behind *b);
/* Waits until all is written, and frees `b`; NULL will do. */
int tern_behind_end(struct tern_behind *b, struct tern_err *err);
/* Frees `b`, whatever is written; keeps errno; NULL will do. */
void tern_behind_abort(struct tern_behind *b);

#endif
