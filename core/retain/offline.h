/* The keeper's work without a supervisor: for a run that ended before its checkpoints were all
 * verified and copied, so that nobody holds nodes for it. */
#ifndef TERN_RETAIN_OFFLINE_H
#define TERN_RETAIN_OFFLINE_H

#include <stddef.h>

#include "core/retain/retain.h"

/* Write down what is to be kept and where, as LEDGER/runs/RUN/keep.json: recipes change. */
int tern_retain_offline_note(const struct tern_retain_options *o, struct tern_err *err);

struct tern_retain_offline {
    char *mirror;  /* NULL: the recipe has none, and checkpoints were verified only */
    size_t copied; /* just now */
    size_t left;   /* not verified or not copied; each was told in the log with its reason */
};

/* Verify and copy what is left, once, and fold the ledger.  Nothing is pruned.  Beside a live
 * supervisor it does no harm, and some of its work twice; a second call meanwhile is refused.
 * *out is to be freed. */
int tern_retain_run_offline(const char *ledger_dir, const char *run_id,
                            struct tern_retain_offline *out, struct tern_err *err);
void tern_retain_offline_free(struct tern_retain_offline *o);

#endif
