/* The stages of a run: which mix a sample is drawn from. */
#include "core/data/mix.h"

#include "core/base/assert.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tern_data_stages {
    size_t n;
    uint64_t *first; /* [n]: samples */
    struct tern_data_mix *mixes[];
};

/* Every mix is of one vocabulary; all of them must be of the same. */
static int check_same(const struct tern_data_stages *s, size_t k, struct tern_err *err)
{
    const struct tern_data_set *a = tern_data_mix_set(s->mixes[0], 0);
    const struct tern_data_set *b = tern_data_mix_set(s->mixes[k], 0);

    if (memcmp(tern_data_set_vocab_hash(a), tern_data_set_vocab_hash(b), TERN_SHA256_BYTES) == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%s: tokenised with another vocabulary than %s. Build both with the "
                        "model's tokenizer.",
                        tern_data_set_path(b), tern_data_set_path(a));
}

struct tern_data_stages *tern_data_stages_open(const struct tern_data_stage *stages, size_t n,
                                               const struct tern_data_pack_how *how, uint64_t seed,
                                               struct tern_err *err)
{
    struct tern_data_stages *s = tern_alloc(1, sizeof *s + n * sizeof s->mixes[0], "stages", err);

    if (!s)
        return NULL;
    s->first = tern_alloc(n, sizeof *s->first, "stages", err);
    if (!s->first)
        goto fail;
    for (size_t k = 0; k < n; k++) {
        s->first[k] = stages[k].first;
        s->mixes[k] =
            tern_data_mix_open_beside(s->mixes, k, stages[k].sources, stages[k].n, how, seed, err);
        if (!s->mixes[k])
            goto fail;
        s->n++;
        if (check_same(s, k, err) < 0)
            goto fail;
        if (k == 0 ? s->first[0] != 0 : s->first[k] <= s->first[k - 1]) {
            tern_err_set(err, TERN_USAGE, "stage %zu begins at sample %" PRIu64 ", out of order", k,
                         s->first[k]);
            goto fail;
        }
    }
    if (n)
        return s;
    tern_err_set(err, TERN_USAGE, "no stage of data; at least one is needed");
fail:
    tern_data_stages_free(s);
    return NULL;
}

void tern_data_stages_free(struct tern_data_stages *s)
{
    if (!s)
        return;
    for (size_t k = 0; k < s->n; k++)
        tern_data_mix_free(s->mixes[k]);
    free(s->first);
    free(s);
}

size_t tern_data_stages_n(const struct tern_data_stages *s)
{
    return s->n;
}

const struct tern_data_mix *tern_data_stages_mix(const struct tern_data_stages *s, size_t stage)
{
    tern_assert_cmp(stage, <, s->n);
    return s->mixes[stage];
}

uint64_t tern_data_stages_first(const struct tern_data_stages *s, size_t stage)
{
    tern_assert_cmp(stage, <, s->n);
    return s->first[stage];
}

size_t tern_data_stages_at(const struct tern_data_stages *s, uint64_t i)
{
    size_t k = s->n - 1;

    while (s->first[k] > i)
        k--;
    return k;
}

const struct tern_data_set *tern_data_stages_locate(const struct tern_data_stages *s, uint64_t i,
                                                    struct tern_data_mix_where *where)
{
    size_t k = tern_data_stages_at(s, i);

    tern_data_mix_locate(s->mixes[k], k, i - s->first[k], where);
    return tern_data_mix_set(s->mixes[k], where->source);
}

int tern_data_stages_sample(const struct tern_data_stages *s, uint64_t i, int32_t *tokens,
                            uint8_t *mask, int32_t *starts, struct tern_err *err)
{
    const size_t k = tern_data_stages_at(s, i);

    return tern_data_mix_sample(s->mixes[k], k, i - s->first[k], tokens, mask, starts, err);
}
