/* Rotary positions and causal attention.
 *
 * A tile is TILE queries of one head against all the keys they may see.  Its scores are transposed,
 * [keys, TILE]: a query is a column.  So the softmax runs down columns, a register's width of
 * queries at a time.  Every product finds its operands in the order in which the innermost loop
 * reads them (tern_tensor_gemm_near).  They are packed once for all tiles of a key head:
 *
 *     S[keys,TILE] = (K^T)^T Q^T          P = softmax of columns        O^T[D,TILE] = V^T P
 *     dP = (V^T)^T dO^T    dS from P, dP    dV += P dO    dK += dS Q    dQ^T = K^T dS
 *
 * Keys that the mask hides from the whole tile (the future, and documents that ended before) are
 * not read.  One thread alone adds to a key head's gradients, in a fixed order. */
#include "core/tensor/kernels.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { TILE = TERN_TENSOR_NEAR_LD };

/* One thread's memory, for one key head: rows of heads are `ld` floats here, D rounded up to
 * registers, and columns of all positions `wide`. */
struct work {
    int T, D, ld, wide;
    int past;                       /* the first queries' position */
    tern_real *k, *v;               /* [T,ld] */
    tern_real *kt, *vt;             /* [D,wide]: turned */
    tern_real *s, *ds;              /* [T,TILE] */
    tern_real *q, *dout;            /* [TILE,ld] */
    tern_real *qt, *doutt, *ot;     /* [D,TILE] */
    tern_real from[TILE], to[TILE]; /* the keys a query sees, counted from the tile's first */
    tern_real max[TILE], sum[TILE];
};

/* 16 more than the positions: rows at a power of two apart would share few sets of a cache. */
static int width(int T)
{
    return (T + 15) / 16 * 16 + 16;
}

/* `forward`: the arrays of a forward pass alone. */
static size_t lay_out(struct work *w, int T, int D, bool forward, tern_real *base)
{
    size_t ld = (size_t)(D + 15) / 16 * 16, wide = (size_t)width(T), rows = (size_t)T + 16, at = 0;
    /* Up to 15 floats after a row are read: the tail of each array. */
    size_t sizes[] = {rows * ld, ld * wide, rows * TILE, TILE * ld + 16, ld * TILE, ld * TILE,
                      rows * ld, ld * wide, rows * TILE, TILE * ld + 16, ld * TILE};
    tern_real **arrays[] = {&w->v, &w->kt, &w->s,  &w->q,    &w->qt,   &w->ot,
                            &w->k, &w->vt, &w->ds, &w->dout, &w->doutt};
    enum { FORWARD = 6 };

    w->T = T;
    w->past = 0;
    w->D = D;
    w->ld = (int)ld;
    w->wide = (int)wide;
    for (size_t i = 0; i < (forward ? FORWARD : sizeof(sizes) / sizeof(*sizes)); i++) {
        *arrays[i] = base ? base + at : NULL;
        at += (sizes[i] + 15) / 16 * 16;
    }
    return at;
}

size_t tern_tensor_attention_scratch(int T, int D, int threads)
{
    struct work w;

    return lay_out(&w, T, D, /* forward= */ false, NULL) *
           (size_t)(threads > 0 ? threads : omp_get_max_threads());
}

static void work_of_thread(struct work *w, int T, int D, bool forward, tern_real *scratch)
{
    size_t each = lay_out(w, T, D, forward, NULL);

    lay_out(w, T, D, forward, scratch + (size_t)omp_get_thread_num() * each);
}

void tern_tensor_rope(tern_real *qkv, const tern_real *cos, const tern_real *sin,
                      const struct tern_tensor_heads *a, int sign)
{
    int half = a->D / 2, width_ = (a->H + 2 * a->K) * a->D;

#pragma omp parallel for schedule(static)
    for (int r = 0; r < a->B * a->T; r++) {
        size_t t = (size_t)(r % a->T - (a->starts ? a->starts[r] : 0)) * (size_t)half;

        for (int h = 0; h < a->H + a->K; h++)
            tern_tensor_k->rope(qkv + (size_t)r * (size_t)width_ + (size_t)(h * a->D), cos + t,
                                sin + t, half, sign);
    }
}

