/* The keeper's work without a supervisor: for a run that ended before its checkpoints were all
 * verified and copied, so that nobody holds nodes for it. */
#ifndef TERN_RUN_OUTSIDE_H
#define TERN_RUN_OUTSIDE_H

#include <stddef.h>

#include "core/run/keeper.h"

/* Write down what is to be kept and where, as LEDGER/runs/RUN/keep.json: recipes change. */
int tern_run_outside_note(const struct tern_run_keeper_options *o, struct tern_err *err);

struct tern_run_outside {
    char *mirror;  /* NULL: the recipe has none, and checkpoints were verified only */
    size_t copied; /* just now */
    size_t left;   /* not verified or not copied; each was told in the log with its reason */
};

/* Verify and copy what is left, once, and fold the ledger.  Nothing is pruned.  Beside a live
 * supervisor it does no harm, and some of its work twice; a second call meanwhile is refused.
 * *out is to be freed. */
int tern_run_outside(const char *ledger_dir, const char *run_id, struct tern_run_outside *out,
                     struct tern_err *err);
void tern_run_outside_free(struct tern_run_outside *o);

#endif
