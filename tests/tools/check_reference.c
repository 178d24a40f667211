/* Compare the model with a dump of an independent trainer
 * (shared/reference/ref_llama/ref_llama.py):
 *
 *     check_reference DIR        prints JSON; exit status 0 within the bounds, 1 beyond, 2 bad dump
 *
 * DIR holds config.json, model.safetensors, tokens.i32 [batches*accum, batch, seq+1],
 * expected.json, and perhaps grads0.safetensors and final.safetensors.  With "precision": "bf16" in
 * its settings the model is, with a master copy.  Built twice: in float, and
 * in double as check_reference-f64. */
#include "core/llama/llama.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IN_DOUBLE (sizeof(tern_real) == sizeof(double))

struct dump {
    const char *dir;
    json_t *expected; /* expected.json */
    json_t *settings; /* its "config" */
    struct tern_model_config model;
    int32_t *tokens;
    int batches, accum, batch, seq, steps;
    bool decay_all;
    bool exact; /* a double dump, and we compute in double */
    bool bf16;
    double clip;
    struct tern_tensor_adamw adamw;
};

/* ---------------------------------------------------------------- safetensors */

struct safetensors {
    char *bytes;
    const char *data;
    size_t data_bytes;
    json_t *header;
};

static void safetensors_free(struct safetensors *s)
{
    free(s->bytes);
    json_decref(s->header);
    *s = (struct safetensors){0};
}

static int safetensors_load(const char *path, struct safetensors *out, struct tern_err *err)
{
    struct safetensors s = {0};
    size_t len;
    uint64_t header;

    if (tern_fs_read(path, (size_t)16 << 30, &s.bytes, &len, err) < 0)
        return -1;
    if (len >= 8)
        memcpy(&header, s.bytes, 8);
    if (len < 8 || header > len - 8) {
        tern_err_set(err, TERN_USAGE, "%s: not a safetensors file, or cut short", path);
        goto fail;
    }
    s.header = tern_json_parse(s.bytes + 8, header, path, err);
    if (!s.header)
        goto fail;
    s.data = s.bytes + 8 + header;
    s.data_bytes = len - 8 - header;
    *out = s;
    return 0;
fail:
    safetensors_free(&s);
    return -1;
}

/* The `count` floats of tensor `name`, not aligned; NULL with `err`. */
static const char *safetensors_find(const struct safetensors *s, const char *path, const char *name,
                                    uint64_t count, struct tern_err *err)
{
    const json_t *t = json_object_get(s->header, name);
    const json_t *at = json_object_get(t, "data_offsets");
    const char *dtype = json_string_value(json_object_get(t, "dtype"));
    uint64_t from = (uint64_t)json_integer_value(json_array_get(at, 0));
    uint64_t to = (uint64_t)json_integer_value(json_array_get(at, 1));

    if (!t || !dtype || strcmp(dtype, "F32") != 0 || to > s->data_bytes || from > to ||
        to - from != count * sizeof(float)) {
        tern_err_set(err, TERN_USAGE, "%s: %s is absent, or not %ju values of F32", path, name,
                     (uintmax_t)count);
        return NULL;
    }
    return s->data + from;
}

static float float_at(const char *data, uint64_t i)
{
    float f;

    memcpy(&f, data + i * sizeof(f), sizeof(f));
    return f;
}

/* ---------------------------------------------------------------- reading the dump */

static double setting(const struct dump *d, const char *key, double def)
{
    const json_t *j = json_object_get(d->settings, key);

    return json_is_number(j) ? json_number_value(j) : def;
}

/* The dump's config.json has no rope_scaling; its settings have. */
static int read_model(struct dump *d, struct tern_err *err)
{
    char *path = tern_fs_join(d->dir, "config.json"), *text = NULL;
    json_t *j = tern_json_load(path, 1 << 20, err), *scaling;
    int rc = -1;

    if (!j)
        goto out;
    scaling = json_object_get(d->settings, "rope_scaling");
    if (json_is_object(scaling)) {
        scaling = json_deep_copy(scaling);
        json_object_set_new(scaling, "rope_type", json_string("llama3"));
        json_object_set_new(j, "rope_scaling", scaling);
    }
    text = json_dumps(j, 0);
    rc = tern_model_config_parse(text, strlen(text), path, &d->model, err);
out:
    free(text);
    json_decref(j);
    free(path);
    return rc;
}

