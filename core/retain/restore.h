/* The way back: the newest complete copy of a run's checkpoints in checkpoint.mirror, for a run
 * whose checkpoint.dir has none any more.
 *
 *     tern_retain_restore_find(&how, UINT64_MAX, &copy, err)   1: there is one
 *     tern_retain_restore_bring(&how, &copy, dir, err)         0: DIR/step-N is published
 *     tern_retain_restore_free(&copy)
 *
 * Only tern's own checkpoints.  A copy in object storage is complete when its manifest is there and
 * every file that the manifest names, with its size.
 */
#ifndef TERN_RETAIN_RESTORE_H
#define TERN_RETAIN_RESTORE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/ckpt/ckpt.h"

struct tern_retain_restore {
    const char *mirror; /* checkpoint.mirror */
    const char *run_id; /* copies of this run alone; "": of any that `other` does not name */
    bool (*other)(void *ctx, const char *run_id); /* that run has another checkpoint.dir */
    /* 0: the lease on the folder still holds; NULL: there is none.  Asked before anything there is
     * renamed. */
    int (*still)(void *ctx, struct tern_err *err);
    void *ctx;
    const sigset_t *ends; /* blocked signals that end it while they are pending; or NULL */
};

struct tern_retain_restored {
    char *path; /* of the copy, for messages */
    char *name; /* "step-00001500" */
    uint64_t step, bytes;
    char run_id[TERN_CKPT_ULID];
    struct tern_ckpt *manifest; /* its arrays are not to be read */
};

/* The newest complete copy before step `before`: 1; 0 where there is none; -1.  A warning says why
 * a newer one was passed over.  Where all are passed over, that is an error and not their absence.
 * A server that does not answer ends it after a quarter of a minute.  TERN_CONTINUED where one of
 * `ends` ended it. */
int tern_retain_restore_find(const struct tern_retain_restore *how, uint64_t before,
                             struct tern_retain_restored *ret_copy, struct tern_err *err);

/* Copy it into `dir`, verify every byte, and publish it by a rename.  A checkpoint of that name
 * there, which is not good, is marked bad.  What an interrupted call has brought is not brought
 * again.  1: the copy is damaged, with the reason in `err`: its bytes were read twice; an older one
 * may be whole.  TERN_CONTINUED where one of `ends` ended it. */
int tern_retain_restore_bring(const struct tern_retain_restore *how,
                              const struct tern_retain_restored *copy, const char *dir,
                              struct tern_err *err);

/* Mark a damaged copy: it counts no more, and the run's next checkpoint of that step takes its
 * place.  A folder is renamed to step-N.bad-K; bucket.h has the other.  After an older one was
 * brought: without any, the next attempt is to find the same and not to begin from nothing. */
int tern_retain_restore_refuse(const struct tern_retain_restore *how,
                               const struct tern_retain_restored *copy, struct tern_err *err);

/* Remove what interrupted calls have brought into `dir`.  With the lease, when nothing is to come
 * back. */
void tern_retain_restore_sweep(const char *dir);

void tern_retain_restore_free(struct tern_retain_restored *copy);

#endif
