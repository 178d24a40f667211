/* The loops for AVX-512 (F, DQ, BW, VL: every server CPU that has AVX-512 has these). */
#pragma GCC optimize("O3")
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#define KERNELS tern_tensor_kernels_avx512
#define KERNELS_NAME "avx512"
#include "core/tensor/loops.h"
