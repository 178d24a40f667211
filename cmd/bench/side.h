/* A model in training in this process, a step at a time: what `tern bench train` times. */
#ifndef TERN_CMD_BENCH_SIDE_H
#define TERN_CMD_BENCH_SIDE_H

#include "cmd/bench/sizes.h"

#include "core/base/err.h"
#include "core/fabric/fabric.h"
#include "core/llama/llama.h"
#include "core/model/model.h"

#include <stdbool.h>
#include <stdint.h>

/* What a step's seconds went into; STEP is all of it. */
enum bench_phase {
    BENCH_DATA,
    BENCH_FORWARD,
    BENCH_BACKWARD,
    BENCH_COMM,
    BENCH_OPTIMIZER,
    BENCH_STEP,
    BENCH_PHASES
};

struct bench_side_options {
    const struct bench_size *size;
    struct tern_model_adapters adapters; /* rank 0: all weights are trained */
    enum tern_llama_recompute recompute;
    bool bf16;
    int64_t micro_batches, ranks; /* of a step; data-parallel */
    struct tern_comm *world;      /* of the ranks; NULL: one */
    int rank;
};

struct bench_side;

/* Random weights and tokens.  NULL with `err`. */
struct bench_side *bench_side_open(const struct bench_side_options *o, struct tern_err *err);
void bench_side_free(struct bench_side *s); /* NULL is fine */

/* One step; took[BENCH_PHASES] in seconds, filled on success.  Collective over the ranks. */
int bench_side_step(struct bench_side *s, double *took, struct tern_err *err);

/* Parameters that are trained; FLOPs of a token's forward and backward pass (core/model). */
uint64_t bench_side_trained(const struct bench_side *s);
double bench_side_flops(const struct bench_side *s);

#endif
