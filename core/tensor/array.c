/* Kernels on whole arrays: cut into blocks, the blocks dealt to the threads. */
#include "core/tensor/kernels.h"

#include "core/base/rand.h"

#include <math.h>
#include <string.h>

/* 64 KiB of floats: large beside the cost of starting a thread's share, small beside a cache. */
enum { BLOCK = 16384 };

#define FOR_BLOCKS(n)                                                                              \
    _Pragma("omp parallel for schedule(static)") for (size_t at = 0; at < (n); at += BLOCK)
#define LENGTH(n) ((n)-at < BLOCK ? (n)-at : BLOCK)

void tern_tensor_zero(tern_real *x, size_t n)
{
    FOR_BLOCKS(n)
    memset(x + at, 0, LENGTH(n) * sizeof(*x));
}

void tern_tensor_copy(tern_real *to, const tern_real *from, size_t n)
{
    FOR_BLOCKS(n)
    memcpy(to + at, from + at, LENGTH(n) * sizeof(*to));
}

void tern_tensor_add(tern_real *to, const tern_real *from, size_t n)
{
    FOR_BLOCKS(n)
    tern_tensor_k->add(to + at, from + at, LENGTH(n));
}

void tern_tensor_scale(tern_real *x, tern_real by, size_t n)
{
    FOR_BLOCKS(n)
    tern_tensor_k->scale(x + at, by, LENGTH(n));
}

double tern_tensor_sum_squares(const tern_real *x, size_t n)
{
    /* Blocks are summed in parallel, a group of them at a time, and added in order: the thread
     * count changes nothing. */
    enum { GROUP = 256 };
    double total = 0, parts[GROUP];

    for (size_t start = 0; start < n; start += (size_t)GROUP * BLOCK) {
        size_t left = n - start, blocks = (left + BLOCK - 1) / BLOCK;

        if (blocks > GROUP)
            blocks = GROUP;
#pragma omp parallel for schedule(static)
        for (size_t b = 0; b < blocks; b++) {
            size_t at = start + b * BLOCK;

            parts[b] = tern_tensor_k->sum_squares(x + at, LENGTH(n));
        }
        for (size_t b = 0; b < blocks; b++)
            total += parts[b];
    }
    return total;
}

void tern_tensor_adamw(const struct tern_tensor_adamw *o, tern_real *p, const tern_real *g,
                       tern_real *m, tern_real *v, size_t n)
{
    double t = (double)o->step;
    const struct tern_tensor_adamw_loop loop = {
        .keep = (tern_real)(1 - o->lr * o->weight_decay),
        .beta1 = (tern_real)o->beta1,
        .rest1 = (tern_real)(1 - o->beta1),
        .beta2 = (tern_real)o->beta2,
        .rest2 = (tern_real)(1 - o->beta2),
        .step = (tern_real)(o->lr / (1 - pow(o->beta1, t))),
        .root = (tern_real)sqrt(1 - pow(o->beta2, t)),
        .eps = (tern_real)o->eps,
        .grad_scale = (tern_real)o->grad_scale,
    };

    FOR_BLOCKS(n)
    tern_tensor_k->adamw(&loop, p + at, g + at, m + at, v + at, LENGTH(n));
}

void tern_tensor_to_bf16(uint16_t *to, const tern_real *from, size_t n)
{
    FOR_BLOCKS(n)
    tern_tensor_k->to_bf16(to + at, from + at, LENGTH(n));
}

void tern_tensor_to_bf16_random(uint16_t *to, const tern_real *from, size_t n, uint64_t seed,
                                uint64_t stream, uint64_t first)
{
    uint64_t key = tern_rand_u64(seed, stream, 0);

    FOR_BLOCKS(n)
    tern_tensor_k->to_bf16_random(to + at, from + at, key, first + at, LENGTH(n));
}

void tern_tensor_from_bf16(tern_real *to, const uint16_t *from, size_t n)
{
    FOR_BLOCKS(n)
    tern_tensor_k->from_bf16(to + at, from + at, LENGTH(n));
}

uint16_t tern_tensor_bf16(tern_real x)
{
    uint16_t half;

    tern_tensor_k->to_bf16(&half, &x, 1);
    return half;
}

void tern_tensor_round_bf16(tern_real *x, uint16_t *to, size_t n)
{
    FOR_BLOCKS(n)
    {
        uint16_t block[BLOCK], *half = to ? to + at : block;

        tern_tensor_k->to_bf16(half, x + at, LENGTH(n));
        tern_tensor_k->from_bf16(x + at, half, LENGTH(n));
    }
}
