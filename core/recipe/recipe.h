/* run.yaml: the description of a run, in the vocabulary of the field (DESIGN 3, "Recipe").
 *
 * Reading checks syntax, types, ranges and combinations within the recipe.  core/check compares it
 * with the model, the token sets and the cluster.  Relative paths are joined to the file's folder.
 */
#ifndef TERN_RECIPE_RECIPE_H
#define TERN_RECIPE_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/hash.h"

struct tern_page; /* core/base/page.h */

/* Do not renumber: they enter the recipe's hashes. */
enum tern_schedule {
    TERN_SCHEDULE_CONSTANT,
    TERN_SCHEDULE_LINEAR,
    TERN_SCHEDULE_COSINE,
    TERN_SCHEDULE_WSD,
    TERN_SCHEDULE_INFINITE,
};
enum tern_decay {
    TERN_DECAY_AUTO, /* linear for wsd, exponential for infinite */
    TERN_DECAY_LINEAR,
    TERN_DECAY_COSINE,
    TERN_DECAY_SQRT,
    TERN_DECAY_EXP,
};
enum tern_precision { TERN_PRECISION_FP32, TERN_PRECISION_BF16 };
enum tern_recompute { TERN_RECOMPUTE_NONE, TERN_RECOMPUTE_SELECTIVE, TERN_RECOMPUTE_FULL };
enum tern_optimizer_state { TERN_OPTIMIZER_RESET, TERN_OPTIMIZER_KEEP };
enum tern_recipe_health {
    TERN_RECIPE_HEALTH_OFF,
    TERN_RECIPE_HEALTH_QUICK,
    TERN_RECIPE_HEALTH_DEEP
};
enum tern_mapping { TERN_MAPPING_AUTO, TERN_MAPPING_BLOCK };
enum tern_at_limit { TERN_AT_LIMIT_REQUEUE, TERN_AT_LIMIT_STOP };
/* As enum tern_data_packing and tern_data_longer: core/inputs hands them on. */
enum tern_packing { TERN_PACKING_CONCAT, TERN_PACKING_BEST_FIT, TERN_PACKING_PADDED };
enum tern_longer { TERN_LONGER_CUT, TERN_LONGER_DROP };
enum tern_launcher { TERN_LAUNCH_SRUN, TERN_LAUNCH_MPIRUN };
enum tern_carrier { TERN_CARRY_OFI, TERN_CARRY_MPI };

/* The most nodes of a question: above Slurm's MAX_SLURM_NODES of any release, and the product with
 * ranks a node stays far below 2^63. */
enum { TERN_RECIPE_NODES_MAX = 1000000 };

struct tern_recipe_set {
    char *name; /* of a held-out set; NULL for training data */
    char *path;
    double weight;  /* of training data; they need not sum to 1 */
    int64_t epochs; /* of training data: after so many passes its stage ends; 0: it is repeated */
};

struct tern_recipe_sets {
    struct tern_recipe_set *sets;
    size_t n;
};

/* The data of one stretch of the run. */
struct tern_recipe_stage {
    char *key;     /* where its sets are written: "data.train", "data.stages[1].train" */
    int64_t until; /* its last step; 0: the run's */
    struct tern_recipe_sets train;
    int64_t written; /* `until` as the recipe has it */
    /* Set by tern_recipe_end_stage: */
    const struct tern_recipe_set *exhausted; /* the set that ends it earlier; NULL: none does */
    int64_t asked;                           /* the last step that it would have had */
};
enum { TERN_RECIPE_STAGES = 64 }; /* more would be a schedule of its own */

/* Bits of lora.targets: the linears of a layer, by Hugging Face's names. */
enum tern_recipe_lora {
    TERN_LORA_Q,
    TERN_LORA_K,
    TERN_LORA_V,
    TERN_LORA_O,
    TERN_LORA_GATE,
    TERN_LORA_UP,
    TERN_LORA_DOWN,
    TERN_LORA_TARGETS
};
extern const char *const tern_recipe_lora_names[TERN_LORA_TARGETS + 1]; /* "q_proj", ..., NULL */

/* Ceilings of workload.metrics. */
enum {
    TERN_RECIPE_GROUPS = 32,   /* of a pattern */
    TERN_RECIPE_PATTERNS = 64, /* each is tried on every printed line */
    TERN_RECIPE_EVENTS = 8,    /* folders of event files */
};

