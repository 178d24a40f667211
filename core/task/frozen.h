/* Is the program of this rank stopped for good?
 *
 * Ranks find each other frozen (core/fabric/liveness.h), but a rank alone has no other, and ranks
 * that are all stopped look for nothing.  So tern-task looks at its program, and ends one that is
 * stopped: its attempt fails, and is repeated.  Programs that are not tern's own trainer may be
 * held for as long as a person likes.  So may one in a debugger. */
#ifndef TERN_TASK_FROZEN_H
#define TERN_TASK_FROZEN_H

#include <stdint.h>

#include "core/base/proc.h"

enum { TERN_TASK_FROZEN_MS = 500 }; /* between two looks */

struct tern_task_frozen {
    int64_t limit_ns; /* 0: no look at this program */
    int64_t next_ns, rank;
    char node[256];
    char why[500]; /* result: the program was killed; "": it was not */
    struct tern_proc_watch watch;
};

/* `program`: argv[0] of the program of rank `rank`, on this node. */
void tern_task_frozen_begin(struct tern_task_frozen *f, const char *program, int64_t rank,
                            const char *node);
/* Look when it is time, and kill `pid` when it has been stopped for too long; that is logged.
 * Returns milliseconds until the next look, at most `most_ms` (-1: no limit; -1: none is needed).
 * `now_ns`: boot clock. */
int tern_task_frozen_tick(struct tern_task_frozen *f, pid_t pid, int64_t now_ns, int most_ms);

#endif
