/* The mix: which row is sample i. */
#include "core/data/mix.h"

#include "core/base/assert.h"
#include "core/base/rand.h"
#include "core/base/str.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Two seeds from one ("phase" and "order" in ASCII); other values would change the order of data of
 * runs that exist. */
static const uint64_t seed_phase = 0x7068617365, seed_order = 0x6f72646572;

struct source {
    struct tern_data_set *set;
    struct tern_data_pack *pack;
    bool lent; /* both belong to another mix */
    uint64_t rows;
    uint64_t share; /* of the turns that earlier sources left, in units of 2^-64 */
};

/* Of the first `samples` of a source in one epoch of one stage: the tokens. */
struct counted {
    uint64_t stage, epoch, samples, tokens;
};

/* Where counting of tokens has come to; any thread may go on from there. */
struct tally {
    pthread_mutex_t lock;
    uint64_t looked_at; /* rows */
    struct counted of[];
};

struct tern_data_mix {
    uint32_t seq_len;
    uint64_t seed;
    struct tally *tally; /* of [n] */
    size_t n;
    struct source sources[];
};

static int check_sources(const struct tern_data_mix_source *sources, size_t n,
                         const struct tern_data_pack_how *how, struct tern_err *err)
{
    if (n == 0 || n > TERN_DATA_MIX_SOURCES_MAX)
        return tern_err_set(err, TERN_USAGE, "a mix of %zu token sets; 1 to %d are allowed", n,
                            TERN_DATA_MIX_SOURCES_MAX);
    if (how->seq_len == 0)
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

    if (tern_data_set_n_tokens(b) == 0)
        return tern_err_set(err, TERN_USAGE, "%s: the token set is empty", tern_data_set_path(b));
    if (m->sources[i].rows == 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: every document is longer than a row of %u tokens, and longer "
                            "documents are dropped. Cut them, or use longer rows.",
                            tern_data_set_path(b), m->seq_len);
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

/* A source that an earlier mix has is opened and packed once. */
static bool borrow(struct source *to, const char *path, struct tern_data_mix *const *mixes,
                   size_t n)
{
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < mixes[k]->n; i++)
            if (strcmp(tern_data_set_path(mixes[k]->sources[i].set), path) == 0) {
                *to = mixes[k]->sources[i];
                to->lent = true;
                return true;
            }
    return false;
}

static int open_source(struct source *to, const char *path, const struct tern_data_pack_how *how,
                       struct tern_err *err)
{
    to->set = tern_data_set_open(path, err);
    to->pack = to->set ? tern_data_pack_new(to->set, how, err) : NULL;
    if (!to->pack)
        return -1;
    to->rows = tern_data_pack_counts(to->pack).rows;
    return 0;
}

