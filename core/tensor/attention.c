/* Rotary positions and causal attention.
 *
 * A tile is TILE query rows of one head against all the keys they may see: its scores are a
 * [TILE, <= T] array that stays in a core's cache, whole rows of the softmax at once, and blocks
 * that the mask would hide are never computed.  (Row, key head) pairs are dealt to the threads, so
 * that one thread alone adds to a key head's gradients, in a fixed order. */
#include "core/tensor/kernels.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { TILE = 64 };

static size_t tile_elements(int T)
{
    return (size_t)TILE * (size_t)((T + 15) / 16 * 16);
}

size_t tern_tensor_attention_scratch(int T)
{
    return 2 * tile_elements(T) * (size_t)omp_get_max_threads();
}

void tern_tensor_rope(tern_real *qkv, const tern_real *cos, const tern_real *sin,
                      const struct tern_tensor_heads *a, int sign)
{
    int half = a->D / 2, width = (a->H + 2 * a->K) * a->D;

#pragma omp parallel for schedule(static)
    for (int r = 0; r < a->B * a->T; r++) {
        size_t t = (size_t)(r % a->T) * (size_t)half;

        for (int h = 0; h < a->H + a->K; h++)
            tern_tensor_k->rope(qkv + (size_t)r * (size_t)width + (size_t)(h * a->D), cos + t,
                                sin + t, half, sign);
    }
}

/* Where one (batch row, query head) lies, and the strides. */
struct head {
    const tern_real *q, *k, *v; /* [T,D], rows `ld` apart */
    size_t out, stats;          /* offsets in out[B*T,H*D] and stats[B,H,T,2] */
    int ld, ld_out;
    tern_real scale;
};

static struct head head_of(const struct tern_tensor_heads *a, const tern_real *qkv, int b, int h)
{
    int ld = (a->H + 2 * a->K) * a->D;
    const tern_real *rows = qkv + (size_t)b * (size_t)a->T * (size_t)ld;
    int key = a->H + h / (a->H / a->K);

    return (struct head){
        .q = rows + (size_t)h * (size_t)a->D,
        .k = rows + (size_t)key * (size_t)a->D,
        .v = rows + (size_t)(key + a->K) * (size_t)a->D,
        .out = (size_t)b * (size_t)a->T * (size_t)(a->H * a->D) + (size_t)h * (size_t)a->D,
        .stats = ((size_t)b * (size_t)a->H + (size_t)h) * (size_t)a->T * 2,
        .ld = ld,
        .ld_out = a->H * a->D,
        .scale = (tern_real)(1 / sqrt((double)a->D)),
    };
}

/* scores[rows, n] = q[t0..t0+rows) k[0..n)^T, without the scale. */
static void scores(tern_real *s, const struct head *x, int t0, int rows, int n, int D)
{
    tern_tensor_gemm(false, true, rows, n, D, 1, x->q + (size_t)t0 * (size_t)x->ld, x->ld, x->k,
                     x->ld, 0, s, n);
}

void tern_tensor_attention(tern_real *out, tern_real *stats, const tern_real *qkv,
                           const struct tern_tensor_heads *a, tern_real *scratch)
{
    int tiles = (a->T + TILE - 1) / TILE, heads = a->B * a->H;

#pragma omp parallel for schedule(dynamic)
    for (int job = 0; job < heads * tiles; job++) {
        /* The longest first. */
        int t0 = (tiles - 1 - job / heads) * TILE, i = job % heads;
        int rows = a->T - t0 < TILE ? a->T - t0 : TILE, n = t0 + rows;
        struct head x = head_of(a, qkv, i / a->H, i % a->H);
        tern_real *s = scratch + (size_t)omp_get_thread_num() * 2 * tile_elements(a->T);

        scores(s, &x, t0, rows, n, a->D);
        for (int r = 0; r < rows; r++) {
            tern_real *row = s + (size_t)r * (size_t)n;
            int seen = t0 + r + 1;
            tern_real max = tern_tensor_k->max(row, seen);
            double sum = tern_tensor_k->sum_exp(row, max, x.scale, seen);

            tern_tensor_k->exp(row, max, x.scale, (tern_real)(1 / sum), seen);
            memset(row + seen, 0, (size_t)(n - seen) * sizeof(*row));
            if (stats) {
                stats[x.stats + 2 * (size_t)(t0 + r)] = max;
                stats[x.stats + 2 * (size_t)(t0 + r) + 1] = (tern_real)sum;
            }
        }
        tern_tensor_gemm(false, false, rows, a->D, n, 1, s, n, x.v, x.ld, 0,
                         out + x.out + (size_t)t0 * (size_t)x.ld_out, x.ld_out);
    }
}

/* One tile: dq is written; dk and dv are added to, or written when this is the key head's first
 * tile, which spans all positions. */
static void tile_backward(const struct tern_tensor_heads *a, const struct head *x, int t0,
                          bool first, tern_real *dq, tern_real *dk, tern_real *dv,
                          const tern_real *dout, const tern_real *stats, tern_real *p,
                          tern_real *dp)
{
    int rows = a->T - t0 < TILE ? a->T - t0 : TILE, n = t0 + rows, D = a->D;
    const tern_real *q = x->q + (size_t)t0 * (size_t)x->ld;
    tern_real beta = first ? 0 : 1;

    dout += x->out + (size_t)t0 * (size_t)x->ld_out;
    scores(p, x, t0, rows, n, D);
    tern_tensor_gemm(false, true, rows, n, D, 1, dout, x->ld_out, x->v, x->ld, 0, dp, n);
    for (int r = 0; r < rows; r++) {
        tern_real *prow = p + (size_t)r * (size_t)n, *drow = dp + (size_t)r * (size_t)n;
        const tern_real *s = stats + x->stats + 2 * (size_t)(t0 + r);
        int seen = t0 + r + 1;

        tern_tensor_k->exp(prow, s[0], x->scale, 1 / s[1], seen);
        tern_tensor_k->dscore(drow, prow, tern_tensor_k->dot(prow, drow, seen), x->scale, seen);
        memset(prow + seen, 0, (size_t)(n - seen) * sizeof(*prow));
        memset(drow + seen, 0, (size_t)(n - seen) * sizeof(*drow));
    }
    tern_tensor_gemm(true, false, n, D, rows, 1, p, n, dout, x->ld_out, beta, dv, x->ld);
    tern_tensor_gemm(false, false, rows, D, n, 1, dp, n, x->k, x->ld, 0,
                     dq + (size_t)t0 * (size_t)x->ld, x->ld);
    tern_tensor_gemm(true, false, n, D, rows, 1, dp, n, q, x->ld, beta, dk, x->ld);
}

void tern_tensor_attention_backward(tern_real *dqkv, const tern_real *dout, const tern_real *qkv,
                                    const tern_real *stats, const struct tern_tensor_heads *a,
                                    tern_real *scratch)
{
    int tiles = (a->T + TILE - 1) / TILE, group = a->H / a->K;

#pragma omp parallel for schedule(dynamic)
    for (int job = 0; job < a->B * a->K; job++) {
        tern_real *p = scratch + (size_t)omp_get_thread_num() * 2 * tile_elements(a->T);

        for (int i = 0; i < group * tiles; i++) {
            int h = job % a->K * group + i / tiles, t0 = (tiles - 1 - i % tiles) * TILE;
            struct head x = head_of(a, qkv, job / a->K, h);

            tile_backward(a, &x, t0, i == 0, dqkv + (x.q - qkv), dqkv + (x.k - qkv),
                          dqkv + (x.v - qkv), dout, stats, p, p + tile_elements(a->T));
        }
    }
}
