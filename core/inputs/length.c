/* How long a run is: what follows from the rows of its training sets. */
#include "core/inputs/inputs.h"

#include <stdlib.h>

/* The first set's rows, for `epochs`. */
static int find_steps(struct tern_recipe *r, struct tern_err *err)
{
    const struct tern_data_pack_how how = tern_inputs_pack_how(r);

    if (r->epochs <= 0)
        return 0;
    struct tern_data_set *s = tern_data_set_open(r->data.stages[0].train.sets[0].path, err);
    struct tern_data_pack *p = s ? tern_data_pack_new(s, &how, err) : NULL;
    const uint64_t rows = p ? tern_data_pack_counts(p).rows : 0;
    tern_data_pack_free(p);
    tern_data_set_free(s);
    return p ? tern_recipe_resolve(r, rows, err) : tern_inputs_at_line(r, "data.train", err);
}

/* The set that has too few rows for the first i samples of the stage; NULL: none. */
static const struct tern_recipe_set *lacking(const struct tern_recipe_sets *sets,
                                             const struct tern_data_mix *m, uint64_t stage,
                                             uint64_t i)
{
    uint64_t counts[TERN_DATA_MIX_SOURCES_MAX];

    tern_data_mix_counts(m, stage, i, counts);
    for (size_t k = 0; k < sets->n; k++) {
        const uint64_t rows = tern_data_pack_counts(tern_data_mix_pack(m, k)).rows;
        if (sets->sets[k].epochs && counts[k] > rows * (uint64_t)sets->sets[k].epochs)
            return &sets->sets[k];
    }
    return NULL;
}

/* End stage k where a set of it has been seen as often as it may. */
static int end_stage(struct tern_recipe *r, size_t k, const struct tern_data_stages *s,
                     struct tern_err *err)
{
    const struct tern_recipe_stage *stage = &r->data.stages[k];
    const int64_t begin = k ? r->data.stages[k - 1].until : 0;
    const int64_t end = stage->until && stage->until < r->steps ? stage->until : r->steps;
    const struct tern_data_mix *m = tern_data_stages_mix(s, k);
    int64_t low = 0, high = end - begin; /* steps: `low` has the rows, `high` lacks some */

    if (begin >= end || !lacking(&stage->train, m, k, (uint64_t)(high * r->batch.global)))
        return 0;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (lacking(&stage->train, m, k, (uint64_t)(middle * r->batch.global)))
            high = middle;
        else
            low = middle;
    }
    return tern_recipe_end_stage(
        r, k, begin + low, lacking(&stage->train, m, k, (uint64_t)(high * r->batch.global)), err);
}

static bool any_limit(const struct tern_recipe *r)
{
    for (size_t k = 0; k < r->data.n_stages; k++)
        for (size_t i = 0; i < r->data.stages[k].train.n; i++)
            if (r->data.stages[k].train.sets[i].epochs)
                return true;
    return false;
}

int tern_inputs_length(struct tern_recipe *r, struct tern_err *err)
{
    if (find_steps(r, err) < 0)
        return -1;
    if (r->workload.command || !any_limit(r))
        return 0;
    struct tern_data_stages *s = tern_inputs_stages_open(r, err);
    if (!s)
        return tern_inputs_at_line(r, r->data.stages[0].key, err);
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < r->data.n_stages; k++)
        rc = end_stage(r, k, s, err);
    tern_data_stages_free(s);
    return rc;
}
