/* A checkpoint dealt to another number of files, without a run.
 *
 * Any layout of ranks loads either: what changes is how many files there are and how large.  The
 * arrays are laid end to end, in their order, and cut into parts of nearly the same size; a cut
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

/* The same arrays, meta and small files as those of `path`, a checkpoint of tern's.  Every slice is
 * compared with its digest as it is read.  Each thread has 4 MiB of weights in memory, and the
 * table of `path`.  The new one appears whole, by one rename, or not at all.  An error where `dir`
 * has that step already.  Its bytes are counted (core/base/progress.h). */
int tern_ckpt_reshard(const char *path, const struct tern_ckpt_reshard *r,
                      struct tern_ckpt_saved *ret_saved, struct tern_err *err);

#endif
