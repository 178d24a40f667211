/* Numbers made up, and how far results are from those of plain loops in double. */
#ifndef TESTS_UNIT_APART_H
#define TESTS_UNIT_APART_H

#include "core/base/rand.h"
#include "core/tensor/tensor.h"
#include "tests/unit/tap.h"

#include <math.h>

/* Of the largest value: some tens of roundings. */
#define NEAR (sizeof(tern_real) == sizeof(float) ? 3e-6 : 1e-14)

static inline tern_real *noise(size_t n, uint64_t stream)
{
    tern_real *x = calloc(n + 1, sizeof(*x));

    for (size_t i = 0; i < n; i++)
        x[i] = (tern_real)tern_rand_normal(7, stream, i);
    return x;
}

static inline double *zeros(size_t n)
{
    return calloc(n + 1, sizeof(double));
}

/* The largest difference over the largest wanted value. */
static inline double apart(const tern_real *got, const double *want, size_t n)
{
    double diff = 0, size = 1e-30;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);

        if (!(d <= diff))
            diff = isnan(d) ? INFINITY : d;
        size = fabs(want[i]) > size ? fabs(want[i]) : size;
    }
    return diff / size;
}

#endif
