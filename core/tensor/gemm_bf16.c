/* Products of bf16 for AVX512_BF16; the Makefile compiles this file for that (FLAGS), where the
 * compiler knows it. */
#include "core/tensor/kernels.h"

#ifdef __AVX512BF16__
#define PAIRS
#define PRODUCTS tern_tensor_products_bf16
#define PRODUCTS_NAME "avx512_bf16"
#include "core/tensor/gemm.h"
#else
const struct tern_tensor_products tern_tensor_products_bf16 = {.name = "avx512_bf16"};
#endif
