/* The verbs of `tern bench`, one file each. */
#ifndef TERN_CMD_BENCH_BENCH_H
#define TERN_CMD_BENCH_BENCH_H

#include "cmd/cmd.h"

extern const struct tern_cmd bench_data, bench_fabric, bench_products, bench_train;

#endif
