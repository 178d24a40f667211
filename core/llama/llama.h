/* A Llama model that computes: forward, backward and loss on one process's arrays.
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
 * block each for parameters, gradients and activations; a step allocates nothing.  Same parameters,
 * input, BLAS core type, kernels and threads: same bits.
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

/* A model for up to `max_batch` rows of up to `seq_len` positions at a time; without `training`
 * there are no gradients and one layer's activations.  Parameters and gradients start as zero.
 * NULL when it does not fit into memory; the message says how much was asked for. */
struct tern_llama *tern_llama_new(const struct tern_model_config *config, int max_batch,
                                  int seq_len, bool training, struct tern_err *err);
void tern_llama_free(struct tern_llama *m);

/* The same arithmetic without allocating: bytes by kind. */
struct tern_llama_bytes {
    uint64_t params, grads, activations;
};
void tern_llama_bytes(const struct tern_model_config *config, int max_batch, int seq_len,
                      bool training, struct tern_llama_bytes *out);

const struct tern_model_config *tern_llama_config(const struct tern_llama *m);

/* One array each, of *count elements (`count` may be NULL), laid out as tern_model_tensor's offsets
 * say.  They belong to the model; the caller may read and write them between calls.  grads is NULL
 * without training. */
tern_real *tern_llama_params(struct tern_llama *m, uint64_t *count);
tern_real *tern_llama_grads(struct tern_llama *m, uint64_t *count);
void tern_llama_grads_zero(struct tern_llama *m);

/* Matrices from N(0, std^2), norms 1.  Element e of tensor i is a function of (seed, i, e) alone,
 * so that every rank and layout draws the same model. */
void tern_llama_init(struct tern_llama *m, uint64_t seed, double std);

struct tern_llama_loss {
    double sum; /* of the targets' negative log likelihoods, in nats */
    uint64_t n; /* targets counted: those whose mask is not 0 */
};

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

#endif
