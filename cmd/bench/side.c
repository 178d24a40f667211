#include "cmd/bench/side.h"

#include "core/base/clock.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct bench_side {
    struct bench_side_options o;
    struct tern_llama *m;
    tern_real *params, *grads, *exp_avg, *exp_avg_sq; /* [n] of what is trained */
    uint16_t *params_bf16; /* NULL, or what `params` is the master copy of */
    uint64_t n, steps;
    int32_t *pool, *tokens, *targets; /* [micro-batches * B * (T+1)]; [B,T] */
};

static double seconds(void)
{
    return (double)tern_clock_boot_ns() * 1e-9;
}

/* What is trained, and its master copy where it is in bf16. */
static int find_params(struct bench_side *s, struct tern_err *err)
{
    s->params = tern_llama_trainable(s->m, &s->n);
    s->grads = tern_llama_grads(s->m, NULL);
    if (s->params)
        return 0;
    s->params_bf16 = tern_llama_params_bf16(s->m, &s->n);
    s->params = tern_alloc(s->n, sizeof *s->params, "the master copy", err);
    if (!s->params)
        return -1;
    tern_tensor_from_bf16(s->params, s->params_bf16, s->n);
    return 0;
}

static int fill(struct bench_side *s, struct tern_err *err)
{
    const struct bench_size *z = s->o.size;
    const struct tern_llama_options o = {.config = &z->c,
                                         .max_batch = z->B,
                                         .seq_len = z->T,
                                         .training = true,
                                         .recompute = s->o.recompute,
                                         .bf16 = s->o.bf16,
                                         .adapters = &s->o.adapters,
                                         .one_micro_batch = s->o.micro_batches == 1};
    size_t row = (size_t)z->B * (size_t)z->T, ids = (row + 1) * (size_t)s->o.micro_batches;

    s->m = tern_llama_open(&o, err);
    if (!s->m)
        return -1;
    tern_llama_init(s->m, 1, 0.02);
    tern_llama_adapters_init(s->m);
    if (tern_llama_magnitudes_init(s->m, err) < 0 || find_params(s, err) < 0)
        return -1;
    s->exp_avg = tern_alloc(s->n, sizeof *s->exp_avg, "moments", err);
    s->exp_avg_sq = tern_alloc(s->n, sizeof *s->exp_avg_sq, "moments", err);
    s->pool = tern_alloc(ids, sizeof *s->pool, "tokens", err);
    s->tokens = tern_alloc(row, sizeof *s->tokens, "tokens", err);
    s->targets = tern_alloc(row, sizeof *s->targets, "tokens", err);
    if (!s->exp_avg || !s->exp_avg_sq || !s->pool || !s->tokens || !s->targets)
        return -1;
    for (size_t i = 0; i < ids; i++)
        s->pool[i] = (int32_t)tern_rand_below(1, (uint64_t)s->o.rank, i, (uint64_t)z->c.vocab);
    return 0;
}

struct bench_side *bench_side_open(const struct bench_side_options *o, struct tern_err *err)
{
    struct bench_side *s = tern_alloc(1, sizeof *s, "a model", err);

    if (!s)
        return NULL;
    s->o = *o;
    if (fill(s, err) == 0)
        return s;
    bench_side_free(s);
    return NULL;
}

void bench_side_free(struct bench_side *s)
{
    if (!s)
        return;
    if (s->params_bf16)
        free(s->params);
    tern_llama_free(s->m);
    free(s->exp_avg);
    free(s->exp_avg_sq);
    free(s->pool);
    free(s->tokens);
    free(s->targets);
    free(s);
}

uint64_t bench_side_trained(const struct bench_side *s)
{
    return s->n;
}

double bench_side_flops(const struct bench_side *s)
{
    const struct bench_size *z = s->o.size;

    return s->o.adapters.rank ? tern_model_flops_adapters(&z->c, z->T, &s->o.adapters)
                              : tern_model_flops_train(&z->c, z->T);
}

static void lap(double *took, enum bench_phase p, double *from)
{
    double now = seconds();

    took[p] += now - *from;
    *from = now;
}

static int compute(struct bench_side *s, double *took, double *clock, struct tern_err *err)
{
    const struct bench_size *z = s->o.size;
    const struct tern_llama_batch batch = {
        .tokens = s->tokens, .targets = s->targets, .B = z->B, .T = z->T};
    const struct tern_llama_pass pass = {.chunk = 0, .slot = 0, .b = &batch};
    size_t row = (size_t)z->B * (size_t)z->T;
    double scale = 1.0 / ((double)row * (double)s->o.micro_batches * (double)s->o.ranks);
    struct tern_llama_loss loss;

    tern_llama_grads_zero(s->m);
    lap(took, BENCH_BACKWARD, clock);
    for (int64_t k = 0; k < s->o.micro_batches; k++) {
        const int32_t *ids = s->pool + (row + 1) * (size_t)k;

        memcpy(s->tokens, ids, row * sizeof *ids);
        memcpy(s->targets, ids + 1, row * sizeof *ids);
        lap(took, BENCH_DATA, clock);
        if (tern_llama_chunk_forward(s->m, &pass, err) < 0)
            return -1;
        lap(took, BENCH_FORWARD, clock);
        if (tern_llama_chunk_backward(s->m, &pass, scale, &loss, /* ready= */ NULL, err) < 0)
            return -1;
        lap(took, BENCH_BACKWARD, clock);
    }
    return 0;
}

int bench_side_step(struct bench_side *s, double *took, struct tern_err *err)
{
    struct tern_tensor_adamw o = {.lr = 3e-4,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .step = ++s->steps};
    double began = seconds(), clock = began;

    memset(took, 0, BENCH_PHASES * sizeof *took);
    if (compute(s, took, &clock, err) < 0)
        return -1;
    if (s->o.world &&
        tern_fabric_all_reduce(s->o.world, s->grads, s->n, TERN_F32, TERN_SUM, err) < 0)
        return -1;
    lap(took, BENCH_COMM, &clock);
    o.grad_scale = fmin(1, 1 / (sqrt(tern_tensor_sum_squares(s->grads, s->n)) + 1e-6));
    tern_tensor_adamw(&o, s->params, s->grads, s->exp_avg, s->exp_avg_sq, s->n);
    if (s->params_bf16)
        tern_tensor_to_bf16(s->params_bf16, s->params, s->n);
    lap(took, BENCH_OPTIMIZER, &clock);
    took[BENCH_STEP] = clock - began;
    return 0;
}
