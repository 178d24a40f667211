/* Kernels on rows of activations: rows are dealt to the threads; where rows are summed, columns. */
#include "core/tensor/kernels.h"

#include "core/base/rand.h"

#include <math.h>
#include <string.h>

/* (A lone row is not worth a meeting of the threads: decoding has many of these.) */
#define FOR_ROWS(n)                                                                                \
    _Pragma("omp parallel for schedule(static) if (n > 1)") for (int r = 0; r < (n); r++)

/* Columns a thread takes at a time where rows are summed: four cache lines. */
enum { STRIP = 64 };

static size_t at(int r, int C)
{
    return (size_t)r * (size_t)C;
}

void tern_tensor_rmsnorm(tern_real *y, tern_real *rstd, const tern_real *x, const tern_real *w,
                         int n, int C, double eps)
{
    FOR_ROWS(n)
    {
        const tern_real *row = x + at(r, C);

        rstd[r] = (tern_real)(1 / sqrt(tern_tensor_k->sum_squares(row, (size_t)C) / C + eps));
        tern_tensor_k->norm(y + at(r, C), row, w, rstd[r], C);
    }
}

void tern_tensor_rmsnorm_again(tern_real *y, const tern_real *rstd, const tern_real *x,
                               const tern_real *w, int n, int C)
{
    FOR_ROWS(n)
    tern_tensor_k->norm(y + at(r, C), x + at(r, C), w, rstd[r], C);
}

void tern_tensor_rmsnorm_backward(tern_real *dx, tern_real *dw, const tern_real *dy,
                                  const struct tern_tensor_norm *f)
{
    const tern_real *w = f->w, *rstd = f->rstd;
    const int n = f->n, C = f->C;

    /* With y = x s w and s = (mean(x^2) + eps)^(-1/2): dx = s w dy - x s^3 / C * sum(w dy x). */
    FOR_ROWS(n)
    {
        const tern_real *row = f->x + at(r, C), *d = dy + at(r, C);
        double s = (double)rstd[r], sum = (double)tern_tensor_k->dot3(d, row, w, C);

        tern_tensor_k->norm_dx(dx + at(r, C), d, row, w, rstd[r], (tern_real)(s * s * s / C * sum),
                               C);
    }
    if (!dw)
        return;
#pragma omp parallel for schedule(static)
    for (int c = 0; c < C; c += STRIP)
        tern_tensor_k->norm_dw(dw, dy, f, c, C - c > STRIP ? c + STRIP : C);
}

void tern_tensor_embed(tern_real *y, const tern_real *table, const int32_t *ids, int n, int C)
{
    FOR_ROWS(n)
    memcpy(y + at(r, C), table + at(ids[r], C), (size_t)C * sizeof(*y));
}

void tern_tensor_embed_backward(tern_real *dtable, const tern_real *dy, const int32_t *ids, int n,
                                int C)
{
#pragma omp parallel for schedule(static)
    for (int c = 0; c < C; c += STRIP)
        for (int r = 0; r < n; r++)
            tern_tensor_k->add(dtable + at(ids[r], C) + c, dy + at(r, C) + c,
                               (size_t)(C - c > STRIP ? STRIP : C - c));
}

void tern_tensor_embed_part(tern_real *y, const tern_real *table, const int32_t *ids, int n, int C,
                            int first, int rows)
{
    FOR_ROWS(n)
    {
        int id = ids[r] - first;

        if (id >= 0 && id < rows)
            memcpy(y + at(r, C), table + at(id, C), (size_t)C * sizeof(*y));
        else
            memset(y + at(r, C), 0, (size_t)C * sizeof(*y));
    }
}

void tern_tensor_embed_bf16(tern_real *y, const uint16_t *table, const int32_t *ids, int n, int C,
                            int first, int rows)
{
    FOR_ROWS(n)
    {
        int id = ids[r] - first;

        if (id >= 0 && id < rows)
            tern_tensor_k->from_bf16(y + at(r, C), table + at(id, C), (size_t)C);
        else
            memset(y + at(r, C), 0, (size_t)C * sizeof(*y));
    }
}

