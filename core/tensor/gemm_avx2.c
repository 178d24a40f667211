/* Products for AVX2 with FMA. */
#include <immintrin.h>

/* after the intrinsics: they carry their own targets */
#pragma GCC optimize("O3")
#pragma GCC target("avx2,fma")
#define PRODUCTS tern_tensor_products_avx2
#define PRODUCTS_NAME "avx2"
#include "core/tensor/gemm.h"
