/* A Llama model that computes: forward, backward and loss on one rank's arrays, of the whole model
 * or of its shard.
 *
 *     struct tern_llama *m = tern_llama_new(&config, micro, seq_len, true, err);
 *     tern_llama_init(m, seed, config.init_std);     or fill tern_llama_params(m, NULL)
 *     for each step:
 *         tern_llama_grads_zero(m);
 *         for each micro-batch:
 *             tern_llama_step(m, tokens, targets, NULL, B, T, 1.0 / n_targets, &loss, err);
 *         ... reduce tern_llama_grads, clip, update tern_llama_params ...
 *     tern_llama_free(m);
 *
 * The model as in transformers' LlamaForCausalLM: pre-norm with RMSNorm, rotate-half RoPE, grouped
 * queries, SwiGLU, no biases, tied or untied head.  All memory is allocated by tern_llama_new: one
 * block each for parameters, gradients and activations, which a caller may hand in instead; a step
 * allocates nothing.  Same parameters, input, BLAS core type, kernels and threads: same bits.
 *
 * tern_tensor_start must have been called.  One thread at a time per model.
 */
#ifndef TERN_LLAMA_LLAMA_H
#define TERN_LLAMA_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/model/model.h"
#include "core/tensor/tensor.h"

struct tern_llama;

/* ---------------------------------------------------------------- making one */

/* How the tensor ranks that share the layers meet; each returns 0, or -1 with `err`, which ends the
 * pass that called it.  Every rank calls the same in the same order. */
struct tern_llama_peers {
    void *ctx;
    /* x[n] becomes its sum (maximum) over the ranks. */
    int (*all_reduce)(void *ctx, tern_real *x, size_t n, struct tern_err *err);
    int (*all_reduce_doubles)(void *ctx, double *x, size_t n, bool maximum, struct tern_err *err);
    /* in[ranks * n] -> out[n]: the sum of everyone's own block; `out` may be that block of `in`. */
    int (*reduce_scatter)(void *ctx, const tern_real *in, tern_real *out, size_t n,
                          struct tern_err *err);
    /* in[n] -> out[ranks * n]; `in` may be the own block of `out`. */
    int (*all_gather)(void *ctx, const tern_real *in, tern_real *out, size_t n,
                      struct tern_err *err);
};

/* What of a layer's forward pass is made again in its backward pass instead of kept. */
enum tern_llama_recompute {
    TERN_LLAMA_RECOMPUTE_NONE,
    TERN_LLAMA_RECOMPUTE_SELECTIVE, /* attention's output */
    TERN_LLAMA_RECOMPUTE_FULL,      /* everything but the layer's input */
};

/* Blocks that others may have to reach: of parameters and gradients those of what is trained (with
 * adapters theirs), of activations all, what goes through tern_llama_peers among them. */
enum tern_llama_block {
    TERN_LLAMA_BLOCK_PARAMS,
    TERN_LLAMA_BLOCK_GRADS,
    TERN_LLAMA_BLOCK_ACTIVATIONS,
    TERN_LLAMA_BLOCKS
};

/* Memory for some of them that is the caller's.  `alloc` is called once for each block that is
 * wanted, by tern_llama_open: at least `bytes`, aligned to 64 (to 2 MiB for huge pages), whatever
 * it holds; NULL with `err`.  tern_llama_free leaves it alone: it is freed by its owner, before or
 * after that, when no other call of the model is to come, and after a failed tern_llama_open. */
struct tern_llama_memory {
    void *ctx;
    bool wanted[TERN_LLAMA_BLOCKS];
    void *(*alloc)(void *ctx, size_t bytes, struct tern_err *err);
};

