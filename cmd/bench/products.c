/* tern bench products: the model's matrix products, by each kernel that this process could take.
 * What each number is: tests/bench/products.md. */
#include "cmd/bench/bench.h"
#include "cmd/bench/registers.h"
#include "cmd/bench/sizes.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *size_text;
static int64_t times, threads, tokens;
static bool json;

enum {
    TIMES_MAX = 10000,
    TOKENS_MAX = 65536,
    LIMIT_TIMES = 3, /* tries of the limit before each product */
    HEAD_ROWS = 512, /* of logits at a time, as the trainer makes them with 32000 words */
    WEIGHTS = 5,
};

/* The three products of a weight [out,in] with n tokens. */
enum pass { FORWARD, DX, GRAD, PASSES };
static const char *const pass_names[PASSES] = {"forward", "dx", "gradient"};

enum kernel { FP32, OPENBLAS, BF16, KERNELS };
static const char *const kernel_names[KERNELS] = {"fp32", "openblas", "bf16"};

struct weight {
    const char *name;
    int n, in, out, layers; /* tokens; how many such weights a model has */
};

struct bench {
    struct weight weights[WEIGHTS];
    tern_real *x, *dy, *y;                 /* [n,in], [n,out], and a result: the largest of all */
    uint16_t *w;                           /* [out,in] */
    tern_real *wide;                       /* the same */
    double limit;                          /* FLOP/s; 0: no unit for bf16 */
    double best[WEIGHTS][PASSES][KERNELS]; /* seconds */
};

static int smaller(int a, int64_t b)
{
    return a < b ? a : (int)b;
}

static void list_weights(struct bench *b, const struct bench_size *s)
{
    const struct tern_model_config *c = &s->c;
    int n = tokens ? (int)tokens : s->B * s->T, D = c->head_dim;
    const struct weight weights[WEIGHTS] = {
        {"qkv", n, c->dim, (c->heads + 2 * c->kv_heads) * D, c->layers},
        {"o", n, c->heads * D, c->dim, c->layers},
        {"gate_up", n, c->dim, 2 * c->ffn, c->layers},
        {"down", n, c->ffn, c->dim, c->layers},
        {"head", smaller(HEAD_ROWS, n), c->dim, c->vocab, (n + HEAD_ROWS - 1) / HEAD_ROWS},
    };

    memcpy(b->weights, weights, sizeof weights);
}

/* Numbers of bf16 of both signs, from -1 to 1. */
static int prepare(struct bench *b, struct tern_err *err)
{
    size_t x = 0, dy = 0, w = 0;

    for (int i = 0; i < WEIGHTS; i++) {
        const struct weight *at = &b->weights[i];
        size_t n = (size_t)at->n, in = (size_t)at->in, out = (size_t)at->out;

        x = n * in > x ? n * in : x;
        dy = n * out > dy ? n * out : dy;
        w = in * out > w ? in * out : w;
    }
    size_t y = w > dy ? w : dy;
    y = x > y ? x : y;
    b->x = tern_alloc(x, sizeof *b->x, "inputs", err);
    b->dy = b->x ? tern_alloc(dy, sizeof *b->dy, "gradients", err) : NULL;
    b->wide = b->dy ? tern_alloc(w, sizeof *b->wide, "weights", err) : NULL;
    b->w = b->wide ? tern_alloc(w, sizeof *b->w, "weights in bf16", err) : NULL;
    b->y = b->w ? tern_alloc(y, sizeof *b->y, "results", err) : NULL;
    if (!b->y)
        return -1;
    for (size_t i = 0; i < x; i++)
        b->x[i] = (tern_real)((int)(i * 7919 % 257) - 128) / 128;
    for (size_t i = 0; i < dy; i++)
        b->dy[i] = (tern_real)((int)(i * 6271 % 257) - 128) / 128;
    for (size_t i = 0; i < w; i++)
        b->wide[i] = (tern_real)((int)(i * 4513 % 257) - 128) / 128;
    for (size_t i = 0; i < y; i++)
        b->y[i] = 0;
    tern_tensor_round_bf16(b->wide, b->w, w);
    return 0;
}

