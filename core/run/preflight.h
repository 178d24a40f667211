/* Checks the nodes before a launch. */
#ifndef TERN_RUN_PREFLIGHT_H
#define TERN_RUN_PREFLIGHT_H

#include "core/run/attempt.h"

/* Check the attempt's nodes by launch.health and record the results.  *bad: the *n_bad nodes that
 * must not be used, malloc'ed texts in a malloc'ed array.  -1: the nodes could not be checked. */
int tern_run_preflight(struct tern_run_attempt *a, char ***bad, size_t *n_bad,
                       struct tern_err *err);

#endif
