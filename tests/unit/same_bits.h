/* The same bits from every instruction set that this CPU has. */
#ifndef TESTS_UNIT_SAME_BITS_H
#define TESTS_UNIT_SAME_BITS_H

#include "core/tensor/kernels.h"
#include "tests/unit/apart.h"

static const char *const sets[] = {"plain", "avx2", "avx512"};
enum { SETS = 3 };

/* Run BODY (which fills `out`, `n` values) with every instruction set: all the same bits. */
#define SAME_BITS(name, out, n, BODY)                                                              \
    do {                                                                                           \
        tern_real *first_ = NULL;                                                                  \
        int same_ = 1, ran_ = 0;                                                                   \
        for (int s_ = 0; s_ < SETS; s_++) {                                                        \
            if (tern_tensor_kernels_use(sets[s_]) < 0)                                             \
                continue;                                                                          \
            ran_++;                                                                                \
            BODY;                                                                                  \
            if (!first_) {                                                                         \
                first_ = malloc((n) * sizeof(tern_real));                                          \
                memcpy(first_, out, (n) * sizeof(tern_real));                                      \
            }                                                                                      \
            same_ = same_ && memcmp(first_, out, (n) * sizeof(tern_real)) == 0;                    \
        }                                                                                          \
        free(first_);                                                                              \
        ok(same_, "%s, %zu values: %d instruction sets, the same bits", name, (size_t)(n), ran_);  \
    } while (0)

#endif
