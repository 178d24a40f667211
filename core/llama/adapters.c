/* Low-rank adapters beside the weights of a layer (LoRA).
 *
 * Of a weight that fans out (q, k, v, gate, up) tensor ranks have all of A and their rows of B.  Of
 * one that gathers (o, down) they have their columns of A and all of B.  So an adapter's addend is
 * summed with the product it is added to; beyond that only gradients of whole arrays are sent.
 *
 * DoRA (Liu et al. 2024, arXiv 2402.09353) as PEFT has it: with g = m / ||W + scale B A||, a factor
 * for each output whose norm counts as a constant in the backward pass (section 4.3 there),
 *
 *     y = W x + (g - 1) W d + g scale B A d,   d = dropout(x)
 *
 * which without dropout is g (W x + scale B A x).  For a norm over a row that tensor ranks share, a
 * sum of squares is sent in addition. */
#include "core/llama/layers.h"

#include <math.h>

#include "core/base/rand.h"

/* The sizes and places of one adapter here. */
struct pair {
    const tern_real *a, *b;
    tern_real *da, *db;
    size_t w;                                 /* where the weight [out,in] begins */
    tern_real *magnitude, *dmagnitude, *norm; /* [out] each; NULL without DoRA */
    int in, out, rank, first; /* `first`: the first of the weight's inputs that is here */
    uint64_t stream;          /* of dropout's random numbers */
};

static bool find(const struct tern_llama *m, int layer, enum tern_model_kind kind, struct pair *p)
{
    const struct tern_model_shard *s = m->shard;
    int D = m->c.head_dim, target = kind - TERN_MODEL_Q;

    if (!m->lora.rank || m->lora_at[layer].a[target] == SIZE_MAX)
        return false;
    const struct tern_llama_layer_at *l = &m->layers[layer];
    const size_t C = (size_t)m->c.dim, HD = (size_t)(s->heads * D), KD = (size_t)(s->kv_heads * D);
    const size_t w[] = {l->qkv, l->qkv + HD * C, l->qkv + (HD + KD) * C,
                        l->o,   l->gate_up,      l->gate_up + (size_t)s->ffn * C,
                        l->down};
    const int in[] = {m->c.dim, m->c.dim, m->c.dim, s->heads * D, m->c.dim, m->c.dim, s->ffn};
    const int out[] = {s->heads * D, s->kv_heads * D, s->kv_heads * D, m->c.dim,
                       s->ffn,       s->ffn,          m->c.dim};
    size_t a = m->lora_at[layer].a[target], b = m->lora_at[layer].b[target];
    *p = (struct pair){
        .a = m->lora_w + a,
        .b = m->lora_w + b,
        .da = m->lora_g ? m->lora_g + a : NULL,
        .db = m->lora_g ? m->lora_g + b : NULL,
        .w = w[target],
        .in = in[target],
        .out = out[target],
        .rank = m->lora.rank,
        .stream = (uint64_t)m->lora_layer[layer] * TERN_LLAMA_TARGETS + (uint64_t)target,
    };
    if (m->lora.dora) {
        size_t magnitude = m->lora_at[layer].magnitude[target];
        p->magnitude = m->lora_w + magnitude;
        p->dmagnitude = m->lora_g ? m->lora_g + magnitude : NULL;
        p->norm = m->a.norms + m->lora_at[layer].norm[target];
    }
    if (kind == TERN_MODEL_O)
        p->first = m->tensor_rank * p->in;
    if (kind == TERN_MODEL_DOWN)
        p->first = (int)((int64_t)m->c.ffn * m->tensor_rank / m->tensor);
    return true;
}

bool tern_llama_learns(const struct tern_llama *m, int layer, enum tern_model_kind kind)
{
    struct pair p;

    return m->g || find(m, layer, kind, &p);
}

static bool drops(const struct tern_llama *m, const struct tern_llama_batch *b)
{
    return b->drops && m->lora.dropout > 0;
}

/* to[N,in] = from (which may be `to`) with dropout: by seed, sample, layer, weight, position and
 * element alone, the same in every layout. */
static void drop(const struct tern_llama *m, const struct pair *p, const struct tern_llama_batch *b,
                 tern_real *to, const tern_real *from)
{
    for (int r = 0; r < b->B; r++) {
        const struct tern_tensor_dropout d = {
            .rate = m->lora.dropout,
            .seed = m->lora.seed,
            .stream = p->stream,
            .row = (b->sample + (uint64_t)r) * (uint64_t)m->seq_len,
            .column = (uint64_t)p->first,
        };
        size_t at = (size_t)(r * b->T) * (size_t)p->in;

        tern_tensor_dropout(to + at, from + at, &d, b->T, p->in);
    }
}