/* Where heads lie, as offsets: q, k, v in qkv[B*T, row]; out in out[B*T, row_out]; stats. */
struct head {
    size_t q, k, v, out, stats;
    int row, row_out;
    const int32_t *starts; /* of this row of the batch, or NULL */
};

static struct head head_of(const struct tern_tensor_heads *a, int b, int h)
{
    size_t row = (size_t)(a->H + 2 * a->K) * (size_t)a->D, D = (size_t)a->D;
    size_t first = (size_t)b * (size_t)a->T, key = (size_t)(a->H + h / (a->H / a->K));

    return (struct head){
        .q = first * row + (size_t)h * D,
        .k = first * row + key * D,
        .v = first * row + (key + (size_t)a->K) * D,
        .out = first * (size_t)a->H * D + (size_t)h * D,
        .stats = (first * (size_t)a->H + (size_t)h * (size_t)a->T) * 2,
        .row = (int)row,
        .row_out = a->H * a->D,
        .starts = a->starts ? a->starts + first : NULL,
    };
}

/* to[n,ld] = rows of a head, with zeros up to ld. */
static void take(const struct work *w, tern_real *to, const tern_real *from, int row, int n)
{
    for (int r = 0; r < n; r++, to += w->ld, from += row) {
        memcpy(to, from, (size_t)w->D * sizeof(*to));
        memset(to + w->D, 0, (size_t)(w->ld - w->D) * sizeof(*to));
    }
}

/* Rows of a head = from[D,TILE], turned; `tmp` is [TILE,ld]. */
static void give(const struct work *w, tern_real *to, const tern_real *from, int row, int n,
                 tern_real *tmp)
{
    tern_tensor_turn(tmp, w->ld, from, TILE, w->D, n);
    for (int r = 0; r < n; r++)
        memcpy(to + (size_t)r * (size_t)row, tmp + (size_t)(r * w->ld), (size_t)w->D * sizeof(*to));
}

/* to[D,TILE] = from[n,ld] turned, zeros where n < TILE. */
static void turn_tile(const struct work *w, tern_real *to, const tern_real *from, int n)
{
    if (n < TILE)
        memset(to, 0, (size_t)(w->D * TILE) * sizeof(*to));
    tern_tensor_turn(to, TILE, from, w->ld, n, w->D);
}

/* Queries t0 .. t0+rows-1, and the keys k0 .. k0+n-1 that some of them see. */
struct tile {
    int t0, rows, k0, n;
};

static struct tile tile_of(struct work *w, const struct head *h, int t0)
{
    struct tile t = {.t0 = t0, .rows = w->T - t0 < TILE ? w->T - t0 : TILE};

    t.k0 = h->starts ? h->starts[t0] : 0;
    t.n = t0 + t.rows - t.k0;
    for (int c = 0; c < TILE; c++) {
        bool real = c < t.rows;

        w->from[c] = real && h->starts ? (tern_real)(h->starts[t0 + c] - t.k0) : 0;
        w->to[c] = (tern_real)(real ? t0 + c - t.k0 : t.n);
    }
    return t;
}

static void columns_of_keys(const struct work *w, tern_real *to, const tern_real *turned,
                            const struct tile *t, const tern_real *tile)
{
    const struct tern_tensor_gemm g = {.ta = true,
                                       .M = t->n,
                                       .N = TILE,
                                       .K = w->D,
                                       .lda = w->wide,
                                       .ldb = TILE,
                                       .ldc = TILE,
                                       .alpha = 1};

    tern_tensor_gemm_near(&g, turned + t->k0, tile, to);
}

