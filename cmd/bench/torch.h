/* PyTorch training the same model beside us. A process makes one step on request, so that its steps
 * and ours alternate on the same machine. */
#ifndef TERN_CMD_BENCH_TORCH_H
#define TERN_CMD_BENCH_TORCH_H

#include "core/base/err.h"
#include "core/model/model.h"

#include <stdbool.h>

struct bench_torch;

#define BENCH_TORCH_SCRIPT "train_torch.py"

/* How PyTorch makes its steps. */
struct bench_torch_mode {
    /* The right BLAS core type for this CPU, OpenBLAS's OpenMP build, tcmalloc that keeps its
     * pages, fused attention; else as it is shipped. */
    bool tuned;
    bool compiled; /* by torch.compile */
    bool autocast; /* forward in bf16 where PyTorch's autocast says so; else all in fp32 */
};

struct bench_torch_options {
    const struct tern_model_config *config;
    int B, T, threads;
    struct bench_torch_mode mode;
    const char *python; /* the program that has torch */
    const char *script; /* train_torch.py; NULL: the one of the tree that built this program */
};
/* NULL with `err` when it cannot run. */
struct bench_torch *bench_torch_open(const struct bench_torch_options *o, struct tern_err *err);
void bench_torch_close(struct bench_torch *t); /* NULL is fine */

/* One training step. */
int bench_torch_step(struct bench_torch *t, double *seconds, struct tern_err *err);
/* "PyTorch 1.13.1"; its settings as text; both belong to `t`. */
const char *bench_torch_name(const struct bench_torch *t);
const char *bench_torch_setting(const struct bench_torch *t);
/* Does this PyTorch have torch.compile (since 2.0)? */
bool bench_torch_compiles(const struct bench_torch *t);
/* Resident at most, so far. */
double bench_torch_peak_bytes(const struct bench_torch *t);

#endif
