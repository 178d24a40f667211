/* Products whose bits do not depend on threads. They are those of decoding, row by row of the
 * weights, and those of reading a prompt, in fixed blocks of columns. */
#include "core/tensor/kernels.h"

enum {
    /* Elements of the weights a thread takes at a time. They lie in a second-level cache for all
     * rows of x, and the threads end within 4 us of each other. */
    CHUNK = 1 << 14,
    TALL = 4,        /* rows that the kernel multiplies at a time */
    COLUMNS = 256,   /* of a block: packing A once for each costs 1/256 of the product */
    ALONE = 1 << 15, /* products that a thread has done before the others have come: 8 us */
};

static void few(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                struct tern_tensor_matrix w)
{
    size_t in = (size_t)f->in, out = (size_t)f->out;
    int step = f->in < CHUNK / TALL ? CHUNK / f->in / TALL * TALL : TALL;

#pragma omp parallel for schedule(dynamic) if (in * out * (size_t)f->n > ALONE)
    for (int o = 0; o < f->out; o += step) {
        struct tern_tensor_matrix at = tern_tensor_from(w, (size_t)o * in);
        int rows = f->out - o < step ? f->out - o : step;

        for (int r = 0; r < f->n; r++) {
            tern_real *to = y + (size_t)r * out + o;
            const tern_real *from = x + (size_t)r * in;

            if (at.half)
                tern_tensor_k->dots_bf16(to, from, at.at, in, rows, f->in, f->add);
            else
                tern_tensor_k->dots(to, from, at.at, in, rows, f->in, f->add);
        }
    }
}

void tern_tensor_few_rows(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                          const tern_real *w)
{
    few(f, y, x, (struct tern_tensor_matrix){w, false});
}

void tern_tensor_few_rows_bf16(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                               const uint16_t *w)
{
    few(f, y, x, (struct tern_tensor_matrix){w, true});
}

static void many(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                 struct tern_tensor_matrix w)
{
#pragma omp parallel for schedule(dynamic)
    for (int o = 0; o < f->out; o += COLUMNS) {
        struct tern_tensor_matrix at = tern_tensor_from(w, (size_t)o * (size_t)f->in);
        const struct tern_tensor_gemm g = {.tb = true,
                                           .M = f->n,
                                           .N = f->out - o < COLUMNS ? f->out - o : COLUMNS,
                                           .K = f->in,
                                           .ldc = f->out,
                                           .alpha = 1,
                                           .beta = f->add};

        if (at.half)
            tern_tensor_gemm_bf16(&g, x, at.at, y + o);
        else
            tern_tensor_gemm(&g, x, at.at, y + o);
    }
}

void tern_tensor_many_rows(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                           const tern_real *w)
{
    many(f, y, x, (struct tern_tensor_matrix){w, false});
}

void tern_tensor_many_rows_bf16(const struct tern_tensor_few *f, tern_real *y, const tern_real *x,
                                const uint16_t *w)
{
    many(f, y, x, (struct tern_tensor_matrix){w, true});
}