/* The adapter's input: x, with dropout where the batch drops. */
static const tern_real *input(const struct tern_llama *m, const struct pair *p,
                              const struct tern_llama_batch *b, const tern_real *x)
{
    if (!drops(m, b))
        return x;
    drop(m, p, b, m->a.dropped, x);
    return m->a.dropped;
}

/* y[N,out] = beta y + scale B A x; leaves A x in m->a.low. */
static void low_product(struct tern_llama *m, const struct pair *p, int N, const tern_real *x,
                        tern_real beta, tern_real *y, int ldy)
{
    const struct tern_tensor_gemm g = {.tb = true,
                                       .M = N,
                                       .N = p->out,
                                       .K = p->rank,
                                       .ldc = ldy,
                                       .alpha = (tern_real)m->lora.scale,
                                       .beta = beta};

    tern_llama_linear(m->a.low, x, p->a, N, p->in, p->rank);
    tern_tensor_gemm(&g, m->a.low, p->b, y);
}

/* ---------------------------------------------------------------- magnitudes */

bool tern_llama_scales(const struct tern_llama *m, int layer, enum tern_model_kind kind)
{
    struct pair p;

    return m->lora.dora && find(m, layer, kind, &p);
}

/* to[n] of the parameters from `at` on. */
static void weight_rows(const struct tern_llama *m, tern_real *to, size_t at, size_t n)
{
    if (m->bf16)
        tern_tensor_from_bf16(to, m->w_bf16 + at, n);
    else
        tern_tensor_copy(to, m->w + at, n);
}

/* squares[out] of the rows of W + scale B A, as far as they lie here. */
static void row_squares(struct tern_llama *m, const struct pair *p)
{
    tern_real *rows = m->a.rows;

    for (int from = 0; from < p->out; from += TERN_LLAMA_NORM_ROWS) {
        int n = p->out - from < TERN_LLAMA_NORM_ROWS ? p->out - from : TERN_LLAMA_NORM_ROWS;

        weight_rows(m, rows, p->w + (size_t)from * (size_t)p->in, (size_t)n * (size_t)p->in);
        const struct tern_tensor_gemm g = {
            .M = n, .N = p->in, .K = p->rank, .alpha = (tern_real)m->lora.scale, .beta = 1};
        tern_tensor_gemm(&g, p->b + (size_t)from * (size_t)p->rank, p->a, rows);
#pragma omp parallel for schedule(static)
        for (int r = 0; r < n; r++)
            m->a.squares[from + r] =
                tern_tensor_sum_squares(rows + (size_t)r * (size_t)p->in, (size_t)p->in);
    }
}

int tern_llama_adapter_norms(struct tern_llama *m, int layer, struct tern_err *err)
{
    struct pair p;

    for (int kind = TERN_MODEL_Q; kind <= TERN_MODEL_DOWN && m->lora.dora; kind++) {
        if (!find(m, layer, (enum tern_model_kind)kind, &p))
            continue;
        row_squares(m, &p);
        if (m->tensor > 1 && (kind == TERN_MODEL_O || kind == TERN_MODEL_DOWN) &&
            m->peers.all_reduce_doubles(m->peers.ctx, m->a.squares, (size_t)p.out, false, err) < 0)
            return -1;
        for (int o = 0; o < p.out; o++)
            p.norm[o] = (tern_real)sqrt(m->a.squares[o]);
    }
    return 0;
}

/* g[out], until m->a.rows is used again.  A row of zeros stays one. */
static const tern_real *factors(struct tern_llama *m, const struct pair *p)
{
    tern_real *g = m->a.rows;

    for (int o = 0; o < p->out; o++)
        g[o] = p->norm[o] > 0 ? p->magnitude[o] / p->norm[o] : 0;
    return g;
}

/* to[N,out] = keep * to + (g - less) * from. */
struct scaling {
    const tern_real *g;
    tern_real less, keep;
    int N, out;
};

/* In rows ld_to and ld apart; `to` may be `from`. */
static void scale_rows(tern_real *to, int ld_to, const tern_real *from, int ld,
                       const struct scaling *s)
{
    const tern_real *g = s->g, less = s->less, keep = s->keep;
    const int out = s->out;

#pragma omp parallel for schedule(static)
    for (int r = 0; r < s->N; r++) {
        tern_real *y = to + (size_t)r * (size_t)ld_to;
        const tern_real *x = from + (size_t)r * (size_t)ld;

        for (int o = 0; o < out; o++) {
            tern_real v = (g[o] - less) * x[o];
            y[o] = keep != 0 ? keep * y[o] + v : v; /* its contents may be anything */
        }
    }
}

