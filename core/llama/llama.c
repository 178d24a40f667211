/* Memory, tables and the public calls. */
#include "core/llama/layers.h"

#include "core/base/assert.h"
#include "core/base/rand.h"
#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ALIGN = 64, /* bytes: a cache line, a vector register */
    HUGE_PAGE = 2 << 20,
};

/* On huge pages where the system has them. */
void *tern_llama_block(size_t bytes, const char *what, struct tern_err *err)
{
    const bool huge = bytes >= HUGE_PAGE; /* a small block would be rounded up and cleared whole */
    size_t to = huge ? HUGE_PAGE : ALIGN, whole = (bytes + to - 1) / to * to;
    char size[32];
    void *p = NULL;

    if (posix_memalign(&p, to, whole) != 0) {
        tern_err_set(err, TERN_FAILED,
                     "no memory for the model's %s, %s.  Take a smaller micro-batch, a shorter "
                     "seq_len, or more memory.",
                     what, tern_str_bytes(size, sizeof(size), bytes));
        return NULL;
    }
    if (huge)
        madvise(p, whole, MADV_HUGEPAGE);
    return p;
}

/* Zeroed by the threads that will use it.  From `memory`, unless that is NULL. */
static void *block(struct tern_llama *m, const struct tern_llama_memory *memory, size_t bytes,
                   const char *what, struct tern_err *err)
{
    bytes = (bytes + sizeof(tern_real) - 1) / sizeof(tern_real) * sizeof(tern_real);
    void *p = memory ? memory->alloc(memory->ctx, bytes, err) : tern_llama_block(bytes, what, err);

    if (!p)
        return NULL;
    if (!memory)
        m->owned[m->n_owned++] = p;
    tern_tensor_zero(p, bytes / sizeof(tern_real));
    return p;
}

