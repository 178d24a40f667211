/* The models of `tern bench train`. */
#ifndef TERN_CMD_BENCH_SIZES_H
#define TERN_CMD_BENCH_SIZES_H

#include "core/model/model.h"

struct bench_size {
    const char *name;
    struct tern_model_config c;
    int T, B; /* positions, rows of a micro-batch */
};

/* NULL: there is none of that name. */
const struct bench_size *bench_size_find(const char *name);

#endif