/* dm += sum over tokens of dy u / norm: the magnitude's gradient, where y = m / norm u. */
static void magnitude_grads(struct tern_llama *m, const struct pair *p, int N, const tern_real *dy,
                            int ldy, const tern_real *u)
{
    enum { BLOCK = 64 }; /* columns: whole cache lines, and work for all threads */

#pragma omp parallel for schedule(static)
    for (int from = 0; from < p->out; from += BLOCK) {
        int to = from + BLOCK < p->out ? from + BLOCK : p->out;
        double *sums = m->a.squares;

        for (int o = from; o < to; o++)
            sums[o] = 0;
        for (int r = 0; r < N; r++)
            for (int o = from; o < to; o++)
                sums[o] += (double)dy[(size_t)r * (size_t)ldy + (size_t)o] *
                           (double)u[(size_t)r * (size_t)p->out + (size_t)o];
        for (int o = from; o < to; o++)
            p->dmagnitude[o] += p->norm[o] > 0 ? (tern_real)(sums[o] / (double)p->norm[o]) : 0;
    }
}

/* ---------------------------------------------------------------- the passes */

void tern_llama_adapt(struct tern_llama *m, const struct tern_llama_use *u, tern_real *y, int ldy,
                      const tern_real *x)
{
    const struct tern_llama_batch *b = u->b;
    int N = b->B * b->T;
    struct pair p;

    if (!find(m, u->layer, u->kind, &p))
        return;
    if (!p.magnitude) {
        low_product(m, &p, N, input(m, &p, b, x), 1, y, ldy);
    } else if (!drops(m, b)) {
        low_product(m, &p, N, x, 1, y, ldy);
        scale_rows(y, ldy, y, ldy, &(struct scaling){.g = factors(m, &p), .N = N, .out = p.out});
    } else {
        tern_real *part = m->a.product;
        x = input(m, &p, b, x);
        tern_llama_product(m, p.w, part, x, N, p.in, p.out);
        scale_rows(
            y, ldy, part, p.out,
            &(struct scaling){.g = factors(m, &p), .less = 1, .keep = 1, .N = N, .out = p.out});
        low_product(m, &p, N, x, 0, part, p.out);
        scale_rows(y, ldy, part, p.out,
                   &(struct scaling){.g = factors(m, &p), .keep = 1, .N = N, .out = p.out});
    }
}

tern_real *tern_llama_adapt_scale(struct tern_llama *m, const struct tern_llama_use *u,
                                  tern_real *dy, int ldy, const tern_real *x, bool own)
{
    const struct tern_llama_batch *b = u->b;
    tern_real *product = m->a.product;
    int N = b->B * b->T;
    struct pair p;

    if (!find(m, u->layer, u->kind, &p) || !p.magnitude)
        return dy;
    x = input(m, &p, b, x);
    tern_llama_product(m, p.w, product, x, N, p.in, p.out);
    low_product(m, &p, N, x, 1, product, p.out);
    magnitude_grads(m, &p, N, dy, ldy, product);
    if (drops(m, b)) /* the product of the whole x is not scaled */
        return dy;
    tern_real *scaled = own ? dy : product; /* of the same row distance: o and down */
    scale_rows(scaled, ldy, dy, ldy, &(struct scaling){.g = factors(m, &p), .N = N, .out = p.out});
    return scaled;
}

void tern_llama_adapt_grads(struct tern_llama *m, const struct tern_llama_use *u,
                            const tern_real *dy, int ldy, const tern_real *x)
{
    const struct tern_llama_batch *b = u->b;
    const tern_real scale = (tern_real)m->lora.scale;
    int N = b->B * b->T;
    struct pair p;

    if (!find(m, u->layer, u->kind, &p))
        return;
    tern_real *low = m->a.low, *dlow = low + (size_t)N * (size_t)p.rank;
    const tern_real *whole = dy;
    const int ld = ldy;
    x = input(m, &p, b, x);
    if (p.magnitude && drops(m, b)) {
        scale_rows(m->a.product, p.out, dy, ldy,
                   &(struct scaling){.g = factors(m, &p), .N = N, .out = p.out});
        dy = m->a.product;
        ldy = p.out;
    }
    tern_llama_linear(low, x, p.a, N, p.in, p.rank);
    const struct tern_tensor_gemm db = {
        .ta = true, .M = p.out, .N = p.rank, .K = N, .lda = ldy, .alpha = scale, .beta = 1};
    const struct tern_tensor_gemm through_b = {
        .M = N, .N = p.rank, .K = p.out, .lda = ldy, .alpha = scale};
    const struct tern_tensor_gemm da = {
        .ta = true, .M = p.rank, .N = p.in, .K = N, .alpha = 1, .beta = 1};
    tern_tensor_gemm(&db, dy, low, p.db);
    tern_tensor_gemm(&through_b, dy, p.b, dlow);
    tern_tensor_gemm(&da, dlow, x, p.da);
    if (dy != whole) /* for tern_llama_adapt_dx: of W d */
        scale_rows(m->a.product, p.out, whole, ld,
                   &(struct scaling){.g = factors(m, &p), .less = 1, .N = N, .out = p.out});
}

