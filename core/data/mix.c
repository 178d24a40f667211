/* The mix: which row is sample i. */
#include "core/data/data.h"

#include "core/base/assert.h"
#include "core/base/rand.h"
#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two seeds from one ("phase" and "order" in ASCII); other values would change the order of data of
 * runs that exist. */
static const uint64_t seed_phase = 0x7068617365, seed_order = 0x6f72646572;

struct source {
    struct tern_data_set *set;
    uint64_t rows;
    uint64_t share; /* of the turns that earlier sources left, in units of 2^-64 */
};

struct tern_data_mix {
    uint32_t seq_len;
    uint64_t seed;
    size_t n;
    struct source sources[];
};

static int check_sources(const struct tern_data_mix_source *sources, size_t n, uint32_t seq_len,
                         struct tern_err *err)
{
    if (n == 0 || n > TERN_DATA_MIX_SOURCES_MAX)
        return tern_err_set(err, TERN_USAGE, "a mix of %zu token sets; 1 to %d are allowed", n,
                            TERN_DATA_MIX_SOURCES_MAX);
    if (seq_len == 0)
        return tern_err_set(err, TERN_USAGE, "rows of 0 tokens; 1 or more are needed");
    for (size_t i = 0; i < n; i++)
        if (!(sources[i].weight > 0) || isinf(sources[i].weight))
            return tern_err_set(err, TERN_USAGE, "%s: weight %g; a positive number is needed",
                                sources[i].path, sources[i].weight);
    return 0;
}

static int check_same(const struct tern_data_mix *m, size_t i, struct tern_err *err)
{
    const struct tern_data_set *a = m->sources[0].set, *b = m->sources[i].set;

    if (m->sources[i].rows == 0)
        return tern_err_set(err, TERN_USAGE, "%s: the token set is empty", tern_data_set_path(b));
    if (memcmp(tern_data_set_vocab_hash(a), tern_data_set_vocab_hash(b), TERN_SHA256_BYTES) != 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: tokenised with another vocabulary than %s. Build both with the "
                            "model's tokenizer.",
                            tern_data_set_path(b), tern_data_set_path(a));
    return 0;
}

/* In [0, 2^64), rounded down; a share of one or more becomes the largest. */
static uint64_t fixed(double share)
{
    return share >= 1 ? UINT64_MAX : (uint64_t)(share * 0x1p64);
}

struct tern_data_mix *tern_data_mix_open(const struct tern_data_mix_source *sources, size_t n,
                                         uint32_t seq_len, uint64_t seed, struct tern_err *err)
{
    double left = 0;

    if (check_sources(sources, n, seq_len, err) < 0)
        return NULL;
    struct tern_data_mix *m = tern_alloc(1, sizeof *m + n * sizeof m->sources[0], "a mix", err);
    if (!m)
        return NULL;
    m->seq_len = seq_len;
    m->seed = seed;
    m->n = n;
    for (size_t i = 0; i < n; i++) {
        m->sources[i].set = tern_data_set_open(sources[i].path, err);
        if (!m->sources[i].set)
            goto fail;
        m->sources[i].rows = tern_data_set_rows(m->sources[i].set, seq_len);
        if (check_same(m, i, err) < 0)
            goto fail;
    }
    for (size_t i = n; i-- > 0;) {
        left += sources[i].weight;
        m->sources[i].share = fixed(sources[i].weight / left);
    }
    return m;
fail:
    tern_data_mix_free(m);
    return NULL;
}

void tern_data_mix_free(struct tern_data_mix *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++)
        tern_data_set_free(m->sources[i].set);
    free(m);
}

uint32_t tern_data_mix_seq_len(const struct tern_data_mix *m)
{
    return m->seq_len;
}

size_t tern_data_mix_n_sources(const struct tern_data_mix *m)
{
    return m->n;
}

const struct tern_data_set *tern_data_mix_set(const struct tern_data_mix *m, size_t source)
{
    tern_assert_cmp(source, <, m->n);
    return m->sources[source].set;
}

uint64_t tern_data_mix_rows(const struct tern_data_mix *m)
{
    uint64_t rows = 0;

    for (size_t i = 0; i < m->n; i++)
        rows += m->sources[i].rows;
    return rows;
}

/* Of the first i turns, floor(i share + phase) belong to the source: Bresenham's line. */
static uint64_t turns(uint64_t i, uint64_t share, uint64_t phase)
{
    return (uint64_t)(((unsigned __int128)i * share + phase) >> 64);
}

/* Each source takes its share of the turns that earlier ones left; the last takes the rest. */
void tern_data_mix_locate(const struct tern_data_mix *m, uint64_t stage, uint64_t i,
                          struct tern_data_mix_where *where)
{
    size_t k = 0;

    for (; k + 1 < m->n; k++) {
        uint64_t phase = tern_rand_u64(m->seed ^ seed_phase, stage, k);
        uint64_t before = turns(i, m->sources[k].share, phase);
        if (turns(i + 1, m->sources[k].share, phase) > before) {
            i = before;
            break;
        }
        i -= before;
    }
    const uint64_t rows = m->sources[k].rows;
    tern_assert(rows > 0, "%s", tern_data_set_path(m->sources[k].set));
    const uint64_t epoch = i / rows;
    const uint64_t stream = tern_rand_u64(m->seed ^ seed_order, stage, k);
    *where = (struct tern_data_mix_where){
        .source = (uint32_t)k,
        .epoch = epoch,
        .row = tern_rand_permute(m->seed, stream + epoch, i % rows, rows),
    };
}

int tern_data_mix_sample(const struct tern_data_mix *m, uint64_t stage, uint64_t i, int32_t *tokens,
                         uint8_t *mask, struct tern_data_mix_where *where, struct tern_err *err)
{
    struct tern_data_mix_where w;

    tern_data_mix_locate(m, stage, i, &w);
    if (tern_data_set_row(m->sources[w.source].set, m->seq_len, w.row, tokens, mask, err) < 0)
        return -1;
    if (where)
        *where = w;
    return 0;
}
