/* Before a launch: are the nodes fit for it? */
#ifndef TERN_RUN_PREFLIGHT_H
#define TERN_RUN_PREFLIGHT_H

#include "core/run/attempt.h"

/* Check the attempt's nodes as launch.health says, record what was found, and name those that must
 * not be used: *bad, malloc'ed texts in a malloc'ed array of *n_bad.  -1: they could not be
 * checked. */
int tern_run_preflight(struct tern_run_attempt *a, char ***bad, size_t *n_bad,
                       struct tern_err *err);

#endif