/* The source of an external trainer's values: exactly one of the first three. */
struct tern_recipe_metric {
    char *known;       /* a trainer whose printed lines are known: nxd, hf, lightning */
    char *pattern;     /* POSIX extended regular expression over printed lines */
    char *tensorboard; /* folder of event files */
    char **names;      /* [n_names]: of the pattern's groups, in order; "step" is the step, "-"
                          nothing */
    size_t n_names;
};

struct tern_recipe_metrics {
    struct tern_recipe_metric *v;
    size_t n;
};

/* A count whose value is "auto". */
enum { TERN_RECIPE_AUTO = -1 };

/* Every text is owned by the recipe.  A NULL text is a key that was not given. */
struct tern_recipe {
    char *path; /* as given */
    char *name; /* [a-zA-Z0-9._-]+ */
    struct {
        char *from;        /* Hugging Face folder or checkpoint to start from; or */
        bool pending;      /* `from` is made by a job that this one waits for */
        char *config;      /* config.json for random weights */
        char *tokenizer;   /* its folder or file, to travel with exports; default: model.from */
        int64_t optimizer; /* enum tern_optimizer_state, for the moments in `from` */
        double init_std;   /* of random weights */
    } model;
    int64_t precision; /* enum tern_precision, of parameters and activations */
    struct {
        int64_t rank;          /* 0: no adapters, every weight is trained */
        double alpha, dropout; /* the product is scaled by alpha / rank (rslora: / sqrt(rank)) */
        unsigned targets;      /* bit 1 << enum tern_recipe_lora for each linear that has one */
        bool rslora, dora;
    } lora;
    struct {
        struct tern_recipe_stage *stages; /* in order; `data.train` is one until the end */
        size_t n_stages;                  /* 0: an external trainer, which has its own data */
        struct tern_recipe_sets held_out;
        int64_t seed;
        bool isolate;    /* documents in one row do not attend to each other */
        int64_t packing; /* enum tern_packing, of training data */
        int64_t longer;  /* enum tern_longer: documents longer than a row */
    } data;
    struct {
        int64_t global, micro; /* sequences: a step, a rank's forward pass */
        int64_t seq_len;       /* tokens */
    } batch;
    /* The run's length: `steps`, or what it is made from.  With `epochs` it is 0 until
     * tern_recipe_resolve. */
    int64_t steps;
    int64_t asked_steps;   /* before a training set that is exhausted ended it; 0: none did */
    double epochs, tokens; /* 0: not given */
    struct {
        int64_t tensor, pipeline;
        int64_t interleave; /* pieces of layers that a pipeline rank holds */
        bool sequence;      /* norms and residuals are cut over the tensor ranks, too */
        int64_t zero;       /* 1: optimizer state is cut over the data ranks */
        int64_t recompute;  /* enum tern_recompute */
    } parallel;
    struct {
        double lr, beta1, beta2, eps, weight_decay;
        double clip;              /* of the global gradient norm; 0: none */
        bool stochastic_rounding; /* of the master copy to bf16 parameters; else to the nearest */
        struct {
            double spike;       /* standard deviations; 0: spikes are let through */
            int64_t window;     /* steps that a spike is measured against */
            int64_t stop_after; /* steps in a row without an update */
        } guard;
    } optimizer;
    struct {
        int64_t kind;   /* enum tern_schedule */
        int64_t warmup; /* steps */
        double start_lr, min_lr;
        int64_t decay;      /* steps at the end; wsd, infinite */
        int64_t shape;      /* enum tern_decay, of these */
        int64_t cooldown;   /* steps from the peak to constant_lr; infinite */
        double constant_lr; /* infinite */
    } schedule;
    struct {
        int64_t every; /* steps; 0: at the start and the end only */
        struct {
            char *metric;     /* name of a held-out set; NULL: the run goes to its end */
            int64_t patience; /* evaluations */
        } stop;
    } evaluate;
    struct {
        char *dir;
        int64_t every;      /* steps; 0: at the end only; or TERN_RECIPE_AUTO */
        double mtbf;        /* of a node, hours: for TERN_RECIPE_AUTO */
        bool async;         /* training goes on while one of `every` is written */
        int64_t keep;       /* newest to keep; at least 2 */
        int64_t keep_every; /* steps whose checkpoints stay for good; 0: none */
        char *mirror;       /* folder or s3:// URL that gets a copy of each */
        char *local;        /* folder of each node that gets each first; NULL: none */
        bool partner;       /* another node gets a copy of what is there */
    } checkpoint;
    struct {
        char *dir;         /* NULL: the site's (tern_site_fill) */
        int64_t mode;      /* enum tern_ledger_mode */
        char *tensorboard; /* folder of event files; NULL: none are written */
    } ledger;
    struct {
        int64_t ranks_per_node;
        int64_t threads;       /* a rank; 0: the cores at hand, shared evenly */
        int64_t restarts;      /* attempts after the first, for reasons outside the run */
        int64_t at_time_limit; /* enum tern_at_limit */
        int64_t stop_at;       /* a step to stop behind, to be continued; 0: none */
        int64_t spares;        /* nodes of the job kept in reserve */
        int64_t health;        /* enum tern_recipe_health: checks before each launch */
        int64_t mapping;       /* enum tern_mapping: of ranks to nodes */
        int64_t with;          /* enum tern_launcher */
        int64_t fabric;        /* enum tern_carrier: of messages between nodes */
        char *profile;         /* of the environment; NULL: chosen by the node's type */
        char *rails;           /* as TERN_FABRIC_RAILS, which goes before it; NULL: all */
    } launch;
    struct {
        char **command; /* NULL-ended; NULL: tern's own trainer */
        int64_t tasks_per_node;
        int64_t workers_per_node; /* that all tasks of a node start together; its ranks */
        struct {
            char **command; /* NULL-ended; NULL: nothing to compile beforehand */
            int64_t steps;  /* whose graphs it is to compile */
            char *cache;    /* folder of all caches; NULL: none is kept for it */
        } precompile;
        char *container; /* image for pyxis's --container-image */
        struct tern_recipe_metrics metrics;
        struct {
            char *glob;   /* of the checkpoints it writes */
            char *marker; /* file in one that tells that it is complete */
        } progress;
    } workload;

