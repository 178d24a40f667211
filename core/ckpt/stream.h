/* The files of one rank in a local checkpoint as one run of bytes: its shard, and of rank 0 the
 * small files behind it.  Another node gets a copy of them that way, beside those of its own ranks.
 *
 *     s = tern_ckpt_stream_open(dir, step, rank, writes, &err)
 *     tern_ckpt_stream_read(s, at, n, to, &err) ...
 *     tern_ckpt_stream_write(s, data, n, &err) ...     in order, and all of it
 *     tern_ckpt_stream_end(s, &err)
 *
 * A file that is written has its name when its bytes are whole and durable.  Behind the last byte
 * all names are durable, and files without any byte are there.  Nothing is verified: that is done
 * when a local checkpoint is looked for (local.h).  A stream belongs to one thread at a time.
 */
#ifndef TERN_CKPT_STREAM_H
#define TERN_CKPT_STREAM_H

#include "core/ckpt/ckpt.h"

struct tern_ckpt_stream;

/* Of rank `rank`, in the node's folder `dir`, where the manifest of step `step` is.  NULL: `err`.
 */
struct tern_ckpt_stream *tern_ckpt_stream_open(const char *dir, uint64_t step, int rank,
                                               bool writes, struct tern_err *err);
/* By the manifest. */
uint64_t tern_ckpt_stream_bytes(const struct tern_ckpt_stream *s);
/* Bytes `at` .. `at` + n, which are there. */
int tern_ckpt_stream_read(struct tern_ckpt_stream *s, uint64_t at, size_t n, char *to,
                          struct tern_err *err);
/* The next n bytes; what is behind the end is ignored. */
int tern_ckpt_stream_write(struct tern_ckpt_stream *s, const char *data, size_t n,
                           struct tern_err *err);
/* Frees `s` (NULL will do); files that are not whole go. */
void tern_ckpt_stream_end(struct tern_ckpt_stream *s);

#endif
