/* tern bench train: how fast one machine trains, in share of what its matrix products allow.  What
 * each number is: tests/bench/train.md. */
#include "cmd/bench/bench.h"
#include "cmd/bench/local.h"
#include "cmd/bench/registers.h"
#include "cmd/bench/side.h"
#include "cmd/bench/sizes.h"
#include "cmd/bench/script.h"
#include "cmd/bench/torch.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/fabric/fabric.h"
#include "core/tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char *size_text, *recompute_text, *precision_text, *peer_text, *python, *script_text;
static int64_t steps, ranks, threads, micro_batches, lora;
static bool dora, json;

static const char *const phase_names[BENCH_PHASES] = {"data", "forward",   "backward",
                                                      "comm", "optimizer", "step"};

enum {
    WARM = 2, /* steps not counted: memory is faulted in, PyTorch's caches fill */
    STEPS_MAX = 1000,
    SQUARE = 2048, /* of the product that is the limit; 17 GFLOP, 48 MiB: far beyond the caches */
    SQUARE_TINY = 512, /* to try the program out: no longer than the steps */
    PEERS = 4,
    ALL_MAX = PEERS * STEPS_MAX,
    LORA_MAX = 1024,
};

/* A trainer that makes steps in turns with ours. */
struct peer {
    struct bench_torch *torch; /* or */
    struct bench_side *full;
    char name[64], setting[256];
    double peak;               /* 0: not known */
    double flops;              /* of a token */
    double seconds[STEPS_MAX]; /* that its steps took, beside ours from `first` on */
    int64_t first;
};

