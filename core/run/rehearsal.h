/* Attempts that only try what a run would do: `tern run --trial`, `tern cluster smoke`. */
#ifndef TERN_RUN_REHEARSAL_H
#define TERN_RUN_REHEARSAL_H

#include "core/run/attempt.h"

/* Called before the attempt's end is recorded.  The caller of a successful trial or smoke test
 * removes its folder, so its checkpoints are removed here and recorded as deleted.  A checkpoint
 * that cannot be removed is a warning.  Attempts of other kinds are left alone. */
void tern_run_rehearsal_clear(const struct tern_run_attempt *a,
                              const struct tern_run_result *result);

#endif