void tern_llama_adapt_dx(struct tern_llama *m, const struct tern_llama_use *u, tern_real *dx)
{
    const struct tern_llama_batch *b = u->b;
    int N = b->B * b->T;
    struct pair p;

    if (!find(m, u->layer, u->kind, &p))
        return;
    const tern_real *dlow = m->a.low + (size_t)N * (size_t)p.rank;
    const bool whole = !drops(m, b);
    const struct tern_tensor_gemm through_a = {
        .M = N, .N = p.in, .K = p.rank, .alpha = 1, .beta = whole || p.magnitude ? 1 : 0};
    if (whole) {
        tern_tensor_gemm(&through_a, dlow, p.a, dx);
        return;
    }
    if (p.magnitude)
        tern_llama_product_dx(m, p.w, m->a.dropped, m->a.product, N, p.in, p.out);
    tern_tensor_gemm(&through_a, dlow, p.a, m->a.dropped);
    drop(m, &p, b, m->a.dropped, m->a.dropped);
    tern_tensor_add(dx, m->a.dropped, (size_t)N * (size_t)p.in);
}

/* ---------------------------------------------------------------- where they are, and begin */

void tern_llama_adapters_locate(struct tern_llama *m)
{
    const struct tern_model_shard *s = m->lora_shard;
    const size_t arrays = (size_t)tern_model_adapter_arrays(&m->lora);

    for (int l = 0; l < m->shard->n_layers; l++)
        for (int k = 0; k < TERN_LLAMA_TARGETS; k++)
            m->lora_at[l].a[k] = m->lora_at[l].b[k] = SIZE_MAX;
    for (int k = 0; k < s->n_chunks; k++)
        for (int l = 0; l < s->chunks[k].layers; l++)
            m->lora_layer[s->chunks[k].at + l] = s->chunks[k].first + l;
    for (size_t i = 0; i < s->n_parts; i += arrays) {
        const struct tern_model_part *a = &s->parts[i];
        int target = a->whole.kind - TERN_MODEL_Q;
        for (int l = 0; l < m->shard->n_layers; l++) {
            if (m->lora_layer[l] != a->whole.layer)
                continue;
            m->lora_at[l].a[target] = a->offset;
            m->lora_at[l].b[target] = a[1].offset;
            if (!m->lora.dora)
                continue;
            m->lora_at[l].magnitude[target] = a[2].offset;
            m->lora_at[l].norm[target] = m->n_magnitudes;
            m->n_magnitudes += a[2].count;
        }
    }
}

void tern_llama_adapters_init(struct tern_llama *m)
{
    const struct tern_model_shard *s = m->lora_shard;

    for (size_t i = 0; s && i < s->n_parts; i += (size_t)tern_model_adapter_arrays(&m->lora)) {
        const struct tern_model_part *a = &s->parts[i];
        double bound = 1 / sqrt((double)a->whole.shape[1]);

        for (int64_t r = 0; r < a->shape[0]; r++)
            for (int64_t c = 0; c < a->shape[1]; c++) {
                uint64_t e = (uint64_t)(r * a->whole.shape[1] + a->start[1] + c);
                double u = tern_rand_unit(m->lora.seed ^ 0x10ca, a->index, e);
                m->lora_w[a->offset + (uint64_t)(r * a->shape[1] + c)] =
                    (tern_real)(bound * (2 * u - 1));
            }
    }
}

int tern_llama_magnitudes_init(struct tern_llama *m, struct tern_err *err)
{
    struct pair p;

    for (int l = 0; l < m->shard->n_layers && m->lora.dora; l++) {
        if (tern_llama_adapter_norms(m, l, err) < 0)
            return -1;
        for (int kind = TERN_MODEL_Q; kind <= TERN_MODEL_DOWN; kind++)
            if (find(m, l, (enum tern_model_kind)kind, &p))
                tern_tensor_copy(p.magnitude, p.norm, (size_t)p.out);
    }
    return 0;
}
