/* The forward pass of rows that grow. */
#include "core/llama/decoder.h"

#include "core/base/str.h"
#include "core/llama/layers.h"

#include <stdlib.h>

/* With fewer tokens than this, reading the weights takes longer than the product: as decoding. */
enum { MANY = 8, ALIGN = 64 };

struct tern_llama_decoder {
    struct tern_llama *m;
    int rows, positions;
    int *length;                  /* [rows] */
    struct tern_tensor_place *at; /* [rows]: of a step */
    void *cache, *scratch;        /* the two blocks */
    tern_real *keys, *values;     /* [layers,rows,K,positions,D] */
    tern_real *cos, *sin;         /* [positions,D/2] */
    tern_real *x, *normed, *rstd; /* [n,C], [n,C], [n] for n = max(TERN_LLAMA_PIECE, rows) */
    tern_real *qkv, *heads;       /* [n,W], [n,H*D] */
    tern_real *gate_up, *ffn;     /* [n,2F], [n,F] */
    tern_real *attention;
};

/* Where arrays lie; with `base` NULL they are only counted. */
static size_t lay_out(struct tern_llama_decoder *d, const struct tern_model_config *c, int threads,
                      char *base)
{
    const size_t D = (size_t)c->head_dim, HD = (size_t)c->heads * D, F = (size_t)c->ffn;
    const size_t n = (size_t)(d->rows > TERN_LLAMA_PIECE ? d->rows : TERN_LLAMA_PIECE);
    const size_t C = (size_t)c->dim, W = HD + 2 * (size_t)c->kv_heads * D;
    const size_t angles = (size_t)d->positions * (D / 2);
    const struct tern_tensor_cache cache = {.D = c->head_dim, .positions = d->positions};
    const struct {
        tern_real **to;
        size_t n;
    } arrays[] = {
        {&d->cos, angles},   {&d->sin, angles},
        {&d->x, n * C},      {&d->normed, n * C},
        {&d->rstd, n},       {&d->qkv, n * W},
        {&d->heads, n * HD}, {&d->gate_up, n * 2 * F},
        {&d->ffn, n * F},    {&d->attention, tern_tensor_attention_cached_scratch(&cache, threads)},
    };
    size_t at = 0;

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i].to = base ? (tern_real *)(void *)(base + at) : NULL;
        at += (arrays[i].n * sizeof(tern_real) + ALIGN - 1) / ALIGN * ALIGN;
    }
    return at;
}

static uint64_t cache_elements(const struct tern_model_config *c, int rows, int positions)
{
    return (uint64_t)c->layers * (uint64_t)rows * (uint64_t)c->kv_heads * (uint64_t)positions *
           (uint64_t)c->head_dim;
}

struct tern_llama_decoder_bytes tern_llama_decoder_bytes(const struct tern_model_config *c,
                                                         int rows, int positions, int threads)
{
    struct tern_llama_decoder d = {.rows = rows, .positions = positions};

    return (struct tern_llama_decoder_bytes){.cache = 2 * cache_elements(c, rows, positions) *
                                                      sizeof(tern_real),
                                             .scratch = lay_out(&d, c, threads, NULL)};
}

struct tern_llama_decoder *tern_llama_decoder_new(struct tern_llama *m, int rows, int positions,
                                                  struct tern_err *err)
{
    struct tern_llama_decoder *d = tern_alloc(1, sizeof *d, "a decoder", err);
    const struct tern_llama_decoder_bytes bytes =
        tern_llama_decoder_bytes(&m->c, rows, positions, /* threads= */ 0);

    if (!d)
        return NULL;
    d->m = m;
    d->rows = rows;
    d->positions = positions;
    d->length = tern_alloc((size_t)rows, sizeof *d->length, "a decoder", err);
    d->at = tern_alloc((size_t)rows, sizeof *d->at, "a decoder", err);
    if (!d->length || !d->at ||
        !(d->cache = tern_llama_block(bytes.cache, "cache of keys and values", err)) ||
        !(d->scratch = tern_llama_block(bytes.scratch, "activations", err))) {
        tern_llama_decoder_free(d);
        return NULL;
    }
    d->keys = d->cache;
    d->values = d->keys + cache_elements(&m->c, rows, positions);
    lay_out(d, &m->c, /* threads= */ 0, d->scratch);
    tern_llama_fill_rope(&m->c, positions, d->cos, d->sin);
    return d;
}

void tern_llama_decoder_free(struct tern_llama_decoder *d)
{
    if (!d)
        return;
    free(d->scratch);
    free(d->cache);
    free(d->at);
    free(d->length);
    free(d);
}

int tern_llama_decoder_length(const struct tern_llama_decoder *d, int row)
{
    return d->length[row];
}

void tern_llama_decoder_clear(struct tern_llama_decoder *d, int row)
{
    d->length[row] = 0;
}

/* ---------------------------------------------------------------- the pass */

/* Tokens on their way through the layers: n of one row from at[0] on, or of n rows. */
struct pass {
    int n;
    bool many; /* by products of many rows */
    bool reads;
};

