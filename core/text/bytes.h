/* The bytes of a file as they were before it was compressed, where it is (codec.h). */
#ifndef TERN_TEXT_BYTES_H
#define TERN_TEXT_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_text_bytes;

/* Takes `fd` over, also on failure.  `path` is for messages; it and `stop` (as in
 * tern_text_how) are kept. */
struct tern_text_bytes *tern_text_bytes_open(int fd, const char *path, const int *stop,
                                             struct tern_err *err);
struct tern_store_reader;
/* The same of an object at a URL; takes `reader` over. */
struct tern_text_bytes *tern_text_bytes_open_url(struct tern_store_reader *reader, const char *path,
                                                 struct tern_err *err);
/* Up to `room` bytes into `to`: how many, 0 at the end, -1.  Members follow one another, NUL bytes
 * may stand behind them; anything else behind a member, and a member that ends too early, is an
 * error. */
ptrdiff_t tern_text_bytes_read(struct tern_text_bytes *b, char *to, size_t room,
                               struct tern_err *err);
/* Is the file compressed?  Once something was read of it. */
bool tern_text_bytes_packed(const struct tern_text_bytes *b);
/* How many of the file's own bytes were read. */
uint64_t tern_text_bytes_done(const struct tern_text_bytes *b);
/* The descriptor of a regular file that is not compressed, once something was read of it; else -1.
 * It belongs to `b`. */
int tern_text_bytes_plain(const struct tern_text_bytes *b);
/* Of such a file: read bytes from .. to - 1 now. */
int tern_text_bytes_range(struct tern_text_bytes *b, uint64_t from, uint64_t to,
                          struct tern_err *err);
void tern_text_bytes_close(struct tern_text_bytes *b); /* NULL is fine */

#endif
