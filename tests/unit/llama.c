/* The model as a whole.  Built in float and in double (llama-f64); only there are gradients held
 * against finite differences, which need the digits. */
#include "tests/unit/llama.h"

#define IN_DOUBLE (sizeof(tern_real) == sizeof(double))

/* The first positions of the first rows. */
static struct tern_llama_batch first(int rows, int positions)
{
    return (struct tern_llama_batch){
        .tokens = tokens, .targets = targets, .B = rows, .T = positions};
}

static struct tern_llama *make(const struct tern_model_config *c, int max_batch, bool training)
{
    struct tern_err err = {0};
    struct tern_llama *m = tern_llama_new(c, max_batch, T, training, &err);

    if (!m) {
        ok(0, "a model is made: %s", err.text);
        exit(tap_done());
    }
    tern_llama_init(m, 5, c->init_std);
    return m;
}

static double loss_of(struct tern_llama *m)
{
    struct tern_llama_loss loss = {NAN, 0};

    tern_llama_loss(m, &batch, &loss, NULL);
    return loss.sum;
}

/* Along a random direction in each tensor: (f(p + h d) - f(p - h d)) / 2h against the gradient. */
static void differences(const struct tern_model_config *c, const char *what)
{
    struct tern_llama *m = make(c, B, true);
    tern_real *p = tern_llama_params(m, NULL), *g = tern_llama_grads(m, NULL);
    double worst = 0, h = 1e-5;

    step(m, 1);
    for (size_t i = 0; i < tern_model_tensors(c); i++) {
        struct tern_model_tensor t;
        double along = 0, up = 0, down = 0, norm = 0;

        tern_model_tensor(c, i, &t);
        for (int side = 0; side < 3; side++) {
            for (uint64_t e = 0; e < t.count; e++) {
                double d = tern_rand_normal(9, i, e);

                p[t.offset + e] += (tern_real)((side == 1 ? -2 * h : h) * d);
                along += side == 0 ? d * (double)g[t.offset + e] : 0;
                norm += side == 0 ? (double)g[t.offset + e] * (double)g[t.offset + e] : 0;
            }
            if (side == 0)
                up = loss_of(m);
            else if (side == 1)
                down = loss_of(m);
        }
        along = fabs((up - down) / (2 * h) - along) / sqrt(norm);
        worst = !(along <= worst) ? along : worst;
    }
    ok(worst < 1e-6, "%s: gradients equal finite differences (%.1e of their norm)", what, worst);
    tern_llama_free(m);
}

/* Through the calls that can drop out adapters' inputs; `back`: with gradients. */
static double dropped(struct tern_llama *m, bool drops, bool back)
{
    const struct tern_llama_batch b = {
        .tokens = tokens, .targets = targets, .drops = drops, .sample = 77, .B = B, .T = T};
    const struct tern_llama_pass pass = {.chunk = 0, .slot = 0, .b = &b};
    struct tern_llama_loss loss = {NAN, 0};

    tern_llama_chunk_forward(m, &pass, NULL);
    if (!back)
        tern_llama_chunk_loss(m, &pass, &loss, NULL);
    else
        tern_llama_chunk_backward(m, &pass, 1, &loss, NULL, NULL);
    return loss.sum;
}

/* norms[out] of the rows of W + scale B A, for the adapter whose A is part `i` of `m`. */
static void row_norms(struct tern_llama *m, size_t i, double *norms)
{
    const struct tern_model_part *a = &tern_llama_trained(m)->parts[i];
    const struct tern_model_part *w = &tern_llama_shard(m)->parts[a->index];
    const tern_real *p = tern_llama_trainable(m, NULL), *base = tern_llama_params(m, NULL);
    int64_t in = a->shape[1], rank = a->shape[0];

    for (int64_t o = 0; o < w->shape[0]; o++) {
        norms[o] = 0;
        for (int64_t c = 0; c < in; c++) {
            double v = (double)base[w->offset + (uint64_t)(o * in + c)];
            for (int64_t k = 0; k < rank; k++)
                v += tern_llama_adapters(m)->scale *
                     (double)p[a[1].offset + (uint64_t)(o * rank + k)] *
                     (double)p[a->offset + (uint64_t)(k * in + c)];
            norms[o] += v * v;
        }
        norms[o] = sqrt(norms[o]);
    }
}

