/* The kernels against plain loops in double, for every instruction set that this CPU has.  Built in
 * float and in double (tensor-f64). */
#include "tests/unit/same_bits.h"

#include <omp.h>

static const int sizes[] = {1, 63, 64, 65, 1000};
enum { SIZES = 5 };

static void arrays(int n)
{
    size_t N = (size_t)n;
    tern_real *x = noise(N, 1), *y = noise(N, 2), *m = noise(N, 3), *v = noise(N, 4), sum[1];
    double *expected = zeros(N), square = 0;
    const struct tern_tensor_adamw o = {1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 3};

    for (int i = 0; i < n; i++) {
        double g = 0.5 * (double)y[i], mi, vi;

        v[i] = v[i] * v[i];
        mi = 0.9 * (double)m[i] + 0.1 * g;
        vi = 0.95 * (double)v[i] + 0.05 * g * g;
        expected[i] = (double)x[i] * (1 - 1e-3) -
                      1e-2 / (1 - pow(0.9, 3)) * mi / (sqrt(vi / (1 - pow(0.95, 3))) + 1e-8);
        square += (double)x[i] * (double)x[i];
    }
    sum[0] = (tern_real)tern_tensor_sum_squares(x, N);
    ok(apart(sum, &square, 1) < NEAR, "sum of %d squares", n);
    SAME_BITS("sum of squares", sum, 1, sum[0] = (tern_real)tern_tensor_sum_squares(x, N));
    {
        tern_real *p = malloc(N * sizeof(*p)), *m2 = malloc(N * sizeof(*p)),
                  *v2 = malloc(N * sizeof(*p));

        SAME_BITS("AdamW", p, N, {
            memcpy(p, x, N * sizeof(*p));
            memcpy(m2, m, N * sizeof(*p));
            memcpy(v2, v, N * sizeof(*p));
            tern_tensor_adamw(&o, p, y, m2, v2, N);
        });
        ok(apart(p, expected, N) < NEAR, "AdamW on %d values", n);
        free(p);
        free(m2);
        free(v2);
    }
    tern_tensor_add(x, y, N);
    tern_tensor_scale(x, 2, N);
    tern_tensor_copy(m, x, N);
    tern_tensor_zero(y, N);
    ok(memcmp(m, x, N * sizeof(*m)) == 0 && y[0] == 0 && y[n - 1] == 0, "copy and zero");
    free(x);
    free(y);
    free(m);
    free(v);
    free(expected);
}

static void rmsnorm(int C)
{
    enum { ROWS = 67 };
    size_t n = (size_t)C * ROWS, c = (size_t)C;
    tern_real *x = noise(n, 1), *w = noise(c, 2), *dy = noise(n, 3), *y = noise(n, 4), rstd[ROWS];
    tern_real *dx = malloc(n * sizeof(*dx)), *dw = malloc(c * sizeof(*dw));
    double *expected = zeros(n), *expected_dx = zeros(n), *expected_dw = zeros(c);
    const struct tern_tensor_norm forward = {.x = x, .w = w, .rstd = rstd, .n = ROWS, .C = C};

    for (int r = 0; r < ROWS; r++) {
        double ss = 0, dot = 0, s;
        const size_t at = (size_t)r * c;

        for (size_t i = 0; i < c; i++) {
            ss += (double)x[at + i] * (double)x[at + i];
            dot += (double)dy[at + i] * (double)x[at + i] * (double)w[i];
        }
        s = 1 / sqrt(ss / C + 1e-5);
        for (size_t i = 0; i < c; i++) {
            expected[at + i] = (double)x[at + i] * s * (double)w[i];
            expected_dx[at + i] =
                1 + s * (double)dy[at + i] * (double)w[i] - (double)x[at + i] * s * s * s / C * dot;
            expected_dw[i] += (double)dy[at + i] * (double)x[at + i] * s;
        }
    }
    SAME_BITS("RMSNorm", y, n, tern_tensor_rmsnorm(y, rstd, x, w, ROWS, C, 1e-5));
    ok(apart(y, expected, n) < NEAR, "RMSNorm of %d columns", C);
    tern_tensor_rmsnorm_again(y, rstd, x, w, ROWS, C);
    ok(apart(y, expected, n) < NEAR, "RMSNorm from a saved rstd");
    SAME_BITS("RMSNorm's gradient", dx, n, {
        for (size_t i = 0; i < n; i++)
            dx[i] = 1;
        memset(dw, 0, c * sizeof(*dw));
        tern_tensor_rmsnorm_backward(dx, dw, dy, &forward);
    });
    ok(apart(dx, expected_dx, n) < 10 * NEAR, "the gradient of RMSNorm's input is added");
    ok(apart(dw, expected_dw, c) < 10 * NEAR, "gradient of its weight");
    free(x), free(w), free(dy), free(y), free(dx), free(dw);
    free(expected), free(expected_dx), free(expected_dw);
}

