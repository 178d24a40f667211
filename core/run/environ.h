/* The environment of the ranks: the profile's variables (core/env). */
#ifndef TERN_RUN_ENVIRON_H
#define TERN_RUN_ENVIRON_H

#include "core/run/attempt.h"

/* Set, in this process, the profile's variables for the whole job and for nodes like this one, and
 * record them as the attempt's parameters.  Called once an attempt, before its launch; variables of
 * an earlier attempt are taken back first.  The profile is TERN_PROFILE, else launch.profile, else
 * the node's. */
int tern_run_environ_set(struct tern_run_attempt *a, struct tern_err *err);

/* The values that `n` variables `names` would get, malloc'ed, "" for unset ones; none is set.  Of
 * `a` only o and place are used. */
int tern_run_environ_predict(const struct tern_run_attempt *a, const char *const *names, size_t n,
                             char **values, struct tern_err *err);

#endif
