/* Products for AVX-512 (F, DQ, BW, VL). */
#include <immintrin.h>

/* after the intrinsics: they carry their own targets */
#pragma GCC optimize("O3")
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#define PRODUCTS tern_tensor_products_avx512
#define PRODUCTS_NAME "avx512"
#include "core/tensor/gemm.h"