/* Where the products find their matrices in the blocks. */
static void locate(struct tern_llama *m)
{
    const struct tern_model_shard *s = m->shard;

    for (int k = 0; k < s->n_chunks; k++)
        m->chunks[k].is = &s->chunks[k];
    for (size_t i = 0; i < s->n_parts; i++) {
        const struct tern_model_part *p = &s->parts[i];
        int b = s->units[p->unit].bucket, local = 0;

        for (int k = 0; k < s->n_chunks; k++)
            if (b >= s->chunks[k].bucket && b < s->chunks[k].bucket + s->chunks[k].layers)
                local = s->chunks[k].at + b - s->chunks[k].bucket;
        struct tern_llama_layer_at *l = &m->layers[local];
        size_t *const at[] = {
            [TERN_MODEL_EMBED] = &m->embed,
            [TERN_MODEL_Q] = &l->qkv,
            [TERN_MODEL_O] = &l->o,
            [TERN_MODEL_GATE] = &l->gate_up,
            [TERN_MODEL_DOWN] = &l->down,
            [TERN_MODEL_INPUT_NORM] = &l->input_norm,
            [TERN_MODEL_POST_NORM] = &l->post_norm,
            [TERN_MODEL_NORM] = &m->norm,
            [TERN_MODEL_HEAD] = &m->head,
        };
        if (at[p->whole.kind]) /* K, V and UP follow Q and GATE */
            *at[p->whole.kind] = p->offset;
    }
    if (s->head_is_embed)
        m->head = m->embed;
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

void tern_llama_fill_rope(const struct tern_model_config *c, int positions, tern_real *to_cos,
                          tern_real *to_sin)
{
    int half = c->head_dim / 2;

    for (int i = 0; i < half; i++) {
        double f = inverse_frequency(c, i);

        for (int t = 0; t < positions; t++) {
            to_cos[(size_t)t * (size_t)half + (size_t)i] = (tern_real)cos(t * f);
            to_sin[(size_t)t * (size_t)half + (size_t)i] = (tern_real)sin(t * f);
        }
    }
}

/* The tables of `m`, whose sizes are known; `slots` as in the options. */
static int make_tables(struct tern_llama *m, const int *slots, struct tern_err *err)
{
    size_t n_slots, n_acts, chunks = (size_t)m->shard->n_chunks;

    m->chunks = tern_alloc(chunks, sizeof *m->chunks, "the model's chunks", err);
    m->layers =
        tern_alloc((size_t)m->shard->n_layers, sizeof *m->layers, "the model's layers", err);
    if (!m->chunks || !m->layers)
        return -1;
    for (size_t k = 0; k < chunks; k++)
        m->chunks[k].n_slots = m->training && slots ? slots[k] : 1;
    tern_llama_carve_counts(m, &n_slots, &n_acts);
    m->slots = tern_alloc(n_slots, sizeof *m->slots, "the model's slots", err);
    m->layer_acts = tern_alloc(n_acts, sizeof *m->layer_acts, "the model's layers", err);
    if (!m->slots || !m->layer_acts)
        return -1;
    struct tern_llama_slot *s = m->slots;
    for (size_t k = 0; k < chunks; s += m->chunks[k++].n_slots)
        m->chunks[k].slots = s;
    locate(m);
    if (!m->lora.rank)
        return 0;
    m->lora_at = tern_alloc((size_t)m->shard->n_layers, sizeof *m->lora_at, "the adapters", err);
    m->lora_layer =
        tern_alloc((size_t)m->shard->n_layers, sizeof *m->lora_layer, "the adapters", err);
    if (!m->lora_at || !m->lora_layer)
        return -1;
    tern_llama_adapters_locate(m);
    return 0;
}

static struct tern_llama *sized(const struct tern_llama_options *o, struct tern_err *err)
{
    struct tern_llama *m = tern_alloc(1, sizeof *m, "the model", err);

    if (m && (tern_llama_size(m, o, err) < 0 || make_tables(m, o->slots, err) < 0)) {
        tern_llama_free(m);
        return NULL;
    }
    return m;
}

int tern_llama_bytes(const struct tern_llama_options *o, int threads,
                     struct tern_llama_bytes *ret_bytes, struct tern_err *err)
{
    struct tern_llama *m = sized(o, err);

    if (!m)
        return -1;
    uint64_t adapters = m->lora.rank ? m->lora_shard->params : 0;
    ret_bytes->params = m->params * tern_llama_element(m) + adapters * sizeof(tern_real);
    ret_bytes->grads = m->training ? (adapters ? adapters : m->params) * sizeof(tern_real) : 0;
    m->threads = threads;
    ret_bytes->activations = tern_llama_carve(m, NULL);
    tern_llama_free(m);
    return 0;
}

static int make_blocks(struct tern_llama *m, const struct tern_llama_memory *memory,
                       struct tern_err *err)
{
    const struct tern_llama_memory *from[TERN_LLAMA_BLOCKS] = {NULL};
    size_t params = m->params * sizeof(tern_real);
    size_t adapters = m->lora.rank ? m->lora_shard->params * sizeof(tern_real) : 0;

    for (int k = 0; memory && k < TERN_LLAMA_BLOCKS; k++)
        from[k] = memory->wanted[k] ? memory : NULL;
    const struct tern_llama_memory *trained = from[TERN_LLAMA_BLOCK_PARAMS];
    const struct tern_llama_memory *grads = from[TERN_LLAMA_BLOCK_GRADS];
    const struct tern_llama_memory *w = m->lora.rank ? NULL : trained;
    if (m->bf16 ? !(m->w_bf16 = block(m, w, m->params * sizeof *m->w_bf16, "parameters", err))
                : !(m->w = block(m, w, params, "parameters", err)))
        return -1;
    if (m->lora.rank && !(m->lora_w = block(m, trained, adapters, "adapters", err)))
        return -1;
    if (m->training && m->lora.rank && !(m->lora_g = block(m, grads, adapters, "gradients", err)))
        return -1;
    if (m->training && !m->lora.rank && !(m->g = block(m, grads, params, "gradients", err)))
        return -1;
    m->acts_block =
        block(m, from[TERN_LLAMA_BLOCK_ACTIVATIONS], tern_llama_carve(m, NULL), "activations", err);
    return m->acts_block ? 0 : -1;
}

struct tern_llama *tern_llama_open(const struct tern_llama_options *o, struct tern_err *err)
{
    tern_assert(!o->place || o->place->tensor == 1 || (o->peers && o->peers->all_reduce),
                "%d tensor ranks without operations", o->place ? o->place->tensor : 1);

    struct tern_llama *m = sized(o, err);
    if (!m)
        return NULL;
    if (make_blocks(m, o->memory, err) < 0) {
        tern_llama_free(m);
        return NULL;
    }
    tern_llama_carve(m, m->acts_block);
    tern_llama_fill_rope(&m->c, m->seq_len, m->cos, m->sin);
    return m;
}

struct tern_llama *tern_llama_new(const struct tern_model_config *config, int max_batch,
                                  int seq_len, bool training, struct tern_err *err)
{
    const struct tern_llama_options o = {
        .config = config, .max_batch = max_batch, .seq_len = seq_len, .training = training};

    return tern_llama_open(&o, err);
}

void tern_llama_free(struct tern_llama *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n_owned; i++)
        free(m->owned[i]);
    free(m->lora_at);
    free(m->lora_layer);
    tern_model_shard_free(m->lora_shard);
    free(m->layers);
    free(m->chunks);
    free(m->slots);
    free(m->layer_acts);
    tern_model_shard_free(m->shard);
    free(m);
}

