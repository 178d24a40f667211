/* The loops for any CPU that the compiler was told of. */
#pragma GCC optimize("O3")
#define KERNELS tern_tensor_kernels_plain
#define KERNELS_NAME "plain"
#include "core/tensor/loops.h"