    struct tern_yaml *source; /* for the lines of messages */
};

/* Read `path`, then apply `overrides` ("optimizer.lr=1e-4", n of them). */
struct tern_recipe *tern_recipe_load(const char *path, const char *const *overrides, size_t n,
                                     struct tern_err *err);
void tern_recipe_free(struct tern_recipe *r);

/* The text of a recipe as the ledger has it: what --set changed stands behind it, a line
 * "# --set KEY=VALUE" each.  Fills sets[] with these settings, malloc'ed; returns their number.
 * *ret_body: bytes before them. */
enum { TERN_RECIPE_SETS = 64 };
size_t tern_recipe_settings(const char *recorded, char *sets[TERN_RECIPE_SETS], size_t *ret_body);
/* Such a text, malloc'ed, of a recipe's file and n settings of a command line ("KEY=VALUE", which a
 * recipe has applied).  tern_recipe_settings reads these settings back and no others, whatever
 * stands in the file.  A value of several lines becomes the same value on one. */
char *tern_recipe_record(const char *text, const char *const *overrides, size_t n);
/* Read such a text, then apply `overrides`.  `path`: where the recipe lay, whose folder the paths
 * in it are from. */
struct tern_recipe *tern_recipe_recorded(const char *path, const char *recorded,
                                         const char *const *overrides, size_t n,
                                         struct tern_err *err);

/* Fail at `key` ("batch.global") with "path:line: key: <text>"; the line is that of the nearest key
 * above it when it was not given.  Returns -1. */