static int read_tokens(struct dump *d, struct tern_err *err)
{
    char *path = tern_fs_join(d->dir, "tokens.i32"), *bytes;
    size_t len, want = (size_t)d->batches * (size_t)d->accum * (size_t)d->batch *
                       (size_t)(d->seq + 1) * sizeof(int32_t);
    int rc = tern_fs_read(path, (size_t)1 << 30, &bytes, &len, err);

    if (rc == 0 && len != want) {
        free(bytes);
        rc =
            tern_err_set(err, TERN_USAGE, "%s: %zu bytes; the settings imply %zu", path, len, want);
    } else if (rc == 0) {
        d->tokens = (int32_t *)(void *)bytes;
    }
    free(path);
    return rc;
}

static int read_dump(struct dump *d, struct tern_err *err)
{
    char *path = tern_fs_join(d->dir, "expected.json");
    const char *mode, *decay;

    d->expected = tern_json_load(path, 64 << 20, err);
    free(path);
    if (!d->expected)
        return -1;
    d->settings = json_object_get(d->expected, "config");
    mode = json_string_value(json_object_get(d->settings, "mode"));
    if (!d->settings || (mode && strcmp(mode, "full") != 0) || setting(d, "ddp", 0) != 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s/expected.json: only dumps of mode \"full\" from one process",
                            d->dir);
    d->batches = (int)setting(d, "batches", 1);
    d->accum = (int)setting(d, "accum", 1);
    d->batch = (int)setting(d, "batch", 1);
    d->seq = (int)setting(d, "seq", 1);
    d->steps = (int)setting(d, "steps", 1);
    d->clip = setting(d, "clip", 1);
    decay = json_string_value(json_object_get(d->settings, "decay"));
    d->decay_all = decay && strcmp(decay, "all") == 0;
    d->adamw = (struct tern_tensor_adamw){
        .lr = setting(d, "lr", 3e-4),
        .beta1 = setting(d, "beta1", 0.9),
        .beta2 = setting(d, "beta2", 0.95),
        .eps = setting(d, "eps", 1e-8),
        .weight_decay = setting(d, "wd", 0.1),
    };
    if (d->batches < 1 || d->accum < 1 || d->batch < 1 || d->seq < 1 || d->steps < 1)
        return tern_err_set(err, TERN_USAGE, "%s/expected.json: sizes below 1", d->dir);
    return read_model(d, err) < 0 || read_tokens(d, err) < 0 ? -1 : 0;
}

static int read_params(const struct dump *d, tern_real *params, struct tern_err *err)
{
    char *path = tern_fs_join(d->dir, "model.safetensors");
    struct safetensors s = {0};
    int rc = safetensors_load(path, &s, err);

    for (size_t i = 0; rc == 0 && i < tern_model_tensors(&d->model); i++) {
        struct tern_model_tensor t;
        const char *data;

        tern_model_tensor(&d->model, i, &t);
        data = safetensors_find(&s, path, t.name, t.count, err);
        for (uint64_t e = 0; data && e < t.count; e++)
            params[t.offset + e] = float_at(data, e);
        rc = data ? 0 : -1;
    }
    safetensors_free(&s);
    free(path);
    return rc;
}

/* ---------------------------------------------------------------- comparing */

struct report {
    json_t *root;
    double loss_bound, grad_bound, tensor_bound, params_bound;
    bool pass;
};

static double relative(double got, double want)
{
    return got == want ? 0 : fabs(got - want) / fabs(want);
}

/* Keeps the largest; NaN counts as infinite. */
static void largest(double *of, double x)
{
    if (!(x <= *of))
        *of = isnan(x) ? INFINITY : x;
}

static void judge(struct report *r, const char *what, double difference, double bound)
{
    bool good = difference <= bound;

    json_object_set_new(json_object_get(r->root, "largest_differences"), what,
                        json_pack("{s:o, s:f, s:b}", "difference", tern_json_real(difference),
                                  "bound", bound, "ok", good));
    r->pass = r->pass && good;
}

/* Two lists of numbers, the second from the dump. */
static void judge_list(struct report *r, const char *what, const double *got, const json_t *want,
                       int n, double bound)
{
    json_t *list = json_array();
    double worst = json_array_size(want) == (size_t)n ? 0 : INFINITY;

    for (int i = 0; i < n; i++) {
        double w = json_number_value(json_array_get(want, (size_t)i));

        largest(&worst, relative(got[i], w));
        json_array_append_new(list,
                              json_pack("{s:o, s:f, s:o}", "got", tern_json_real(got[i]), "want", w,
                                        "relative", tern_json_real(relative(got[i], w))));
    }
    json_object_set_new(r->root, what, list);
    judge(r, what, worst, bound);
}