void tern_tensor_embed_backward_part(tern_real *dtable, const tern_real *dy, const int32_t *ids,
                                     int n, int C, int first, int rows)
{
#pragma omp parallel for schedule(static)
    for (int c = 0; c < C; c += STRIP)
        for (int r = 0; r < n; r++)
            if (ids[r] >= first && ids[r] - first < rows)
                tern_tensor_k->add(dtable + at(ids[r] - first, C) + c, dy + at(r, C) + c,
                                   (size_t)(C - c > STRIP ? STRIP : C - c));
}

void tern_tensor_swiglu(tern_real *h, const tern_real *gate_up, int n, int F)
{
    FOR_ROWS(n)
    tern_tensor_k->swiglu(h + at(r, F), gate_up + at(r, 2 * F), gate_up + at(r, 2 * F) + F, F);
}

void tern_tensor_swiglu_backward(tern_real *gate_up, const tern_real *dh, int n, int F)
{
    FOR_ROWS(n)
    tern_tensor_k->swiglu_back(gate_up + at(r, 2 * F), gate_up + at(r, 2 * F) + F, dh + at(r, F),
                               F);
}

void tern_tensor_cross_entropy(tern_real *logits, double *losses, const int32_t *targets,
                               const uint8_t *mask, double grad_scale, int n, int V)
{
    FOR_ROWS(n)
    {
        tern_real *row = logits + at(r, V), max;
        double sum, picked;

        if (mask && !mask[r]) {
            losses[r] = 0;
            if (grad_scale != 0)
                memset(row, 0, (size_t)V * sizeof(*row));
            continue;
        }
        max = tern_tensor_k->max(row, V);
        picked = (double)row[targets[r]];
        sum = grad_scale != 0 ? tern_tensor_k->exp_sum(row, max, 1, V)
                              : tern_tensor_k->sum_exp(row, max, 1, V);
        losses[r] = log(sum) + (double)max - picked;
        if (grad_scale != 0) {
            tern_tensor_k->scale(row, (tern_real)(grad_scale / sum), (size_t)V);
            row[targets[r]] -= (tern_real)grad_scale;
        }
    }
}

void tern_tensor_vocab_max(double *max, const tern_real *logits, const struct tern_tensor_vocab *v)
{
    const int n = v->n, V = v->V;

    FOR_ROWS(n)
    max[r] = V > 0 ? (double)tern_tensor_k->max(logits + at(r, V), V) : -INFINITY;
}

/* Does this rank hold the target's word? */
static bool holds(const struct tern_tensor_vocab *v, int32_t target)
{
    return target >= v->first && target - v->first < v->V;
}

void tern_tensor_vocab_sum(double *sum, double *picked, tern_real *logits, const double *max,
                           const struct tern_tensor_vocab *v)
{
    const int32_t *targets = v->targets;
    const int n = v->n, V = v->V;

    FOR_ROWS(n)
    {
        tern_real *row = logits + at(r, V);

        picked[r] = holds(v, targets[r]) ? (double)row[targets[r] - v->first] : 0;
        sum[r] = tern_tensor_k->exp_sum(row, (tern_real)max[r], 1, V);
    }
}

void tern_tensor_vocab_gradient(tern_real *logits, const double *sum,
                                const struct tern_tensor_vocab *v, double grad_scale)
{
    const int32_t *targets = v->targets;
    const int n = v->n, V = v->V;

    FOR_ROWS(n)
    {
        tern_real *row = logits + at(r, V);

        if (v->mask && !v->mask[r]) {
            memset(row, 0, (size_t)V * sizeof(*row));
            continue;
        }
        tern_tensor_k->scale(row, (tern_real)(grad_scale / sum[r]), (size_t)V);
        if (holds(v, targets[r]))
            row[targets[r] - v->first] -= (tern_real)grad_scale;
    }
}

void tern_tensor_dropout(tern_real *y, const tern_real *x, const struct tern_tensor_dropout *d,
                         int n, int C)
{
    double all = 4294967296.0, below = d->rate * all;

    FOR_ROWS(n)
    tern_tensor_k->dropout(y + at(r, C), x + at(r, C),
                           tern_rand_u64(d->seed, d->stream, d->row + (uint64_t)r), d->column,
                           (uint32_t)(below < all - 1 ? below : all - 1),
                           (tern_real)(1 / (1 - d->rate)), C);
}