const struct tern_model_shard *tern_llama_shard(const struct tern_llama *m)
{
    return m->shard;
}

const struct tern_model_shard *tern_llama_trained(const struct tern_llama *m)
{
    return m->lora.rank ? m->lora_shard : m->shard;
}

const struct tern_model_adapters *tern_llama_adapters(const struct tern_llama *m)
{
    return m->lora.rank ? &m->lora : NULL;
}

const struct tern_model_config *tern_llama_config(const struct tern_llama *m)
{
    return &m->c;
}

tern_real *tern_llama_params(struct tern_llama *m, uint64_t *ret_count)
{
    if (ret_count)
        *ret_count = m->params;
    return m->w;
}

uint16_t *tern_llama_params_bf16(struct tern_llama *m, uint64_t *ret_count)
{
    if (ret_count)
        *ret_count = m->params;
    return m->w_bf16;
}

tern_real *tern_llama_trainable(struct tern_llama *m, uint64_t *ret_count)
{
    if (ret_count)
        *ret_count = tern_llama_trained(m)->params;
    return m->lora.rank ? m->lora_w : m->w;
}

tern_real *tern_llama_grads(struct tern_llama *m, uint64_t *ret_count)
{
    if (ret_count)
        *ret_count = m->training ? tern_llama_trained(m)->params : 0;
    return m->lora.rank ? m->lora_g : m->g;
}

void tern_llama_grads_zero(struct tern_llama *m)
{
    m->written = false;
    if (m->lends) { /* lent memory is cleared when it is taken back */
        tern_tensor_zero(m->g + m->norm, m->params - m->norm);
        if (m->shard->head_is_embed)
            tern_tensor_zero(m->g + m->embed, (size_t)m->shard->vocab_rows * (size_t)m->c.dim);
    } else if (m->training) {
        tern_tensor_zero(tern_llama_grads(m, NULL), tern_llama_trained(m)->params);
    }
}

static void set(struct tern_llama *m, uint64_t i, tern_real v)
{
    if (m->bf16)
        m->w_bf16[i] = tern_tensor_bf16(v);
    else
        m->w[i] = v;
}