static void swiglu(int F)
{
    size_t f = (size_t)F, n = 3 * f;
    tern_real *gu = noise(2 * n, 1), *dh = noise(n, 2), *h = noise(n, 3), *g2 = noise(2 * n, 1);
    double *expected = zeros(n), *expected_d = zeros(2 * n);

    gu[0] = g2[0] = -200; /* where exp would overflow */
    for (size_t r = 0; r < 3; r++)
        for (size_t i = 0; i < f; i++) {
            double g = (double)gu[2 * r * f + i], u = (double)gu[2 * r * f + f + i];
            double s = 1 / (1 + exp(-g)), d = (double)dh[r * f + i];

            expected[r * f + i] = g * s * u;
            expected_d[2 * r * f + i] = d * u * s * (1 + g * (1 - s));
            expected_d[2 * r * f + f + i] = d * g * s;
        }
    SAME_BITS("SwiGLU", h, n, tern_tensor_swiglu(h, gu, 3, F));
    ok(apart(h, expected, n) < NEAR, "SwiGLU of %d columns", F);
    SAME_BITS("SwiGLU's gradient", gu, 2 * n, {
        memcpy(gu, g2, 2 * n * sizeof(*gu));
        tern_tensor_swiglu_backward(gu, dh, 3, F);
    });
    ok(apart(gu, expected_d, 2 * n) < NEAR, "SwiGLU's gradient in place");
    free(gu), free(dh), free(h), free(g2), free(expected), free(expected_d);
}

static void cross_entropy(int V)
{
    enum { ROWS = 5 };
    size_t n = (size_t)V * ROWS, v = (size_t)V;
    tern_real *x = noise(n, 1), *y = noise(n, 1);
    int32_t targets[ROWS] = {0, V - 1, V / 2, 0, 0};
    const uint8_t mask[ROWS] = {1, 1, 1, 0, 1};
    double *expected = zeros(n), losses[ROWS], lost = 0;

    x[4 * v] = y[4 * v] = 1e4F; /* a sure winner: loss 0, no overflow */
    SAME_BITS("cross entropy", y, n, {
        memcpy(y, x, n * sizeof(*y));
        tern_tensor_cross_entropy(y, losses, targets, mask, 0.25, ROWS, V);
    });
    for (size_t r = 0; r < ROWS; r++) {
        double sum = 0, max = -1e30, loss;

        for (size_t i = 0; i < v; i++)
            max = fmax(max, (double)x[r * v + i]);
        for (size_t i = 0; i < v; i++)
            sum += exp((double)x[r * v + i] - max);
        loss = log(sum) + max - (double)x[r * v + (size_t)targets[r]];
        for (size_t i = 0; i < v && mask[r]; i++)
            expected[r * v + i] =
                0.25 * (exp((double)x[r * v + i] - max) / sum - (i == (size_t)targets[r] ? 1 : 0));
        lost = fmax(lost, fabs(losses[r] - (mask[r] ? loss : 0)));
    }
    ok(lost < 1e-6, "cross entropy over %d: losses within %.1e", V, lost);
    ok(apart(y, expected, n) < NEAR, "gradient; nothing where the mask is 0");
    memcpy(y, x, n * sizeof(*y));
    tern_tensor_cross_entropy(y, losses, targets, NULL, 0, ROWS, V);
    ok(memcmp(x, y, n * sizeof(*y)) == 0 && (V == 1 || losses[3] > 0), "logits stay without one");
    free(x), free(y), free(expected);
}