struct tern_llama_options {
    const struct tern_model_config *config;
    const struct tern_model_place *place; /* NULL: all of it */
    const struct tern_llama_peers *peers; /* copied; NULL with one tensor rank */
    int max_batch, seq_len;               /* rows and positions at a time, at most */
    bool training;                        /* else no gradients, and one layer's activations */
    /* Between the products each tensor rank keeps a block of max_batch * seq_len / tensor of the
     * flattened tokens (Korthikanti et al. 2022, arXiv 2205.05198). Batches are then always full.
     */
    bool sequence;
    enum tern_llama_recompute recompute;
    /* Parameters, and what is kept of the forward pass, are bf16 in memory.  Everything is computed
     * in tern_real, from rounded values, and rounded (to the nearest, ties to even) where a model
     * of bf16 tensors has it rounded: the results of products (sums over tensor ranks are taken
     * before), norms, attention and SwiGLU, the logits, and the gradients of all of these.
     * Gradients of parameters are summed and stay in tern_real, and adapters are in tern_real. */
    bool bf16;
    const struct tern_model_adapters *adapters; /* NULL or rank 0: all weights are trained; else
                                                   only these, and the others have no gradient */
    /* A step is one micro-batch: tern_llama_grads_zero before each backward pass.  Gradients'
     * memory then holds activations of the layer above until they are written, so that
     * tern_llama_grads means something between a backward pass and the next forward pass alone.  Of
     * effect where all layers are one chunk here and their weights are trained. */
    bool one_micro_batch;
    const int *slots; /* [interleave] micro-batches under way in each chunk; NULL: one */
    const struct tern_llama_memory *memory; /* NULL: all of it is the model's */
};

/* Parameters and gradients start as zero.  NULL when it cannot be cut so, or does not fit into
 * memory; the message says how much was asked for. */
struct tern_llama *tern_llama_open(const struct tern_llama_options *o, struct tern_err *err);
/* All of a model on one rank. */
struct tern_llama *tern_llama_new(const struct tern_model_config *config, int max_batch,
                                  int seq_len, bool training, struct tern_err *err);
void tern_llama_free(struct tern_llama *m);

/* The same arithmetic without allocating: bytes by kind, of a process of so many threads
 * (0: of this one's). */
struct tern_llama_bytes {
    uint64_t params, grads, activations;
};
int tern_llama_bytes(const struct tern_llama_options *o, int threads, struct tern_llama_bytes *out,
                     struct tern_err *err);

const struct tern_model_shard *tern_llama_shard(const struct tern_llama *m);
/* Of what is trained: the adapters' where there are some, else the same. */
const struct tern_model_shard *tern_llama_trained(const struct tern_llama *m);
const struct tern_model_adapters *tern_llama_adapters(const struct tern_llama *m); /* or NULL */
const struct tern_model_config *tern_llama_config(const struct tern_llama *m);

/* One array each, of *count elements (`count` may be NULL), laid out as tern_llama_shard's offsets
 * say: of a whole model those of tern_model_tensor.  They belong to the model; the caller may read
 * and write them between calls.  grads is NULL without training.  Parameters are there as the one
 * type or the other; the other function returns NULL. */
tern_real *tern_llama_params(struct tern_llama *m, uint64_t *count);
uint16_t *tern_llama_params_bf16(struct tern_llama *m, uint64_t *count);
/* The same of tern_llama_trained (NULL where that is in bf16), and its gradients. */
tern_real *tern_llama_trainable(struct tern_llama *m, uint64_t *count);
tern_real *tern_llama_grads(struct tern_llama *m, uint64_t *count);
void tern_llama_grads_zero(struct tern_llama *m);

/* Matrices from N(0, std^2), norms 1.  Element e of tensor i is a function of (seed, i, e) alone,
 * so that every rank and layout draws the same model. */
void tern_llama_init(struct tern_llama *m, uint64_t seed, double std);
/* A as nn.Linear begins, uniform in +-1/sqrt(in), and B 0: the model is what it was. */
void tern_llama_adapters_init(struct tern_llama *m);
/* After that, with DoRA: the magnitudes are those that W + scale B A has.  Nothing without.
 * Collective over the tensor ranks. */
int tern_llama_magnitudes_init(struct tern_llama *m, struct tern_err *err);