/* Arrays of all tensors, and the reference's of the same. */
struct compared {
    const char *what; /* in the report */
    const tern_real *have;
    const char *file;  /* the reference's safetensors */
    const char *norms; /* its key in the expected numbers */
    double bound;      /* on the relative difference */
};

/* Every tensor of `have` against a safetensors file of the dump, relative to the tensor's norm,
 * and its norm against expected.json's table `norms`. */
static int judge_tensors(struct report *r, const struct dump *d, const struct compared *c,
                         struct tern_err *err)
{
    const tern_real *have = c->have;
    char *path = tern_fs_join(d->dir, c->file);
    const json_t *table = json_object_get(d->expected, c->norms);
    json_t *list = json_object();
    struct safetensors s = {0};
    double worst = 0, worst_norm = 0;
    bool file_there = tern_fs_exists(path);
    int rc = file_there ? safetensors_load(path, &s, err) : 0;

    for (size_t i = 0; rc == 0 && i < tern_model_tensors(&d->model); i++) {
        struct tern_model_tensor t;
        const char *data = NULL;
        double norm, want, square = 0, diff = 0;
        json_t *row;

        tern_model_tensor(&d->model, i, &t);
        norm = sqrt(tern_tensor_sum_squares(have + t.offset, t.count));
        want = json_number_value(json_object_get(table, t.name));
        row = json_pack("{s:o, s:f, s:o}", "norm", tern_json_real(norm), "want_norm", want,
                        "norm_relative", tern_json_real(relative(norm, want)));
        largest(&worst_norm, relative(norm, want));
        if (file_there && !(data = safetensors_find(&s, path, t.name, t.count, err)))
            rc = -1;
        for (uint64_t e = 0; data && e < t.count; e++) {
            double w = float_at(data, e), delta = (double)have[t.offset + e] - w;

            square += w * w;
            diff += delta * delta;
        }
        if (data) {
            diff = diff == 0 ? 0 : sqrt(diff / square);
            largest(&worst, diff);
            json_object_set_new(row, "difference", tern_json_real(diff));
        }
        json_object_set_new(list, t.name, row);
    }
    if (rc == 0) {
        char *name = tern_strf("%s_norms", c->what);

        json_object_set(r->root, c->what, list);
        judge(r, name, worst_norm, r->grad_bound);
        if (file_there)
            judge(r, c->what, worst, c->bound);
        free(name);
    }
    json_decref(list);
    safetensors_free(&s);
    free(path);
    return rc;
}

/* ---------------------------------------------------------------- training */

/* Set inputs[B,T] and targets[B,T] from rows of T+1. */
static void cut_batch(const struct dump *d, int i, int32_t *inputs, int32_t *targets)
{
    const int32_t *rows = d->tokens + (size_t)i * (size_t)d->batch * (size_t)(d->seq + 1);

    for (int b = 0; b < d->batch; b++) {
        const int32_t *row = rows + (size_t)b * (size_t)(d->seq + 1);

        memcpy(inputs + (size_t)b * (size_t)d->seq, row, (size_t)d->seq * sizeof(*row));
        memcpy(targets + (size_t)b * (size_t)d->seq, row + 1, (size_t)d->seq * sizeof(*row));
    }
}

struct trainer {
    struct tern_llama *m;
    tern_real *params; /* the model's, or the master copy */
    tern_real *master; /* or NULL */
    tern_real *exp_avg, *exp_avg_sq;
    int32_t *inputs, *targets;
    double *losses, *norms;
};

static int accumulate(const struct dump *d, struct trainer *t, int step, struct tern_err *err)
{
    double n = (double)d->batch * d->seq;

    t->losses[step] = 0;
    tern_llama_grads_zero(t->m);
    for (int a = 0; a < d->accum; a++) {
        struct tern_llama_loss loss;

        cut_batch(d, step % d->batches * d->accum + a, t->inputs, t->targets);
        if (tern_llama_step(
                t->m,
                &(struct tern_llama_batch){
                    .tokens = t->inputs, .targets = t->targets, .B = d->batch, .T = d->seq},
                1 / (n * d->accum), &loss, err) < 0)
            return -1;
        t->losses[step] += loss.sum / n / d->accum;
    }
    return 0;
}

