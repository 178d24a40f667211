/* The loops for AVX-512 (F, DQ, BW, VL: every server CPU that has AVX-512 has these); the Makefile
 * compiles this file for that (FLAGS). */
#ifdef __x86_64__
#define KERNELS tern_tensor_kernels_avx512
#define KERNELS_NAME "avx512"
#include "core/tensor/loops.h"
#endif
