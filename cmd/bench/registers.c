#include "cmd/bench/registers.h"

#include "core/base/clock.h"

enum { ROUNDS = 1 << 16 }; /* 2 to 6 ms */

double bench_registers_limit(int times)
{
    double best = 0;

    for (int i = 0; i < times; i++) {
        double flops = 0;
        int64_t began = tern_clock_boot_ns();

#pragma omp parallel reduction(+ : flops)
        flops += bench_registers_bf16(ROUNDS);
        double rate = flops * 1e9 / (double)(tern_clock_boot_ns() - began + 1);
        best = rate > best ? rate : best;
    }
    return best;
}
