/* Attempts that only try what a run would do: `tern run --trial`, `tern cluster smoke`. */
#ifndef TERN_RUN_REHEARSAL_H
#define TERN_RUN_REHEARSAL_H

#include "core/run/attempt.h"

/* Before the attempt's end is recorded: whoever asked for a trial or smoke test that went well has
 * its folder removed, so its checkpoints go now, and the ledger calls them deleted.  What cannot be
 * removed is a warning.  Nothing happens to attempts of other kinds. */
void tern_run_rehearsal_clear(const struct tern_run_attempt *a,
                              const struct tern_run_result *result);

#endif
