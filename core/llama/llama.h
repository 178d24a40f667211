/* A Llama model that computes: forward, backward and loss on one rank's arrays, of the whole model
 * or of its shard.
 *
 *     struct tern_llama *m = tern_llama_new(&config, micro, seq_len, true, err);
 *     tern_llama_init(m, seed, config.init_std);     or fill tern_llama_params(m, NULL)
 *     for each step:
 *         tern_llama_grads_zero(m);
 *         for each micro-batch:
 *             tern_llama_step(m, &batch, 1.0 / n_targets, &loss, err);
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

/* The operations of the tensor ranks that share the layers; each returns 0, or -1 with `err`, which
 * ends the pass that called it.  All ranks call the same ones in the same order. */
struct tern_llama_peers {
    void *ctx;
    /* x[n] becomes its sum (maximum) over the ranks. */
    int (*all_reduce)(void *ctx, tern_real *x, size_t n, struct tern_err *err);
    int (*all_reduce_doubles)(void *ctx, double *x, size_t n, bool maximum, struct tern_err *err);
    /* in[ranks * n] -> out[n]: the sum over the ranks of a rank's own block; `out` may be that
     * block of `in`. */
    int (*reduce_scatter)(void *ctx, const tern_real *in, tern_real *out, size_t n,
                          struct tern_err *err);
    /* in[n] -> out[ranks * n]; `in` may be the own block of `out`. */
    int (*all_gather)(void *ctx, const tern_real *in, tern_real *out, size_t n,
                      struct tern_err *err);
};

/* Which parts of a layer's forward pass are computed again in its backward pass, not stored. */
enum tern_llama_recompute {
    TERN_LLAMA_RECOMPUTE_NONE,
    TERN_LLAMA_RECOMPUTE_SELECTIVE, /* attention's output */
    TERN_LLAMA_RECOMPUTE_FULL,      /* everything but the layer's input */
};

/* Blocks that other processes may have to reach: parameters and gradients of the trained weights
 * (with adapters theirs), and all activations. Those of tern_llama_peers are among them. */
enum tern_llama_block {
    TERN_LLAMA_BLOCK_PARAMS,
    TERN_LLAMA_BLOCK_GRADS,
    TERN_LLAMA_BLOCK_ACTIVATIONS,
    TERN_LLAMA_BLOCKS
};

/* The caller's memory for some of them.  tern_llama_open calls `alloc` once for each wanted block:
 * at least `bytes`, aligned to 64 (to 2 MiB for huge pages), with any contents; NULL with `err`.
 * tern_llama_free leaves it alone: its owner frees it after the last call of the model, and after
 * a failed tern_llama_open. */
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
    /* Parameters, and stored activations, are bf16 in memory.  Everything is computed in tern_real,
     * from rounded values.  Products of these for bf16 are the CPU's unit's
     * (tern_tensor_bf16_unit), which rounds inputs that are not, with DoRA and dropout.  Results
     * are rounded (to the nearest, ties to even) where a model of bf16 tensors rounds them.  They
     * are products (after their sums over tensor ranks), norms, attention, SwiGLU, the logits, and
     * the gradients of all of these. Gradients of parameters are summed and stay in tern_real;
     * adapters are in tern_real. */
    bool bf16;
    const struct tern_model_adapters *adapters; /* NULL or rank 0: all weights are trained; else
                                                   only these, and the others have no gradient */
    /* A step is one micro-batch: tern_llama_grads_zero comes before each backward pass.  The memory
     * of gradients then holds activations of the layer above until the gradients are written.  So
     * tern_llama_grads is valid only between a backward pass and the next forward pass.  Of effect
     * where all layers are one chunk here and their weights are trained. */
    bool one_micro_batch;
    const int *slots; /* [interleave] micro-batches under way in each chunk; NULL: one */
    const struct tern_llama_memory *memory; /* NULL: all of it is the model's */
};

/* Parameters and gradients start as zero.  NULL when the model cannot be cut so, or does not fit
 * into memory; the message says how much was needed. */
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
int tern_llama_bytes(const struct tern_llama_options *o, int threads,
                     struct tern_llama_bytes *ret_bytes, struct tern_err *err);

const struct tern_model_shard *tern_llama_shard(const struct tern_llama *m);
/* The shard of the trained weights: the adapters' where there are some, else the same. */
const struct tern_model_shard *tern_llama_trained(const struct tern_llama *m);
const struct tern_model_adapters *tern_llama_adapters(const struct tern_llama *m); /* or NULL */
const struct tern_model_config *tern_llama_config(const struct tern_llama *m);

/* One array each, of *ret_count elements (may be NULL), laid out by tern_llama_shard's offsets: of
 * a whole model those of tern_model_tensor.  They belong to the model; the caller may read and
 * write them between calls.  grads is NULL without training.  Parameters have the one type or the
 * other; the function of the other type returns NULL. */