static tern_real *rows_at(tern_real *x, int t, int ld)
{
    return x + (size_t)t * (size_t)ld;
}

/* w->ot[D,TILE]: for each query of the tile the sum of rows of `x` (w->k or w->v), times weights.
 */
static void sum_keys(const struct work *w, tern_real *x, const struct tile *t,
                     const tern_real *weights)
{
    const struct tern_tensor_gemm g = {.ta = true,
                                       .M = w->D,
                                       .N = TILE,
                                       .K = t->n,
                                       .lda = w->ld,
                                       .ldb = TILE,
                                       .ldc = TILE,
                                       .alpha = 1};

    tern_tensor_gemm_near(&g, rows_at(x, t->k0, w->ld), weights, w->ot);
}

static void tile_forward(struct work *w, const struct head *h, int t0, const tern_real *qkv,
                         tern_real *out, tern_real *stats)
{
    struct tile t = tile_of(w, h, t0);
    size_t r0 = (size_t)(t0 - w->past); /* of qkv and out */

    take(w, w->q, qkv + h->q + r0 * (size_t)h->row, h->row, t.rows);
    turn_tile(w, w->qt, w->q, t.rows);
    columns_of_keys(w, w->s, w->kt, &t, w->qt);
    tern_tensor_k->softmax(w->s, t.n, w->from, w->to, (tern_real)(1 / sqrt((double)w->D)), w->max,
                           w->sum);
    sum_keys(w, w->v, &t, w->s);
    for (int c = 0; c < t.rows && stats; c++) {
        stats[h->stats + 2 * (size_t)(t0 + c)] = w->max[c];
        stats[h->stats + 2 * (size_t)(t0 + c) + 1] = w->sum[c];
    }
    for (int c = 0; c < TILE; c++)
        w->sum[c] = 1 / w->sum[c];
    tern_tensor_k->columns(w->ot, w->sum, w->D);
    give(w, out + h->out + r0 * (size_t)h->row_out, w->ot, h->row_out, t.rows, w->q);
}

/* A job is every `parts`-th tile of a key head's queries. With many threads and few heads, some
 * share a head, and each turns its keys for itself. */
void tern_tensor_attention(tern_real *out, tern_real *stats, const tern_real *qkv,
                           const struct tern_tensor_heads *a, tern_real *scratch)
{
    int tiles = (a->T + TILE - 1) / TILE, group = a->H / a->K, heads = a->B * a->K;
    int parts = (4 * omp_get_max_threads() + heads - 1) / heads;

    if (parts > tiles)
        parts = tiles;
#pragma omp parallel for schedule(dynamic)
    for (int job = 0; job < heads * parts; job++) {
        int b = job / parts / a->K, key = job / parts % a->K;
        struct head first = head_of(a, b, key * group);
        struct work w;

        work_of_thread(&w, a->T, a->D, /* forward= */ false, scratch);
        take(&w, w.v, qkv + first.v, first.row, a->T);
        tern_tensor_turn(w.kt, w.wide, qkv + first.k, first.row, a->T, a->D);
        for (int h = 0; h < group; h++)
            for (int i = job % parts; i < tiles; i += parts) {
                struct head head = head_of(a, b, key * group + h);

                tile_forward(&w, &head, i * TILE, qkv, out, stats);
            }
    }
}

