/* The ledger's rows of a run's own checkpoints, and what lies in its checkpoint folder.
 *
 * A trainer records a checkpoint as "writing" before it gets its name, as "published" behind that,
 * and as "deleted" when it is gone.  One that is killed in between leaves a row that says less than
 * the folder.
 */
#ifndef TERN_RUN_SETTLE_H
#define TERN_RUN_SETTLE_H

#include "core/run/attempt.h"

/* While no rank runs: make each row say what is there.  A checkpoint without a row gets one, of the
 * attempt that made it, where the ledger has that attempt.  Rows of other folders stay.  A failure
 * is logged. */
void tern_run_settle_checkpoints(const struct tern_run_attempt *a);

#endif
