/* An array that outlives the kernel that makes it is stored as tern_real where it was made. With
 * bf16 it is stored in half the bytes: then it is made in scratch that all layers share, rounded
 * and stored. */
#include "core/llama/layers.h"

tern_real *tern_llama_work(const struct tern_llama *m, void *kept, tern_real *scratch)
{
    return m->bf16 ? scratch : kept;
}

void tern_llama_keep(const struct tern_llama *m, void *kept, tern_real *work, size_t n)
{
    if (m->bf16)
        tern_tensor_round_bf16(work, kept, n);
    else if (kept != work)
        tern_tensor_copy(kept, work, n);
}

tern_real *tern_llama_recall(const struct tern_llama *m, void *kept, tern_real *scratch, size_t n)
{
    if (!m->bf16)
        return kept;
    tern_tensor_from_bf16(scratch, kept, n);
    return scratch;
}

void tern_llama_round(const struct tern_llama *m, tern_real *x, size_t n)
{
    if (m->bf16)
        tern_tensor_round_bf16(x, NULL, n);
}

void tern_llama_round_input(const struct tern_llama *m, tern_real *x, size_t n)
{
    if (m->lora.rank || !tern_tensor_bf16_rounds())
        tern_llama_round(m, x, n);
}

size_t tern_llama_element(const struct tern_llama *m)
{
    return m->bf16 ? sizeof(uint16_t) : sizeof(tern_real);
}