/* One rank's part of step 0, 1 or 2 of cross entropy in parts: the largest, the sums, the gradient.
 */
static void vocabulary_step(int step, tern_real *part, const struct tern_tensor_vocab *vocab,
                            double *max, double *sum, double *picked)
{
    double sums[4], more[4];

    if (step == 0) {
        tern_tensor_vocab_max(sums, part, vocab);
        for (int r = 0; r < vocab->n; r++)
            max[r] = fmax(max[r], sums[r]);
    } else if (step == 1) {
        tern_tensor_vocab_sum(sums, more, part, max, vocab);
        for (int r = 0; r < vocab->n; r++) {
            sum[r] += sums[r];
            picked[r] += more[r];
        }
    } else {
        tern_tensor_vocab_gradient(part, sum, vocab, 0.5);
    }
}

/* The vocabulary cut over ranks: the losses and gradient of the whole. */
static void vocabulary(int V, int ranks)
{
    enum { ROWS = 4 };
    size_t n = (size_t)V * ROWS, v = (size_t)V;
    tern_real *x = noise(n, 1), *whole = noise(n, 1), *got = noise(n, 2);
    const int32_t targets[ROWS] = {V - 1, 0, V / 2, 0};
    const uint8_t mask[ROWS] = {1, 1, 1, 0};
    double max[ROWS], sum[ROWS] = {0}, picked[ROWS] = {0}, losses[ROWS], far = 0;
    double *expected = zeros(n);

    for (int r = 0; r < ROWS; r++)
        max[r] = -INFINITY;
    tern_tensor_cross_entropy(whole, losses, targets, mask, 0.5, ROWS, V);
    for (size_t i = 0; i < n; i++)
        expected[i] = (double)whole[i];
    for (int pass = 0; pass < 3; pass++)
        SAME_BITS("a vocabulary in parts", pass < 2 ? x : got, n, {
            tern_real *part = malloc((n + 1) * sizeof(*part));
            tern_real *again = noise(n, 1);

            memcpy(x, again, n * sizeof(*x));
            memset(sum, 0, sizeof(sum));
            memset(picked, 0, sizeof(picked));
            for (int step = 0; step <= pass; step++)
                for (int p = 0; p < ranks; p++) {
                    int first = V * p / ranks;
                    int words = V * (p + 1) / ranks - first;
                    size_t w = (size_t)words;
                    struct tern_tensor_vocab vocab;

                    vocab.targets = targets;
                    vocab.mask = mask;
                    vocab.first = first;
                    vocab.n = ROWS;
                    vocab.V = words;

                    for (size_t r = 0; r < ROWS; r++)
                        memcpy(part + r * w, x + r * v + first, w * sizeof(*x));
                    vocabulary_step(step, part, &vocab, max, sum, picked);
                    for (size_t r = 0; r < ROWS; r++)
                        memcpy((step == 2 ? got : x) + r * v + first, part + r * w, w * sizeof(*x));
                }
            free(part);
            free(again);
        });
    for (int r = 0; r < ROWS; r++)
        if (mask[r])
            far = fmax(far, fabs(log(sum[r]) + max[r] - picked[r] - losses[r]));
    ok(far < 1e-6, "%d words on %d ranks: losses within %.1e", V, ranks, far);
    ok(apart(got, expected, n) < NEAR, "%d words on %d ranks: the gradient", V, ranks);
    ok(ranks > 1 || (far == 0 && memcmp(got, whole, n * sizeof(*got)) == 0),
       "%d words on one rank: the bits of tern_tensor_cross_entropy", V);
    free(x), free(whole), free(got), free(expected);
}