/* DoRA's backward pass takes the norms for constants: move the magnitudes of the adapter at part
 * `i` along with them, from what they were at `before`, so that they are. */
static void move_magnitudes(struct tern_llama *m, size_t i, const double *before)
{
    const struct tern_model_part *t = &tern_llama_trained(m)->parts[i + 2];
    tern_real *p = tern_llama_trainable(m, NULL) + t->offset;
    double now[ROWS_MAX];

    row_norms(m, i, now);
    for (int64_t o = 0; o < t->shape[0]; o++)
        p[o] *= (tern_real)(now[o] / before[o]);
}

/* Adapters' gradients against differences, as above; returns the largest, of a tensor's norm. */
static double adapter_differences(struct tern_llama *m, bool drops)
{
    const struct tern_model_shard *s = tern_llama_trained(m);
    tern_real *p = tern_llama_trainable(m, NULL), *g = tern_llama_grads(m, NULL);
    const size_t arrays = tern_llama_adapters(m)->dora ? 3 : 2;
    double worst = 0, h = 1e-5, norms[ROWS_MAX];

    tern_llama_grads_zero(m);
    dropped(m, drops, true);
    for (size_t i = 0; i < s->n_parts; i++) {
        const struct tern_model_part *t = &s->parts[i];
        double along = 0, norm = 0, side[2];

        for (int k = 0; k < 3; k++) { /* up, down, back again */
            row_norms(m, i - i % arrays, norms);
            for (uint64_t e = t->offset; e < t->offset + t->count; e++) {
                double d = tern_rand_normal(9, i, e);
                along += k ? 0 : d * (double)g[e];
                norm += k ? 0 : (double)g[e] * (double)g[e];
                p[e] += (tern_real)((k == 1 ? -2 * h : h) * d);
            }
            if (i % arrays < 2 && arrays > 2)
                move_magnitudes(m, i - i % arrays, norms);
            if (k < 2)
                side[k] = dropped(m, drops, false);
        }
        along = fabs((side[0] - side[1]) / (2 * h) - along) / sqrt(norm);
        worst = !(along <= worst) ? along : worst;
    }
    return worst;
}

/* The losses of `m`, and of one without adapters whose weights are DoRA's W' = m (W + scale B A) /
 * ||W + scale B A||, are the same. */
static void equals_merged(struct tern_llama *m, struct tern_llama *without)
{
    const struct tern_model_shard *s = tern_llama_trained(m);
    const tern_real *p = tern_llama_trainable(m, NULL);
    tern_real *w = tern_llama_params(without, NULL);
    double norms[ROWS_MAX], scale = tern_llama_adapters(m)->scale;
    uint64_t n;

    memcpy(w, tern_llama_params(m, &n), tern_model_params(&grouped) * sizeof *w);
    for (size_t i = 0; i < s->n_parts; i += 3) {
        const struct tern_model_part *a = &s->parts[i];
        const struct tern_model_part *base = &tern_llama_shard(m)->parts[a->index];
        int64_t in = a->shape[1], rank = a->shape[0];

        row_norms(m, i, norms);
        for (int64_t e = 0; e < base->shape[0] * in; e++) {
            tern_real *to = w + base->offset + e;
            for (int64_t k = 0; k < rank; k++)
                *to += (tern_real)(scale * (double)p[a[1].offset + (uint64_t)(e / in * rank + k)] *
                                   (double)p[a->offset + (uint64_t)(k * in + e % in)]);
            *to *= p[a[2].offset + (uint64_t)(e / in)] / (tern_real)norms[e / in];
        }
    }
    double merged = loss_of(without), here = loss_of(m);
    ok(fabs(merged / here - 1) < 1e-12, "DoRA: the loss of the merged weights (%.1e)",
       fabs(merged / here - 1));
}

