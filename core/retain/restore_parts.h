/* The parts of the way back (restore.h). */
#ifndef TERN_RETAIN_RESTORE_PARTS_H
#define TERN_RETAIN_RESTORE_PARTS_H

#include "core/retain/restore.h"

/* One wrong bit on the way is no damage. */
enum { TERN_RETAIN_RESTORE_TRIES = 2 };

/* Between the child that brings the copy and its parent. */
struct tern_retain_restore_shared {
    uint64_t done_bytes; /* atomic; of one from object storage */
    int rc;
    struct tern_err err;
};

/* May this be the run?  Fills what `copy` says of the manifest, which it takes. */
bool tern_retain_restore_take(const struct tern_retain_restore *how, struct tern_ckpt *c,
                              struct tern_retain_restored *copy);
/* 0: the lease still holds; -1. */
int tern_retain_restore_still(const struct tern_retain_restore *how, struct tern_err *err);
/* Is it the copy that is at fault, and not what reads it? */
bool tern_retain_restore_is_damage(const struct tern_err *err);
/* Is one of the signals `ends` pending? */
bool tern_retain_restore_is_ended(const struct tern_retain_restore *how);

/* What a search has passed over.  A run must not begin anew because its copies cannot be used. */
struct tern_retain_restore_passed {
    size_t n;
    struct tern_err newest; /* why the first of them was passed over */
};
void tern_retain_restore_pass(struct tern_retain_restore_passed *p, const struct tern_err *why);
/* Nothing was found: 0; -1 where copies were passed over. */
int tern_retain_restore_none(const struct tern_retain_restore *how,
                             const struct tern_retain_restore_passed *p, struct tern_err *err);

/* ---- restore_bucket.c: copies in object storage, as restore.h has it of both */

int tern_retain_restore_bucket_find(const struct tern_retain_restore *how, uint64_t before,
                                    struct tern_retain_restored *copy, struct tern_err *err);
/* Into `aside`, then by a rename to `to`. */
int tern_retain_restore_bucket_bring(const struct tern_retain_restore *how,
                                     const struct tern_retain_restored *copy, const char *aside,
                                     const char *to, struct tern_retain_restore_shared *shared,
                                     struct tern_err *err);
int tern_retain_restore_bucket_refuse(const struct tern_retain_restore *how,
                                      const struct tern_retain_restored *copy,
                                      struct tern_err *err);

#endif