/* As core/llama/linear.c has it. */
static void product(struct bench *b, const struct weight *w, enum pass pass, enum kernel kernel)
{
    struct tern_tensor_gemm g = {.alpha = 1, .rounded = kernel == BF16};
    const tern_real *a = pass == FORWARD ? b->x : b->dy;

    if (pass == GRAD) {
        g.ta = true, g.M = w->out, g.N = w->in, g.K = w->n, g.beta = 1;
        tern_tensor_gemm(&g, a, b->x, b->y);
        return;
    }
    g.tb = pass == FORWARD, g.M = w->n;
    g.N = pass == FORWARD ? w->out : w->in;
    g.K = pass == FORWARD ? w->in : w->out;
    if (kernel == BF16)
        tern_tensor_gemm_bf16(&g, a, b->w, b->y);
    else
        tern_tensor_gemm(&g, a, b->wide, b->y);
}

static double flops_of(const struct weight *w)
{
    return 2.0 * w->n * w->in * w->out;
}

/* The kernels in turns: the best time of each. */
static void measure(struct bench *b, int weight, enum pass pass)
{
    for (int64_t t = 0; t < times; t++)
        for (int k = 0; k < KERNELS; k++) {
            if (k == BF16 && b->limit == 0)
                continue;
            tern_tensor_gemm_use(k == OPENBLAS ? "openblas" : NULL);
            int64_t began = tern_clock_boot_ns();
            product(b, &b->weights[weight], pass, (enum kernel)k);
            double took = (double)(tern_clock_boot_ns() - began + 1) * 1e-9;
            double *best = &b->best[weight][pass][k];
            *best = t == 0 || took < *best ? took : *best;
        }
    tern_tensor_gemm_use(NULL);
}

static void find_limit(struct bench *b)
{
    double now = bench_registers_limit(LIMIT_TIMES);

    b->limit = now > b->limit ? now : b->limit;
}

/* Rates in GF/s, or null, and bf16's share of the limit. */
static json_t *rates(const struct bench *b, double flops, const double seconds[KERNELS])
{
    json_t *j = json_object();

    for (int k = 0; k < KERNELS; k++)
        json_object_set_new(j, kernel_names[k],
                            seconds[k] > 0 ? tern_json_real(flops / seconds[k] * 1e-9)
                                           : json_null());
    json_object_set_new(j, "share",
                        seconds[BF16] > 0 ? tern_json_real(flops / seconds[BF16] / b->limit)
                                          : json_null());
    json_object_set_new(j, "ratio",
                        seconds[BF16] > 0 ? tern_json_real(seconds[FP32] / seconds[BF16])
                                          : json_null());
    return j;
}

static json_t *result(const struct bench *b)
{
    json_t *rows = json_array();
    double flops = 0, seconds[KERNELS] = {0};

    for (int i = 0; i < WEIGHTS; i++)
        for (int p = 0; p < PASSES; p++) {
            const struct weight *w = &b->weights[i];
            json_t *row = rates(b, flops_of(w), b->best[i][p]);

            json_object_set_new(row, "weight", json_string(w->name));
            json_object_set_new(row, "product", json_string(pass_names[p]));
            json_object_set_new(row, "shape", json_pack("[i,i,i]", w->n, w->in, w->out));
            json_array_append_new(rows, row);
            flops += w->layers * flops_of(w);
            for (int k = 0; k < KERNELS; k++)
                seconds[k] += w->layers * b->best[i][p][k];
        }
    return json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:o}", "size", size_text, "kernels",
                     tern_tensor_describe(), "unit", tern_tensor_bf16_unit(), "threads",
                     tern_tensor_threads(), "limit_gflops",
                     b->limit > 0 ? tern_json_real(b->limit * 1e-9) : json_null(), "products", rows,
                     "model", rates(b, flops, seconds));
}

static void print_rates(const json_t *j)
{
    for (int k = 0; k < KERNELS; k++) {
        const json_t *rate = json_object_get(j, kernel_names[k]);

        if (json_is_null(rate))
            printf(" %9s", "-");
        else
            printf(" %9.1f", json_number_value(rate));
    }
    const json_t *share = json_object_get(j, "share");
    if (!json_is_null(share))
        printf(" %7.2f %6.1f %%", json_number_value(json_object_get(j, "ratio")),
               100 * json_number_value(share));
    printf("\n");
}

