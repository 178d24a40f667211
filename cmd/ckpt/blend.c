/* tern ckpt blend: several models become one. */
#include "cmd/ckpt/blend.h"
#include "cmd/ckpt/export.h"

#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/convert/blend.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *out, *method, *base, *weights, *densities, *t, *lambda, *normalize, *rescale, *seed;
    const char *dtype, *max_shard, *tokenizer;
    int64_t threads;
    bool int8_mask, verify;
} o;

static volatile sig_atomic_t interrupted;

static void interrupt(int sig)
{
    interrupted = sig;
}

/* ------------------------------------------------------------------ methods */

enum {
    WEIGHT = 1,
    DENSITY = 2,
    BASE = 4,
    T = 8,
    LAMBDA = 16,
    NORMALIZE = 32,
    RESCALE = 64,
    SEED = 128,
    INT8_MASK = 256,
    TIES = BASE | WEIGHT | DENSITY | LAMBDA | NORMALIZE | INT8_MASK,
};

static const struct method {
    const char *name;
    enum tern_convert_blend_method method;
    unsigned has; /* options */
    bool normalize;
} methods[] = {
    {"linear", TERN_CONVERT_BLEND_LINEAR, WEIGHT | NORMALIZE, true},
    {"slerp", TERN_CONVERT_BLEND_SLERP, T, false},
    {"ties", TERN_CONVERT_BLEND_TIES, TIES, true},
    {"dare_linear", TERN_CONVERT_BLEND_DARE_LINEAR, TIES | RESCALE | SEED, false},
    {"dare_ties", TERN_CONVERT_BLEND_DARE_TIES, TIES | RESCALE | SEED, false},
};

/* The method, which has the options that were given. */
static const struct method *parse_method(struct tern_err *err)
{
    const struct {
        const char *name;
        unsigned bit;
        bool given;
    } options[] = {
        {"weight", WEIGHT, o.weights},
        {"density", DENSITY, o.densities},
        {"base", BASE, o.base},
        {"t", T, o.t},
        {"lambda", LAMBDA, o.lambda},
        {"normalize", NORMALIZE, o.normalize},
        {"rescale", RESCALE, o.rescale},
        {"seed", SEED, o.seed},
        {"int8-mask", INT8_MASK, o.int8_mask},
    };
    const struct method *m = methods, *end = methods + sizeof methods / sizeof *methods;

    while (m < end && strcmp(m->name, o.method) != 0)
        m++;
    if (m == end) {
        tern_err_set(err, TERN_USAGE,
                     "--method: '%s' is none of linear, slerp, ties, dare_linear, dare_ties",
                     o.method);
        return NULL;
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (options[i].given && !(m->has & options[i].bit)) {
            tern_err_set(err, TERN_USAGE, "--%s: does not go with --method %s", options[i].name,
                         m->name);
            return NULL;
        }
    }
    return m;
}

/* ------------------------------------------------------------------ values */

static int parse_real(const char *option, const char *text, double otherwise, double *ret_value,
                      struct tern_err *err)
{
    if (text && tern_str_real(text, -1e30, 1e30, ret_value) < 0)
        return tern_err_set(err, TERN_USAGE, "--%s: '%s' is no number", option, text);
    if (!text)
        *ret_value = otherwise;
    return 0;
}

static int parse_yes(const char *option, const char *text, bool otherwise, bool *ret_value,
                     struct tern_err *err)
{
    const bool yes = text && strcmp(text, "yes") == 0;

    if (text && !yes && strcmp(text, "no") != 0)
        return tern_err_set(err, TERN_USAGE, "--%s: '%s' is neither yes nor no", option, text);
    *ret_value = text ? yes : otherwise;
    return 0;
}

/* "0.7,0.3" to as many values as there are models; one value is that of all, none is 1. */
static int parse_list(const char *option, const char *text, size_t n, double *ret_values,
                      struct tern_err *err)
{
    char *copy = tern_strdup(text ? text : "1"), *save = NULL;
    size_t got = 0;
    int rc = 0;

    for (char *w = strtok_r(copy, ",", &save); w && rc == 0; w = strtok_r(NULL, ",", &save)) {
        double v;
        rc = parse_real(option, w, 0, &v, err);
        if (rc == 0 && got < n)
            ret_values[got] = v;
        got++;
    }
    free(copy);
    for (size_t i = 1; got == 1 && i < n; i++)
        ret_values[i] = ret_values[0];
    if (rc == 0 && got != 1 && got != n)
        return tern_err_set(err, TERN_USAGE,
                            "--%s: %zu values for %zu models; give one a model, by commas, or one "
                            "for all",
                            option, got, n);
    return rc;
}

