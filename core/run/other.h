/* Is a run that is about to be submitted in a job already?  Two jobs of one run cannot work at
 * once: the later one fails as long as the earlier one has the run's checkpoint folder. */
#ifndef TERN_RUN_OTHER_H
#define TERN_RUN_OTHER_H

#include <stddef.h>

#include "core/ckpt/ckpt.h"

struct tern_run_ids {
    char (*id)[TERN_CKPT_ULID];
    size_t n;
};

/* Add the run of checkpoint folder `dir`, if it has one (NULL: none).  Without memory it is not
 * added. */
void tern_run_ids_add(struct tern_run_ids *ids, const char *dir);
void tern_run_ids_free(struct tern_run_ids *ids);

/* Warn of the caller's jobs that wait or run with one of these runs, and tell the dependency that
 * would be right, behind `before`; NULL: the caller's options are not known, and may have it.  For
 * at most a few seconds; without an answer of Slurm nothing is printed. */
void tern_run_other_tell(const struct tern_run_ids *ids, const char *before);

#endif
