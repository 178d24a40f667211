/* A small model and its batch. */
#ifndef TESTS_UNIT_LLAMA_H
#define TESTS_UNIT_LLAMA_H

#include "core/llama/llama.h"
#include "tests/unit/tap.h"

#include "core/base/rand.h"

#include <math.h>

enum { B = 3, T = 70, N = B * T, ROWS_MAX = 64 };

static const struct tern_model_config grouped = {.dim = 24,
                                                 .ffn = 40,
                                                 .layers = 2,
                                                 .heads = 4,
                                                 .kv_heads = 2,
                                                 .head_dim = 10,
                                                 .vocab = 53,
                                                 .max_position = 128,
                                                 .norm_eps = 1e-5,
                                                 .init_std = 0.2,
                                                 .rope_theta = 10000};

static int32_t tokens[N], targets[N];
static const struct tern_llama_batch batch = {.tokens = tokens, .targets = targets, .B = B, .T = T};

static inline void fill_batch(void)
{
    for (int i = 0; i < N; i++) {
        tokens[i] = (int32_t)tern_rand_below(1, 1, (uint64_t)i, 53);
        targets[i] = (int32_t)tern_rand_below(1, 2, (uint64_t)i, 53);
    }
}

/* The loss of one pass there and back over the batch. */
static inline double step(struct tern_llama *m, double grad_scale)
{
    struct tern_llama_loss loss = {NAN, 0};

    tern_llama_grads_zero(m);
    tern_llama_step(m, &batch, grad_scale, &loss, NULL);
    return loss.sum;
}

#endif
