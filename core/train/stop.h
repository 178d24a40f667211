/* The best evaluation, and evaluate.stop: the end of a run whose held-out loss gets no better.
 *
 * Without evaluate.stop the first held-out set says which evaluation is the best: its checkpoint is
 * kept (checkpoints/best), and the run goes to its end.  The best evaluations of the other sets are
 * remembered, too: pruning keeps their checkpoints.
 *
 * Every rank sees the same evaluations and decides the same; the rule's state goes through
 * checkpoints.
 */
#ifndef TERN_TRAIN_STOP_H
#define TERN_TRAIN_STOP_H

#include <jansson.h>
#include <stdint.h>

#include "core/recipe/recipe.h"

struct tern_train_stop_rule {
    const char *metric; /* the recipe's, or its first held-out set; NULL: it has none */
    int64_t patience;   /* 0: the run goes to its end */
    double best;        /* loss a token; infinity before the first evaluation */
    int64_t best_step;  /* -1 before it */
    int64_t last_step;  /* the newest evaluation's */
    int64_t since;      /* evaluations after the best one */
    const struct tern_recipe_sets *sets; /* the recipe's */
    json_t *others; /* of the other sets, {SET: {"best", "best_step"}}; NULL: none was evaluated */
};

/* The recipe must outlive it. */
void tern_train_stop_init(struct tern_train_stop_rule *s, const struct tern_recipe *r);
void tern_train_stop_free(struct tern_train_stop_rule *s);

/* Held-out set `name` has `loss` a token at `step`.  Other sets than the metric count only for
 * `others`, and a step counts once.  A loss that is not finite does not count either.  A loss is
 * better only by more than a millionth: rounding changes as much when a run goes on with other
 * ranks. */
void tern_train_stop_see(struct tern_train_stop_rule *s, const char *name, int64_t step,
                         double loss);

/* Is the run done?  With more patience it may not be. */
bool tern_train_stop_is_over(const struct tern_train_stop_rule *s);

/* "held has not got better than 3.2000 a token of step 40 in 3 evaluations"; a new reference. */
json_t *tern_train_stop_describe(const struct tern_train_stop_rule *s);

/* For a checkpoint, and back; NULL is one without.  Another metric begins anew, and sets that the
 * recipe has no more are forgotten. */
json_t *tern_train_stop_save(const struct tern_train_stop_rule *s);
void tern_train_stop_load(struct tern_train_stop_rule *s, json_t *from);

#endif
