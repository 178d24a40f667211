/* Keys with more than one value: sets, commands, metrics; and combinations that are refused. */
#ifndef TERN_RECIPE_LISTS_H
#define TERN_RECIPE_LISTS_H

#include "core/base/yaml.h"
#include "core/recipe/recipe.h"

/* The value at a dotted key, NULL when it is not given; its sections are checked to be maps. */
int tern_recipe_look_up(const struct tern_recipe *r, const char *name, struct tern_yaml_node **out,
                        struct tern_err *err);
/* A path of the file, joined to the file's folder; URLs and NULL stay. */
void tern_recipe_join(const struct tern_recipe *r, char **path);

/* Each reads one key into the recipe, which stays as it is when the key is not given. */
int tern_recipe_read_data(struct tern_recipe *r, struct tern_err *err); /* data.train or stages */
int tern_recipe_read_held_out(struct tern_recipe *r, struct tern_err *err);
int tern_recipe_read_betas(struct tern_recipe *r, struct tern_err *err);
int tern_recipe_read_targets(struct tern_recipe *r, struct tern_err *err); /* of lora */
int tern_recipe_read_command(struct tern_recipe *r, const char *name, char ***out,
                             struct tern_err *err);
int tern_recipe_read_metrics(struct tern_recipe *r, struct tern_err *err);

/* Read the length from one of steps, epochs and tokens; the others become 0. */
int tern_recipe_read_length(struct tern_recipe *r, struct tern_err *err);
/* Compute the steps of `tokens`; check the keys that `epochs` needs. */
int tern_recipe_find_length(struct tern_recipe *r, struct tern_err *err);
/* Checks that need the number of steps: schedule, stages. */
int tern_recipe_check_length(const struct tern_recipe *r, struct tern_err *err);
int tern_recipe_check_schedule(const struct tern_recipe *r, struct tern_err *err);

/* Keys that tern's own trainer needs or refuses. */
int tern_recipe_check_trainer(const struct tern_recipe *r, struct tern_err *err);
/* Keys that a workload refuses; and the copies of checkpoints, checkpoint.mirror and .local. */
int tern_recipe_check_workload(const struct tern_recipe *r, struct tern_err *err);
int tern_recipe_check_mirror(const struct tern_recipe *r, struct tern_err *err);

void tern_recipe_free_lists(struct tern_recipe *r);

#endif