static void print_text(const json_t *j)
{
    const json_t *row, *limit = json_object_get(j, "limit_gflops");
    size_t i;

    printf("%s: %s; unit for bf16: %s\n", json_string_value(json_object_get(j, "size")),
           json_string_value(json_object_get(j, "kernels")),
           json_string_value(json_object_get(j, "unit")));
    if (!json_is_null(limit))
        printf("limit of the unit for bf16: %.1f GF/s\n", json_number_value(limit));
    printf("%-8s %-9s %-17s %9s %9s %9s %7s %8s\n", "weight", "product", "tokens in out",
           "fp32 GF/s", "openblas", "bf16", "by fp32", "of limit");
    json_array_foreach(json_object_get(j, "products"), i, row)
    {
        const json_t *shape = json_object_get(row, "shape");
        char text[40];

        snprintf(text, sizeof text, "%d %d %d", (int)json_integer_value(json_array_get(shape, 0)),
                 (int)json_integer_value(json_array_get(shape, 1)),
                 (int)json_integer_value(json_array_get(shape, 2)));
        printf("%-8s %-9s %-17s", json_string_value(json_object_get(row, "weight")),
               json_string_value(json_object_get(row, "product")), text);
        print_rates(row);
    }
    printf("%-36s", "a step's products");
    print_rates(json_object_get(j, "model"));
}

static int run(int n_args, char **args, struct tern_err *err)
{
    static struct bench b;
    const struct bench_size *size = bench_size_find(size_text);
    int rc = -1;

    (void)n_args;
    (void)args;
    if (!size)
        return tern_err_set(err, TERN_USAGE, "--size: '%s' is not S, M, L or tiny", size_text);
    if (times < 1 || times > TIMES_MAX || threads < 1 || threads > 1024 || tokens < 0 ||
        tokens > TOKENS_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "from 1 to %d --times and 1024 --threads, at most %d --tokens",
                            TIMES_MAX, TOKENS_MAX);
    if (tern_tensor_start((int)threads, 1, err) < 0)
        return -1;
    list_weights(&b, size);
    if (prepare(&b, err) == 0) {
        for (int i = 0; i < WEIGHTS; i++)
            for (int p = 0; p < PASSES; p++) {
                if (strcmp(tern_tensor_bf16_unit(), "fp32") != 0)
                    find_limit(&b);
                measure(&b, i, (enum pass)p);
            }
        json_t *j = result(&b);
        rc = j ? 0 : tern_err_set(err, TERN_FAILED, "no memory for the result");
        if (j && json)
            rc = tern_json_print(stdout, j, err);
        else if (j)
            print_text(j);
        json_decref(j);
    }
    free(b.x), free(b.dy), free(b.wide), free(b.w), free(b.y);
    return rc;
}

static const struct tern_opt options[] = {
    {"size", 's', TERN_OPT_TEXT, "S|M|L|tiny", "S", .to.text = &size_text,
     .help = "the model whose products are made, as of tern bench train"},
    {"tokens", 0, TERN_OPT_INT, "N", "0", .to.integer = &tokens,
     .help = "tokens at a time; 0: those of a micro-batch. On a busy machine few are better: the "
             "best of many short products is what the machine can do"},
    {"times", 'n', TERN_OPT_INT, "N", "10", .to.integer = &times,
     .help = "times that each product is made; the best one counts"},
    {"threads", 't', TERN_OPT_INT, "N", "1", .to.integer = &threads, .help = "threads"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

const struct tern_cmd bench_products = {
    .name = "products",
    .summary = "time a model's matrix products by each kernel, in share of the bf16 unit's limit",
    .about = "The products of each weight with a micro-batch of tokens: forward, and both "
             "gradients. Kernels take turns: fp32 is what the trainer computes with, openblas is "
             "OpenBLAS, bf16 is what the trainer computes with under precision: bf16. The limit is "
             "the best rate of the CPU's unit for bf16 on registers alone, measured between the "
             "products on as many threads. The last line is of all products of a step.",
    .examples = "tern bench products --size M\n"
                "tern bench products --size S --tokens 256 --times 100 --json",
    .opts = options,
    .run = run,
};
