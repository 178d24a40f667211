/* The stages of a run: which mix a sample is drawn from. */
#include "core/data/data.h"

#include "core/base/assert.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct stage {
    struct tern_data_mix *mix;
    uint64_t first; /* sample */
};

struct tern_data_stages {
    size_t n;
    struct stage stages[];
};

/* Every mix is of one vocabulary; all of them must be of the same. */
static int check_same(const struct tern_data_stages *s, size_t k, struct tern_err *err)
{
    const struct tern_data_set *a = tern_data_mix_set(s->stages[0].mix, 0);
    const struct tern_data_set *b = tern_data_mix_set(s->stages[k].mix, 0);

    if (memcmp(tern_data_set_vocab_hash(a), tern_data_set_vocab_hash(b), TERN_SHA256_BYTES) == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%s: tokenised with another vocabulary than %s. Build both with the "
                        "model's tokenizer.",
                        tern_data_set_path(b), tern_data_set_path(a));
}

struct tern_data_stages *tern_data_stages_open(const struct tern_data_stage *stages, size_t n,
                                               uint32_t seq_len, uint64_t seed,
                                               struct tern_err *err)
{
    struct tern_data_stages *s = tern_alloc(1, sizeof *s + n * sizeof s->stages[0], "stages", err);

    if (!s)
        return NULL;
    for (size_t k = 0; k < n; k++) {
        struct stage *to = &s->stages[s->n++];
        to->first = stages[k].first;
        to->mix = tern_data_mix_open(stages[k].sources, stages[k].n, seq_len, seed, err);
        if (!to->mix || check_same(s, k, err) < 0)
            goto fail;
        if (k == 0 ? to->first != 0 : to->first <= s->stages[k - 1].first) {
            tern_err_set(err, TERN_USAGE, "stage %zu begins at sample %" PRIu64 ", out of order", k,
                         to->first);
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
        tern_data_mix_free(s->stages[k].mix);
    free(s);
}

size_t tern_data_stages_n(const struct tern_data_stages *s)
{
    return s->n;
}

const struct tern_data_mix *tern_data_stages_mix(const struct tern_data_stages *s, size_t stage)
{
    tern_assert_cmp(stage, <, s->n);
    return s->stages[stage].mix;
}

size_t tern_data_stages_at(const struct tern_data_stages *s, uint64_t i)
{
    size_t k = s->n - 1;

    while (s->stages[k].first > i)
        k--;
    return k;
}

const struct tern_data_set *tern_data_stages_locate(const struct tern_data_stages *s, uint64_t i,
                                                    struct tern_data_mix_where *where)
{
    size_t k = tern_data_stages_at(s, i);

    tern_data_mix_locate(s->stages[k].mix, k, i - s->stages[k].first, where);
    return tern_data_mix_set(s->stages[k].mix, where->source);
}

int tern_data_stages_sample(const struct tern_data_stages *s, uint64_t i, int32_t *tokens,
                            uint8_t *mask, int32_t *starts, struct tern_err *err)
{
    struct tern_data_mix_where w;
    const struct tern_data_set *set = tern_data_stages_locate(s, i, &w);
    const uint32_t seq_len = tern_data_mix_seq_len(s->stages[0].mix);

    if (tern_data_set_row(set, seq_len, w.row, tokens, mask, err) < 0)
        return -1;
    if (starts)
        tern_data_set_starts(set, seq_len, tokens, starts);
    return 0;
}
