/* Apart from facts.c, so that a program without this call links no library loader. */
#include "core/env/env.h"

#include "core/tensor/tensor.h"

#include <stdio.h>
#include <string.h>

void tern_env_facts_blas(struct tern_env_facts *f)
{
    char takes[64] = "";
    const char *core = tern_tensor_blas_advice(takes, sizeof takes);

    if (!core || strlen(core) >= sizeof f->blas)
        return;
    snprintf(f->blas, sizeof f->blas, "%s", core);
    snprintf(f->blas_why, sizeof f->blas_why, "OpenBLAS takes this CPU for a %s", takes);
}
