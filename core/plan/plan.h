/* What a run will need, from its recipe and model alone: pure arithmetic, no files, no cluster. */
#ifndef TERN_PLAN_PLAN_H
#define TERN_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/llama/llama.h"
#include "core/model/model.h"
#include "core/recipe/recipe.h"

/* Bytes by kind.  A master copy of parameters in bf16 counts among the moments. */
struct tern_plan_memory {
    uint64_t params, grads, moments, activations;
    uint64_t staging; /* a copy of what the rank saves (tern_plan_async) */
    uint64_t process; /* the program itself, its products' buffers, a step's tokens */
    uint64_t total;
};

/* ---------------------------------------------------------------- one rank's part
 *
 * world = tensor x data x pipeline: tensor fastest, then data, then pipeline, so that tensor groups
 * stay inside a node. */
struct tern_plan_rank {
    struct tern_model_place place;
    int data, data_rank;   /* data-parallel degree, and this rank's place in it */
    int64_t micro_batches; /* in a step, of each data rank */
    struct tern_model_adapters adapters;
    bool wired; /* ranks of several nodes: by the recipe's ranks a node */
};

/* TERN_USAGE, at the recipe's line, when `world` ranks cannot share the batch so. */
int tern_plan_rank(const struct tern_recipe *r, int64_t world, int64_t rank,
                   struct tern_plan_rank *ret_rank, struct tern_err *err);

/* TERN_USAGE when a row is longer than the model's positions. */
int tern_plan_check_positions(const struct tern_recipe *r, const struct tern_model_config *c,
                              struct tern_err *err);

/* A rank's options for core/llama; `slots` of tern_plan_pipeline.  Both are borrowed. */
void tern_plan_llama(const struct tern_recipe *r, const struct tern_model_config *c,
                     const struct tern_plan_rank *p, const int *slots,
                     struct tern_llama_options *ret_options);

/* Are the trained parameters in bf16, so that the optimizer has an fp32 master copy of them, cut as
 * its moments?  Adapters are fp32 themselves. */
bool tern_plan_master(const struct tern_recipe *r);

/* Are checkpoints written while training goes on?  Each rank then has a staging for its arrays. */
bool tern_plan_async(const struct tern_recipe *r);

/* Host memory of one rank of tern's own trainer: the model and its share of a step's tokens, to the
 * byte.  The process takes 9.5 MiB (8.3 to 10.7 were measured on x86-64: programs, libraries,
 * messages).  6 MiB more where ranks are `wired` (libfabric), and the buffers of its threads'
 * products (core/tensor).  Before the model is there, two matrices are multiplied
 * (tern_plan_peak_side; under `tern run` alone): where the model is smaller, the difference counts
 * as the process's.  Threads are launch.threads, else as many as a rank started here would take.
 * Token sets are read, not held. */
int tern_plan_host_rank(const struct tern_recipe *r, const struct tern_model_config *c,
                        const struct tern_plan_rank *p, struct tern_plan_memory *ret_memory,
                        struct tern_err *err);
/* The same of the rank that needs most, with `data` data-parallel ranks. */
int tern_plan_host(const struct tern_recipe *r, const struct tern_model_config *c, int64_t data,
                   struct tern_plan_memory *ret_memory, struct tern_err *err);

/* The side of the squares whose product, before there is a model, measures the peak for MFU
 * (core/train).  One thread reaches its limit at 512 (measured: 174 GFLOP/s of 176 at 2048, in 1.5
 * ms).  Several wait for each other (two: 47, 129, 183, 161 at 512, 1024, 1536, 2048). */
int tern_plan_peak_side(int threads);

/* Memory on one NeuronCore for a trainer such as NeuronX Distributed with the recipe's degrees.  It
 * is bf16 weights and fp32 gradients cut by tensor and pipeline, and fp32 master weights and two
 * moments cut by data, too (ZeRO-1).  Activations are with sequence parallelism and selective
 * recomputation: 22 bytes a token and hidden unit of a layer and micro-batch over the tensor ranks.
 * They count for as many micro-batches as are in flight in the first stage.  tern's own trainer
 * keeps as many.  The 34 of Korthikanti et al. 2022 (arXiv 2205.05198, table 2) would warn of
 * published runs: Llama-2-70B at TP 8 x PP 8 on 8 trn1.32xlarge leaves 22.3
 * (tests/cli/published.sh).  `data` is the data-parallel degree; 0, not known, leaves out moments.
 * An estimate: a trainer may recompute all, train adapters alone, keep no master copy.  Only
 * `params` is needed by every trainer. */
void tern_plan_device(const struct tern_recipe *r, const struct tern_model_config *c, int64_t data,
                      struct tern_plan_memory *ret_memory);

/* ---------------------------------------------------------------- a pipeline's order
 *
 * One forward and one backward pass in turns (1F1B; Narayanan et al. 2019, PipeDream), with several
 * chunks a stage interleaved.  Each stage follows its own list; a send does not wait for the
 * receiver, so that only the data order the stages. */

struct tern_plan_stage {
    int stages, stage, interleave;
    int64_t micro_batches;
};

struct tern_plan_step {
    bool backward;
    int chunk;     /* of this stage's, 0 .. interleave-1 */
    int64_t micro; /* 0 .. micro_batches-1 */
    int slot;      /* of its activations, from its forward to its backward pass */
    bool receives; /* from another stage: its input, or its output's gradient */
    bool sends;    /* to another stage, when done */
};

struct tern_plan_pipeline {
    struct tern_plan_step *steps;
    size_t n;
    int *slots; /* [interleave] that each chunk needs */
};

/* With interleaving the micro-batches must be a multiple of the stages.  Free with
 * tern_plan_pipeline_free, which also takes a zeroed one. */
int tern_plan_pipeline(const struct tern_plan_stage *s, struct tern_plan_pipeline *ret_pipeline,
                       struct tern_err *err);
void tern_plan_pipeline_free(struct tern_plan_pipeline *p);
/* Asserts, before the trainer follows it, that each micro-batch goes forward and then backward once
 * through each chunk, in a slot that it has alone.  -1 with `err` without memory. */
int tern_plan_pipeline_check(const struct tern_plan_pipeline *p, const struct tern_plan_stage *s,
                             struct tern_err *err);

/* Print the plan of `ranks` ranks of tern's own trainer: layout, batch arithmetic, messages, memory
 * by kind, the pipeline's order. */
int tern_plan_explain(const struct tern_recipe *r, const struct tern_model_config *c, int64_t ranks,
                      struct tern_buf *to, struct tern_err *err);

#endif
