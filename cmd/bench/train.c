/* tern bench train: how fast one machine trains, in share of what its matrix products allow.  What
 * each number is: tests/bench/train.md. */
#include "cmd/bench/bench.h"
#include "cmd/bench/sizes.h"
#include "cmd/bench/local.h"
#include "cmd/bench/torch.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/fabric/fabric.h"
#include "core/llama/llama.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char *size_text, *recompute_text, *precision_text, *peer_text, *python, *script_text;
static int64_t steps, ranks, threads, micro_batches, lora;
static bool dora, json;

enum phase { DATA, FORWARD, BACKWARD, COMM, OPTIMIZER, STEP, PHASES };
static const char *const phase_names[PHASES] = {"data", "forward",   "backward",
                                                "comm", "optimizer", "step"};

enum {
    WARM = 2, /* steps not counted: memory is faulted in, PyTorch's caches fill */
    STEPS_MAX = 1000,
    SQUARE = 2048, /* of the product that is the limit; 17 GFLOP, 48 MiB: far beyond the caches */
    PEERS = 2,
    LORA_MAX = 1024,
};

struct peer {
    struct bench_torch *torch;
    double seconds[WARM + STEPS_MAX];
};

struct bench {
    const struct bench_size *size;
    struct tern_llama *m;
    struct tern_comm *world; /* NULL: one rank */
    int rank;
    struct tern_model_adapters adapters;              /* rank 0: none */
    tern_real *params, *grads, *exp_avg, *exp_avg_sq; /* [n] of what is trained */
    uint16_t *params_bf16; /* NULL, or what `params` is the master copy of */
    uint64_t n;
    int32_t *pool, *tokens, *targets; /* [micro-batches * B * (T+1)]; [B,T] */
    tern_real *squares;               /* three of SQUARE x SQUARE */
    struct peer peers[PEERS];
    double peak;
    double phases[PHASES][STEPS_MAX];
    double limits[STEPS_MAX + 1]; /* FLOP/s of all ranks, before each step and after the last */
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

static double median(const double *v, int n)
{
    double sorted[STEPS_MAX + 1];

    memcpy(sorted, v, (size_t)n * sizeof *v);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* ---------------------------------------------------------------- a step of ours */

/* What is trained, and its master copy where it is in bf16. */
static int find_params(struct bench *b, struct tern_err *err)
{
    b->params = tern_llama_trainable(b->m, &b->n);
    b->grads = tern_llama_grads(b->m, NULL);
    if (b->params)
        return 0;
    b->params_bf16 = tern_llama_params_bf16(b->m, &b->n);
    b->params = tern_alloc(b->n, sizeof *b->params, "the master copy", err);
    if (!b->params)
        return -1;
    tern_tensor_from_bf16(b->params, b->params_bf16, b->n);
    return 0;
}

static int bench_new(struct bench *b, struct tern_err *err)
{
    const struct bench_size *s = b->size;
    const enum tern_llama_recompute recompute =
        !strcmp(recompute_text, "full")        ? TERN_LLAMA_RECOMPUTE_FULL
        : !strcmp(recompute_text, "selective") ? TERN_LLAMA_RECOMPUTE_SELECTIVE
                                               : TERN_LLAMA_RECOMPUTE_NONE;
    const struct tern_llama_options o = {.config = &s->c,
                                         .max_batch = s->B,
                                         .seq_len = s->T,
                                         .training = true,
                                         .recompute = recompute,
                                         .bf16 = strcmp(precision_text, "bf16") == 0,
                                         .adapters = &b->adapters,
                                         .one_micro_batch = micro_batches == 1};
    size_t row = (size_t)s->B * (size_t)s->T, ids = (row + 1) * (size_t)micro_batches;

    b->m = tern_llama_open(&o, err);
    if (!b->m)
        return -1;
    tern_llama_init(b->m, 1, 0.02);
    tern_llama_adapters_init(b->m);
    if (tern_llama_magnitudes_init(b->m, err) < 0 || find_params(b, err) < 0)
        return -1;
    b->exp_avg = tern_alloc(b->n, sizeof *b->exp_avg, "moments", err);
    b->exp_avg_sq = tern_alloc(b->n, sizeof *b->exp_avg_sq, "moments", err);
    b->pool = tern_alloc(ids, sizeof *b->pool, "tokens", err);
    b->tokens = tern_alloc(row, sizeof *b->tokens, "tokens", err);
    b->targets = tern_alloc(row, sizeof *b->targets, "tokens", err);
    if (!b->exp_avg || !b->exp_avg_sq || !b->pool || !b->tokens || !b->targets)
        return -1;
    for (size_t i = 0; i < ids; i++)
        b->pool[i] = (int32_t)tern_rand_below(1, (uint64_t)b->rank, i, (uint64_t)s->c.vocab);
    return 0;
}

static void bench_free(struct bench *b)
{
    if (b->params_bf16)
        free(b->params);
    tern_llama_free(b->m);
    free(b->exp_avg);
    free(b->exp_avg_sq);
    free(b->pool);
    free(b->tokens);
    free(b->targets);
    free(b->squares);
    for (int p = 0; p < PEERS; p++)
        bench_torch_close(b->peers[p].torch);
}

static void lap(double took[PHASES], enum phase p, double *from)
{
    double now = seconds();

    took[p] += now - *from;
    *from = now;
}

static int compute(struct bench *b, double took[PHASES], double *clock, struct tern_err *err)
{
    const struct bench_size *s = b->size;
    const struct tern_llama_batch batch = {
        .tokens = b->tokens, .targets = b->targets, .B = s->B, .T = s->T};
    size_t row = (size_t)s->B * (size_t)s->T;
    double scale = 1.0 / ((double)row * (double)micro_batches * (double)ranks);
    struct tern_llama_loss loss;

    tern_llama_grads_zero(b->m);
    lap(took, BACKWARD, clock);
    for (int64_t k = 0; k < micro_batches; k++) {
        const int32_t *ids = b->pool + (row + 1) * (size_t)k;

        memcpy(b->tokens, ids, row * sizeof *ids);
        memcpy(b->targets, ids + 1, row * sizeof *ids);
        lap(took, DATA, clock);
        if (tern_llama_chunk_forward(b->m, 0, 0, &batch, err) < 0)
            return -1;
        lap(took, FORWARD, clock);
        if (tern_llama_chunk_backward(b->m, 0, 0, &batch, scale, &loss, NULL, err) < 0)
            return -1;
        lap(took, BACKWARD, clock);
    }
    return 0;
}

/* `took` is filled for the step. */
static int step(struct bench *b, uint64_t number, double took[PHASES], struct tern_err *err)
{
    struct tern_tensor_adamw o = {
        .lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = number};
    double began = seconds(), clock = began;

    memset(took, 0, PHASES * sizeof *took);
    if (compute(b, took, &clock, err) < 0)
        return -1;
    if (b->world && tern_comm_all_reduce(b->world, b->grads, b->n, TERN_F32, TERN_SUM, err) < 0)
        return -1;
    lap(took, COMM, &clock);
    o.grad_scale = fmin(1, 1 / (sqrt(tern_tensor_sum_squares(b->grads, b->n)) + 1e-6));
    tern_tensor_adamw(&o, b->params, b->grads, b->exp_avg, b->exp_avg_sq, b->n);
    if (b->params_bf16)
        tern_tensor_to_bf16(b->params_bf16, b->params, b->n);
    lap(took, OPTIMIZER, &clock);
    took[STEP] = clock - began;
    return 0;
}

/* ---------------------------------------------------------------- the limit */

/* OpenBLAS's product of two matrices of SQUARE, on all ranks at once: FLOP/s of all, the median of
 * three. */
static int limit(struct bench *b, double *out, struct tern_err *err)
{
    enum { TIMES = 3 };
    const size_t n = (size_t)SQUARE * SQUARE;
    tern_real *a = b->squares;
    double t[TIMES];

    tern_tensor_gemm_use("openblas");
    for (int i = 0; i < TIMES; i++) {
        if (b->world && tern_comm_barrier(b->world, err) < 0)
            return -1;
        t[i] = seconds();
        tern_tensor_gemm(false, true, SQUARE, SQUARE, SQUARE, 1, a, SQUARE, a + n, SQUARE, 0,
                         a + 2 * n, SQUARE);
        if (b->world && tern_comm_barrier(b->world, err) < 0)
            return -1;
        t[i] = seconds() - t[i];
    }
    tern_tensor_gemm_use(NULL);
    *out = 2.0 * (double)n * SQUARE * (double)ranks / median(t, TIMES);
    return 0;
}

/* ---------------------------------------------------------------- all of it */

static int open_peers(struct bench *b, struct tern_err *err)
{
    for (int p = 0; peer_text && p < PEERS; p++) {
        if (p == 1 && strcmp(peer_text, "torch-tuned") == 0)
            break;
        b->peers[p].torch =
            bench_torch_open(&b->size->c, b->size->B, b->size->T, tern_tensor_threads(), p == 0,
                             python, script_text, err);
        if (!b->peers[p].torch)
            return -1;
    }
    return 0;
}

/* Step i of everybody, ours first. */
static int round_of_steps(struct bench *b, int64_t i, struct tern_err *err)
{
    double took[PHASES];

    if (i == WARM) {
        struct rusage usage;

        /* All that a step needs is there by now; the limit's matrices are not a step's. */
        getrusage(RUSAGE_SELF, &usage);
        b->peak = (double)usage.ru_maxrss * 1024;
        b->squares = tern_alloc((size_t)3 * SQUARE * SQUARE, sizeof *b->squares, "the limit", err);
        if (!b->squares)
            return -1;
        for (size_t k = 0; k < (size_t)3 * SQUARE * SQUARE; k++)
            b->squares[k] = (tern_real)(k % 13) * 0.1F;
    }
    if (i >= WARM && limit(b, &b->limits[i - WARM], err) < 0)
        return -1;
    if (step(b, (uint64_t)i + 1, took, err) < 0)
        return -1;
    for (int p = 0; p < PHASES && i >= WARM; p++)
        b->phases[p][i - WARM] = took[p];
    for (int p = 0; p < PEERS; p++)
        if (b->peers[p].torch &&
            bench_torch_step(b->peers[p].torch, &b->peers[p].seconds[i], err) < 0)
            return -1;
    return 0;
}

static double tokens_a_step(const struct bench *b)
{
    return (double)b->size->B * b->size->T * (double)(micro_batches * ranks);
}

static double flops_a_token(const struct bench *b)
{
    if (b->adapters.rank)
        return tern_model_flops_adapters(&b->size->c, b->size->T, &b->adapters);
    return tern_model_flops_train(&b->size->c, b->size->T);
}

static json_t *peer_json(const struct bench *b, const struct peer *p, double ours)
{
    double rate = (double)b->size->B * b->size->T / median(p->seconds + WARM, (int)steps);
    double peak = bench_torch_peak_bytes(p->torch);

    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "name", bench_torch_name(p->torch),
                     "setting", bench_torch_setting(p->torch), "tokens_per_second",
                     tern_json_real(rate), "gflops", tern_json_real(rate * flops_a_token(b) * 1e-9),
                     "peak_bytes", tern_json_real(peak), "ratio", tern_json_real(ours / rate),
                     "memory_ratio", tern_json_real(b->peak / peak));
}

static json_t *result(const struct bench *b)
{
    double share[STEPS_MAX], times[PHASES], rate, flops = flops_a_token(b);
    json_t *phases = json_object(), *peers = json_array();

    for (int p = 0; p < PHASES; p++) {
        times[p] = median(b->phases[p], (int)steps);
        json_object_set_new(phases, phase_names[p], tern_json_real(times[p]));
    }
    for (int64_t i = 0; i < steps; i++)
        share[i] =
            tokens_a_step(b) * flops / b->phases[STEP][i] / ((b->limits[i] + b->limits[i + 1]) / 2);
    rate = tokens_a_step(b) / times[STEP];
    for (int p = 0; p < PEERS; p++)
        if (b->peers[p].torch)
            json_array_append_new(peers, peer_json(b, &b->peers[p], rate));
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:o, s:o, s:I, s:i, s:I, s:o, s:o, s:o, "
                     "s:o, s:o, s:o, s:o}",
                     "size", b->size->name, "kernels", tern_tensor_describe(), "precision",
                     precision_text, "parameters", (json_int_t)tern_model_params(&b->size->c),
                     "trained", (json_int_t)b->n, "lora", (json_int_t)lora, "dora", (int)dora,
                     "flops_per_token", tern_json_real(flops), "tokens_per_step",
                     tern_json_real(tokens_a_step(b)), "ranks", (json_int_t)ranks, "threads",
                     tern_tensor_threads(), "steps", (json_int_t)steps, "tokens_per_second",
                     tern_json_real(rate), "gflops", tern_json_real(rate * flops * 1e-9),
                     "limit_gflops", tern_json_real(median(b->limits, (int)steps + 1) * 1e-9),
                     "share", tern_json_real(median(share, (int)steps)), "peak_bytes",
                     tern_json_real(b->peak), "seconds", phases, "peers", peers);
}

