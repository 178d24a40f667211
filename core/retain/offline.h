/* Retention without a supervisor, for a run that ended before all its checkpoints were verified and
 * copied.  No job has to hold nodes for it. */
#ifndef TERN_RETAIN_OFFLINE_H
#define TERN_RETAIN_OFFLINE_H

#include <stddef.h>

#include "core/retain/retain.h"

/* Record what is kept and where, as LEDGER/runs/RUN/keep.json: the recipe may change. */
int tern_retain_offline_note(const struct tern_retain_options *o, struct tern_err *err);

struct tern_retain_offline {
    char *mirror;  /* NULL: the recipe has none, and checkpoints were only verified */
    size_t copied; /* by this call */
    size_t left;   /* not verified or not copied; each is logged with its reason */
};

/* Verify and copy the checkpoints that are left, once, and fold the ledger.  None is pruned. Beside
 * a live supervisor it does no harm and repeats some of its work; a second call meanwhile fails.
 * Free *out. */
int tern_retain_run_offline(const char *ledger_dir, const char *run_id,
                            struct tern_retain_offline *out, struct tern_err *err);
void tern_retain_offline_free(struct tern_retain_offline *o);

#endif
