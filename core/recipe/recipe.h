/* run.yaml: what a run is, in the vocabulary of the field (DESIGN 3, "Recipe").
 *
 * Reading checks syntax, types, ranges and combinations that need nothing but the recipe itself;
 * what needs the model, the token sets or the cluster is core/check's.  Relative paths in the file
 * are relative to its folder and come out joined to it.
 */
#ifndef TERN_RECIPE_RECIPE_H
#define TERN_RECIPE_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/hash.h"

/* Do not renumber: they enter the recipe's hashes. */
enum tern_schedule { TERN_SCHEDULE_CONSTANT, TERN_SCHEDULE_LINEAR, TERN_SCHEDULE_COSINE };
enum tern_optimizer_state { TERN_OPTIMIZER_RESET, TERN_OPTIMIZER_KEEP };

struct tern_recipe_set {
    char *name; /* of a held-out set; NULL for training data */
    char *path;
    double weight; /* of training data; they need not sum to 1 */
};

struct tern_recipe_sets {
    struct tern_recipe_set *sets;
    size_t n;
};

/* Every text is owned by the recipe.  A NULL text is a key that was not given. */
struct tern_recipe {
    char *path; /* as given */
    char *name; /* [a-zA-Z0-9._-]+ */
    struct {
        char *from;        /* Hugging Face folder or checkpoint to start from; or */
        bool pending;      /* `from` is made by a job that this one waits for */
        char *config;      /* config.json for random weights */
        char *tokenizer;   /* its folder or file, to travel with exports; default: model.from */
        int64_t optimizer; /* enum tern_optimizer_state: what to do with the moments in `from` */
        double init_std;   /* of random weights */
    } model;
    struct {
        struct tern_recipe_sets train, held_out;
        int64_t seed;
    } data;
    struct {
        int64_t global, micro; /* sequences: a step, a rank's forward pass */
        int64_t seq_len;       /* tokens */
    } batch;
    int64_t steps;
    struct {
        int64_t tensor, pipeline;
    } parallel;
    struct {
        double lr, beta1, beta2, eps, weight_decay;
        double clip; /* of the global gradient norm; 0: none */
    } optimizer;
    struct {
        int64_t kind;   /* enum tern_schedule */
        int64_t warmup; /* steps */
        double min_lr;
    } schedule;
    struct {
        int64_t every; /* steps; 0: at the start and the end only */
    } evaluate;
    struct {
        char *dir;
        int64_t every;      /* steps; 0: at the end only */
        int64_t keep;       /* newest to keep; at least 2 */
        int64_t keep_every; /* steps whose checkpoints stay for good; 0: none */
    } checkpoint;
    struct {
        char *dir;
    } ledger;
    struct {
        int64_t ranks_per_node;
        int64_t threads; /* a rank; 0: the cores at hand, shared evenly */
    } launch;
    struct {
        char **command; /* NULL-ended; NULL: tern's own trainer */
        int64_t tasks_per_node;
    } workload;

    struct tern_yaml *source; /* for the lines of messages */
};

/* Read `path`, then apply `overrides` ("optimizer.lr=1e-4", n of them). */
struct tern_recipe *tern_recipe_load(const char *path, const char *const *overrides, size_t n,
                                     struct tern_err *err);
void tern_recipe_free(struct tern_recipe *r);

/* Fail at `key` ("batch.global") with "path:line: key: <text>"; the line is that of the nearest key
 * above it when it was not given.  Returns -1. */
int tern_recipe_fail(const struct tern_recipe *r, const char *key, struct tern_err *err,
                     const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Two names for the recipe, as hex.  `identity` covers what may not change within a run (model,
 * data, seed, batch, optimizer, schedule); `full` covers every key.  Paths count as written. */
void tern_recipe_hashes(const struct tern_recipe *r, char identity[TERN_SHA256_HEX],
                        char full[TERN_SHA256_HEX]);

/* The learning rate of step `step` (1 is the first): warm-up, then the schedule. */
double tern_recipe_lr(const struct tern_recipe *r, int64_t step);

/* Ranks that hold different samples, out of `world`; and the micro-batches each adds up in a step.
 * An error, at the recipe's line, when they do not divide. */
int tern_recipe_split(const struct tern_recipe *r, int64_t world, int64_t *data_ranks,
                      int64_t *micro_batches, struct tern_err *err);

/* Every key with its type, default and meaning, one a line: `tern help recipe`. */
void tern_recipe_describe(FILE *to);

#endif