void tern_llama_init(struct tern_llama *m, uint64_t seed, double std)
{
    for (size_t i = 0; i < m->shard->n_parts; i++) {
        const struct tern_model_part *p = &m->shard->parts[i];

#pragma omp parallel for schedule(static)
        for (int64_t r = 0; r < p->shape[0]; r++)
            for (int64_t c = 0; c < p->shape[1]; c++) {
                int64_t width = p->whole.ndim > 1 ? p->whole.shape[1] : 1;
                uint64_t e = (uint64_t)((p->start[0] + r) * width + p->start[1] + c);
                double v = p->whole.ndim == 1 ? 1 : std * tern_rand_normal(seed, p->index, e);

                set(m, p->offset + (uint64_t)(r * p->shape[1] + c), (tern_real)v);
            }
    }
}

int tern_llama_batch_check(const struct tern_llama *m, const struct tern_llama_batch *b,
                           struct tern_err *err)
{
    const int32_t *sets[] = {b->tokens, b->targets};

    if (b->B < 1 || b->B > m->max_batch || b->T < 1 || b->T > m->seq_len ||
        (m->sequence && b->B * b->T != m->max_batch * m->seq_len))
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

/* ---------------------------------------------------------------- chunk by chunk */

void *tern_llama_in(struct tern_llama *m, int chunk, int slot)
{
    return m->chunks[chunk].slots[slot].layers[0].x;
}

void *tern_llama_out(struct tern_llama *m, int chunk, int slot)
{
    return m->chunks[chunk].slots[slot].out;
}

size_t tern_llama_stream(const struct tern_llama *m)
{
    return (size_t)tern_llama_own(m, m->max_batch * m->seq_len) * (size_t)m->c.dim;
}

/* What a caller's plan hands over: a chunk and a slot of this rank, a batch of at most its size. */
static void check_pass(const struct tern_llama *m, const struct tern_llama_pass *p)
{
    tern_assert(p->chunk >= 0 && p->chunk < m->shard->n_chunks, "chunk %d of %d", p->chunk,
                m->shard->n_chunks);
    tern_assert(p->slot >= 0 && p->slot < m->chunks[p->chunk].n_slots, "slot %d of %d", p->slot,
                m->chunks[p->chunk].n_slots);
    tern_assert(p->b->B > 0 && p->b->B <= m->max_batch && p->b->T > 0 && p->b->T <= m->seq_len,
                "a batch of %d rows of %d, at most %d of %d", p->b->B, p->b->T, m->max_batch,
                m->seq_len);
}

int tern_llama_chunk_forward(struct tern_llama *m, const struct tern_llama_pass *p,
                             struct tern_err *err)
{
    check_pass(m, p);
    return tern_llama_forward(m, p->chunk, p->slot, p->b, err);
}

int tern_llama_chunk_loss(struct tern_llama *m, const struct tern_llama_pass *p,
                          struct tern_llama_loss *ret_loss, struct tern_err *err)
{
    check_pass(m, p);
    return tern_llama_head(m, p->chunk, p->slot, p->b, /* grad_scale= */ 0, ret_loss, err);
}

int tern_llama_chunk_backward(struct tern_llama *m, const struct tern_llama_pass *p,
                              double grad_scale, struct tern_llama_loss *ret_loss,
                              const struct tern_llama_ready *ready, struct tern_err *err)
{
    check_pass(m, p);

    const struct tern_llama_batch *b = p->b;
    const struct tern_model_chunk *chunk = m->chunks[p->chunk].is;
    size_t own = (size_t)tern_llama_own(m, b->B * b->T) * (size_t)m->c.dim;
    void *out = tern_llama_out(m, p->chunk, p->slot);
    tern_real *dx = chunk->heads ? m->a.dx : tern_llama_recall(m, out, m->a.dx, own);

    if (chunk->heads && (tern_llama_head(m, p->chunk, p->slot, b, grad_scale, ret_loss, err) < 0 ||
                         (ready && ready->bucket(ready->ctx, m->shard->head_bucket, err) < 0)))
        return -1;
    if (tern_llama_backward(m, p->chunk, p->slot, b, dx, ready, err) < 0)
        return -1;
    if (!chunk->embeds)
        tern_llama_keep(m, tern_llama_in(m, p->chunk, p->slot), dx, own);
    return 0;
}

/* ---------------------------------------------------------------- all of it at once */

/* From chunk to chunk. */
static void hand_on(const struct tern_llama *m, void *to, const void *from, size_t n)
{
    if (m->bf16)
        memcpy(to, from, n * sizeof(uint16_t));
    else
        tern_tensor_copy(to, from, n);
}

/* Through all chunks, which lie here. */
static int forward_all(struct tern_llama *m, const struct tern_llama_batch *b, struct tern_err *err)
{
    size_t stream = (size_t)tern_llama_own(m, b->B * b->T) * (size_t)m->c.dim;

    if (tern_llama_batch_check(m, b, err) < 0)
        return -1;
    if (m->shard->place.pipeline > 1)
        return tern_err_set(err, TERN_FAILED, "bug: the model's other stages are elsewhere");
    for (int k = 0; k < m->shard->n_chunks; k++) {
        if (k > 0 && m->training)
            hand_on(m, tern_llama_in(m, k, 0), tern_llama_out(m, k - 1, 0), stream);
        if (tern_llama_forward(m, k, 0, b, err) < 0)
            return -1;
    }
    return 0;
}

int tern_llama_loss(struct tern_llama *m, const struct tern_llama_batch *b,
                    struct tern_llama_loss *ret_loss, struct tern_err *err)
{
    if (forward_all(m, b, err) < 0)
        return -1;
    return tern_llama_head(m, m->shard->n_chunks - 1, 0, b, /* grad_scale= */ 0, ret_loss, err);
}

int tern_llama_step(struct tern_llama *m, const struct tern_llama_batch *b, double grad_scale,
                    struct tern_llama_loss *ret_loss, struct tern_err *err)
{
    size_t stream = (size_t)tern_llama_own(m, b->B * b->T) * (size_t)m->c.dim;

