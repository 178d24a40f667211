/* How fast one rank trains: bench_train [SIZE [STEPS [THREADS]]], SIZE S, M or L of
 * shared/reference/performance.md.
 *
 * A step is forward, backward, clipping and AdamW.  FLOPs are tern_model_flops_train's (the masked
 * half of attention is not counted).  The limit is tern_tensor_gemm on three square matrices of
 * 2048, the median of nine, timed before and after, the better one: share = FLOPs / step time /
 * limit. */
#include "core/llama/layers.h"

#include "core/base/clock.h"
#include "core/base/rand.h"
#include "core/base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct size {
    const char *name;
    struct tern_model_config c;
    int T, B;
};

static const struct size sizes[] = {
    {"S",
     {.dim = 288,
      .ffn = 768,
      .layers = 6,
      .heads = 6,
      .kv_heads = 6,
      .head_dim = 48,
      .vocab = 32000,
      .norm_eps = 1e-5,
      .rope_theta = 1e4,
      .tied = true},
     256,
     8},
    {"M",
     {.dim = 768,
      .ffn = 2048,
      .layers = 12,
      .heads = 12,
      .kv_heads = 12,
      .head_dim = 64,
      .vocab = 32000,
      .norm_eps = 1e-5,
      .rope_theta = 1e4},
     1024,
     2},
    {"L",
     {.dim = 2048,
      .ffn = 5632,
      .layers = 4,
      .heads = 32,
      .kv_heads = 4,
      .head_dim = 64,
      .vocab = 32000,
      .norm_eps = 1e-5,
      .rope_theta = 1e4},
     2048,
     1},
};

static double seconds(void)
{
    return (double)tern_clock_boot_ns() * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return v[n / 2];
}

static double gemm_limit(void)
{
    enum { N = 2048, TIMES = 9 };

    tern_real *a = calloc((size_t)3 * N * N, sizeof(*a));
    double t[TIMES];

    for (size_t i = 0; i < (size_t)3 * N * N; i++)
        a[i] = (tern_real)(i % 13) * 0.1F;
    for (int i = 0; i < TIMES; i++) {
        t[i] = seconds();
        tern_tensor_gemm(false, true, N, N, N, 1, a, N, a + (size_t)N * N, N, 0,
                         a + (size_t)2 * N * N, N);
        t[i] = seconds() - t[i];
    }
    free(a);
    return 2.0 * N * N * N / median(t, TIMES);
}

enum { FORWARD, HEAD, BACKWARD, OPTIMIZER, STEP, PHASES, STEPS_MAX = 100 };
static const char *const phase_names[PHASES] = {"forward", "head", "backward", "optimizer", "step"};

struct bench {
    const struct size *size;
    struct tern_llama *m;
    tern_real *exp_avg, *exp_avg_sq;
    uint64_t params;
    int32_t *ids; /* one more than a batch */
    double phases[PHASES][STEPS_MAX];
};

static bool bench_new(struct bench *b, struct tern_err *err)
{
    const struct size *s = b->size;
    int n = s->B * s->T;

    b->m = tern_llama_new(&s->c, s->B, s->T, true, err);
    if (!b->m)
        return false;
    tern_llama_init(b->m, 1, 0.02);
    tern_llama_params(b->m, &b->params);
    b->exp_avg = tern_alloc(b->params, sizeof(tern_real), "moments", err);
    b->exp_avg_sq = tern_alloc(b->params, sizeof(tern_real), "moments", err);
    b->ids = tern_alloc((size_t)n + 1, sizeof(*b->ids), "tokens", err);
    for (int i = 0; b->ids && i <= n; i++)
        b->ids[i] = (int32_t)tern_rand_below(1, 1, (uint64_t)i, (uint64_t)s->c.vocab);
    return b->exp_avg && b->exp_avg_sq && b->ids;
}

static void bench_step(struct bench *b, int i)
{
    const struct tern_llama_batch batch = {b->ids, b->ids + 1, NULL, b->size->B, b->size->T};
    struct tern_tensor_adamw o = {3e-4, 0.9, 0.95, 1e-8, 0.1, 1, (uint64_t)i + 1};
    struct tern_llama_loss loss;
    double at[STEP + 1];

    at[FORWARD] = seconds();
    tern_llama_grads_zero(b->m);
    tern_llama_forward(b->m, &batch);
    at[HEAD] = seconds();
    tern_llama_head(b->m, &batch, 1.0 / (batch.B * batch.T), &loss);
    at[BACKWARD] = seconds();
    tern_llama_backward(b->m, &batch);
    at[OPTIMIZER] = seconds();
    o.grad_scale = fmin(1, 1 / sqrt(tern_tensor_sum_squares(b->m->g.all, b->params)));
    tern_tensor_adamw(&o, b->m->w.all, b->m->g.all, b->exp_avg, b->exp_avg_sq, b->params);
    at[STEP] = seconds();
    for (int p = 0; p < STEP; p++)
        b->phases[p][i] = at[p + 1] - at[p];
    b->phases[STEP][i] = at[STEP] - at[FORWARD];
}

static void report(struct bench *b, int steps, double limit)
{
    const struct size *s = b->size;
    double n = (double)s->B * s->T, flops = tern_model_flops_train(&s->c, s->T) * n, times[PHASES];
    struct rusage usage;

    /* The first step faults its memory in. */
    for (int p = 0; p < PHASES; p++)
        times[p] = median(b->phases[p] + 1, steps - 1);
    getrusage(RUSAGE_SELF, &usage);
    printf("%s  %ju parameters, %.1f MFLOP a token, %d x %d tokens a step\n", s->name,
           (uintmax_t)b->params, flops / n / 1e6, s->B, s->T);
    printf("tokens/s %.0f   GF/s %.1f   sgemm limit %.1f   share %.1f %%   peak %.0f MiB\n",
           n / times[STEP], flops / times[STEP] / 1e9, limit / 1e9,
           100 * flops / times[STEP] / limit, (double)usage.ru_maxrss / 1024);
    for (int p = 0; p < PHASES; p++)
        printf("%-10s %8.1f ms\n", phase_names[p], 1e3 * times[p]);
}

int main(int argc, char **argv)
{
    static struct bench b;
    const char *name = argc > 1 ? argv[1] : "S";
    int steps = argc > 2 ? atoi(argv[2]) : 10, threads = argc > 3 ? atoi(argv[3]) : 0;
    struct tern_err err = {.text = "SIZE is S, M or L; STEPS 2 to 100"};
    double before, after;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strcmp(sizes[i].name, name) == 0)
            b.size = &sizes[i];
    if (!b.size || steps < 2 || steps > STEPS_MAX || tern_tensor_start(threads, 1, &err) < 0 ||
        !bench_new(&b, &err)) {
        fprintf(stderr, "usage: bench_train [SIZE [STEPS [THREADS]]]: %s\n", err.text);
        return 2;
    }
    printf("%s\n", tern_tensor_describe());
    before = gemm_limit();
    for (int i = 0; i < steps; i++)
        bench_step(&b, i);
    after = gemm_limit();
    report(&b, steps, after > before ? after : before);
    free(b.exp_avg);
    free(b.exp_avg_sq);
    free(b.ids);
    tern_llama_free(b.m);
    return 0;
}
