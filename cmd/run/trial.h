/* tern run --trial N: a few steps of tern's own trainer as a run of its own, away from the run's
 * checkpoints and values. */
#ifndef TERN_CMD_RUN_TRIAL_H
#define TERN_CMD_RUN_TRIAL_H

#include "core/base/opt.h"
#include "core/recipe/recipe.h"

struct trial {
    char *folder;  /* of its checkpoints: beside checkpoint.dir, removed at the end */
    char *set[12]; /* its changes to the recipe, KEY=VALUE */
    size_t n;
};

/* Add to `overrides` the settings that make `r` a trial of `steps` steps.  The caller loads the
 * recipe again. */
int trial_begin(struct trial *t, const struct tern_recipe *r, int64_t steps,
                struct tern_opt_list *overrides, struct tern_err *err);
/* Print the measurements of run `run_id` in the ledger. */
int trial_print(const char *ledger_dir, const char *run_id, struct tern_err *err);
/* Remove its checkpoints. */
void trial_end(struct trial *t);

#endif
