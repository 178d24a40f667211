/* Memory, tables and the public calls. */
#include "core/llama/layers.h"

#include "core/base/rand.h"
#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ALIGN = 64, /* bytes: a cache line, a vector register */
    HUGE_PAGE = 2 << 20,
    /* Logits held at a time.  Large enough that reading and writing the head's gradient once a
     * chunk is small beside the products (with V 32000 and C 288: 512 rows, 74 MB moved for 28
     * GFLOP); a quarter of it costs a tenth of the step's speed. */
    LOGIT_BYTES = 64 << 20,
    HEAD_ROWS_MIN = 64,
};

/* Hands out aligned pieces of a block; with base NULL it only counts. */
struct carver {
    char *base;
    size_t bytes;
};

static void *carve_bytes(struct carver *v, size_t bytes)
{
    void *p = v->base ? v->base + v->bytes : NULL;

    v->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

static tern_real *carve(struct carver *v, size_t rows, size_t columns)
{
    return carve_bytes(v, rows * columns * sizeof(tern_real));
}

static void carve_layer(struct carver *v, const struct tern_model_config *c, size_t n,
                        struct tern_llama_layer_acts *a)
{
    size_t C = (size_t)c->dim, HD = (size_t)c->heads * (size_t)c->head_dim;

    a->x = carve(v, n, C);
    a->rstd = carve(v, n, 1);
    a->qkv = carve(v, n, HD + 2 * (size_t)c->kv_heads * (size_t)c->head_dim);
    a->stats = carve(v, n, 2 * (size_t)c->heads);
    a->heads = carve(v, n, HD);
    a->mid = carve(v, n, C);
    a->mid_rstd = carve(v, n, 1);
    a->gate_up = carve(v, n, 2 * (size_t)c->ffn);
}

/* Lay out the activations; returns the bytes they take. */
static size_t carve_acts(struct tern_llama *m, char *base)
{
    const struct tern_model_config *c = &m->c;
    struct carver v = {base, 0};
    struct tern_llama_layer_acts same = {0};
    size_t n = (size_t)m->max_batch * (size_t)m->seq_len, C = (size_t)c->dim;
    size_t HD = (size_t)c->heads * (size_t)c->head_dim;
    size_t W = HD + 2 * (size_t)c->kv_heads * (size_t)c->head_dim;

    m->cos = carve(&v, (size_t)m->seq_len, (size_t)c->head_dim / 2);
    m->sin = carve(&v, (size_t)m->seq_len, (size_t)c->head_dim / 2);
    if (!m->training)
        carve_layer(&v, c, n, &same);
    for (int l = 0; l < c->layers; l++) {
        struct tern_llama_layer_acts a = same;

        if (m->training)
            carve_layer(&v, c, n, &a);
        if (base)
            m->a.layers[l] = a;
    }
    m->a.out = m->training ? carve(&v, n, C) : same.x;
    m->a.out_rstd = carve(&v, n, 1);
    m->a.normed = carve(&v, n, C);
    m->a.wide = carve(&v, n, (size_t)c->ffn > HD ? (size_t)c->ffn : HD);
    m->a.logits = carve(&v, (size_t)m->head_rows, (size_t)c->vocab);
    m->a.losses = carve_bytes(&v, (size_t)m->head_rows * sizeof(double));
    m->a.attention = carve(&v, tern_tensor_attention_scratch(m->seq_len, m->c.head_dim), 1);
    if (m->training) {
        m->a.dx = carve(&v, n, C);
        m->a.dnormed = carve(&v, n, C);
        m->a.dqkv = carve(&v, n, W);
    }
    return v.bytes;
}

static void set_sizes(struct tern_llama *m, const struct tern_model_config *config, int max_batch,
                      int seq_len, bool training)
{
    int64_t n = (int64_t)max_batch * seq_len;
    int64_t rows = LOGIT_BYTES / (int64_t)sizeof(tern_real) / config->vocab;

    *m = (struct tern_llama){.c = *config,
                             .max_batch = max_batch,
                             .seq_len = seq_len,
                             .training = training,
                             .params = tern_model_params(config)};
    rows = rows < HEAD_ROWS_MIN ? HEAD_ROWS_MIN : rows / 16 * 16;
    m->head_rows = (int)(rows < n ? rows : n);
}

void tern_llama_bytes(const struct tern_model_config *config, int max_batch, int seq_len,
                      bool training, struct tern_llama_bytes *out)
{
    struct tern_llama m;

    set_sizes(&m, config, max_batch, seq_len, training);
    out->params = m.params * sizeof(tern_real);
    out->grads = training ? out->params : 0;
    out->activations = carve_acts(&m, NULL);
}

/* Zeroed by the threads that will use it, on huge pages where the system has them. */
static void *block(size_t bytes, const char *what, struct tern_err *err)
{
    size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    char size[32];
    void *p = NULL;

    if (posix_memalign(&p, HUGE_PAGE, whole) != 0) {
        tern_err_set(err, TERN_FAILED,
                     "no memory for the model's %s, %s.  Take a smaller micro-batch, a shorter "
                     "seq_len, or more memory.",
                     what, tern_str_bytes(size, sizeof(size), bytes));
        return NULL;
    }
    madvise(p, whole, MADV_HUGEPAGE);
    tern_tensor_zero(p, bytes / sizeof(tern_real));
    return p;
}

/* Point `w` into the array `all`, which is laid out as the tensor table says. */
static void point_weights(struct tern_llama_weights *w, const struct tern_model_config *c,
                          tern_real *all)
{
    size_t n = tern_model_tensors(c);

    w->all = all;
    for (size_t i = 0; i < n; i++) {
        struct tern_model_tensor t;
        struct tern_llama_layer_weights *l;

        tern_model_tensor(c, i, &t);
        l = t.layer < 0 ? NULL : &w->layers[t.layer];
        switch (t.kind) {
        case TERN_MODEL_EMBED:
            w->embed = w->head = all + t.offset;
            break;
        case TERN_MODEL_Q:
            l->qkv = all + t.offset;
            break;
        case TERN_MODEL_O:
            l->o = all + t.offset;
            break;
        case TERN_MODEL_GATE:
            l->gate_up = all + t.offset;
            break;
        case TERN_MODEL_DOWN:
            l->down = all + t.offset;
            break;
        case TERN_MODEL_INPUT_NORM:
            l->input_norm = all + t.offset;
            break;
        case TERN_MODEL_POST_NORM:
            l->post_norm = all + t.offset;
            break;
        case TERN_MODEL_NORM:
            w->norm = all + t.offset;
            break;
        case TERN_MODEL_HEAD:
            w->head = all + t.offset;
            break;
        case TERN_MODEL_K:
        case TERN_MODEL_V:
        case TERN_MODEL_UP:
            break; /* they follow Q and GATE */
        }
    }
}

/* The angular step of frequency i; Llama 3.1 stretches those whose wavelength is long beside the
 * context it was first trained on, and blends in between. */
static double inverse_frequency(const struct tern_model_config *c, int i)
{
    double f = pow(c->rope_theta, -2.0 * i / c->head_dim), wavelength = 2 * M_PI / f;
    double old = c->rope_original_max_position, blend;

    if (c->rope == TERN_MODEL_ROPE_PLAIN || wavelength < old / c->rope_high_freq_factor)
        return f;
    if (wavelength > old / c->rope_low_freq_factor)
        return f / c->rope_factor;
    blend = (old / wavelength - c->rope_low_freq_factor) /
            (c->rope_high_freq_factor - c->rope_low_freq_factor);
    return (1 - blend) * f / c->rope_factor + blend * f;
}

static void fill_rope(struct tern_llama *m)
{
    int half = m->c.head_dim / 2;

    for (int i = 0; i < half; i++) {
        double f = inverse_frequency(&m->c, i);

        for (int t = 0; t < m->seq_len; t++) {
            m->cos[(size_t)t * (size_t)half + (size_t)i] = (tern_real)cos(t * f);
            m->sin[(size_t)t * (size_t)half + (size_t)i] = (tern_real)sin(t * f);
        }
    }
}

struct tern_llama *tern_llama_new(const struct tern_model_config *config, int max_batch,
                                  int seq_len, bool training, struct tern_err *err)
{
    struct tern_llama *m;
    tern_real *params, *grads = NULL;
    size_t layers = (size_t)config->layers;

    if (tern_model_config_check(config, "model", err) < 0)
        return NULL;
    if (max_batch < 1 || seq_len < 1 || (int64_t)max_batch * seq_len > 1 << 24) {
        tern_err_set(err, TERN_USAGE,
                     "a micro-batch of %d rows of %d positions: both must be at least 1, and their "
                     "product at most 16777216",
                     max_batch, seq_len);
        return NULL;
    }
    m = tern_alloc(1, sizeof(*m), "the model", err);
    if (!m)
        return NULL;
    set_sizes(m, config, max_batch, seq_len, training);
    m->w.layers = tern_alloc(layers, sizeof(*m->w.layers), "the model's layers", err);
    m->g.layers = tern_alloc(layers, sizeof(*m->g.layers), "the model's layers", err);
    m->a.layers = tern_alloc(layers, sizeof(*m->a.layers), "the model's layers", err);
    if (!m->w.layers || !m->g.layers || !m->a.layers)
        goto fail;
    params = block(m->params * sizeof(tern_real), "parameters", err);
    if (!params)
        goto fail;
    point_weights(&m->w, config, params);
    if (training) {
        grads = block(m->params * sizeof(tern_real), "gradients", err);
        if (!grads)
            goto fail;
        point_weights(&m->g, config, grads);
    }
    m->acts_block = block(carve_acts(m, NULL), "activations", err);
    if (!m->acts_block)
        goto fail;
    carve_acts(m, m->acts_block);
    fill_rope(m);
    return m;
fail:
    tern_llama_free(m);
    return NULL;
}

void tern_llama_free(struct tern_llama *m)
{
    if (!m)
        return;
    free(m->w.all);
    free(m->g.all);
    free(m->acts_block);
    free(m->w.layers);
    free(m->g.layers);
    free(m->a.layers);
    free(m);
}

const struct tern_model_config *tern_llama_config(const struct tern_llama *m)
{
    return &m->c;
}

tern_real *tern_llama_params(struct tern_llama *m, uint64_t *count)
{
    if (count)
        *count = m->params;
    return m->w.all;
}

tern_real *tern_llama_grads(struct tern_llama *m, uint64_t *count)
{
    if (count)
        *count = m->training ? m->params : 0;
    return m->g.all;
}

void tern_llama_grads_zero(struct tern_llama *m)
{
    if (m->training)
        tern_tensor_zero(m->g.all, m->params);
}

void tern_llama_init(struct tern_llama *m, uint64_t seed, double std)
{
    size_t n = tern_model_tensors(&m->c);

    for (size_t i = 0; i < n; i++) {
        struct tern_model_tensor t;
        tern_real *w;

        tern_model_tensor(&m->c, i, &t);
        w = m->w.all + t.offset;
#pragma omp parallel for schedule(static)
        for (uint64_t e = 0; e < t.count; e++)
            w[e] = t.ndim == 1 ? 1 : (tern_real)(std * tern_rand_normal(seed, i, e));
    }
}

static int check_batch(const struct tern_llama *m, const struct tern_llama_batch *b,
                       struct tern_err *err)
{
    const int32_t *sets[] = {b->tokens, b->targets};

    if (b->B < 1 || b->B > m->max_batch || b->T < 1 || b->T > m->seq_len)
        return tern_err_set(err, TERN_FAILED,
                            "a batch of %d rows of %d positions does not fit a model made for %d "
                            "of %d",
                            b->B, b->T, m->max_batch, m->seq_len);
    for (int s = 0; s < 2; s++)
        for (int i = 0; sets[s] && i < b->B * b->T; i++)
            if (sets[s][i] < 0 || sets[s][i] >= m->c.vocab)
                return tern_err_set(err, TERN_USAGE,
                                    "token id %d at row %d, position %d is outside the model's "
                                    "vocabulary of %d.  The data was made with another tokenizer.",
                                    sets[s][i], i / b->T, i % b->T, m->c.vocab);
    return 0;
}

int tern_llama_loss(struct tern_llama *m, const int32_t *tokens, const int32_t *targets,
                    const uint8_t *mask, int B, int T, struct tern_llama_loss *out,
                    struct tern_err *err)
{
    struct tern_llama_batch b = {tokens, targets, mask, B, T};

    if (check_batch(m, &b, err) < 0)
        return -1;
    tern_llama_forward(m, &b);
    tern_llama_head(m, &b, 0, out);
    return 0;
}

int tern_llama_step(struct tern_llama *m, const int32_t *tokens, const int32_t *targets,
                    const uint8_t *mask, int B, int T, double grad_scale,
                    struct tern_llama_loss *out, struct tern_err *err)
{
    struct tern_llama_batch b = {tokens, targets, mask, B, T};

    if (!m->training)
        return tern_err_set(err, TERN_FAILED, "the model was made without training");
    if (check_batch(m, &b, err) < 0)
        return -1;
    tern_llama_forward(m, &b);
    tern_llama_head(m, &b, grad_scale, out);
    if (grad_scale != 0)
        tern_llama_backward(m, &b);
    return 0;
}

int tern_llama_logits(struct tern_llama *m, const int32_t *tokens, int T, tern_real *logits,
                      struct tern_err *err)
{
    struct tern_llama_batch b = {.tokens = tokens, .B = 1, .T = T};
    int C = m->c.dim, V = m->c.vocab;

    if (check_batch(m, &b, err) < 0)
        return -1;
    tern_llama_forward(m, &b);
    tern_tensor_rmsnorm(m->a.normed, m->a.out_rstd, m->a.out + (size_t)(T - 1) * (size_t)C,
                        m->w.norm, 1, C, m->c.norm_eps);
    tern_tensor_gemm(false, true, 1, V, C, 1, m->a.normed, C, m->w.head, C, 0, logits, V);
    return 0;
}
