/* How fast a run goes, from what its ledger has measured. */
#ifndef TERN_RUN_PACE_H
#define TERN_RUN_PACE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/recipe/recipe.h"

/* A time limit's warning comes so long before the end where nothing was measured: time to finish a
 * step and write a checkpoint.  Slurm's own comes up to a minute earlier than asked for. */
enum { TERN_RUN_WARN_S = 120, TERN_RUN_WARN_LATE_S = 60 };

struct tern_run_pace {
    double step_seconds; /* the median of the newest steps measured; 0 when none was.  Of a workload
                            that reports no step_seconds: between the times of its values */
    double save_seconds; /* the longest of the newest checkpoints, from its step's end to its
                            publishing; 0 when none was measured, as of any workload */
    int64_t done;        /* steps behind it; 0 for a new run */
    uint32_t attempt;    /* that measured it */
};

/* What is known of run `run_id` on `world` ranks (a workload's workers); another number of ranks
 * does not count. Everything 0 when there is no such run. */
int tern_run_pace_read(struct tern_run_pace *out, const struct tern_recipe *r, const char *run_id,
                       int64_t world, struct tern_err *err);

/* Seconds that a stop needs: twice a step and twice a checkpoint, as measured, and what the end of
 * the ranks and of the job takes; TERN_RUN_WARN_S when that is not known. */
int64_t tern_run_pace_need(const struct tern_run_pace *p);
/* When the warning is to come in a job of `seconds`, 0 without a limit: never before half of it. */
int64_t tern_run_pace_warn(const struct tern_run_pace *p, int64_t seconds);

/* Seconds that the rest of the run will take, with a tenth more for what is no step, and the time
 * of the warning; 0 when the pace is not known or nothing is left. */
int64_t tern_run_pace_left(const struct tern_run_pace *p, const struct tern_recipe *r);

/* TERN_USAGE when not one step of that pace fits before the warning of a job that has `seconds`; 0
 * when one does, or when the pace is not known or there is no limit. */
int tern_run_pace_fits(const struct tern_run_pace *p, int64_t seconds, struct tern_err *err);

/* Into the log: will it reach its end in a job that ends in `seconds`?  Silent when it will, or
 * when nothing is known. */
void tern_run_pace_tell(const struct tern_recipe *r, const char *run_id, int64_t world,
                        int64_t seconds);

/* Of `n` values, 1 or more, which it sorts; of an even number the upper one of the middle. */
double tern_run_median(double *v, size_t n);

#endif
