/* Which steps make no update: those whose loss or gradient is not finite, and spikes.
 *
 * Every rank judges the same sums with the same result; nothing is sent.  The windows go through
 * checkpoints, so that a run that was cut off judges as one that was not.
 */
#ifndef TERN_TRAIN_GUARD_H
#define TERN_TRAIN_GUARD_H

#include <jansson.h>
#include <stdint.h>

#include "core/recipe/recipe.h"

enum {
    TERN_TRAIN_WINDOW = 1024, /* the largest optimizer.guard.window */
    TERN_TRAIN_WHY = 200,     /* bytes of a reason */
};

struct tern_train_guard {
    double spike; /* optimizer.guard's */
    int window, stop_after;
    uint64_t skipped; /* steps of the run without an update */
    int in_a_row;     /* the newest of them */
    bool not_finite;  /* of the newest step: its loss or gradient */
    uint64_t seen;    /* steps in the windows, ever; its remainder is the next place */
    double loss[TERN_TRAIN_WINDOW], norm[TERN_TRAIN_WINDOW]; /* rings */
};

/* As the recipe says, with empty windows. */
void tern_train_guard_init(struct tern_train_guard *g, const struct tern_recipe *r);

/* May a step of this loss (a token) and global gradient norm make its update?  If not, `why` has
 * the reason, and the step is counted.
 *
 * A spike is more than `spike` standard deviations above the mean of the last `window` steps, once
 * there are as many.  It enters the window as the largest value that would be none.  One spike does
 * not blind the guard, and a level that has risen for good is let through in time. */
bool tern_train_guard_judge(struct tern_train_guard *g, double loss, double norm,
                            char why[TERN_TRAIN_WHY]);

/* Were as many steps in a row skipped as optimizer.guard.stop_after allows? */
bool tern_train_guard_is_over(const struct tern_train_guard *g);

/* Empty the windows: the next steps are of another kind of data. */
void tern_train_guard_forget(struct tern_train_guard *g);

/* For a checkpoint, and back; NULL is one without.  A window of another length keeps its newest. */
json_t *tern_train_guard_save(const struct tern_train_guard *g);
void tern_train_guard_load(struct tern_train_guard *g, json_t *from);

#endif
