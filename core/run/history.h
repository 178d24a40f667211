/* The attempts of a run so far, from its ledger. */
#ifndef TERN_RUN_HISTORY_H
#define TERN_RUN_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

/* Of attempts of one kind: those that train and those that compile are counted apart. */
struct tern_run_history {
    /* Of the Slurm job: ended by a lost node or a fault, or not ended (their supervisor was lost
     * with its node, or they run).  An attempt that a user or Slurm ended (preempted, time limit)
     * uses up no restart. */
    unsigned attempts;
    unsigned vain;    /* of these the newest in a row that made no checkpoint */
    bool newest_left; /* the newest of all left a checkpoint */
    unsigned faults;  /* the newest in a row, of any job, that ended by a fault and made no
                       checkpoint; lost nodes are not counted */
};

int tern_run_history_read(struct tern_run_history *h, const char *ledger_dir, const char *run_id,
                          uint32_t job, const char *kind, struct tern_err *err);

#endif
