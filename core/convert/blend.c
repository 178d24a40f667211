/* Blends of models: what is asked for, and the folder that it is written to. */
#include "core/convert/blend.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/convert/blend_models.h"
#include "core/convert/blend_pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct blend {
    const struct tern_convert_blend *b;
    struct tern_convert_export *x; /* [n]: the base, if there is one, then the models */
    size_t n;
    struct tern_convert_hf out, as_is; /* options of x[0] and of the others */
    struct tern_convert_blend_pass *pass;
    bool tokenizer; /* one was found and copied */
};

/* ------------------------------------------------------------------ what is asked for */

static int check_models(const struct tern_convert_blend *b, struct tern_err *err)
{
    const bool differences =
        b->method != TERN_CONVERT_BLEND_LINEAR && b->method != TERN_CONVERT_BLEND_SLERP;

    if (b->n < 1 || b->n > TERN_CONVERT_BLEND_MODELS)
        return tern_err_set(err, TERN_USAGE, "%zu models are to be blended; allowed are 1 to %d",
                            b->n, TERN_CONVERT_BLEND_MODELS);
    if (b->method == TERN_CONVERT_BLEND_SLERP && b->n != 2)
        return tern_err_set(err, TERN_USAGE, "slerp blends two models, not %zu", b->n);
    if (differences && !b->base)
        return tern_err_set(err, TERN_USAGE,
                            "this method blends differences from a base: give the model that all "
                            "were trained from (--base)");
    if (!differences && b->base)
        return tern_err_set(err, TERN_USAGE,
                            "linear and slerp have no base; give it as one of the models");
    return 0;
}

static int check_numbers(const struct tern_convert_blend *b, struct tern_err *err)
{
    double sum = 0;

    for (size_t i = 0; i < b->n; i++) {
        const struct tern_convert_blend_model *m = &b->models[i];
        if (!isfinite(m->weight))
            return tern_err_set(err, TERN_USAGE, "%s: its weight is no finite number", m->path);
        if (b->base && !(m->density > 0 && m->density <= 1))
            return tern_err_set(err, TERN_USAGE,
                                "%s: its density is %g; allowed is more than 0, and at most 1",
                                m->path, m->density);
        sum += m->weight;
    }
    if (b->method == TERN_CONVERT_BLEND_LINEAR && b->normalize && fabs(sum) < 1e-8)
        return tern_err_set(err, TERN_USAGE,
                            "the weights sum up to %g, which nothing can be divided by. See "
                            "--normalize",
                            sum);
    if (b->method == TERN_CONVERT_BLEND_SLERP && !(b->t >= 0 && b->t <= 1))
        return tern_err_set(err, TERN_USAGE, "t is %g; allowed is 0 to 1", b->t);
    if (b->base && !isfinite(b->lambda))
        return tern_err_set(err, TERN_USAGE, "lambda is no finite number");
    return 0;
}

static int open_models(struct blend *d, struct tern_err *err)
{
    const struct tern_convert_blend *b = d->b;
    const size_t first = b->base != NULL, n = first + b->n;

    d->x = tern_alloc(n, sizeof *d->x, "models", err);
    for (size_t k = 0; d->x && k < n; k++) {
        d->x[k].options = k == 0 ? &d->out : &d->as_is;
        d->n = k + 1;
        if (tern_convert_blend_open(&d->x[k], k < first ? b->base : b->models[k - first].path,
                                    err) < 0 ||
            tern_convert_blend_compare(&d->x[k], &d->x[0], err) < 0)
            return -1;
    }
    for (size_t k = 1; d->x && k < n && !b->out.files_from; k++)
        if (tern_convert_blend_compare_tokenizers(&d->x[k], &d->x[0], err) < 0)
            return -1;
    return d->x ? 0 : -1;
}

/* ------------------------------------------------------------------ the whole */

static int append_tensor(void *ctx, size_t i, struct tern_behind *out, struct tern_err *err)
{
    return tern_convert_blend_pass_write(ctx, i, out, err);
}

static int fill(struct blend *d, struct tern_err *err)
{
    struct tern_convert_export *x = &d->x[0];

    if (tern_convert_write_weights(x, append_tensor, d->pass, err) < 0 ||
        tern_convert_write_beside(x, &d->tokenizer, err) < 0)
        return -1;
    return tern_fs_sync_dir(x->temp, err);
}

static int begin(struct blend *d, const char *out_dir, struct tern_err *err)
{
    const struct tern_convert_blend *b = d->b;
    struct tern_buf what = {0};

    tern_buf_printf(&what, "blend %d t %.17g lambda %.17g normalize %d rescale %d seed %llu\n",
                    (int)b->method, b->t, b->lambda, b->normalize, b->rescale,
                    (unsigned long long)b->seed);
    for (size_t i = 0; i < b->n; i++)
        tern_buf_printf(&what, "weight %.17g density %.17g\n", b->models[i].weight,
                        b->models[i].density);
    for (size_t k = 0; k < d->n; k++)
        tern_convert_describe(&what, &d->x[k]);
    const int rc = tern_convert_folder_begin(&d->x[0], out_dir, &what, err);
    tern_buf_free(&what);
    return rc;
}

static int run(struct blend *d, const char *out_dir, struct tern_err *err)
{
    if (check_models(d->b, err) < 0 || check_numbers(d->b, err) < 0 || open_models(d, err) < 0 ||
        tern_convert_deal_files(&d->x[0], err) < 0)
        return -1;
    d->x[0].read_back.stop = d->b->out.stop;
    d->pass = tern_convert_blend_pass_new(d->b, d->x, d->n, err);
    const int made = d->pass ? begin(d, out_dir, err) : -1;
    if (made) {
        d->tokenizer = true; /* or the earlier call said that there is none */
        return made < 0 ? -1 : 0;
    }
    if (fill(d, err) < 0)
        return tern_convert_folder_stopped(&d->x[0], d->b->out.stop, err);
    return tern_convert_folder_end(&d->x[0], out_dir, err);
}

int tern_convert_blend(const struct tern_convert_blend *b, const char *out_dir,
                       struct tern_convert_out *ret_out, struct tern_err *err)
{
    struct blend d = {.b = b,
                      .out = {.dtype = b->out.dtype,
                              .verify = b->out.verify,
                              .max_shard_bytes = b->out.max_shard_bytes,
                              .files_from = b->out.files_from}};
    char *to = tern_strdup(out_dir);

    for (size_t k = strlen(to); k > 1 && to[k - 1] == '/';)
        to[--k] = '\0';
    int rc = run(&d, to, err);
    if (rc == 0 && ret_out)
        *ret_out = (struct tern_convert_out){.bytes = d.x[0].total,
                                             .tensors = (unsigned)d.x[0].n,
                                             .shards = d.x[0].n_shards,
                                             .tokenizer = d.tokenizer};
    tern_convert_blend_pass_free(d.pass);
    for (size_t k = 0; k < d.n; k++)
        tern_convert_export_free(&d.x[k]);
    free(d.x);
    free(to);
    return rc;
}
