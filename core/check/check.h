/* Recipe x model x data x cluster: what is wrong, with the recipe's line, before anything starts.
 *
 * Everything here reads headers only and takes milliseconds: it runs inside `sbatch`.
 */
#ifndef TERN_CHECK_CHECK_H
#define TERN_CHECK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/recipe/recipe.h"

struct tern_check_options {
    bool submission; /* at sbatch: a model that another job still makes may be absent */
    int64_t ranks;   /* of the allocation, 0 when it is not known */
};

/* 0, or -1 with one line about the first thing that cannot work: an absent or damaged file, a model
 * and a token set of different vocabularies, a batch that does not divide over the ranks. */
int tern_check_recipe(const struct tern_recipe *r, const struct tern_check_options *options,
                      struct tern_err *err);

/* May `r` go on from checkpoint `path` of a run whose identity hash (tern_recipe_hashes) was
 * `identity`?  NULL: not known, it may. */
int tern_check_same_run(const struct tern_recipe *r, const char *path, const char *identity,
                        struct tern_err *err);

#endif