    if (!m->training)
        return tern_err_set(err, TERN_FAILED, "the model was made without training");
    if (grad_scale == 0)
        return tern_llama_loss(m, b, ret_loss, err);
    if (forward_all(m, b, err) < 0)
        return -1;
    for (int k = m->shard->n_chunks - 1; k >= 0; k--) {
        const struct tern_llama_pass pass = {.chunk = k, .slot = 0, .b = b};

        if (tern_llama_chunk_backward(m, &pass, grad_scale, ret_loss, /* ready= */ NULL, err) < 0)
            return -1;
        if (k > 0)
            hand_on(m, tern_llama_out(m, k - 1, 0), tern_llama_in(m, k, 0), stream);
    }
    return 0;
}

int tern_llama_logits(struct tern_llama *m, const int32_t *tokens, int T, tern_real *logits,
                      struct tern_err *err)
{
    const struct tern_llama_batch b = {.tokens = tokens, .B = 1, .T = T};
    int C = m->c.dim, V = m->c.vocab;

    if (m->tensor > 1)
        return tern_err_set(err, TERN_FAILED, "bug: the model's other tensor ranks are elsewhere");
    if (forward_all(m, &b, err) < 0)
        return -1;
    struct tern_llama_slot *s = &m->chunks[m->shard->n_chunks - 1].slots[0];
    const tern_real *out = tern_llama_recall(m, s->out, m->a.stream, (size_t)T * (size_t)C);
    tern_tensor_rmsnorm(m->a.normed, s->out_rstd, out + (size_t)(T - 1) * (size_t)C,
                        tern_llama_norm_weights(m, m->norm), 1, C, m->c.norm_eps);
    tern_llama_round(m, m->a.normed, (size_t)C);
    tern_llama_product(m, m->head, logits, m->a.normed, 1, C, V);
    tern_llama_round(m, logits, (size_t)V);
    return 0;
}
