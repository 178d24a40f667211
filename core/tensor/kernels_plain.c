/* The loops for any CPU that the compiler was told of. */
#include "core/tensor/loops.h"
