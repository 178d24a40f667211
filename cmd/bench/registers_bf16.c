/* The loop of products of registers; the Makefile compiles this file for AVX512_BF16 (FLAGS), where
 * the compiler knows it. */
#include "cmd/bench/registers.h"

#ifdef __AVX512BF16__
#include <immintrin.h>

/* Sums that do not wait for each other: more than a unit's steps times the units of a core. */
// clang-format off
#define SUMS(DO)                                                                                   \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9)                                    \
    DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19)
// clang-format on
enum { N = 20, FLOPS = N * 16 * 2 * 2 };

double bench_registers_bf16(int64_t rounds)
{
    /* The compiler must know nothing of them: sums of one value would be one sum. */
#define BEGIN(i)                                                                                   \
    __m512 sum##i = _mm512_setzero_ps();                                                           \
    __asm__ volatile("" : "+v"(sum##i));
#define STEP(i) sum##i = _mm512_dpbf16_ps(sum##i, (__m512bh)a, (__m512bh)b);
#define END(i) __asm__ volatile("" : "+v"(sum##i));
    const __m512i a = _mm512_set1_epi32(0x3f803f80), b = _mm512_set1_epi32(0x3c003c00);

    SUMS(BEGIN)
    for (int64_t r = 0; r < rounds; r++) {
        SUMS(STEP)
    }
    SUMS(END)
    return (double)rounds * FLOPS;
}
#else
double bench_registers_bf16(int64_t rounds)
{
    (void)rounds;
    return 0;
}
#endif