static void tile_backward(struct work *w, const struct head *h, int t0, tern_real *dqkv,
                          const tern_real *dout, const tern_real *qkv, const tern_real *stats)
{
    struct tile t = tile_of(w, h, t0);
    tern_real by = (tern_real)(1 / sqrt((double)w->D));
    size_t keys = (size_t)t.k0 * (size_t)h->row;
    const struct tern_tensor_gemm to_keys = {.M = t.n,
                                             .N = w->D,
                                             .K = t.rows,
                                             .lda = TILE,
                                             .ldb = w->ld,
                                             .ldc = h->row,
                                             .alpha = 1,
                                             .beta = 1};

    for (int c = 0; c < TILE; c++) {
        const tern_real *s = stats + h->stats + 2 * (size_t)(t0 + c);

        w->max[c] = c < t.rows ? s[0] : 0;
        w->sum[c] = c < t.rows ? 1 / s[1] : 0;
    }
    take(w, w->q, qkv + h->q + (size_t)t0 * (size_t)h->row, h->row, t.rows);
    take(w, w->dout, dout + h->out + (size_t)t0 * (size_t)h->row_out, h->row_out, t.rows);
    turn_tile(w, w->qt, w->q, t.rows);
    turn_tile(w, w->doutt, w->dout, t.rows);
    columns_of_keys(w, w->s, w->kt, &t, w->qt);
    tern_tensor_k->softmax_again(w->s, t.n, w->from, w->to, by, w->max, w->sum);
    tern_tensor_gemm_near(&to_keys, w->s, w->dout, dqkv + h->v + keys);
    columns_of_keys(w, w->ds, w->vt, &t, w->doutt);
    tern_tensor_k->softmax_back(w->ds, w->s, t.n, by);
    tern_tensor_gemm_near(&to_keys, w->ds, w->q, dqkv + h->k + keys);
    sum_keys(w, w->k, &t, w->ds);
    give(w, dqkv + h->q + (size_t)t0 * (size_t)h->row, w->ot, h->row, t.rows, w->q);
}

void tern_tensor_attention_backward(tern_real *dqkv, const tern_real *dout, const tern_real *qkv,
                                    const tern_real *stats, const struct tern_tensor_heads *a,
                                    tern_real *scratch)
{
    int tiles = (a->T + TILE - 1) / TILE, group = a->H / a->K;

#pragma omp parallel for schedule(dynamic)
    for (int job = 0; job < a->B * a->K; job++) {
        struct head first = head_of(a, job / a->K, job % a->K * group);
        struct work w;

        work_of_thread(&w, a->T, a->D, /* forward= */ false, scratch);
        take(&w, w.k, qkv + first.k, first.row, a->T);
        tern_tensor_turn(w.kt, w.wide, qkv + first.k, first.row, a->T, a->D);
        tern_tensor_turn(w.vt, w.wide, qkv + first.v, first.row, a->T, a->D);
        for (int t = 0; t < a->T; t++) {
            size_t row = (size_t)t * (size_t)first.row, bytes = (size_t)a->D * sizeof(*dqkv);

            memset(dqkv + first.k + row, 0, bytes);
            memset(dqkv + first.v + row, 0, bytes);
        }
        for (int i = 0; i < group * tiles; i++) {
            struct head head = head_of(a, job / a->K, job % a->K * group + i / tiles);

            tile_backward(&w, &head, i % tiles * TILE, dqkv, dout, qkv, stats);
        }
    }
}

/* ---------------------------------------------------------------- with keys from before */

static tern_real *cached(tern_real *of, const struct tern_tensor_cache *c, int row, int key)
{
    size_t head = (size_t)row * (size_t)c->K + (size_t)key;

    return of + head * (size_t)c->positions * (size_t)c->D;
}

/* Put the key (rotated in place) and value of one position into a head's cache. */
static void remember(const struct tern_tensor_cache *c, tern_real *qkv, int row, int key, int t)
{
    size_t D = (size_t)c->D, at = (size_t)t * D, angle = (size_t)t * (D / 2);
    tern_real *k = qkv + (size_t)(c->H + key) * D, *v = k + (size_t)c->K * D;

    tern_tensor_k->rope(k, c->cos + angle, c->sin + angle, c->D / 2, 1);
    memcpy(cached(c->keys, c, row, key) + at, k, D * sizeof(*k));
    memcpy(cached(c->values, c, row, key) + at, v, D * sizeof(*v));
}