struct bench {
    const struct bench_size *size;
    struct bench_side_options options;
    struct bench_side *ours;
    int square;         /* the side of the limit's matrices */
    tern_real *squares; /* the three of them */
    struct peer peers[PEERS];
    int n_peers;
    bool compiles; /* the PyTorch that is there has torch.compile */
    double peak;
    int64_t n; /* steps of ours that were measured: `steps` beside each peer */
    double phases[BENCH_PHASES][ALL_MAX];
    double before[ALL_MAX], after[ALL_MAX]; /* the limit then, FLOP/s of all ranks */
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

static double median(const double *v, int64_t n)
{
    static double sorted[ALL_MAX];

    memcpy(sorted, v, (size_t)n * sizeof *v);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static enum tern_llama_recompute recompute(void)
{
    return !strcmp(recompute_text, "full")        ? TERN_LLAMA_RECOMPUTE_FULL
           : !strcmp(recompute_text, "selective") ? TERN_LLAMA_RECOMPUTE_SELECTIVE
                                                  : TERN_LLAMA_RECOMPUTE_NONE;
}

/* ---------------------------------------------------------------- the limit */

/* Does a unit for bf16 make the model's products? */
static bool by_unit(const struct bench *b)
{
    return b->options.bf16 && strcmp(tern_tensor_bf16_unit(), "fp32") != 0;
}

/* That unit on registers alone, on all ranks at once: FLOP/s of all, the best of three. */
static int unit_limit(struct bench *b, double *out, struct tern_err *err)
{
    enum { TIMES = 3 };

    if (b->options.world && tern_fabric_barrier(b->options.world, err) < 0)
        return -1;
    *out = bench_registers_limit(TIMES) * (double)ranks;
    return 0;
}

/* OpenBLAS's product of two square matrices, on all ranks at once: FLOP/s of all, the median of
 * three. */
static int limit(struct bench *b, double *out, struct tern_err *err)
{
    enum { TIMES = 3 };
    const int side = b->square;
    const size_t n = (size_t)side * (size_t)side;
    tern_real *a = b->squares;
    double t[TIMES];

    if (by_unit(b))
        return unit_limit(b, out, err);
    tern_tensor_gemm_use("openblas");
    for (int i = 0; i < TIMES; i++) {
        if (b->options.world && tern_fabric_barrier(b->options.world, err) < 0)
            return -1;
        t[i] = seconds();
        tern_tensor_gemm(
            &(struct tern_tensor_gemm){.tb = true, .M = side, .N = side, .K = side, .alpha = 1}, a,
            a + n, a + 2 * n);
        if (b->options.world && tern_fabric_barrier(b->options.world, err) < 0)
            return -1;
        t[i] = seconds() - t[i];
    }
    tern_tensor_gemm_use(NULL);
    *out = 2.0 * (double)n * side * (double)ranks / median(t, TIMES);
    return 0;
}

/* ---------------------------------------------------------------- all of it */

/* The full step beside one of adapters, in this process: how much it holds is not known apart. */
static int open_full(struct bench *b, struct peer *p, struct tern_err *err)
{
    struct bench_side_options o = b->options;

    o.adapters.rank = 0;
    p->full = bench_side_open(&o, err);
    if (!p->full)
        return -1;
    snprintf(p->name, sizeof p->name, "tern");
    snprintf(p->setting, sizeof p->setting, "all weights");
    p->flops = bench_side_flops(p->full);
    return 0;
}

static int open_torch(struct bench *b, struct peer *p, const struct bench_torch_mode *mode,
                      struct tern_err *err)
{
    const struct bench_torch_options o = {.config = &b->size->c,
                                          .B = b->size->B,
                                          .T = b->size->T,
                                          .threads = tern_tensor_threads(),
                                          .mode = *mode,
                                          .python = python,
                                          .script = script_text};

    p->torch = bench_torch_open(&o, err);
    if (!p->torch)
        return -1;
    snprintf(p->name, sizeof p->name, "%s", bench_torch_name(p->torch));
    snprintf(p->setting, sizeof p->setting, "%s", bench_torch_setting(p->torch));
    p->flops = bench_side_flops(b->ours);
    return 0;
}

static int peer_step(struct peer *p, double *took, struct tern_err *err)
{
    double phases[BENCH_PHASES];

    if (p->torch)
        return bench_torch_step(p->torch, took, err);
    if (bench_side_step(p->full, phases, err) < 0)
        return -1;
    *took = phases[BENCH_STEP];
    return 0;
}

/* Our steps that are not counted.  They allocate all memory that a step needs.  The limit's
 * matrices come after them and are not counted as a step's; a peer is no part of this process. */
static int warm(struct bench *b, struct tern_err *err)
{
    double took[BENCH_PHASES];
    struct rusage usage;

    for (int i = 0; i < WARM; i++)
        if (bench_side_step(b->ours, took, err) < 0)
            return -1;
    getrusage(RUSAGE_SELF, &usage);
    b->peak = (double)usage.ru_maxrss * 1024;
    b->square = strcmp(b->size->name, "tiny") == 0 ? SQUARE_TINY : SQUARE;
    size_t n = 3 * (size_t)b->square * (size_t)b->square;
    b->squares = tern_alloc(n, sizeof *b->squares, "the limit", err);
    if (!b->squares)
        return -1;
    for (size_t k = 0; k < n; k++)
        b->squares[k] = (tern_real)(k % 13) * 0.1F;
    return 0;
}

/* Steps in turns with a peer (NULL: alone), ours first. */
static int series(struct bench *b, struct peer *p, struct tern_err *err)
{
    double took[BENCH_PHASES], *before = b->before + b->n;

    for (int i = 0; p && i < WARM; i++)
        if (peer_step(p, took, err) < 0)
            return -1;
    for (int64_t i = 0; i < steps; i++) {
        if (limit(b, &before[i], err) < 0)
            return -1;
        if (i > 0)
            b->after[b->n + i - 1] = before[i];
        if (bench_side_step(b->ours, took, err) < 0 || (p && peer_step(p, &p->seconds[i], err) < 0))
            return -1;
        for (int k = 0; k < BENCH_PHASES; k++)
            b->phases[k][b->n + i] = took[k];
    }
    b->n += steps;
    return limit(b, &b->after[b->n - 1], err);
}

/* In turns with one peer, which is there no longer than that.  `mode`: of PyTorch; NULL: we make
 * the step of all weights. */
static int beside(struct bench *b, const struct bench_torch_mode *mode, struct tern_err *err)
{
    struct peer *p = &b->peers[b->n_peers++];

    p->first = b->n;
    int rc = mode ? open_torch(b, p, mode, err) : open_full(b, p, err);
    if (rc == 0)
        rc = series(b, p, err);
    if (p->torch) {
        p->peak = bench_torch_peak_bytes(p->torch);
        b->compiles = bench_torch_compiles(p->torch);
    }
    bench_torch_close(p->torch);
    bench_side_free(p->full);
    return rc;
}

/* One peer after the other: two PyTorchs and we may be more than the machine can hold. */
static int all_series(struct bench *b, struct tern_err *err)
{
    static const struct bench_torch_mode fp32[] = {
        {.tuned = true}, {.tuned = true, .compiled = true}, {.tuned = false}};
    static const struct bench_torch_mode bf16[] = {
        {.tuned = true, .autocast = true},
        {.tuned = true, .autocast = true, .compiled = true},
        {.tuned = true, .compiled = true},
        {.tuned = true}};
    const struct bench_torch_mode *modes = b->options.bf16 ? bf16 : fp32;
    const int n = (int)(b->options.bf16 ? sizeof bf16 / sizeof *bf16 : sizeof fp32 / sizeof *fp32);

    if (!peer_text)
        return series(b, NULL, err);
    if (strcmp(peer_text, "full") == 0)
        return beside(b, NULL, err);
    for (int i = 0; i < (strcmp(peer_text, "torch-tuned") == 0 ? 1 : n); i++)
        if ((!modes[i].compiled || b->compiles) && beside(b, &modes[i], err) < 0)
            return -1;
    return 0;
}

static double tokens_a_step(const struct bench *b)
{
    return (double)b->size->B * b->size->T * (double)(micro_batches * ranks);
}

/* Of n steps that took `times`, beside ours from `first` on: the median share of the limit. */
static double share(const struct bench *b, double flops, const double *times, int64_t first,
                    int64_t n)
{
    static double shares[ALL_MAX];

    for (int64_t i = 0; i < n; i++)
        shares[i] = tokens_a_step(b) * flops / times[i] /
                    ((b->before[first + i] + b->after[first + i]) / 2);
    return median(shares, n);
}

static json_t *peer_json(const struct bench *b, const struct peer *p)
{
    double rate = tokens_a_step(b) / median(p->seconds, steps);
    double ours = tokens_a_step(b) / median(b->phases[BENCH_STEP] + p->first, steps);

    return json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", p->name, "setting", p->setting,
        "tokens_per_second", tern_json_real(rate), "gflops", tern_json_real(rate * p->flops * 1e-9),
        "share", tern_json_real(share(b, p->flops, p->seconds, p->first, steps)), "peak_bytes",
        p->peak > 0 ? tern_json_real(p->peak) : json_null(), "beside_tokens_per_second",
        tern_json_real(ours), "ratio", tern_json_real(ours / rate), "memory_ratio",
        p->peak > 0 ? tern_json_real(b->peak / p->peak) : json_null());
}

static json_t *result(const struct bench *b)
{
    double times[BENCH_PHASES], rate, flops = bench_side_flops(b->ours);
    json_t *phases = json_object(), *peers = json_array();

    for (int p = 0; p < BENCH_PHASES; p++) {
        times[p] = median(b->phases[p], b->n);
        json_object_set_new(phases, phase_names[p], tern_json_real(times[p]));
    }
    rate = tokens_a_step(b) / times[BENCH_STEP];
    for (int p = 0; p < b->n_peers; p++)
        json_array_append_new(peers, peer_json(b, &b->peers[p]));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:o, s:o, s:I, s:i, s:I, s:o, "
                     "s:o, s:o, s:o, s:o, s:o, s:o}",
                     "size", b->size->name, "kernels", tern_tensor_describe(), "precision",
                     precision_text, "unit", by_unit(b) ? tern_tensor_bf16_unit() : "fp32",
                     "limit_of", by_unit(b) ? "registers" : "OpenBLAS", "parameters",
                     (json_int_t)tern_model_params(&b->size->c), "trained",
                     (json_int_t)bench_side_trained(b->ours), "lora", (json_int_t)lora, "dora",
                     (int)dora, "flops_per_token", tern_json_real(flops), "tokens_per_step",
                     tern_json_real(tokens_a_step(b)), "ranks", (json_int_t)ranks, "threads",
                     tern_tensor_threads(), "steps", (json_int_t)b->n, "tokens_per_second",
                     tern_json_real(rate), "gflops", tern_json_real(rate * flops * 1e-9),
                     "limit_gflops", tern_json_real(median(b->before, b->n) * 1e-9), "share",
                     tern_json_real(share(b, flops, b->phases[BENCH_STEP], 0, b->n)), "peak_bytes",
                     tern_json_real(b->peak), "seconds", phases, "peers", peers);
}