struct tern_data_mix *tern_data_mix_open_beside(struct tern_data_mix *const *mixes, size_t n_mixes,
                                                const struct tern_data_mix_source *sources,
                                                size_t n, const struct tern_data_pack_how *how,
                                                uint64_t seed, struct tern_err *err)
{
    double left = 0;

    if (check_sources(sources, n, how, err) < 0)
        return NULL;
    struct tern_data_mix *m = tern_alloc(1, sizeof *m + n * sizeof m->sources[0], "a mix", err);
    if (!m)
        return NULL;
    m->seq_len = how->seq_len;
    m->seed = seed;
    m->n = n;
    m->tally = tern_alloc(1, sizeof *m->tally + n * sizeof m->tally->of[0], "a mix", err);
    if (!m->tally)
        goto fail;
    pthread_mutex_init(&m->tally->lock, NULL);
    for (size_t i = 0; i < n; i++) {
        struct source *s = &m->sources[i];
        if (!borrow(s, sources[i].path, mixes, n_mixes) &&
            open_source(s, sources[i].path, how, err) < 0)
            goto fail;
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

struct tern_data_mix *tern_data_mix_open(const struct tern_data_mix_source *sources, size_t n,
                                         const struct tern_data_pack_how *how, uint64_t seed,
                                         struct tern_err *err)
{
    return tern_data_mix_open_beside(NULL, 0, sources, n, how, seed, err);
}

void tern_data_mix_free(struct tern_data_mix *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        if (m->sources[i].lent)
            continue;
        tern_data_pack_free(m->sources[i].pack);
        tern_data_set_free(m->sources[i].set);
    }
    if (m->tally)
        pthread_mutex_destroy(&m->tally->lock);
    free(m->tally);
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

const struct tern_data_pack *tern_data_mix_pack(const struct tern_data_mix *m, size_t source)
{
    tern_assert_cmp(source, <, m->n);
    return m->sources[source].pack;
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

static uint64_t phase_of(const struct tern_data_mix *m, uint64_t stage, size_t source)
{
    return tern_rand_u64(m->seed ^ seed_phase, stage, source);
}

void tern_data_mix_counts(const struct tern_data_mix *m, uint64_t stage, uint64_t i,
                          uint64_t *counts)
{
    for (size_t k = 0; k + 1 < m->n; k++) {
        counts[k] = turns(i, m->sources[k].share, phase_of(m, stage, k));
        i -= counts[k];
    }
    counts[m->n - 1] = i;
}

/* Of a source's order of rows in its first epoch; those of the others follow. */
static uint64_t stream_of(const struct tern_data_mix *m, uint64_t stage, size_t source)
{
    return tern_rand_u64(m->seed ^ seed_order, stage, source);
}

/* The row of a source's i-th sample. */
static uint64_t row_of(const struct tern_data_mix *m, uint64_t stage, size_t source, uint64_t i)
{
    const uint64_t rows = m->sources[source].rows;
    const uint64_t stream = stream_of(m, stage, source);

    tern_assert(rows > 0, "%s", tern_data_set_path(m->sources[source].set));
    return tern_rand_permute(m->seed, stream + i / rows, i % rows, rows);
}

/* Each source takes its share of the turns that earlier ones left; the last takes the rest. */
void tern_data_mix_locate(const struct tern_data_mix *m, uint64_t stage, uint64_t i,
                          struct tern_data_mix_where *where)
{
    size_t k = 0;

    for (; k + 1 < m->n; k++) {
        const uint64_t phase = phase_of(m, stage, k);
        uint64_t before = turns(i, m->sources[k].share, phase);
        if (turns(i + 1, m->sources[k].share, phase) > before) {
            i = before;
            break;
        }
        i -= before;
    }
    *where = (struct tern_data_mix_where){
        .source = (uint32_t)k,
        .epoch = i / m->sources[k].rows,
        .row = row_of(m, stage, k, i),
    };
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a < b ? b - a : a - b;
}

/* Of the first `samples` of a source in an epoch.  Counting goes on from the nearest of the place
 * that it has come to, the epoch's beginning and its end. */
static uint64_t count_rows(const struct tern_data_mix *m, uint64_t stage, size_t source,
                           uint64_t epoch, uint64_t samples)
{
    const struct tern_data_pack *p = m->sources[source].pack;
    const struct tern_data_pack_counts c = tern_data_pack_counts(p);
    const struct counted begin = {stage, epoch, 0, 0},
                         end = {stage, epoch, c.rows, c.rows * m->seq_len - c.padding};
    struct tally *t = m->tally;

    pthread_mutex_lock(&t->lock);
    struct counted at = t->of[source];
    if (at.stage != stage || at.epoch != epoch ||
        distance(begin.samples, samples) < distance(at.samples, samples))
        at = begin;
    if (distance(end.samples, samples) < distance(at.samples, samples))
        at = end;
    t->looked_at += distance(at.samples, samples);
    while (at.samples < samples)
        at.tokens +=
            tern_data_pack_filled(p, row_of(m, stage, source, epoch * c.rows + at.samples++));
    while (at.samples > samples)
        at.tokens -=
            tern_data_pack_filled(p, row_of(m, stage, source, epoch * c.rows + --at.samples));
    t->of[source] = at;
    pthread_mutex_unlock(&t->lock);
    return at.tokens;
}

uint64_t tern_data_mix_looked_at(const struct tern_data_mix *m)
{
    pthread_mutex_lock(&m->tally->lock);
    const uint64_t n = m->tally->looked_at;
    pthread_mutex_unlock(&m->tally->lock);
    return n;
}

static uint64_t tokens_of(const struct tern_data_mix *m, uint64_t stage, size_t source,
                          uint64_t samples)
{
    const struct tern_data_pack *p = m->sources[source].pack;
    const struct tern_data_pack_counts c = tern_data_pack_counts(p);
    const uint64_t epoch = samples / c.rows, left = samples % c.rows;
    const uint64_t tokens = epoch * (c.rows * m->seq_len - c.padding);

    if (c.padding == 0)
        return samples * m->seq_len;
    if (tern_data_pack_filled(p, c.rows - 1) + c.padding ==
        m->seq_len) { /* no other row is short */
        uint64_t at = tern_rand_permute_back(m->seed, stream_of(m, stage, source) + epoch,
                                             c.rows - 1, c.rows);
        return tokens + left * m->seq_len - (at < left ? c.padding : 0);
    }
    return tokens + count_rows(m, stage, source, epoch, left);
}

void tern_data_mix_tokens(const struct tern_data_mix *m, uint64_t stage, uint64_t i,
                          uint64_t *tokens)
{
    tern_data_mix_counts(m, stage, i, tokens);
    for (size_t k = 0; k < m->n; k++)
        tokens[k] = tokens_of(m, stage, k, tokens[k]);
}

int tern_data_mix_sample(const struct tern_data_mix *m, uint64_t stage, uint64_t i, int32_t *tokens,
                         uint8_t *mask, int32_t *starts, struct tern_err *err)
{
    struct tern_data_mix_where w;

    tern_data_mix_locate(m, stage, i, &w);
    return tern_data_pack_row(m->sources[w.source].pack, w.row, tokens, mask, starts, err);
}