struct tern_llama_loss {
    double sum; /* of the targets' negative log likelihoods, in nats */
    uint64_t n; /* targets counted: those whose mask is not 0 */
};

/* ---------------------------------------------------------------- all of it at once
 *
 * Of a model whose chunks all lie here. */

/* Losses of targets[B,T] given tokens[B,T] (ids below vocab); position t of a row sees 0..t of it.
 * mask[B,T]: 0 leaves a target out; NULL counts all.  An id outside the vocabulary, or B or T above
 * what the model was made for, is an error and nothing is computed. */
int tern_llama_loss(struct tern_llama *m, const int32_t *tokens, const int32_t *targets,
                    const uint8_t *mask, int B, int T, struct tern_llama_loss *out,
                    struct tern_err *err);

/* The same, and the gradients of grad_scale * sum are added to tern_llama_grads.  For a mean over n
 * targets in several micro-batches, grad_scale is 1 / n in each. */
int tern_llama_step(struct tern_llama *m, const int32_t *tokens, const int32_t *targets,
                    const uint8_t *mask, int B, int T, double grad_scale,
                    struct tern_llama_loss *out, struct tern_err *err);

/* logits[V] that follow the last of tokens[T]: to choose the next token. */
int tern_llama_logits(struct tern_llama *m, const int32_t *tokens, int T, tern_real *logits,
                      struct tern_err *err);

/* ---------------------------------------------------------------- chunk by chunk
 *
 * A micro-batch goes through the chunks of a pipeline, on this rank and others.  Its activations
 * stay in a slot of each chunk from the forward pass to the end of the backward pass. */

struct tern_llama_batch {
    const int32_t *tokens, *targets; /* [B,T]; tokens for the embedding, targets for the head */
    const uint8_t *mask;             /* [B,T] or NULL */
    const int32_t *starts;           /* [B,T] as in struct tern_tensor_heads, or NULL */
    bool drops;                      /* adapters' inputs are dropped out; by */
    uint64_t sample;                 /* the first row's number in the run, the others following */
    int B, T;
};

/* Ids and sizes are what the model was made for? */
int tern_llama_batch_check(const struct tern_llama *m, const struct tern_llama_batch *b,
                           struct tern_err *err);

/* The residual stream at the chunk's two ends, of tern_llama_stream elements for a full batch: `in`
 * is to be filled before the forward pass (unless the chunk embeds), and holds its gradient after
 * the backward pass; `out` is the forward pass's result, and is to be filled with its gradient
 * before the backward pass (unless the chunk has the head).  Without training both are the same
 * memory.  Elements are tern_real, or bf16 as the options said. */
void *tern_llama_in(struct tern_llama *m, int chunk, int slot);
void *tern_llama_out(struct tern_llama *m, int chunk, int slot);
size_t tern_llama_stream(const struct tern_llama *m);

int tern_llama_chunk_forward(struct tern_llama *m, int chunk, int slot,
                             const struct tern_llama_batch *b, struct tern_err *err);
/* After the forward pass of the chunk that has the head: the losses alone. */
int tern_llama_chunk_loss(struct tern_llama *m, int chunk, int slot,
                          const struct tern_llama_batch *b, struct tern_llama_loss *loss,
                          struct tern_err *err);

/* Called when no more will be added to a bucket's gradients (tern_model_unit) in this backward
 * pass. */
struct tern_llama_ready {
    void *ctx;
    int (*bucket)(void *ctx, int bucket, struct tern_err *err);
};
/* Gradients of grad_scale * sum are added.  `loss` is set where the chunk has the head; `ready` may
 * be NULL.  What several tensor ranks hold a part of is not summed over them: key heads that are
 * held by several, and with `sequence` the norms. */
int tern_llama_chunk_backward(struct tern_llama *m, int chunk, int slot,
                              const struct tern_llama_batch *b, double grad_scale,
                              struct tern_llama_loss *loss, const struct tern_llama_ready *ready,
                              struct tern_err *err);

#endif
