/* What the CPU's unit for bf16 can do at most: its products of registers alone, without memory. */
#ifndef TERN_CMD_BENCH_REGISTERS_H
#define TERN_CMD_BENCH_REGISTERS_H

#include <stdint.h>

/* Make so many rounds of products with VDPBF16PS on this thread; returns the FLOPs that they were.
 * Only where tern_tensor_bf16_unit is not "fp32"; 0 where the compiler did not know it. */
double bench_registers_bf16(int64_t rounds);

/* FLOP/s of all threads of this process at once, the best of `times` tries of some milliseconds. */
double bench_registers_limit(int times);

#endif
