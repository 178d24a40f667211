/* The side of a rank that the supervisor hears, and that watches its node (beacon.h).
 *
 * Every rank sends signs of life and its end.  The first rank of some nodes, but not of the
 * supervisor's, queries it, and starts `tern orphan` when it is silent.
 */
#ifndef TERN_TASK_SUPERVISOR_H
#define TERN_TASK_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/task/beacon.h"

struct tern_task_supervisor {
    struct tern_task_beacon_client beacon;
    int64_t signed_ns, every_ns; /* its last sign of life, and the time between two */
    bool watches;                /* queries the supervisor; what follows is for that */
    int64_t asked_ns, looked_ns;
    pid_t orphan; /* child that runs `tern orphan`; 0: none */
    bool missed;  /* one was started since the last answer */
};

/* From the environment; without a beacon the other calls do nothing. */
void tern_task_supervisor_find(struct tern_task_supervisor *s);
/* Send and query when it is time.  Returns milliseconds until the next call; -1: none is needed. */
int tern_task_supervisor_tick(struct tern_task_supervisor *s);
/* A child of this process has ended: was it `tern orphan`? */
void tern_task_supervisor_reap(struct tern_task_supervisor *s);
/* The program has ended with wait(2)'s `status`, perhaps because the supervisor's node died.  Waits
 * for `tern orphan`. */
void tern_task_supervisor_end(struct tern_task_supervisor *s, int status);

#endif