/* What is no number must reach the loss, wherever it stands. */
static void not_numbers(void)
{
    const double bad[] = {NAN, INFINITY};

    for (int b = 0; b < 2; b++) {
        int lost = 0;

        for (int at = 0; at < 65; at++) {
            tern_real *x = noise(65, 1);
            const int32_t target = 3;
            double loss;

            x[at] = (tern_real)bad[b];
            tern_tensor_cross_entropy(x, &loss, &target, NULL, 1, 1, 65);
            lost += isfinite(loss);
            free(x);
        }
        ok(lost == 0, "a logit of %g makes a loss that is not finite", bad[b]);
    }
}

/* Plain attention, one query head after the other, and its gradients for dout. */
static void attention_plain(const struct tern_tensor_heads *a, const tern_real *qkv,
                            const tern_real *dout, double *out, double *dqkv)
{
    size_t W = (size_t)(a->H + 2 * a->K) * (size_t)a->D, D = (size_t)a->D, T = (size_t)a->T;
    double *p = zeros(T), *dp = zeros(T), scale = 1 / sqrt((double)a->D);

    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (size_t t = 0; t < T; t++) {
                size_t row = (size_t)b * T, key = (size_t)(a->H + h / (a->H / a->K)) * D;
                size_t val = key + (size_t)a->K * D, q = (row + t) * W + (size_t)h * D;
                size_t o = ((row + t) * (size_t)a->H + (size_t)h) * D;
                size_t from = a->starts ? (size_t)a->starts[row + t] : 0;
                double sum = 0, less = 0;

                for (size_t u = from; u <= t; u++) {
                    p[u] = dp[u] = 0;
                    for (size_t d = 0; d < D; d++) {
                        p[u] += (double)qkv[q + d] * (double)qkv[(row + u) * W + key + d];
                        dp[u] += (double)dout[o + d] * (double)qkv[(row + u) * W + val + d];
                    }
                    p[u] = exp(p[u] * scale);
                    sum += p[u];
                }
                for (size_t u = from; u <= t; u++) {
                    p[u] /= sum;
                    less += p[u] * dp[u];
                }
                for (size_t u = from; u <= t; u++)
                    for (size_t d = 0; d < D; d++) {
                        double ds = p[u] * (dp[u] - less) * scale;
                        size_t ku = (row + u) * W + key + d, vu = (row + u) * W + val + d;

                        out[o + d] += p[u] * (double)qkv[vu];
                        dqkv[q + d] += ds * (double)qkv[ku];
                        dqkv[ku] += ds * (double)qkv[q + d];
                        dqkv[vu] += p[u] * (double)dout[o + d];
                    }
            }
    free(p), free(dp);
}

/* Documents of about `document` positions, 0: a row is one. */
static void attention(int B, int T, int H, int K, int D, int document)
{
    struct tern_tensor_heads a = {.B = B, .T = T, .H = H, .K = K, .D = D};
    int32_t *starts = calloc((size_t)(B * T), sizeof(*starts));
    size_t n = (size_t)(B * T * H * D), w = (size_t)(B * T * (H + 2 * K) * D);
    tern_real *qkv = noise(w, 1), *dout = noise(n, 2), *out = noise(n, 3), *dqkv = noise(w, 4);
    tern_real *stats = noise((size_t)(2 * B * H * T), 5);
    tern_real *scratch = malloc(tern_tensor_attention_scratch(T, D, 0) * sizeof(*scratch));
    double *expected = zeros(n), *expected_d = zeros(w);

    for (int i = 1; document && i < B * T; i++)
        starts[i] = i % T == 0                                                    ? 0
                    : tern_rand_below(7, 6, (uint64_t)i, (uint64_t)document) == 0 ? i % T
                                                                                  : starts[i - 1];
    a.starts = document ? starts : NULL;
    attention_plain(&a, qkv, dout, expected, expected_d);
    SAME_BITS("attention", out, n, tern_tensor_attention(out, stats, qkv, &a, scratch));
    ok(apart(out, expected, n) < NEAR,
       "attention B %d, T %d, %d heads on %d, size %d, documents of %d", B, T, H, K, D, document);
    SAME_BITS("attention's gradient", dqkv, w,
              tern_tensor_attention_backward(dqkv, dout, qkv, stats, &a, scratch));
    ok(apart(dqkv, expected_d, w) < 10 * NEAR, "attention's gradients match the reference");
    free(qkv), free(dout), free(out), free(dqkv), free(stats), free(scratch);
    free(expected), free(expected_d), free(starts);
}

