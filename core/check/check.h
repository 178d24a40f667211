/* Recipe x model x data x cluster: what is wrong, with the recipe's line, before anything starts.
 *
 * Everything here reads headers only and takes milliseconds: it runs inside `sbatch`.  Somebody
 * else's trainer is checked as far as the recipe tells of it: model, data and degrees may be left
 * out there.
 */
#ifndef TERN_CHECK_CHECK_H
#define TERN_CHECK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/data/data.h"
#include "core/recipe/recipe.h"

struct tern_check_options {
    bool submission;       /* at sbatch: a model that another job still makes may be absent */
    int64_t nodes;         /* that will work, 0 when it is not known */
    int64_t ranks;         /* on all of them together; a workload's are its workers; 0: not known */
    int64_t cluster_nodes; /* that there are at all; 0: not known */
    uint64_t node_memory;  /* bytes, of the largest node there is; 0: not known */
    uint64_t device_memory; /* bytes, of a NeuronCore; 0: none, or not known */
};

/* 0, or -1 with one line about the first thing that cannot work: an absent or damaged file, a model
 * and a token set of different vocabularies, tensor groups that do not fit the nodes, a batch that
 * does not divide over the ranks, a model that does not fit the memory.  Where the number of nodes
 * is not known, what works on no number of them. */
int tern_check_recipe(const struct tern_recipe *r, const struct tern_check_options *options,
                      struct tern_err *err);

/* Find `r->steps` of a recipe that says `epochs`, by a look at its first training set (see
 * tern_recipe_resolve); of any other nothing changes.  Right after it was loaded. */
int tern_check_length(struct tern_recipe *r, struct tern_err *err);

/* The fewest nodes whose ranks divide over tensor x pipeline, and so over any multiple; none of
 * them in reserve. */
int64_t tern_check_fewest_nodes(const struct tern_recipe *r);

/* Are the token sets there, and of the model's vocabulary?  Part of tern_check_recipe, for a
 * trainer that nobody else has checked the recipe for. */
int tern_check_vocabulary(const struct tern_recipe *r, struct tern_err *err);

/* The samples of the run: its stages, opened. */
struct tern_data_stages *tern_check_stages_open(const struct tern_recipe *r, struct tern_err *err);

/* May `r` go on from checkpoint `path`, whose manifest says `meta`?  0, or -1 with TERN_USAGE: its
 * identity hash, its model, its token sets or, with data.stages, its batches are others; `accept`
 * lets all but the last pass.  What `meta` does not say is not asked. */
int tern_check_same_run(const struct tern_recipe *r, const char *path, json_t *meta, bool accept,
                        struct tern_err *err);
/* What a checkpoint's meta keeps as "model": the config that the recipe names now, a new reference;
 * null when there is none to compare with. */
json_t *tern_check_model(const struct tern_recipe *r);

/* What a recipe reads, and a digest of each that changes when it does: of a token set its header,
 * which holds the checksum of all digests; of a checkpoint its manifest; of a Hugging Face folder
 * its config and the heads and sizes of its weights, not the weights themselves (they are tens of
 * GiB).  What is not there is left out. */
struct tern_check_input {
    char *key, *path; /* "data.train[0]" */
    char sha256[TERN_SHA256_HEX];
};
struct tern_check_inputs {
    struct tern_check_input *v;
    size_t n;
};
int tern_check_inputs(const struct tern_recipe *r, struct tern_check_inputs *out,
                      struct tern_err *err);
void tern_check_inputs_free(struct tern_check_inputs *inputs);

#endif
