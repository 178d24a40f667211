/* The loops for AVX2. */
#pragma GCC optimize("O3")
#pragma GCC target("avx2")
#define KERNELS tern_tensor_kernels_avx2
#define KERNELS_NAME "avx2"
#include "core/tensor/loops.h"