/* y[n,out] (+)= x[n,in] of the weight at `w`. */
static void product(const struct tern_llama_decoder *d, const struct pass *p, size_t w,
                    tern_real *y, const tern_real *x, const struct tern_tensor_few *shape)
{
    const struct tern_llama *m = d->m;

    if (m->bf16)
        (p->many ? tern_tensor_many_rows_bf16 : tern_tensor_few_rows_bf16)(shape, y, x,
                                                                           m->w_bf16 + w);
    else
        (p->many ? tern_tensor_many_rows : tern_tensor_few_rows)(shape, y, x, m->w + w);
}

static void norm(struct tern_llama_decoder *d, const tern_real *x, size_t w, int n)
{
    tern_tensor_rmsnorm(d->normed, d->rstd, x, tern_llama_norm_weights(d->m, w), n, d->m->c.dim,
                        d->m->c.norm_eps);
}

static void layer(struct tern_llama_decoder *d, const struct pass *p, int l)
{
    const struct tern_model_config *c = &d->m->c;
    const struct tern_llama_layer_at *at = &d->m->layers[l];
    const int HD = c->heads * c->head_dim, W = HD + 2 * c->kv_heads * c->head_dim, n = p->n;
    const size_t each = cache_elements(c, d->rows, d->positions) / (uint64_t)c->layers;
    const struct tern_tensor_cache cache = {.H = c->heads,
                                            .K = c->kv_heads,
                                            .D = c->head_dim,
                                            .positions = d->positions,
                                            .keys = d->keys + (size_t)l * each,
                                            .values = d->values + (size_t)l * each,
                                            .cos = d->cos,
                                            .sin = d->sin};

    norm(d, d->x, at->input_norm, n);
    product(d, p, at->qkv, d->qkv, d->normed, &(struct tern_tensor_few){n, c->dim, W, false});
    if (p->reads)
        tern_tensor_attention_read(d->heads, d->qkv, &cache, d->at, n, d->attention);
    else
        tern_tensor_attention_step(d->heads, d->qkv, &cache, d->at, n, d->attention);
    product(d, p, at->o, d->x, d->heads, &(struct tern_tensor_few){n, HD, c->dim, true});
    norm(d, d->x, at->post_norm, n);
    product(d, p, at->gate_up, d->gate_up, d->normed,
            &(struct tern_tensor_few){n, c->dim, 2 * c->ffn, false});
    tern_tensor_swiglu(d->ffn, d->gate_up, n, c->ffn);
    product(d, p, at->down, d->x, d->ffn, &(struct tern_tensor_few){n, c->ffn, c->dim, true});
}

static void layers(struct tern_llama_decoder *d, const struct pass *p, const int32_t *ids)
{
    const struct tern_llama *m = d->m;

    if (m->bf16)
        tern_tensor_embed_bf16(d->x, m->w_bf16 + m->embed, ids, p->n, m->c.dim, 0, m->c.vocab);
    else
        tern_tensor_embed(d->x, m->w + m->embed, ids, p->n, m->c.dim);
    for (int l = 0; l < m->c.layers; l++)
        layer(d, p, l);
}

/* Of the last `n` positions of `p`: the head is read once for all, never by the products of many
 * rows. */
static void head(struct tern_llama_decoder *d, const struct pass *p, int n, tern_real *logits)
{
    const struct tern_model_config *c = &d->m->c;

    norm(d, d->x + (size_t)(p->n - n) * (size_t)c->dim, d->m->norm, n);
    product(d, &(struct pass){.n = n}, d->m->head, logits, d->normed,
            &(struct tern_tensor_few){n, c->dim, c->vocab, false});
}

/* May `n` more tokens come to a row? */
static int check(const struct tern_llama_decoder *d, int row, const int32_t *ids, int n,
                 struct tern_err *err)
{
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= d->m->c.vocab)
            return tern_err_set(err, TERN_USAGE,
                                "token id %d is outside the model's vocabulary of %d", ids[i],
                                d->m->c.vocab);
    if (n > d->positions - d->length[row])
        return tern_err_set(err, TERN_USAGE,
                            "%d positions and %d more do not fit a row of %d positions",
                            d->length[row], n, d->positions);
    return 0;
}

int tern_llama_decoder_read(struct tern_llama_decoder *d, int row, const int32_t *ids, int n,
                            tern_real *logits, struct tern_err *err)
{
    const struct pass p = {.n = n, .many = n >= MANY, .reads = true};

    if (check(d, row, ids, n, err) < 0)
        return -1;
    d->at[0] = (struct tern_tensor_place){row, d->length[row]};
    layers(d, &p, ids);
    d->length[row] += n;
    if (logits)
        head(d, &p, 1, logits);
    return 0;
}

int tern_llama_decoder_step(struct tern_llama_decoder *d, const int *rows, const int32_t *ids,
                            int n, tern_real *logits, struct tern_err *err)
{
    const struct pass p = {.n = n};

    for (int i = 0; i < n; i++) {
        if (check(d, rows[i], ids + i, 1, err) < 0)
            return -1;
        d->at[i] = (struct tern_tensor_place){rows[i], d->length[rows[i]]};
    }
    layers(d, &p, ids);
    for (int i = 0; i < n; i++)
        d->length[rows[i]]++;
    head(d, &p, n, logits);
    return 0;
}
