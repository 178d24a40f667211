/* Renews a lease while the supervisor is busy before the ranks start.  Digests of inputs, preflight
 * checks and waits for the controller may take minutes.  While ranks work, the watch does it
 * (watch.h). */
#ifndef TERN_RUN_HEARTBEAT_H
#define TERN_RUN_HEARTBEAT_H

#include <sys/types.h>

#include "core/ckpt/ckpt.h"

/* Start a child that renews `lease`.  It ends with this process, or when the lease is lost, which
 * the caller then notices itself.  0: no child runs, which is logged; `lease` NULL needs none. */
pid_t tern_run_heartbeat_start(struct tern_ckpt_lease *lease);
/* End it; *child becomes 0. */
void tern_run_heartbeat_stop(pid_t *child);

#endif