static void rope(void)
{
    struct tern_tensor_heads a = {.B = 2, .T = 3, .H = 2, .K = 1, .D = 6};
    const int32_t starts[] = {0, 0, 2, 0, 1, 1}, positions[] = {0, 1, 0, 0, 0, 1};
    enum { W = 4 * 6, N = 6 * W };
    tern_real *x = noise(N, 1), *y = noise(N, 1), cos_[9], sin_[9];
    double expected[N];

    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 3; i++) {
            cos_[t * 3 + i] = (tern_real)cos(t * (i + 1));
            sin_[t * 3 + i] = (tern_real)sin(t * (i + 1));
        }
    for (int i = 0; i < N; i++)
        expected[i] = (double)x[i];
    for (int r = 0; r < 6; r++)
        for (int h = 0; h < 3; h++)
            for (int i = 0; i < 3; i++) {
                int at = r * W + h * 6 + i;
                double angle = r % 3 * (i + 1);

                expected[at] = (double)x[at] * cos(angle) - (double)x[at + 3] * sin(angle);
                expected[at + 3] = (double)x[at + 3] * cos(angle) + (double)x[at] * sin(angle);
            }
    tern_tensor_rope(x, cos_, sin_, &a, 1);
    ok(apart(x, expected, N) < NEAR, "RoPE turns queries and keys, not values");
    tern_tensor_rope(x, cos_, sin_, &a, -1);
    for (int i = 0; i < N; i++)
        expected[i] = (double)y[i];
    ok(apart(x, expected, N) < NEAR, "RoPE with sign -1 undoes RoPE");
    a.starts = starts;
    tern_tensor_rope(x, cos_, sin_, &a, 1);
    for (int r = 0; r < 6; r++)
        for (int h = 0; h < 3; h++)
            for (int i = 0; i < 3; i++) {
                int at = r * W + h * 6 + i;
                double lo = (double)y[at], hi = (double)y[at + 3], angle = positions[r] * (i + 1);

                expected[at] = lo * cos(angle) - hi * sin(angle);
                expected[at + 3] = hi * cos(angle) + lo * sin(angle);
            }
    ok(apart(x, expected, N) < NEAR, "each document from position 0");
    free(x), free(y);
}

static void embedding(void)
{
    enum { C = 70, N = 4 };
    const int32_t ids[N] = {2, 0, 2, 1};
    tern_real *table = noise(3 * C, 1), y[N * C], d[3 * C] = {0};
    int good = 1;

    tern_tensor_embed(y, table, ids, N, C);
    tern_tensor_embed_backward(d, y, ids, N, C);
    for (int i = 0; i < C; i++)
        good = good && y[2 * C + i] == table[2 * C + i] && d[2 * C + i] == 2 * table[2 * C + i] &&
               d[i] == table[i];
    ok(good, "embedding, and its gradient where an id comes twice");
    uint16_t half[3 * C];
    tern_tensor_round_bf16(table, half, 3 * C);
    tern_tensor_embed_bf16(y, half + C, ids, N, C, 1, 2); /* ids 1 and 2 are here, 0 is not */
    for (int i = 0; i < C; i++)
        good = good && y[i] == table[2 * C + i] && y[2 * C + i] == y[i] && y[C + i] == 0 &&
               y[3 * C + i] == table[C + i];
    ok(good, "embedding of a part in bf16");
    free(table);
}

