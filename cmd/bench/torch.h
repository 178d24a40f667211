/* PyTorch training the same model beside us: a process that makes one step when told to, so that
 * its steps and ours alternate and see the same machine. */
#ifndef TERN_CMD_BENCH_TORCH_H
#define TERN_CMD_BENCH_TORCH_H

#include "core/base/err.h"
#include "core/model/model.h"

#include <stdbool.h>

struct bench_torch;

/* `tuned`: the BLAS core type that this CPU wants, OpenBLAS's OpenMP build, tcmalloc that keeps its
 * pages, fused attention; else as the distribution ships it.  `python`: the program that has torch.
 * `script`: tests/bench/train_torch.py, NULL: the one of the tree that this program was built in.
 * NULL with `err` when it cannot run. */
struct bench_torch *bench_torch_open(const struct tern_model_config *c, int B, int T, int threads,
                                     bool tuned, const char *python, const char *script,
                                     struct tern_err *err);
void bench_torch_close(struct bench_torch *t); /* NULL is fine */

/* One training step. */
int bench_torch_step(struct bench_torch *t, double *seconds, struct tern_err *err);
/* "PyTorch 1.13.1"; the settings in words; both belong to `t`. */
const char *bench_torch_name(const struct bench_torch *t);
const char *bench_torch_setting(const struct bench_torch *t);
/* Resident at most, so far. */
double bench_torch_peak_bytes(const struct bench_torch *t);

#endif
