/* Keeping a lease alive while the supervisor is busy with what comes before the ranks: digesting
 * inputs, health gates of a minute and more, waiting for the controller.  While they work, the
 * watch does it (watch.h). */
#ifndef TERN_RUN_HEARTBEAT_H
#define TERN_RUN_HEARTBEAT_H

#include <sys/types.h>

#include "core/ckpt/ckpt.h"

/* A child that renews `lease` and ends with this process, or when the lease is lost (which the
 * caller then finds out by itself).  0: there is none, which was told; `lease` NULL needs none. */
pid_t tern_run_heartbeat_start(struct tern_ckpt_lease *lease);
/* End it; *child becomes 0. */
void tern_run_heartbeat_stop(pid_t *child);

#endif
