/* The loops for any CPU that the compiler was told of. */
#pragma GCC optimize("O3")
#include "core/tensor/loops.h"