tern_real *tern_llama_params(struct tern_llama *m, uint64_t *ret_count);
uint16_t *tern_llama_params_bf16(struct tern_llama *m, uint64_t *ret_count);
/* The same of tern_llama_trained (NULL where that is in bf16), and its gradients. */
tern_real *tern_llama_trainable(struct tern_llama *m, uint64_t *ret_count);
tern_real *tern_llama_grads(struct tern_llama *m, uint64_t *ret_count);
void tern_llama_grads_zero(struct tern_llama *m);

/* Matrices from N(0, std^2), norms 1.  Element e of tensor i is a function of (seed, i, e) alone,
 * so that every rank and layout draws the same model. */
void tern_llama_init(struct tern_llama *m, uint64_t seed, double std);
/* A as nn.Linear begins, uniform in +-1/sqrt(in), and B 0: the model computes the same as before.
 */
void tern_llama_adapters_init(struct tern_llama *m);
/* After that, with DoRA: set the magnitudes to those of W + scale B A; else nothing.  Collective
 * over the tensor ranks. */
int tern_llama_magnitudes_init(struct tern_llama *m, struct tern_err *err);

/* A micro-batch. */
struct tern_llama_batch {
    const int32_t *tokens, *targets; /* [B,T]; tokens for the embedding, targets for the head */
    const uint8_t *mask;             /* [B,T] or NULL; 0 leaves a target out */
    const int32_t *starts;           /* [B,T] as in struct tern_tensor_heads, or NULL */
    bool drops;                      /* adapters' inputs are dropped out, by the numbers of rows: */
    uint64_t sample;                 /* of the first one in the run, the others following */
    int B, T;
};

struct tern_llama_loss {
    double sum; /* of the targets' negative log likelihoods, in nats */
    uint64_t n; /* targets counted: those whose mask is not 0 */
};

/* ---------------------------------------------------------------- all of it at once
 *
 * Of a model whose chunks all lie here. */

/* Losses of the targets given the tokens (ids below vocab); position t of a row sees 0..t of it.
 * An id outside the vocabulary, or B or T above what the model was made for, is an error and
 * nothing is computed. */
int tern_llama_loss(struct tern_llama *m, const struct tern_llama_batch *b,
                    struct tern_llama_loss *ret_loss, struct tern_err *err);

/* The same, and the gradients of grad_scale * sum are added to tern_llama_grads.  For a mean over n
 * targets in several micro-batches, grad_scale is 1 / n in each. */
int tern_llama_step(struct tern_llama *m, const struct tern_llama_batch *b, double grad_scale,
                    struct tern_llama_loss *ret_loss, struct tern_err *err);

/* logits[V] that follow the last of tokens[T]: to choose the next token. */
int tern_llama_logits(struct tern_llama *m, const int32_t *tokens, int T, tern_real *logits,
                      struct tern_err *err);

/* ---------------------------------------------------------------- chunk by chunk
 *
 * A micro-batch goes through the chunks of a pipeline, on this rank and others.  Its activations
 * stay in a slot of each chunk from the forward pass to the end of the backward pass. */

/* Do ids and sizes fit the model? */
int tern_llama_batch_check(const struct tern_llama *m, const struct tern_llama_batch *b,
                           struct tern_err *err);

/* The residual stream at the chunk's two ends, of tern_llama_stream elements for a full batch: `in`
 * is to be filled before the forward pass (unless the chunk embeds), and holds its gradient after
 * the backward pass.  `out` is the forward pass's result.  It is to be filled with its gradient
 * before the backward pass (unless the chunk has the head).  Without training both are the same
 * memory.  Elements are tern_real, or bf16 as the options said. */
void *tern_llama_in(struct tern_llama *m, int chunk, int slot);
void *tern_llama_out(struct tern_llama *m, int chunk, int slot);
size_t tern_llama_stream(const struct tern_llama *m);

struct tern_llama_pass {
    int chunk, slot;
    const struct tern_llama_batch *b;
};
int tern_llama_chunk_forward(struct tern_llama *m, const struct tern_llama_pass *p,
                             struct tern_err *err);
/* After the forward pass of the chunk that has the head: the losses alone. */
int tern_llama_chunk_loss(struct tern_llama *m, const struct tern_llama_pass *p,
                          struct tern_llama_loss *ret_loss, struct tern_err *err);

/* Called when no more is added to a bucket's gradients (tern_model_unit) in this backward pass. */
struct tern_llama_ready {
    void *ctx;
    int (*bucket)(void *ctx, int bucket, struct tern_err *err);
};
/* Gradients of grad_scale * sum are added.  `ret_loss` is set where the chunk has the head; `ready`
 * may be NULL.  Gradients of weights that several tensor ranks hold are not summed over them: key
 * heads that are held by several, and with `sequence` the norms. */
int tern_llama_chunk_backward(struct tern_llama *m, const struct tern_llama_pass *p,
                              double grad_scale, struct tern_llama_loss *ret_loss,
                              const struct tern_llama_ready *ready, struct tern_err *err);

#endif