static double real(const json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

static void print_peer(const json_t *peer)
{
    printf("%s, %s: tokens/s %.0f   GF/s %.1f   share %.1f %%",
           json_string_value(json_object_get(peer, "name")),
           json_string_value(json_object_get(peer, "setting")), real(peer, "tokens_per_second"),
           real(peer, "gflops"), 100 * real(peer, "share"));
    if (json_is_null(json_object_get(peer, "peak_bytes")))
        printf("   adapters' is %.2f x as fast\n", real(peer, "ratio"));
    else
        printf("   peak %.0f MiB   ours is %.2f x as fast with %.2f of the memory\n",
               real(peer, "peak_bytes") / (1 << 20), real(peer, "ratio"),
               real(peer, "memory_ratio"));
}

static void print_text(const json_t *j)
{
    const json_t *times = json_object_get(j, "seconds"), *peer, *best = NULL;
    size_t i;

    printf("%s, %s by %s: %" JSON_INTEGER_FORMAT
           " parameters, %.1f MFLOP a token, %.0f tokens a step; %s; "
           "%" JSON_INTEGER_FORMAT " rank%s\n",
           json_string_value(json_object_get(j, "size")), precision_text,
           json_string_value(json_object_get(j, "unit")),
           json_integer_value(json_object_get(j, "parameters")), real(j, "flops_per_token") * 1e-6,
           real(j, "tokens_per_step"), json_string_value(json_object_get(j, "kernels")),
           json_integer_value(json_object_get(j, "ranks")), ranks == 1 ? "" : "s");
    if (lora)
        printf("%s of rank %" PRId64 " beside q_proj and v_proj: %" JSON_INTEGER_FORMAT
               " parameters are trained\n",
               dora ? "DoRA" : "LoRA", lora, json_integer_value(json_object_get(j, "trained")));
    printf("tokens/s %.0f   GF/s %.1f   limit (%s) %.1f   share %.1f %%   peak %.0f MiB\n",
           real(j, "tokens_per_second"), real(j, "gflops"),
           json_string_value(json_object_get(j, "limit_of")), real(j, "limit_gflops"),
           100 * real(j, "share"), real(j, "peak_bytes") / (1 << 20));
    for (int p = 0; p < BENCH_PHASES; p++)
        printf("%-10s %9.1f ms\n", phase_names[p], 1e3 * real(times, phase_names[p]));
    json_array_foreach(json_object_get(j, "peers"), i, peer)
    {
        print_peer(peer);
        if (!best || real(peer, "ratio") < real(best, "ratio"))
            best = peer;
    }
    if (i > 1)
        printf("beside the best of these ours is %.2f x as fast\n", real(best, "ratio"));
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
    b->ours = bench_side_open(&b->options, err);
    if (!b->ours || warm(b, err) < 0 || all_series(b, err) < 0)
        return -1;
    return b->options.rank == 0 ? report(b, err) : 0;
}

static int body(const struct tern_fabric_options *o, struct tern_err *err)
{
    static struct bench b;
    struct tern_fabric *fabric = NULL;
    int rc = -1;

    b.size = bench_size_find(size_text);
    b.options = (struct bench_side_options){
        .size = b.size,
        /* As most do: beside q_proj and v_proj. */
        .adapters = {.rank = (int)lora,
                     .targets = 1U | 1U << (TERN_MODEL_V - TERN_MODEL_Q),
                     .scale = 1,
                     .dora = dora,
                     .seed = 1},
        .recompute = recompute(),
        .bf16 = strcmp(precision_text, "bf16") == 0,
        .micro_batches = micro_batches,
        .ranks = ranks,
    };
    if (tern_tensor_start((int)threads, (int)ranks, err) < 0)
        return -1;
    if (o) {
        fabric = tern_fabric_open(o, err);
        if (!fabric)
            return -1;
        b.options.world = tern_fabric_world(fabric);
        b.options.rank = tern_fabric_rank(fabric);
    }
    rc = measure(&b, err);
    bench_side_free(b.ours);
    free(b.squares);
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

static int check_peer(struct tern_err *err)
{
    static const char *const peers[] = {"torch", "torch-tuned", "full", NULL};

    if (!one_of(peer_text, peers))
        return tern_err_set(err, TERN_USAGE, "--peer: '%s' is not torch, torch-tuned or full",
                            peer_text);
    if (strcmp(peer_text, "full") == 0)
        return lora ? 0
                    : tern_err_set(err, TERN_USAGE,
                                   "--peer full: give the adapters' rank with --lora");
    if (ranks > 1 || micro_batches > 1 || lora)
        return tern_err_set(err, TERN_USAGE,
                            "--peer torch: PyTorch makes the steps of one rank and micro-batch, of "
                            "all weights");
    /* Our own steps come first, and may take minutes. */
    char *script = bench_script_find(script_text, BENCH_TORCH_SCRIPT, "torch", "peer-script", err);
    free(script);
    return script ? 0 : -1;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    static const char *const recomputes[] = {"none", "selective", "full", NULL};
    static const char *const precisions[] = {"fp32", "bf16", NULL};

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
    if (peer_text && check_peer(err) < 0)
        return -1;
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
    {"peer", 0, TERN_OPT_TEXT, "PEER", .to.text = &peer_text,
     .help = "torch: PyTorch makes the same steps in turns with us, tuned for this machine, then "
             "compiled, then as shipped (with --precision bf16 by autocast). torch-tuned: in the "
             "first way alone. full, with --lora: we make the step of all weights"},
    {"peer-python", 0, TERN_OPT_TEXT, "PROGRAM", "python3", .to.text = &python,
     .help = "the Python that has torch: an active virtual environment's goes first. A PyTorch "
             "that is not the newest is warned of"},
    {"peer-script", 0, TERN_OPT_TEXT, "FILE", .to.text = &script_text,
     .help = "tests/bench/train_torch.py, where it is not in the source beside this program"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

const struct tern_cmd bench_train = {
    .name = "train",
    .summary = "time training steps, by phase and in share of what matrix products allow",
    .about =
        "A step is forward, backward, clipping and AdamW on random tokens. FLOPs are those of "
        "matrix products and of the half of attention that is not masked; a frozen weight "
        "has no gradient. The limit is the rate that OpenBLAS reaches on matrices of 2048 (tiny: "
        "512) between the steps. With --precision bf16 and a unit for it, it is the unit's rate on "
        "registers "
        "alone. The share of a step is its FLOPs by its time by the mean of the limits before and "
        "after it. All numbers are medians; `peak` is the most that was resident.",
    .examples = "tern bench train --size M\n"
                "tern bench train --peer torch --json\n"
                "tern bench train --precision bf16 --peer torch --peer-python venv/bin/python\n"
                "tern bench train --ranks 2 --micro-batches 4\n"
                "tern bench train --size L --lora 16 --precision bf16\n"
                "tern bench train --size M --lora 8 --peer full",
    .opts = options,
    .run = run,
};
