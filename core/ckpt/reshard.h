/* A checkpoint dealt to another number of files, without a run.
 *
 * Any layout of ranks loads either: what changes is how many files there are and how large.  The
 * arrays are laid end to end, in their order, and cut into parts of nearly the same size.  A cut
 * falls between two elements of an array's first dimension. */
#ifndef TERN_CKPT_RESHARD_H
#define TERN_CKPT_RESHARD_H

#include <signal.h>

#include "core/ckpt/ckpt.h"

struct tern_ckpt_reshard {
    const char *dir;                   /* the new checkpoint becomes `dir`/step-%08d */
    unsigned shards;                   /* 1 to 65536 */
    unsigned threads;                  /* files that are written at once; 0: by the CPUs */
    const volatile sig_atomic_t *stop; /* not 0: give up (Ctrl-C); NULL: never */
};

/* The same arrays, meta and small files as those of `path`, a checkpoint of tern's.  The new one is
 * read back, and every slice of the old one compared with its digest, before it appears.  It
 * appears by one rename, whole or not at all.  Each thread has 8 MiB of weights in memory, or its
 * longest row, and the table of `path`.  TERN_USAGE where `dir` is a run's folder, or an array has
 * rows above 1 GiB; an error where `dir` has that step already.  Bytes are counted twice
 * (core/base/progress.h). */
int tern_ckpt_reshard(const char *path, const struct tern_ckpt_reshard *r,
                      struct tern_ckpt_saved *ret_saved, struct tern_err *err);

#endif