static int parse_values(const struct method *m, size_t n, struct tern_convert_blend_model *models,
                        struct tern_convert_blend *b, struct tern_err *err)
{
    double weights[TERN_CONVERT_BLEND_MODELS], densities[TERN_CONVERT_BLEND_MODELS];
    int64_t seed = 0;

    if (n > TERN_CONVERT_BLEND_MODELS)
        return tern_err_set(err, TERN_USAGE, "%zu models; allowed are %d", n,
                            TERN_CONVERT_BLEND_MODELS);
    if (!o.out)
        return tern_err_set(err, TERN_USAGE, "--out: say where to write");
    if (o.threads > 1024)
        return tern_err_set(err, TERN_USAGE, "--threads %lld; allowed are 0 to 1024",
                            (long long)o.threads);
    if (o.seed && tern_str_int(o.seed, 0, INT64_MAX, &seed) < 0)
        return tern_err_set(err, TERN_USAGE, "--seed: '%s' is no whole number from 0 on", o.seed);
    if (parse_list("weight", o.weights, n, weights, err) < 0 ||
        parse_list("density", o.densities, n, densities, err) < 0 ||
        parse_real("t", o.t, 0.5, &b->t, err) < 0 ||
        parse_real("lambda", o.lambda, 1, &b->lambda, err) < 0 ||
        parse_yes("normalize", o.normalize, m->normalize, &b->normalize, err) < 0 ||
        parse_yes("rescale", o.rescale, true, &b->rescale, err) < 0 ||
        ckpt_parse_dtype(o.dtype, &b->out.dtype, err) < 0 ||
        ckpt_parse_max_shard(o.max_shard, &b->out.max_shard_bytes, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        models[i].weight = weights[i];
        models[i].density = densities[i];
    }
    b->method = m->method;
    b->models = models;
    b->n = n;
    b->seed = (uint64_t)seed;
    b->threads = (int)o.threads;
    b->out.files_from = o.tokenizer;
    return 0;
}

/* ------------------------------------------------------------------ the command */

static int write_blend(struct tern_convert_blend *b, const struct method *m, struct tern_err *err)
{
    struct tern_convert_out done;
    char bytes[32];

    b->progress = tern_progress_show;
    b->out.stop = &interrupted;
    b->out.verify = o.verify;
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    tern_progress_begin("elements", "%s", o.out);
    int rc = tern_convert_blend(b, o.out, &done, err);
    tern_progress_end();
    if (rc < 0)
        return interrupted ? (fprintf(stderr, "tern ckpt: %s\n", err->text), 128 + interrupted)
                           : -1;
    fprintf(stderr, "%s: %s of %zu model%s, %u tensors, %s in %u file%s%s\n", o.out, m->name, b->n,
            b->n > 1 ? "s" : "", done.tensors, tern_str_bytes(bytes, sizeof bytes, done.bytes),
            done.shards, done.shards > 1 ? "s" : "",
            done.tokenizer ? "" : "; no tokenizer was found (see --tokenizer)");
    return 0;
}

static int blend_run(int n_args, char **args, struct tern_err *err)
{
    struct tern_convert_blend_model models[TERN_CONVERT_BLEND_MODELS] = {0};
    struct tern_convert_blend b = {0};
    const struct method *m = parse_method(err);
    char *paths[TERN_CONVERT_BLEND_MODELS + 1] = {0};
    size_t n = (size_t)n_args;
    int rc = m ? parse_values(m, n, models, &b, err) : -1;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = tern_ckpt_resolve(args[i], &paths[i], err);
        models[i].path = paths[i];
    }
    if (rc == 0 && o.base) {
        rc = tern_ckpt_resolve(o.base, &paths[TERN_CONVERT_BLEND_MODELS], err);
        b.base = paths[TERN_CONVERT_BLEND_MODELS];
    }
    if (rc == 0)
        rc = write_blend(&b, m, err);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        free(paths[i]);
    return rc;
}