/* The same of adapters beside all linears; nothing else has a gradient. */
static void adapters(double dropout, bool dora)
{
    const struct tern_model_adapters all = {
        .rank = 3, .targets = 127, .scale = 0.7, .dropout = dropout, .dora = dora, .seed = 4};
    const char *what = dora ? "DoRA" : "LoRA";
    const size_t parts = (dora ? 3 : 2) * 7 * 2;
    const struct tern_llama_options o = {
        .config = &grouped, .max_batch = B, .seq_len = T, .training = true, .adapters = &all};
    struct tern_llama *m = tern_llama_open(&o, NULL), *without = make(&grouped, B, false);
    const struct tern_model_shard *s = tern_llama_trained(m);
    tern_real *p = tern_llama_trainable(m, NULL);
    double plain = loss_of(without), worst;

    tern_llama_init(m, 5, grouped.init_std);
    tern_llama_adapters_init(m);
    tern_llama_magnitudes_init(m, NULL);
    ok(dora ? fabs(loss_of(m) / plain - 1) < 1e-13 : loss_of(m) == plain,
       "%s: new adapters change nothing", what);
    for (uint64_t e = 0; e < s->params; e++)
        p[e] = (tern_real)(0.3 * tern_rand_normal(3, 0, e) + (dora ? 0.5 * (double)p[e] : 0));
    ok(fabs(loss_of(m) - plain) > 1, "random adapters change the loss");
    ok((dropped(m, true, false) != dropped(m, false, false)) == (dropout > 0),
       "dropout %g: losses with it and without", dropout);
    if (dora)
        equals_merged(m, without);
    worst = adapter_differences(m, true);
    ok(worst < 1e-6 && s->n_parts == parts,
       "%s, dropout %g: gradients equal finite differences (%.1e of their norm)", what, dropout,
       worst);
    tern_llama_free(m);
    tern_llama_free(without);
}

/* Beside one linear alone the backward pass makes again what that one multiplied, no more: each has
 * the gradients that differences say. */
static void alone(enum tern_llama_recompute recompute)
{
    double worst = 0;

    for (unsigned target = 0; target < 7; target++) {
        const struct tern_model_adapters one = {
            .rank = 3, .targets = 1U << target, .scale = 0.7, .dropout = 0.3, .seed = 4};
        const struct tern_llama_options o = {.config = &grouped,
                                             .max_batch = B,
                                             .seq_len = T,
                                             .training = true,
                                             .recompute = recompute,
                                             .adapters = &one};
        struct tern_llama *m = tern_llama_open(&o, NULL);
        tern_real *p = tern_llama_trainable(m, NULL);

        tern_llama_init(m, 5, grouped.init_std);
        for (uint64_t e = 0; e < tern_llama_trained(m)->params; e++)
            p[e] = (tern_real)(0.3 * tern_rand_normal(3, 0, e));
        double d = adapter_differences(m, true);
        worst = !(d <= worst) ? d : worst;
        tern_llama_free(m);
    }
    ok(worst < 1e-6, "adapters beside one linear alone, each of seven (%.1e)", worst);
}

static void repeats(void)
{
    struct tern_llama *a = make(&grouped, B, true), *b = make(&grouped, B, true);
    uint64_t n;
    size_t bytes;
    double first = step(a, 0.01);

    tern_llama_grads(a, &n);
    bytes = n * sizeof(tern_real);
    ok(memcmp(tern_llama_params(a, NULL), tern_llama_params(b, NULL), bytes) == 0,
       "the same seed draws the same model");
    step(a, 0.01);
    ok(step(b, 0.01) == first &&
           memcmp(tern_llama_grads(a, NULL), tern_llama_grads(b, NULL), bytes) == 0,
       "the same input gives the same bits");
    ok(fabs(first / N - log(53)) < 1.5, "a random model's loss is near log(vocab): %.2f",
       first / N);
    tern_llama_free(a);
    tern_llama_free(b);
}

