/* Products for AVX2 with FMA; the Makefile compiles this file for that (FLAGS). */
#ifdef __x86_64__
#define PRODUCTS tern_tensor_products_avx2
#define PRODUCTS_NAME "avx2"
#include "core/tensor/gemm.h"
#endif