/* Of all gradients at step 0: the dump has each tensor's norm in double. */
static double norm_in_double(const struct dump *d)
{
    json_t *norms = json_object_get(d->expected, "grad_norm_by_tensor_step0"), *norm;
    double square = 0;
    const char *name;

    json_object_foreach(norms, name, norm)
    {
        square += json_number_value(norm) * json_number_value(norm);
    }
    return sqrt(square);
}

/* PyTorch sums a float tensor's norm in floats: 1e-3 off at ten million elements.  What it is off
 * by at step 0 is known, from the norms in double beside it. */
static double norm_error(const struct dump *d)
{
    const json_t *list = json_object_get(d->expected, "grad_norms");

    return relative(json_number_value(json_array_get(list, 0)), norm_in_double(d));
}

/* The norm to clip by.  That error is not ours to follow from step to step: a float dump's steps
 * are repeated with its own norms, which are compared with ours apart. */
static double clip_norm(const struct dump *d, double ours, int step)
{
    const json_t *list = json_object_get(d->expected, "grad_norms");
    double theirs = json_number_value(json_array_get(list, (size_t)step));

    return d->exact || !(theirs > 0) ? ours : theirs;
}

/* The parameters become what bf16 has of the master copy. */
static void spread(struct trainer *t)
{
    uint64_t count;
    uint16_t *to = tern_llama_params_bf16(t->m, &count);

    if (t->master)
        tern_tensor_to_bf16(to, t->master, count);
}

static void update(const struct dump *d, struct trainer *t, int step)
{
    uint64_t count;
    tern_real *p = t->params, *g = tern_llama_grads(t->m, &count);
    struct tern_tensor_adamw o = d->adamw;

    t->norms[step] = sqrt(tern_tensor_sum_squares(g, count));
    o.step = (uint64_t)step + 1;
    o.grad_scale = d->clip > 0 ? fmin(1, d->clip / (clip_norm(d, t->norms[step], step) + 1e-6)) : 1;
    for (size_t i = 0; i < tern_model_tensors(&d->model); i++) {
        struct tern_model_tensor w;

        tern_model_tensor(&d->model, i, &w);
        o.weight_decay = d->decay_all || w.ndim >= 2 ? d->adamw.weight_decay : 0;
        tern_tensor_adamw(&o, p + w.offset, g + w.offset, t->exp_avg + w.offset,
                          t->exp_avg_sq + w.offset, w.count);
    }
    spread(t);
}

static int compare(const struct dump *d, struct trainer *t, struct report *r, struct tern_err *err)
{
    struct tern_llama_loss after;
    double n = (double)d->batch * d->seq, loss_after;

    for (int i = 0; i < d->steps; i++) {
        if (accumulate(d, t, i, err) < 0)
            return -1;
        if (i == 0 &&
            judge_tensors(r, d,
                          &(struct compared){"gradients", tern_llama_grads(t->m, NULL),
                                             "grads0.safetensors", "grad_norm_by_tensor_step0",
                                             r->tensor_bound},
                          err) < 0)
            return -1;
        update(d, t, i);
    }
    cut_batch(d, 0, t->inputs, t->targets);
    if (tern_llama_loss(t->m,
                        &(struct tern_llama_batch){
                            .tokens = t->inputs, .targets = t->targets, .B = d->batch, .T = d->seq},
                        &after, err) < 0)
        return -1;
    loss_after = after.sum / n;
    judge(r, "loss_initial",
          relative(t->losses[0],
                   json_number_value(json_array_get(json_object_get(d->expected, "losses"), 0))),
          r->loss_bound);
    judge(r, "grad_norm_initial", relative(t->norms[0], norm_in_double(d)), r->grad_bound);
    judge_list(r, "losses", t->losses, json_object_get(d->expected, "losses"), d->steps,
               r->loss_bound);
    judge_list(r, "grad_norms", t->norms, json_object_get(d->expected, "grad_norms"), d->steps,
               r->grad_bound + 10 * norm_error(d));
    judge(r, "loss_after",
          relative(loss_after, json_number_value(json_object_get(d->expected, "loss_after"))),
          r->loss_bound);
    json_object_set_new(r->root, "loss_after", json_real(loss_after));
    return judge_tensors(r, d,
                         &(struct compared){"params_after", t->params, "final.safetensors",
                                            "param_norm_by_tensor_final", r->params_bound},
                         err);
}

