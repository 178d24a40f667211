/* The loops for any CPU of the compiler's target. */
#include "core/tensor/loops.h"