static double real(const json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

static void print_text(const json_t *j)
{
    const json_t *times = json_object_get(j, "seconds"), *peer;
    size_t i;

    printf("%s, %s: %" JSON_INTEGER_FORMAT
           " parameters, %.1f MFLOP a token, %.0f tokens a step; %s; "
           "%" JSON_INTEGER_FORMAT " rank%s\n",
           json_string_value(json_object_get(j, "size")), precision_text,
           json_integer_value(json_object_get(j, "parameters")), real(j, "flops_per_token") * 1e-6,
           real(j, "tokens_per_step"), json_string_value(json_object_get(j, "kernels")),
           json_integer_value(json_object_get(j, "ranks")), ranks == 1 ? "" : "s");
    if (lora)
        printf("%s of rank %" PRId64 " beside q_proj and v_proj: %" JSON_INTEGER_FORMAT
               " parameters are trained\n",
               dora ? "DoRA" : "LoRA", lora, json_integer_value(json_object_get(j, "trained")));
    printf("tokens/s %.0f   GF/s %.1f   limit %.1f   share %.1f %%   peak %.0f MiB\n",
           real(j, "tokens_per_second"), real(j, "gflops"), real(j, "limit_gflops"),
           100 * real(j, "share"), real(j, "peak_bytes") / (1 << 20));
    for (int p = 0; p < PHASES; p++)
        printf("%-10s %9.1f ms\n", phase_names[p], 1e3 * real(times, phase_names[p]));
    json_array_foreach(json_object_get(j, "peers"), i, peer)
        printf("%s, %s: tokens/s %.0f   GF/s %.1f   peak %.0f MiB   ours is %.2f x as fast with "
               "%.2f of the memory\n",
               json_string_value(json_object_get(peer, "name")),
               json_string_value(json_object_get(peer, "setting")), real(peer, "tokens_per_second"),
               real(peer, "gflops"), real(peer, "peak_bytes") / (1 << 20), real(peer, "ratio"),
               real(peer, "memory_ratio"));
}

static int report(const struct bench *b, struct tern_err *err)
{
    json_t *j = result(b);
    int rc = j ? 0 : tern_err_set(err, TERN_FAILED, "no memory for the result");

    if (j && json)
        rc = tern_json_print(stdout, j, err);
    else if (j)
        print_text(j);
    json_decref(j);
    return rc;
}

static int measure(struct bench *b, struct tern_err *err)
{
    if (bench_new(b, err) < 0 || open_peers(b, err) < 0)
        return -1;
    for (int64_t i = 0; i < WARM + steps; i++)
        if (round_of_steps(b, i, err) < 0)
            return -1;
    if (limit(b, &b->limits[steps], err) < 0)
        return -1;
    return b->rank == 0 ? report(b, err) : 0;
}

static int body(const struct tern_fabric_options *o, struct tern_err *err)
{
    static struct bench b;
    struct tern_fabric *fabric = NULL;
    int rc = -1;

    b.size = bench_size_find(size_text);
    b.adapters = (struct tern_model_adapters){
        .rank = (int)lora,
        .targets = 1U | 1U << (TERN_MODEL_V - TERN_MODEL_Q), /* as most do: q_proj and v_proj */
        .scale = 1,
        .dora = dora,
        .seed = 1};
    if (tern_tensor_start((int)threads, (int)ranks, err) < 0)
        return -1;
    if (o) {
        fabric = tern_fabric_open(o, err);
        if (!fabric)
            return -1;
        b.world = tern_fabric_world(fabric);
        b.rank = tern_fabric_rank(fabric);
    }
    rc = measure(&b, err);
    bench_free(&b);
    tern_fabric_close(fabric);
    return rc;
}

static bool one_of(const char *word, const char *const words[])
{
    for (; *words; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    static const char *const recomputes[] = {"none", "selective", "full", NULL};
    static const char *const precisions[] = {"fp32", "bf16", NULL};
    static const char *const peers[] = {"torch", "torch-tuned", NULL};

    (void)n_args;
    (void)args;
    if (!bench_size_find(size_text))
        return tern_err_set(err, TERN_USAGE, "--size: '%s' is not S, M, L or tiny", size_text);
    if (!one_of(recompute_text, recomputes))
        return tern_err_set(err, TERN_USAGE, "--recompute: '%s' is not none, selective or full",
                            recompute_text);
    if (!one_of(precision_text, precisions))
        return tern_err_set(err, TERN_USAGE, "--precision: '%s' is not fp32 or bf16",
                            precision_text);
    if (lora < 0 || lora > LORA_MAX)
        return tern_err_set(err, TERN_USAGE, "--lora: a rank from 1 to %d, or 0: none", LORA_MAX);
    if (dora && !lora)
        return tern_err_set(err, TERN_USAGE, "--dora: give the adapters' rank with --lora");
    if (steps < 1 || steps > STEPS_MAX || ranks < 1 || ranks > 64 || micro_batches < 1 ||
        micro_batches > 1024 || threads > 1024)
        return tern_err_set(
            err, TERN_USAGE,
            "from 1 to %d --steps, 64 --ranks, 1024 --micro-batches, 1024 --threads", STEPS_MAX);
    if (peer_text && !one_of(peer_text, peers))
        return tern_err_set(err, TERN_USAGE, "--peer: '%s' is not torch or torch-tuned", peer_text);
    if (peer_text && (ranks > 1 || micro_batches > 1 || lora || strcmp(precision_text, "fp32")))
        return tern_err_set(err, TERN_USAGE,
                            "--peer torch: PyTorch makes the steps of one rank and micro-batch, of "
                            "all weights and in fp32");
    return ranks == 1 ? body(NULL, err) : bench_local((int)ranks, body, err);
}

static const struct tern_opt options[] = {
    {"size", 's', TERN_OPT_TEXT, "S|M|L|tiny", "S", .to.text = &size_text,
     .help = "the model: 15M, 134M or 307M parameters (288, 768, 2048 wide), a step of 2048 "
             "tokens; tiny: to try it out"},
    {"steps", 'n', TERN_OPT_INT, "N", "10", .to.integer = &steps,
     .help = "steps measured, after two that are not"},
    {"ranks", 0, TERN_OPT_INT, "N", "1", .to.integer = &ranks,
     .help = "data-parallel ranks on this machine, which share its CPUs"},
    {"threads", 't', TERN_OPT_INT, "N", "0", .to.integer = &threads,
     .help = "threads of a rank; 0: OMP_NUM_THREADS, else a rank's share of the CPUs"},
    {"micro-batches", 0, TERN_OPT_INT, "N", "1", .to.integer = &micro_batches,
     .help = "micro-batches in a rank's step"},
    {"recompute", 0, TERN_OPT_TEXT, "WHAT", "none", .to.text = &recompute_text,
     .help = "what backward makes again instead of keeping it: none, selective, full"},
    {"precision", 0, TERN_OPT_TEXT, "fp32|bf16", "fp32", .to.text = &precision_text,
     .help = "of parameters and activations; bf16: with a master copy in fp32"},
    {"lora", 0, TERN_OPT_INT, "RANK", "0", .to.integer = &lora,
     .help = "train adapters of this rank beside q_proj and v_proj alone; 0: all weights"},
    {"dora", 0, TERN_OPT_FLAG, .to.flag = &dora, .help = "adapters with magnitudes"},
    {"peer", 0, TERN_OPT_TEXT, "torch", .to.text = &peer_text,
     .help =
         "PyTorch makes the same steps in turns with us, tuned for this machine and as shipped; "
         "torch-tuned: only tuned"},
    {"peer-python", 0, TERN_OPT_TEXT, "PROGRAM", "/usr/bin/python3", .to.text = &python,
     .help = "the Python that has torch"},
    {"peer-script", 0, TERN_OPT_TEXT, "FILE", .to.text = &script_text,
     .help = "tests/bench/train_torch.py, where it is not in the source beside this program"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

const struct tern_cmd bench_train = {
    .name = "train",
    .summary = "time training steps, by phase and in share of what matrix products allow",
    .about = "A step is forward, backward, clipping and AdamW on random tokens. FLOPs are those of "
             "matrix products and of the half of attention that is not masked; a frozen weight "
             "has no gradient. The limit "
             "is what OpenBLAS reaches on matrices of 2048 between the steps; the share of a step "
             "is its FLOPs by its time by the mean of the limits before and after it. All numbers "
             "are medians; `peak` is the most that was resident.",
    .examples = "tern bench train --size M\n"
                "tern bench train --peer torch --json\n"
                "tern bench train --ranks 2 --micro-batches 4\n"
                "tern bench train --size L --lora 16 --precision bf16",
    .opts = options,
    .run = run,
};