static int run(const struct dump *d, struct report *r, struct tern_err *err)
{
    struct trainer t = {0};
    size_t tokens = (size_t)d->batch * (size_t)d->seq, n = (size_t)tern_model_params(&d->model);
    int rc = -1;

    const struct tern_llama_options o = {.config = &d->model,
                                         .max_batch = d->batch,
                                         .seq_len = d->seq,
                                         .training = true,
                                         .bf16 = d->bf16};
    t.m = tern_llama_open(&o, err);
    if (d->bf16)
        t.master = tern_alloc(n, sizeof(tern_real), "the master copy", err);
    t.params = t.m && !d->bf16 ? tern_llama_params(t.m, NULL) : t.master;
    t.exp_avg = tern_alloc(n, sizeof(tern_real), "moments", err);
    t.exp_avg_sq = tern_alloc(n, sizeof(tern_real), "moments", err);
    t.inputs = tern_alloc(tokens, sizeof(int32_t), "tokens", err);
    t.targets = tern_alloc(tokens, sizeof(int32_t), "tokens", err);
    t.losses = tern_alloc((size_t)d->steps, sizeof(double), "losses", err);
    t.norms = tern_alloc((size_t)d->steps, sizeof(double), "norms", err);
    if (t.m && t.params && t.exp_avg && t.exp_avg_sq && t.inputs && t.targets && t.losses &&
        t.norms && read_params(d, t.params, err) == 0) {
        spread(&t);
        rc = compare(d, &t, r, err);
    }
    tern_llama_free(t.m);
    free(t.master);
    free(t.exp_avg);
    free(t.exp_avg_sq);
    free(t.inputs);
    free(t.targets);
    free(t.losses);
    free(t.norms);
    return rc;
}

int main(int argc, char **argv)
{
    struct dump d = {.dir = argc == 2 ? argv[1] : NULL};
    struct report r = {.root = json_object(), .pass = true};
    struct tern_err err = {0};
    const char *dtype;

    if (!d.dir) {
        fprintf(stderr, "usage: check_reference DIR\n");
        return 2;
    }
    if (tern_tensor_start(0, 1, &err) < 0 || read_dump(&d, &err) < 0)
        goto bad;
    /* Double against double agrees to rounding; a dump's own floats limit every other pair. */
    dtype = json_string_value(json_object_get(d.settings, "dtype"));
    d.bf16 = json_object_get(d.settings, "precision") != NULL;
    d.exact = IN_DOUBLE && dtype && strcmp(dtype, "float64") == 0;
    r.loss_bound = d.exact ? 1e-9 : 1e-6;
    r.grad_bound = d.exact ? 1e-9 : 1e-5;
    /* The dump stores tensors as floats: half a unit in the last place is 6e-8. */
    r.tensor_bound = d.exact ? 1e-7 : 1e-5;
    /* Adam divides by the gradient's size: where it is all rounding error, so is the step. */
    r.params_bound = d.exact ? 1e-7 : 1e-4;
    /* A rounding to bf16 is 1.6e-3 off in the mean.  Each way PyTorch makes some 25 a layer, we
     * make 9: of 6 layers sqrt(12 * 34) of them, 3e-2, stand between two gradients, and twice that
     * for what is not independent.  A loss is the mean of many tokens; a step of lr 1e-2 is a tenth
     * of such a weight, and goes astray where its gradient is all rounding error. */
    if (d.bf16 && !d.exact) {
        r.loss_bound = 5e-3;
        r.grad_bound = 3e-2;
        r.tensor_bound = 6e-2;
        r.params_bound = 5e-2;
    }
    json_object_set_new(r.root, "precision", json_string(IN_DOUBLE ? "fp64" : "fp32"));
    json_object_set_new(r.root, "reference", json_string(dtype ? dtype : "float32"));
    json_object_set_new(r.root, "computed_with", json_string(tern_tensor_describe()));
    json_object_set_new(r.root, "largest_differences", json_object());
    if (run(&d, &r, &err) < 0)
        goto bad;
    json_object_set_new(r.root, "pass", json_boolean(r.pass));
    if (tern_json_print(stdout, r.root, &err) < 0)
        goto bad;
    json_decref(r.root);
    json_decref(d.expected);
    free(d.tokens);
    return r.pass ? 0 : 1;
bad:
    fprintf(stderr, "check_reference: %s\n", err.text);
    json_decref(r.root);
    json_decref(d.expected);
    free(d.tokens);
    return 2;
}
