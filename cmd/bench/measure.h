/* One row of `tern bench fabric`: an operation at one size, checked and timed. */
#ifndef TERN_CMD_BENCH_MEASURE_H
#define TERN_CMD_BENCH_MEASURE_H

#include "cmd/bench/collectives.h"
#include "cmd/bench/rows.h"

/* Run `o` on b->count elements: once checked, then b->iterations times measured, in turns with the
 * peer's and with memory's share of the work.  Collective; all ranks get the same row. */
int bench_measure(struct bench *b, const struct bench_operation *o, struct bench_row *ret_row,
                  struct tern_err *err);

#endif