size_t tern_tensor_attention_cached_scratch(const struct tern_tensor_cache *c, int threads)
{
    struct work w;

    return lay_out(&w, c->positions, c->D, /* forward= */ true, NULL) *
           (size_t)(threads > 0 ? threads : omp_get_max_threads());
}

void tern_tensor_attention_read(tern_real *out, tern_real *qkv, const struct tern_tensor_cache *c,
                                const struct tern_tensor_place *p, int n, tern_real *scratch)
{
    const struct tern_tensor_heads a = {.B = 1, .T = n, .H = c->H, .K = c->K, .D = c->D};
    int tiles = (n + TILE - 1) / TILE, group = c->H / c->K, T = p->position + n;
    int parts = (4 * omp_get_max_threads() + c->K - 1) / c->K;
    size_t row = (size_t)(c->H + 2 * c->K) * (size_t)c->D;

    parts = parts > tiles ? tiles : parts;
#pragma omp parallel for schedule(static)
    for (int r = 0; r < n; r++) {
        size_t angle = (size_t)(p->position + r) * (size_t)(c->D / 2);

        for (int h = 0; h < c->H; h++)
            tern_tensor_k->rope(qkv + (size_t)r * row + (size_t)(h * c->D), c->cos + angle,
                                c->sin + angle, c->D / 2, 1);
        for (int key = 0; key < c->K; key++)
            remember(c, qkv + (size_t)r * row, p->row, key, p->position + r);
    }
#pragma omp parallel for schedule(dynamic)
    for (int job = 0; job < c->K * parts; job++) {
        int key = job / parts;
        struct work w;

        work_of_thread(&w, T, c->D, /* forward= */ true, scratch);
        w.past = p->position;
        take(&w, w.v, cached(c->values, c, p->row, key), c->D, T);
        tern_tensor_turn(w.kt, w.wide, cached(c->keys, c, p->row, key), c->D, T, c->D);
        for (int h = 0; h < group; h++)
            for (int i = job % parts; i < tiles; i += parts) {
                struct head head = head_of(&a, 0, key * group + h);

                tile_forward(&w, &head, w.past + i * TILE, qkv, out, /* stats= */ NULL);
            }
    }
}

void tern_tensor_attention_step(tern_real *out, tern_real *qkv, const struct tern_tensor_cache *c,
                                const struct tern_tensor_place *places, int n, tern_real *scratch)
{
    int group = c->H / c->K;
    tern_real by = (tern_real)(1 / sqrt((double)c->D));
    size_t D = (size_t)c->D, row = (size_t)(c->H + 2 * c->K) * D;

#pragma omp parallel for schedule(static)
    for (int job = 0; job < n * c->K; job++) {
        int i = job / c->K, key = job % c->K, t = places[i].position;
        tern_real *x = qkv + (size_t)i * row;
        tern_real *scores = scratch + (size_t)omp_get_thread_num() * (size_t)c->positions;
        const tern_real *k = cached(c->keys, c, places[i].row, key);
        const tern_real *v = cached(c->values, c, places[i].row, key);

        remember(c, x, places[i].row, key, t);
        for (int h = key * group; h < (key + 1) * group; h++) {
            tern_real *q = x + (size_t)h * D, *y = out + ((size_t)i * (size_t)c->H + (size_t)h) * D;
            size_t angle = (size_t)t * (D / 2);

            tern_tensor_k->rope(q, c->cos + angle, c->sin + angle, c->D / 2, 1);
            tern_tensor_k->dots(scores, q, k, D, t + 1, c->D, /* add= */ false);
            double sum =
                tern_tensor_k->exp_sum(scores, tern_tensor_k->max(scores, t + 1), by, t + 1);
            tern_tensor_k->mix(y, v, scores, t + 1, c->D);
            tern_tensor_k->scale(y, (tern_real)(1 / sum), D);
        }
    }
}