/* Activations in the memory of gradients that are not written yet. */
static void lends(const struct tern_model_config *c, bool half, enum tern_llama_recompute recompute)
{
    struct tern_llama_options o = {.config = c,
                                   .max_batch = B,
                                   .seq_len = T,
                                   .training = true,
                                   .recompute = recompute,
                                   .bf16 = half};
    struct tern_llama *own = tern_llama_open(&o, NULL), *lent;
    struct tern_llama_bytes before, after;
    struct tern_llama_loss loss;
    struct tern_err err;
    uint64_t n;

    tern_llama_bytes(&o, tern_tensor_threads(), &before, NULL);
    o.one_micro_batch = true;
    tern_llama_bytes(&o, tern_tensor_threads(), &after, NULL);
    ok(after.activations < before.activations && after.grads == before.grads,
       "one micro-batch: %d KiB of activations instead of %d", (int)(after.activations >> 10),
       (int)(before.activations >> 10));
    lent = tern_llama_open(&o, NULL);
    tern_llama_init(own, 5, c->init_std);
    tern_llama_init(lent, 5, c->init_std);
    for (int i = 0; i < 2; i++) { /* the second begins with what the first left behind */
        tern_llama_grads_zero(own);
        tern_llama_grads_zero(lent);
        bool same = step(own, 0.01) == step(lent, 0.01);
        tern_llama_grads(own, &n);
        ok(same && memcmp(tern_llama_grads(own, NULL), tern_llama_grads(lent, NULL),
                          n * sizeof(tern_real)) == 0,
           "gradients in lent memory have the same bits (%s%s, recompute %d)",
           c->tied ? "tied" : "untied", half ? ", bf16" : "", (int)recompute);
        loss_of(lent);
    }
    ok(tern_llama_step(lent, &batch, 1, &loss, &err) == -1,
       "a second micro-batch in lent memory is refused");
    has(err.text, "two micro-batches", "its message names the two micro-batches");
    tern_llama_free(own);
    tern_llama_free(lent);
}

/* Row by row with accumulation, and all rows at once. */
static void accumulates(void)
{
    struct tern_llama *whole = make(&grouped, B, true), *rows = make(&grouped, 1, true);
    const tern_real *g = tern_llama_grads(whole, NULL), *h = tern_llama_grads(rows, NULL);
    struct tern_llama_loss loss;
    uint64_t n;
    double sum = step(whole, 1.0 / N), parts = 0, diff = 0, size = 0;

    tern_llama_grads_zero(rows);
    for (int b = 0; b < B; b++) {
        tern_llama_step(rows,
                        &(struct tern_llama_batch){
                            .tokens = tokens + b * T, .targets = targets + b * T, .B = 1, .T = T},
                        1.0 / N, &loss, NULL);
        parts += loss.sum;
    }
    tern_llama_params(whole, &n);
    for (uint64_t i = 0; i < n; i++) {
        diff += pow((double)g[i] - (double)h[i], 2);
        size += pow((double)g[i], 2);
    }
    ok(fabs(parts - sum) / sum < 1e-6 && sqrt(diff / size) < 2e-6,
       "three micro-batches add up to one batch (%.1e)", sqrt(diff / size));
    tern_llama_free(whole);
    tern_llama_free(rows);
}

static void masks(void)
{
    struct tern_llama *m = make(&grouped, B, true);
    struct tern_llama_loss loss, none;
    uint8_t mask[N];
    struct tern_llama_batch masked = batch, row = first(1, T);
    uint64_t n;
    double sum;
    const tern_real *g = tern_llama_grads(m, &n);

    masked.mask = mask;
    /* Leaving out rows 1 and 2 is the same as not having them. */
    for (int i = 0; i < N; i++)
        mask[i] = i < T;
    tern_llama_step(m, &masked, 1, &loss, NULL);
    tern_llama_loss(m, &row, &none, NULL);
    ok(loss.n == T && none.n == T && fabs(loss.sum - none.sum) / none.sum < 1e-6,
       "masked targets do not count in the loss");
    memset(mask, 0, sizeof(mask));
    tern_llama_grads_zero(m);
    tern_llama_step(m, &masked, 1, &loss, NULL);
    sum = tern_tensor_sum_squares(g, n);
    ok(loss.n == 0 && loss.sum == 0 && sum == 0,
       "with all targets masked loss and gradients are 0");
    tern_llama_free(m);
}

