/* A recipe's stages, opened as core/data has them. */
#include "core/inputs/inputs.h"

#include "core/base/str.h"

#include <stdlib.h>

struct tern_data_pack_how tern_inputs_pack_how(const struct tern_recipe *r)
{
    _Static_assert((int)TERN_DATA_CONCAT == (int)TERN_PACKING_CONCAT &&
                       (int)TERN_DATA_BEST_FIT == (int)TERN_PACKING_BEST_FIT &&
                       (int)TERN_DATA_PADDED == (int)TERN_PACKING_PADDED &&
                       (int)TERN_DATA_LONGER_CUT == (int)TERN_LONGER_CUT &&
                       (int)TERN_DATA_LONGER_DROP == (int)TERN_LONGER_DROP,
                   "a recipe's packing is core/data's");
    return (struct tern_data_pack_how){.seq_len = (uint32_t)r->batch.seq_len,
                                       .packing = (enum tern_data_packing)r->data.packing,
                                       .longer = (enum tern_data_longer)r->data.longer};
}

struct tern_data_stages *tern_inputs_stages_open(const struct tern_recipe *r, struct tern_err *err)
{
    const size_t n = r->data.n_stages;
    const struct tern_data_pack_how how = tern_inputs_pack_how(r);
    struct tern_data_stages *out = NULL;
    struct tern_data_stage *stages = tern_alloc(n, sizeof *stages, "stages", err);
    struct tern_data_mix_source(*sources)[TERN_DATA_MIX_SOURCES_MAX] =
        tern_alloc(n, sizeof *sources, "data sources", err);

    for (size_t k = 0; stages && sources && k < n; k++) {
        const struct tern_recipe_sets *s = &r->data.stages[k].train;
        for (size_t i = 0; i < s->n && i < TERN_DATA_MIX_SOURCES_MAX; i++)
            sources[k][i] = (struct tern_data_mix_source){s->sets[i].path, s->sets[i].weight};
        stages[k] = (struct tern_data_stage){
            .first = k ? (uint64_t)(r->data.stages[k - 1].until * r->batch.global) : 0,
            .sources = sources[k],
            .n = s->n, /* too many are refused by tern_data_stages_open */
        };
    }
    if (stages && sources)
        out = tern_data_stages_open(stages, n, &how, (uint64_t)r->data.seed, err);
    free(stages);
    free(sources);
    return out;
}