static const struct tern_opt blend_opts[] = {
    {"out", 'o', TERN_OPT_TEXT, "DIR", .to.text = &o.out, .help = "the new folder"},
    {"method", 'm', TERN_OPT_TEXT, "NAME", "linear", .to.text = &o.method,
     .help = "linear, slerp, ties, dare_linear or dare_ties"},
    {"base", 0, TERN_OPT_TEXT, "DIR", .to.text = &o.base,
     .help = "ties, dare: the model that all MODELs were trained from"},
    {"weight", 'w', TERN_OPT_TEXT, "LIST", .to.text = &o.weights,
     .help = "all but slerp: a number for each MODEL, by commas, or one for all; default 1"},
    {"density", 0, TERN_OPT_TEXT, "LIST", .to.text = &o.densities,
     .help = "ties, dare: the share of each MODEL's difference that stays, above 0; default 1"},
    {"t", 't', TERN_OPT_TEXT, "SHARE", .to.text = &o.t,
     .help = "slerp: 0 is the first MODEL, 1 the second; default 0.5"},
    {"lambda", 0, TERN_OPT_TEXT, "FACTOR", .to.text = &o.lambda,
     .help = "ties, dare: the sum of differences times this; default 1"},
    {"normalize", 0, TERN_OPT_TEXT, "yes|no", .to.text = &o.normalize,
     .help = "divide by the sum of the weights (ties, dare_ties: of those that count at an "
             "element); default: yes for linear and ties, no for dare"},
    {"rescale", 0, TERN_OPT_TEXT, "yes|no", .to.text = &o.rescale,
     .help = "dare: give what stays of a difference the L1 norm of all of it, where the paper "
             "divides by the density; default yes"},
    {"seed", 0, TERN_OPT_TEXT, "NUMBER", .to.text = &o.seed,
     .help = "dare: chooses the elements that stay; default 0"},
    {"int8-mask", 0, TERN_OPT_FLAG, .to.flag = &o.int8_mask,
     .help = "ties, dare: taken, as mergekit has it, and changes nothing: no mask is stored"},
    {"dtype", 0, TERN_OPT_TEXT, "TYPE", "as-is", .to.text = &o.dtype,
     .help = "element type of the weights: as-is (of the base or the first MODEL), f32, bf16, f16"},
    {"max-shard-size", 0, TERN_OPT_TEXT, "BYTES", CKPT_MAX_SHARD, .to.text = &o.max_shard,
     .help = "begin a new file before one grows beyond this"},
    {"tokenizer", 0, TERN_OPT_TEXT, "PATH", .to.text = &o.tokenizer,
     .help = "take the tokenizer's files from this folder, and do not compare the MODELs'"},
    {"threads", 0, TERN_OPT_INT, "COUNT", "0", .to.integer = &o.threads,
     .help = "threads that compute; 0: one a core. Any number writes the same bytes"},
    {"verify", 0, TERN_OPT_FLAG, .to.flag = &o.verify,
     .help =
         "read each file of weights back from the storage and compare it with what was written"},
    {0},
};

const struct tern_cmd ckpt_blend_cmd = {
    .name = "blend",
    .args = "MODEL...",
    .args_min = 1,
    .args_max = -1,
    .summary = "blend models of one shape into one (linear, slerp, ties, dare)",
    .about =
        "Writes a Hugging Face folder whose weights are made of those of several models. A MODEL "
        "is a checkpoint, DIR/latest, DIR/best, or a folder that `tern ckpt export` takes. Methods "
        "and their options are those of mergekit 0.1.5:\n\n"
        "linear is the mean. slerp goes from the first MODEL to the second along an arc.\n\n"
        "ties keeps of each MODEL's difference from --base the greatest magnitudes, a share "
        "--density of each tensor; of equal ones the first in the tensor. At each element only "
        "differences of the sign that weighs more are added.\n\n"
        "dare_linear and dare_ties keep a random share instead, chosen by --seed, the tensor's "
        "name, the MODEL's place and the element. dare_ties then adds as ties does.\n\n"
        "Config, tokenizer and generation config are those of the base, or else of the first "
        "MODEL. Models that differ in shape, RoPE or vocabulary are refused. About 7 MiB of each "
        "model are in memory at a time. The folder appears whole or not at all, "
        "and the same command goes on with one that was cut off (see export).",
    .examples = "  tern ckpt blend general medical -o mean -w 0.6,0.4\n"
                "  tern ckpt blend general medical -o arc -m slerp -t 0.3\n"
                "  tern ckpt blend cpt sft --base llama -o both -m ties --density 0.3,0.5\n"
                "  tern ckpt blend cpt sft --base llama -o less -m dare_ties --density 0.4\n"
                "  tern eval run.yaml --only --checkpoint both   # both domains: data.held_out\n",
    .opts = blend_opts,
    .run = blend_run,
};
