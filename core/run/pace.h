/* How fast a run is, from measurements in its ledger. */
#ifndef TERN_RUN_PACE_H
#define TERN_RUN_PACE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/recipe/recipe.h"

/* Seconds of a time limit's warning before the end, without measurements: enough to finish a step
 * and write a checkpoint.  Slurm's own warning comes up to a minute earlier than requested. */
enum { TERN_RUN_WARN_S = 120, TERN_RUN_WARN_LATE_S = 60 };

struct tern_run_pace {
    double step_seconds; /* the median of the newest measured steps; 0: none.  For a workload
                            without step_seconds: from the times of its values */
    double save_seconds; /* the longest of the newest checkpoints of the newest attempt that has
                            some: how long its trainer wrote it, or from the end of its step until
                            it was published; 0: none measured */
    int64_t done;        /* steps made so far; 0 for a new run */
    uint32_t attempt;    /* that measured the steps */
};

/* The pace of run `run_id` on `world` ranks (a workload's workers); attempts with another number of
 * ranks do not count.  All 0 when there is no such run. */
int tern_run_pace_read(struct tern_run_pace *out, const struct tern_recipe *r, const char *run_id,
                       int64_t world, struct tern_err *err);

/* Seconds that a stop needs: two measured steps and two measured checkpoints, and the end of the
 * ranks and of the job; TERN_RUN_WARN_S without measurements. */
int64_t tern_run_pace_need(const struct tern_run_pace *p);
/* Seconds of the warning before the end of a job of `seconds` (0: no limit): at most half of it. */
int64_t tern_run_pace_warn(const struct tern_run_pace *p, int64_t seconds);

/* Seconds for the rest of the run, with a tenth more for work beside the steps, and the time of the
 * warning. 0 when the pace is not known or no step is left. */
int64_t tern_run_pace_left(const struct tern_run_pace *p, const struct tern_recipe *r);

/* TERN_USAGE when not one step of that pace fits before the warning of a job that has `seconds`. 0
 * when one does, or when the pace is not known or there is no limit. */
int tern_run_pace_fits(const struct tern_run_pace *p, int64_t seconds, struct tern_err *err);

/* Log it when the run will not reach its end in a job that ends in `seconds`. */
void tern_run_pace_tell(const struct tern_recipe *r, const char *run_id, int64_t world,
                        int64_t seconds);

/* The median of `n` values, 1 or more, which it sorts; of an even number the upper of the two. */
double tern_run_median(double *v, size_t n);

#endif