static void inference(void)
{
    struct tern_llama *train = make(&grouped, B, true), *infer = make(&grouped, B, false);
    tern_real logits[53];
    double sum = 0, max = -INFINITY, loss;
    const struct tern_llama_batch seven = first(1, 7), six = first(1, 6);
    struct tern_llama_loss more, less;

    ok(tern_llama_grads(infer, NULL) == NULL, "a model made without training has no gradients");
    ok(loss_of(train) == loss_of(infer) && step(train, 1) == loss_of(infer),
       "a model has the same loss with and without training");
    tern_llama_loss(infer, &seven, &more, NULL);
    tern_llama_loss(infer, &six, &less, NULL);
    tern_llama_logits(infer, tokens, 7, logits, NULL);
    for (int i = 0; i < 53; i++)
        max = fmax(max, (double)logits[i]);
    for (int i = 0; i < 53; i++)
        sum += exp((double)logits[i] - max);
    loss = log(sum) + max - (double)logits[targets[6]];
    ok(fabs(more.sum - less.sum - loss) < 1e-5,
       "logits agree with the loss; a later position changes no earlier one");
    tern_llama_free(train);
    tern_llama_free(infer);
}

static void refusals(void)
{
    struct tern_llama *m = make(&grouped, B, false);
    struct tern_llama_loss loss = {42, 42};
    struct tern_err err = {0};
    int32_t bad[T] = {0};
    const struct tern_llama_batch too_many = first(B + 1, T);
    struct tern_llama_batch unknown = first(1, T);

    bad[9] = 53;
    unknown.tokens = bad;
    ok(tern_llama_loss(m, &unknown, &loss, &err) == -1 && loss.n == 42,
       "an id outside the vocabulary is refused");
    has(err.text, "token id 53 at row 0, position 9", "the message names the id and its place");
    ok(tern_llama_loss(m, &too_many, &loss, &err) == -1, "a batch of too many rows is refused");
    ok(tern_llama_step(m, &batch, 1, &loss, &err) == -1,
       "a step of a model made without training is refused");
    ok(tern_llama_new(&grouped, 0, T, false, &err) == NULL, "a model of no rows is refused");
    tern_llama_free(m);
    tern_llama_free(NULL);
}

static struct tern_llama *make_bf16(enum tern_llama_recompute recompute, bool training)
{
    const struct tern_llama_options o = {.config = &grouped,
                                         .max_batch = B,
                                         .seq_len = T,
                                         .training = training,
                                         .recompute = recompute,
                                         .bf16 = true};
    struct tern_llama *m = tern_llama_open(&o, NULL);

    tern_llama_init(m, 5, grouped.init_std);
    return m;
}

/* Distance of a's gradients from b's, of b's norm. */
static double grads_apart(struct tern_llama *a, struct tern_llama *b)
{
    uint64_t n;
    const tern_real *g = tern_llama_grads(a, &n), *h = tern_llama_grads(b, NULL);
    double diff = 0, size = 0;

    for (uint64_t i = 0; i < n; i++) {
        diff += pow((double)g[i] - (double)h[i], 2);
        size += pow((double)h[i], 2);
    }
    return sqrt(diff / size);
}

