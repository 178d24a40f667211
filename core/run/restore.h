/* A run whose checkpoint.dir has no good checkpoint any more goes on from the newest complete copy
 * in checkpoint.mirror.  The mirror is a folder or a bucket (core/retain/restore.h), and the run
 * stays the same.  A run whose newest checkpoint there is damaged does so, too, if a copy is newer
 * than the good ones, but not than that one.  A checkpoint that a person removed does not come
 * back.
 *
 * Copies of which run?  Of the one that run.id in checkpoint.dir names.  Without it, of the newest
 * run in the ledger that made checkpoints there.  Else of any run, unless the ledger says that it
 * made its checkpoints in another folder: a new checkpoint.dir begins a new run.
 */
#ifndef TERN_RUN_RESTORE_H
#define TERN_RUN_RESTORE_H

#include "core/run/attempt.h"

/* Before the lease: looks for the copy, sets a->copy, and a->id if checkpoint.dir has no run.id.
 * Fails when the copy is of another recipe than `a`'s, and when the mirror cannot be read. */
int tern_run_restore_find(struct tern_run_attempt *a, struct tern_err *err);

/* With the lease: brings it, unless a good checkpoint is there by now.  Sets a->restored, or
 * a->stopped when a signal came, which stays pending. */
int tern_run_restore_bring(struct tern_run_attempt *a, struct tern_err *err);

#endif
