#include "cmd/bench/sizes.h"

#include <string.h>

/* What all have: Llama 2's vocabulary and constants. */
#define LLAMA .vocab = 32000, .norm_eps = 1e-5, .rope_theta = 1e4, .max_position = 2048

static const struct bench_size sizes[] = {
    /* To try the program out, not to compare with. */
    {"tiny",
     {.dim = 64, .ffn = 192, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 16, LLAMA},
     .T = 64,
     .B = 2},
    {"S",
     {.dim = 288,
      .ffn = 768,
      .layers = 6,
      .heads = 6,
      .kv_heads = 6,
      .head_dim = 48,
      .tied = true,
      LLAMA},
     .T = 256,
     .B = 8},
    {"M",
     {.dim = 768, .ffn = 2048, .layers = 12, .heads = 12, .kv_heads = 12, .head_dim = 64, LLAMA},
     .T = 1024,
     .B = 2},
    /* Four of TinyLlama's 22 layers. */
    {"L",
     {.dim = 2048, .ffn = 5632, .layers = 4, .heads = 32, .kv_heads = 4, .head_dim = 64, LLAMA},
     .T = 2048,
     .B = 1},
};

const struct bench_size *bench_size_find(const char *name)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].name, name) == 0)
            return &sizes[i];
    return NULL;
}
