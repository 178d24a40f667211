/* Products for AVX-512 (F, DQ, BW, VL); the Makefile compiles this file for that (FLAGS). */
#ifdef __x86_64__
#define PRODUCTS tern_tensor_products_avx512
#define PRODUCTS_NAME "avx512"
#include "core/tensor/gemm.h"
#endif