static void dropout(void)
{
    enum { N = 90, C = 301, ROWS = 5, COLUMNS = 33 };
    struct tern_tensor_dropout d = {.rate = 0.1, .seed = 5, .stream = 6, .row = 1000};
    tern_real *x = noise(N * C, 1), *y = malloc(N * C * sizeof(*y)), part[ROWS * COLUMNS];
    int dropped = 0, good = 1, same = 1;

    SAME_BITS("dropout", y, N * C, tern_tensor_dropout(y, x, &d, N, C));
    for (int i = 0; i < N * C; i++) {
        dropped += y[i] == 0;
        good = good && (y[i] == 0 || fabs((double)y[i] * 0.9 / (double)x[i] - 1) < 1e-6);
    }
    ok(good && abs(dropped - N * C / 10) < 250, "dropout leaves %d of %d out", dropped, N * C);
    for (int r = 0; r < ROWS; r++)
        memcpy(part + r * COLUMNS, x + (r + 50) * C + 200, COLUMNS * sizeof(*part));
    d.row += 50;
    d.column = 200;
    tern_tensor_dropout(part, part, &d, ROWS, COLUMNS);
    for (int r = 0; r < ROWS; r++)
        same = same &&
               memcmp(part + r * COLUMNS, y + (r + 50) * C + 200, COLUMNS * sizeof(*part)) == 0;
    ok(same, "dropout of a part, in place, drops the same elements");
    d.stream++;
    tern_tensor_dropout(part, x, &d, ROWS, COLUMNS);
    d.rate = 0;
    tern_tensor_dropout(y, x, &d, N, C);
    ok(memcmp(x, y, N * C * sizeof(*x)) == 0, "dropout at rate 0 leaves all elements");
    free(x), free(y);
}

static void threads(void)
{
    enum { N = 100003, C = 300, ROWS = 333 };
    tern_real *x = noise(N, 1), *dx = malloc(N * sizeof(*dx)), *y = malloc(N * sizeof(*y)),
              *w = noise(C, 2), rstd[ROWS], *dw[3];
    const struct tern_tensor_norm forward = {.x = x, .w = w, .rstd = rstd, .n = ROWS, .C = C};
    double sums[3];

    for (int t = 0; t < 3; t++) {
        omp_set_num_threads(t + 1);
        sums[t] = tern_tensor_sum_squares(x, N);
        dw[t] = calloc(C, sizeof(tern_real));
        memset(dx, 0, N * sizeof(*dx));
        tern_tensor_rmsnorm(y, rstd, x, w, ROWS, C, 1e-5);
        tern_tensor_rmsnorm_backward(dx, dw[t], y, &forward);
    }
    ok(sums[0] == sums[1] && sums[1] == sums[2], "a sum is the same on 1, 2 and 3 threads");
    ok(memcmp(dw[0], dw[1], C * sizeof(*w)) == 0 && memcmp(dw[0], dw[2], C * sizeof(*w)) == 0,
       "a sum of rows is the same on 1, 2 and 3 threads");
    omp_set_num_threads(tern_tensor_threads());
    for (int t = 0; t < 3; t++)
        free(dw[t]);
    free(x), free(dx), free(y), free(w);
}

int main(void)
{
    struct tern_err err = {0};

    if (!ok(tern_tensor_start(2, 1, &err) == 0, "kernels start with two threads (%s)", err.text))
        return tap_done();
    printf("# %s\n", tern_tensor_describe());
    ok(tern_tensor_threads() == 2, "threads as asked");
    ok(tern_tensor_kernels_use("sse9") == -1, "unknown kernels are refused");
    for (int i = 0; i < SIZES; i++) {
        arrays(sizes[i]);
        rmsnorm(sizes[i]);
        swiglu(sizes[i]);
        cross_entropy(sizes[i]);
    }
    arrays(40000);
    cross_entropy(32003);
    not_numbers();
    attention(1, 1, 1, 1, 2, 0);
    attention(2, 63, 4, 2, 20, 0);
    attention(1, 64, 2, 2, 8, 0);
    attention(2, 65, 6, 1, 16, 0);
    attention(1, 200, 3, 3, 34, 0);
    attention(1, 1, 1, 1, 8, 1);
    attention(2, 65, 4, 2, 24, 1);
    attention(2, 130, 6, 3, 40, 9);
    attention(3, 300, 2, 1, 64, 100);
    vocabulary(1, 1);
    vocabulary(3, 5);
    vocabulary(65, 1);
    vocabulary(1000, 7);
    rope();
    embedding();
    dropout();
    threads();
    return tap_done();
}