int tern_recipe_fail(const struct tern_recipe *r, const char *key, struct tern_err *err,
                     const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Is `key` ("launch.health") written in the recipe, or did its default come in? */
bool tern_recipe_given(const struct tern_recipe *r, const char *key);
/* Must all attempts of a run have the same `key` (dotted; of a list its first parts)? */
bool tern_recipe_is_identity(const char *key);

/* Where a recipe says `epochs`, the run's length follows from its first training set, which has
 * `rows` rows of batch.seq_len.  It is enough samples for the mix to see that set `epochs` times,
 * in whole steps.  (The first set is the subject of the run; the others are replayed beside it.)
 * Else nothing changes.  Call this before using `steps`. */
int tern_recipe_resolve(struct tern_recipe *r, uint64_t rows, struct tern_err *err);

/* Stage `k` ends at step `end`, before its last one, as `set` of it is exhausted. If it is the last
 * stage that the run has, the run ends, too. */
int tern_recipe_end_stage(struct tern_recipe *r, size_t k, int64_t end,
                          const struct tern_recipe_set *set, struct tern_err *err);

/* Two names for the recipe, as hex.  `identity` covers what may not change within a run (model,
 * precision, data, seed, batch, optimizer, schedule); `full` covers every key.  Paths count as
 * written. Keys that came after runs were made enter only where they are not their default, so that
 * those runs keep their names. */
void tern_recipe_hashes(const struct tern_recipe *r, char identity[TERN_SHA256_HEX],
                        char full[TERN_SHA256_HEX]);

/* The learning rate of step s (1 is the first).  With peak = optimizer.lr, N = steps and
 * schedule.{warmup W, start_lr, min_lr, decay D, cooldown C, constant_lr}:
 *
 *     s <= W    start_lr + (peak - start_lr) s / W, in every schedule
 *     constant  peak
 *     linear    min_lr + (peak - min_lr) (1 - x),                 x = (s - W) / (N - W)
 *     cosine    min_lr + (peak - min_lr) (1 + cos(pi x)) / 2
 *     wsd       peak, and in the last D steps fall(peak, x),      x = (s - (N - D)) / D
 *     infinite  constant_lr + (peak - constant_lr) (1 + cos(pi y)) / 2,  y = (s - W) / C, for C
 *               steps; constant_lr; in the last D steps fall(constant_lr, x)
 *
 * fall(a, x) goes from a at x = 0 to min_lr at x = 1.  linear: min_lr + (a - min_lr) (1 - x).
 * cosine: likewise with (1 + cos(pi x)) / 2.  sqrt: with 1 - sqrt(x) (Haegele et al.  2024, arXiv
 * 2405.18392).  exp: a (min_lr / a)^x.  Infinite is Ibrahim et al. 2024 (arXiv 2403.08763, 4.4):
 * with D = 0 it never needs to know where it ends.  A run that warms up again from a finished
 * checkpoint (Gupta et al.  2023, arXiv 2308.04014) is a run of its own.  It has model.from, and
 * start_lr = where that one ended. Step s has the rate of Hugging Face's lambda(s): their first
 * update, with lambda(0) = 0, changes nothing.  After N the rate stays that of N. */
double tern_recipe_lr(const struct tern_recipe *r, int64_t step);

/* Ranks that hold different samples, out of `world`; and the micro-batches each adds up in a step.
 * An error, at the recipe's line, when they do not divide. */
int tern_recipe_split(const struct tern_recipe *r, int64_t world, int64_t *data_ranks,
                      int64_t *micro_batches, struct tern_err *err);

/* `{name}` in a word of workload.command and workload.precompile.command, filled in at launch. */
enum tern_recipe_fill {
    TERN_FILL_ACCUMULATE,
    TERN_FILL_ATTEMPT,
    TERN_FILL_CACHE,
    TERN_FILL_DATA,
    TERN_FILL_GLOBAL_BATCH,
    TERN_FILL_MASTER_ADDR,
    TERN_FILL_MASTER_PORT,
    TERN_FILL_MICRO_BATCH,
    TERN_FILL_NODE_INDEX,
    TERN_FILL_NODES,
    TERN_FILL_PIPELINE,
    TERN_FILL_RUN,
    TERN_FILL_SEQ_LEN,
    TERN_FILL_STEPS,
    TERN_FILL_TENSOR,
    TERN_FILL_WORKERS,
    TERN_FILL_WORLD,
    TERN_FILLS
};
struct tern_recipe_fill_name {
    const char *name, *help;
};
extern const struct tern_recipe_fill_name tern_recipe_fills[TERN_FILLS + 1];

/* `words`, NULL-ended, with each {name} replaced by values[enum tern_recipe_fill].  A name that is
 * none of these, or whose value is NULL, is an error at `key`.  `{{name}}` stands for `{name}`.
 * Braces around anything but small letters are left alone, as is a shell's `${name}`.  `values`
 * NULL: only the names are checked, and *out stays as it is.  Free with tern_recipe_words_free. */
int tern_recipe_fill(const struct tern_recipe *r, const char *key, char *const *words,
                     const char *const *values, char ***out, struct tern_err *err);
void tern_recipe_words_free(char **words);

/* Write the keys that begin with `prefix` ("lora.", "" for all) with meaning, words and default as
 * items of a page of help. The names that tern fills in in a workload's commands follow. */
void tern_recipe_describe(struct tern_page *page, const char *prefix);
void tern_recipe_describe_fills(struct tern_page *page);

#endif
