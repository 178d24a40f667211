/* What the ranks find in their environment: the profile's variables (core/env). */
#ifndef TERN_RUN_ENVIRON_H
#define TERN_RUN_ENVIRON_H

#include "core/run/attempt.h"

/* Set, in this process, what the profile says for the ranks' whole job and for nodes like this one,
 * and record it as the attempt's parameters.  Called once an attempt, before its launch; what an
 * earlier one has set is taken back first.  The profile is TERN_PROFILE's, else launch.profile's,
 * else the node's. */
int tern_run_environ_set(struct tern_run_attempt *a, struct tern_err *err);

/* What that would make of the `n` variables `names`, malloc'ed, "" for unset ones; nothing is set.
 * `a` needs no more than o and place. */
int tern_run_environ_predict(const struct tern_run_attempt *a, const char *const *names, size_t n,
                             char **values, struct tern_err *err);

#endif