static void bf16(void)
{
    struct tern_llama *half = make_bf16(TERN_LLAMA_RECOMPUTE_NONE, true);
    struct tern_llama *full = make(&grouped, B, true), *eval = make_bf16(0, false);
    uint64_t n;
    tern_real *p = tern_llama_params(full, &n), logits[53];
    bool same = tern_llama_params(half, NULL) == NULL;

    for (uint64_t i = 0; i < n; i++)
        same = same && tern_llama_params_bf16(half, NULL)[i] == tern_tensor_bf16(p[i]);
    ok(same && tern_llama_params_bf16(full, NULL) == NULL,
       "bf16: the same seed draws the same model, rounded");
    tern_tensor_round_bf16(p, NULL, n);
    double expected = step(full, 1), got = step(half, 1), apart = grads_apart(half, full);
    /* A rounding is off by 2^-7 / sqrt(12) of a number's power of two, 1.6e-3 of a number in the
     * mean.  Some 40 stand behind a gradient, on the way there and back: 1e-2 together, and twice
     * that for what is not independent. */
    ok(fabs(got / expected - 1) < 1e-3 && got != expected, "bf16: the loss is %.1e off",
       got / expected - 1);
    ok(apart < 2e-2 && apart > 1e-3, "bf16: the gradients are %.1e off", apart);
    for (int r = 1; r <= TERN_LLAMA_RECOMPUTE_FULL; r++) {
        struct tern_llama *again = make_bf16((enum tern_llama_recompute)r, true);
        ok(step(again, 1) == got && grads_apart(again, half) == 0,
           "bf16: computed again (%d), the same bits", r);
        tern_llama_free(again);
    }
    ok(loss_of(eval) == got, "bf16: the same loss without training");
    tern_llama_logits(eval, tokens, 7, logits, NULL);
    const struct tern_llama_batch seven = first(1, 7), six = first(1, 6);
    struct tern_llama_loss more, less;
    double max = -INFINITY, sum = 0;
    tern_llama_loss(eval, &seven, &more, NULL);
    tern_llama_loss(eval, &six, &less, NULL);
    for (int i = 0; i < 53; i++)
        max = fmax(max, (double)logits[i]);
    for (int i = 0; i < 53; i++)
        sum += exp((double)logits[i] - max);
    /* In float the two products may round to neighbours in bf16. */
    ok(fabs(more.sum - less.sum - (log(sum) + max - (double)logits[targets[6]])) <
           (IN_DOUBLE ? 1e-9 : 0x1p-7 * max),
       "bf16: logits agree with the loss");
    same = true;
    for (int i = 0; i < 53; i++) {
        tern_real kept[1];
        uint16_t h = tern_tensor_bf16(logits[i]);

        tern_tensor_from_bf16(kept, &h, 1);
        same = same && kept[0] == logits[i];
    }
    ok(same, "bf16: logits are of bf16");
    tern_llama_free(half);
    tern_llama_free(full);
    tern_llama_free(eval);
}

int main(void)
{
    struct tern_model_config tied = grouped, scaled = grouped;

    if (tern_tensor_start(2, 1, NULL) < 0)
        return 1;
    fill_batch();
    tied.tied = true;
    tied.kv_heads = 4;
    scaled.rope = TERN_MODEL_ROPE_LLAMA3;
    scaled.rope_factor = 8;
    scaled.rope_low_freq_factor = 1;
    scaled.rope_high_freq_factor = 4;
    scaled.rope_original_max_position = 32;
    scaled.kv_heads = 1;
    if (IN_DOUBLE) {
        differences(&grouped, "two key heads");
        differences(&tied, "tied");
        differences(&scaled, "one key head, scaled RoPE");
        adapters(0, false);
        adapters(0.3, false);
        adapters(0, true);
        adapters(0.3, true);
        alone(TERN_LLAMA_RECOMPUTE_NONE);
        alone(TERN_LLAMA_RECOMPUTE_FULL);
    }
    repeats();
    lends(&grouped, false, TERN_LLAMA_RECOMPUTE_NONE);
    lends(&grouped, true, TERN_LLAMA_RECOMPUTE_NONE);
    lends(&grouped, false, TERN_LLAMA_RECOMPUTE_SELECTIVE);
    lends(&grouped, false, TERN_LLAMA_RECOMPUTE_FULL);
    lends(&tied, false, TERN_LLAMA_RECOMPUTE_NONE);
    accumulates();
    masks();
    inference();
    bf16();
    refusals();
    return tap_done();
}
