/* The loops for AVX2; the Makefile compiles this file for that (FLAGS). */
#ifdef __x86_64__
#define KERNELS tern_tensor_kernels_avx2
#define KERNELS_NAME "avx2"
#include "core/tensor/loops.h"
#endif
