/* Ranks that only the supervisor can find stopped: outside Slurm, where it has the ranks'
 * tern-tasks as its children.  In a job srun has them, and their logs show which one stays
 * (srun_hang.h).
 *
 * A tern-task that a signal stopped is continued.  It has no work that a person could want to hold,
 * and its program knows nothing of it.  A rank of the trainer that has not ended long after all the
 * others have is ended, and the attempt is repeated. */
#ifndef TERN_RUN_FROZEN_H
#define TERN_RUN_FROZEN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/clock.h"
#include "core/base/proc.h"
#include "core/run/launch.h"

/* Seconds after the end of the other ranks.  They end together; what a rank does then is to write,
 * and storage that hangs comes back within TERN_FABRIC_STORAGE_S. */
enum { TERN_RUN_FROZEN_LEFT_S = 600 };

struct tern_run_frozen {
    struct tern_proc_watch *tasks; /* [n of the ranks]; NULL: no look yet, or no memory */
    int64_t limit_ns, next_ns;
    bool counts; /* others have ended */
    struct tern_clock_limit left;
    char why[300]; /* result: the rank that was ended; "": none was */
};

/* Look when it is time. */
void tern_run_frozen_tick(struct tern_run_frozen *f, struct tern_run_ranks *r);
void tern_run_frozen_free(struct tern_run_frozen *f);
/* "rank 3 has not ended, though ...", of what `why` says. */
void tern_run_frozen_tell(char *why, size_t size, int64_t rank);

#endif
