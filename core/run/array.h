/* A job array over a recipe: lists of values, a member for each combination.
 *
 *     optimizer.lr=1e-4,2e-4    batch.global=64,128     ->  4 members, the last list fastest
 *
 * Each member is a run of its own.  Its settings are added to its name, and name a folder below
 * checkpoint.dir; values of checkpoint.dir itself are used as they are.
 */
#ifndef TERN_RUN_ARRAY_H
#define TERN_RUN_ARRAY_H

#include <stddef.h>

#include "core/base/err.h"
#include "core/base/opt.h"
#include "core/recipe/recipe.h"

struct tern_run_array {
    struct tern_run_array_key {
        char *name, **values; /* [n] */
        size_t n;
    } * keys; /* [n_keys] */
    size_t n_keys;
    size_t n;     /* members; 0 without keys */
    char **texts; /* [n_texts]: settings that tern_run_array_load has made */
    size_t n_texts;
};

/* "KEY=V1,V2" each; commas inside [], {} and quotes do not divide.  At most 1000 members, no key
 * and no value of one twice: two members would be one run. */
int tern_run_array_read(struct tern_run_array *a, const char *const *specs, size_t n_specs,
                        struct tern_err *err);
void tern_run_array_free(struct tern_run_array *a);

/* "optimizer.lr=1e-4,batch.global=64", malloc'ed: what member `i` sets. */
char *tern_run_array_describe(const struct tern_run_array *a, size_t i);

/* The recipe at `path` (absolute) with `settings`, as member `i` of the array has it.  The member's
 * own settings are added to `settings`, in texts that live as long as `a`.  Without keys it is
 * tern_recipe_load. */
struct tern_recipe *tern_run_array_load(struct tern_run_array *a, size_t i, const char *path,
                                        struct tern_opt_list *settings, struct tern_err *err);

#endif
