/* Reading of slices, shared by the files of this room. */
#ifndef TERN_CKPT_READ_H
#define TERN_CKPT_READ_H

#include "core/ckpt/table.h"

enum { TERN_CKPT_PIECE = 4 << 20 }; /* bytes read at a time: a Lustre stripe or several */

/* Part of an array that is wanted, and where it goes. */
struct tern_ckpt_request {
    enum tern_ckpt_type type;
    uint64_t start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS];
    char *to;
};

/* Bytes of a file.  Those behind them, up to `until`, will be read next. */
struct tern_ckpt_extent {
    uint64_t offset;
    size_t len;
    uint64_t until;
};

/* Read from shard `i`, whose path is `path`; a handle that went stale is opened anew. */
int tern_ckpt_shard_pread(struct tern_ckpt *c, unsigned i, const char *path,
                          const struct tern_ckpt_extent *p, void *to, struct tern_err *err);

/* Puts what `w` wants of the strided slice `s` in its place; c->piece is there. */
int tern_ckpt_strided_read(struct tern_ckpt *c, const struct tern_ckpt_info *info,
                           const struct tern_ckpt_slice *s, const struct tern_ckpt_request *w,
                           struct tern_err *err);

#endif
