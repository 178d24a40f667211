/* The table of held-out n-grams, and threads that go through the training sets. */
#include "core/data/overlap.h"

#include "core/base/progress.h"
#include "core/base/str.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 1 << 18, /* tokens that a thread reads at once: a MiB */
    FILTER_BITS = 8, /* a slot: one in 16 of the n-grams that are not there passes */
};

static const uint64_t base = 0x9e3779b97f4a7c15; /* odd: 2^64 / golden ratio */

/* An n-gram of the held-out set: where it first stands.  `tag` is part of its hash. */
struct slot {
    uint32_t tag;
    uint32_t at; /* place + 1; 0: free */
};

struct table {
    const int32_t *tokens; /* of the held-out set [n] */
    uint64_t n;
    unsigned gram;
    uint64_t out; /* base^gram: what the oldest id of a window has been multiplied by */
    unsigned shift;
    uint64_t mask;
    struct slot *slots; /* [mask + 1] */
    uint8_t *found;     /* [mask + 1] */
    uint64_t *filter;   /* bits */
    uint64_t filter_mask;
};

/* A rolling hash is a polynomial; its low bits depend on few bits of the ids. */
static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93;
    h ^= h >> 32;
    return h * 0xd6e8feb86659fd93;
}

static uint64_t roll(const struct table *t, uint64_t h, int32_t in, int32_t out)
{
    return (h + (uint64_t)in + 1 - ((uint64_t)out + 1) * t->out) * base;
}

static bool same(const struct table *t, uint32_t at, const int32_t *gram)
{
    return memcmp(t->tokens + at, gram, t->gram * sizeof *gram) == 0;
}

/* The slot of an n-gram, or the free one where it would be. */
static uint64_t look_up(const struct table *t, uint64_t h, const int32_t *gram)
{
    uint64_t i = h >> t->shift;

    while (t->slots[i].at && (t->slots[i].tag != (uint32_t)h || !same(t, t->slots[i].at - 1, gram)))
        i = (i + 1) & t->mask;
    return i;
}

static bool passes(const struct table *t, uint64_t h)
{
    const uint64_t bit = (h ^ h >> 17) & t->filter_mask;

    return t->filter[bit / 64] >> bit % 64 & 1;
}

/* ---- the held-out set ---- */

/* Call `each` for every n-gram without `stop` ids in tokens [n]. */
static void for_grams(const struct table *t, const int32_t *tokens, uint64_t n, int32_t eos,
                      int32_t bos, void (*each)(void *ctx, uint64_t at, uint64_t hash), void *ctx)
{
    uint64_t h = 0, have = 0; /* ids in a row without EOS and BOS */

    for (uint64_t i = 0; i < n; i++) {
        if (tokens[i] == eos || tokens[i] == bos) {
            h = have = 0;
            continue;
        }
        have++;
        h = roll(t, h, tokens[i], have > t->gram ? tokens[i - t->gram] : -1);
        if (have >= t->gram)
            each(ctx, i + 1 - t->gram, mix(h));
    }
}

static void insert(void *ctx, uint64_t at, uint64_t hash)
{
    struct table *t = ctx;
    const uint64_t bit = (hash ^ hash >> 17) & t->filter_mask;
    struct slot *s = &t->slots[look_up(t, hash, t->tokens + at)];

    if (s->at)
        return;
    *s = (struct slot){(uint32_t)hash, (uint32_t)at + 1};
    t->filter[bit / 64] |= UINT64_C(1) << bit % 64;
}

static int table_open(struct table *t, const struct tern_data_set *s, struct tern_err *err)
{
    int32_t *tokens;
    unsigned bits = 6;

    t->n = tern_data_set_n_tokens(s);
    if (t->n >= INT32_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %llu tokens; a held-out set of fewer than 2^31 fits in memory",
                            tern_data_set_path(s), (unsigned long long)t->n);
    while (UINT64_C(1) << bits < 2 * t->n) /* at most half full */
        bits++;
    t->mask = (UINT64_C(1) << bits) - 1;
    t->shift = 64 - bits;
    t->filter_mask = (t->mask + 1) * FILTER_BITS - 1;
    t->tokens = tokens = tern_alloc(t->n, sizeof *tokens, "a held-out set", err);
    t->slots = tern_alloc(t->mask + 1, sizeof *t->slots, "n-grams", err);
    t->found = tern_alloc(t->mask + 1, 1, "n-grams", err);
    t->filter = tern_alloc((t->filter_mask + 1) / 64, sizeof *t->filter, "n-grams", err);
    if (!tokens || !t->slots || !t->found || !t->filter ||
        tern_data_set_read(s, 0, t->n, tokens, err) < 0)
        return -1;
    t->out = 1;
    for (unsigned i = 0; i < t->gram; i++)
        t->out *= base;
    for_grams(t, t->tokens, t->n, (int32_t)tern_data_set_eos(s), tern_data_set_bos(s), insert, t);
    return 0;
}

static void table_close(struct table *t)
{
    free((void *)t->tokens);
    free(t->slots);
    free(t->found);
    free(t->filter);
}

/* ---- the training sets ---- */

struct work {
    struct table *table;
    struct tern_data_set *const *train;
    size_t n_train;
    uint64_t next; /* chunk, of all sets together */
    uint64_t chunks, done, all;
    int failed; /* a thread that fails stops the others */
};

struct worker {
    pthread_t thread;
    bool started;
    struct work *work;
    struct tern_err err;
    int32_t *tokens; /* [CHUNK + gram - 1] */
};

static void mark(void *ctx, uint64_t at, uint64_t hash)
{
    const struct worker *w = ctx;
    const struct table *t = w->work->table;

    if (!passes(t, hash))
        return;
    const uint64_t i = look_up(t, hash, w->tokens + at);
    if (t->slots[i].at)
        __atomic_store_n(&t->found[i], 1, __ATOMIC_RELAXED);
}

static uint64_t chunks_of(const struct tern_data_set *s)
{
    return (tern_data_set_n_tokens(s) + CHUNK - 1) / CHUNK;
}

/* A chunk and the ids behind it that n-grams which begin in it need. */
static int read_chunk(struct worker *w, uint64_t chunk)
{
    const struct work *k = w->work;
    size_t which = 0;

    while (chunk >= chunks_of(k->train[which]))
        chunk -= chunks_of(k->train[which++]);
    const struct tern_data_set *s = k->train[which];
    const uint64_t first = chunk * CHUNK, left = tern_data_set_n_tokens(s) - first;
    const uint64_t want = CHUNK + k->table->gram - 1, n = left < want ? left : want;
    if (tern_data_set_read(s, first, (size_t)n, w->tokens, &w->err) < 0)
        return -1;
    for_grams(k->table, w->tokens, n, (int32_t)tern_data_set_eos(s), tern_data_set_bos(s), mark, w);
    __atomic_add_fetch(&w->work->done, left < CHUNK ? left : CHUNK, __ATOMIC_RELAXED);
    tern_progress_add(left < CHUNK ? left : CHUNK);
    return 0;
}

/* One more chunk: 1, 0 when there is none. */
static int work_on(struct worker *w)
{
    struct work *k = w->work;
    const uint64_t chunk = __atomic_fetch_add(&k->next, 1, __ATOMIC_RELAXED);

    if (chunk >= k->chunks || __atomic_load_n(&k->failed, __ATOMIC_RELAXED))
        return 0;
    if (read_chunk(w, chunk) == 0)
        return 1;
    __atomic_store_n(&k->failed, 1, __ATOMIC_RELAXED);
    return -1;
}

static void *worker_main(void *arg)
{
    while (work_on(arg) > 0)
        ;
    return NULL;
}

/* The caller's thread is the first worker. */
static int run_all(struct work *k, struct worker *workers, unsigned n,
                   const struct tern_data_overlap_how *how, struct tern_err *err)
{
    int rc = 0;

    for (unsigned i = 1; i < n; i++) /* with fewer threads it takes longer */
        workers[i].started =
            pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) == 0;
    while (work_on(&workers[0]) > 0)
        if (how->progress &&
            how->progress(how->ctx, __atomic_load_n(&k->done, __ATOMIC_RELAXED), k->all)) {
            __atomic_store_n(&k->failed, 1, __ATOMIC_RELAXED);
            rc = tern_err_set(err, TERN_FAILED, "interrupted");
        }
    for (unsigned i = 1; i < n; i++)
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < n && rc == 0; i++)
        if (workers[i].err.code) {
            *err = workers[i].err;
            rc = -1;
        }
    return rc;
}

static int go_through(struct table *t, struct tern_data_set *const *train, size_t n_train,
                      const struct tern_data_overlap_how *how, struct tern_err *err)
{
    struct work k = {.table = t, .train = train, .n_train = n_train};
    const unsigned n = how->threads ? how->threads : 1;
    struct worker *workers = tern_alloc(n, sizeof *workers, "threads", err);
    int rc = workers ? 0 : -1;

    for (size_t i = 0; i < n_train; i++) {
        k.chunks += chunks_of(train[i]);
        k.all += tern_data_set_n_tokens(train[i]);
    }
    tern_progress_expect(k.all);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        workers[i].work = &k;
        workers[i].tokens =
            tern_alloc(CHUNK + t->gram, sizeof *workers[i].tokens, "a piece of a set", err);
        rc = workers[i].tokens ? 0 : -1;
    }
    if (rc == 0)
        rc = run_all(&k, workers, n, how, err);
    for (unsigned i = 0; workers && i < n; i++)
        free(workers[i].tokens);
    free(workers);
    return rc;
}

/* ---- both ---- */

struct counter {
    const struct table *table;
    struct tern_data_overlap_count *to;
    const int32_t *tokens;
};

static void count(void *ctx, uint64_t at, uint64_t hash)
{
    struct counter *c = ctx;

    c->to->grams++;
    c->to->found += c->table->found[look_up(c->table, hash, c->tokens + at)];
}

static int count_docs(const struct table *t, const struct tern_data_set *s,
                      struct tern_data_overlap *o, struct tern_err *err)
{
    struct tern_data_set_doc doc;

    o->n_docs = tern_data_set_n_docs(s);
    o->docs = tern_alloc(o->n_docs, sizeof *o->docs, "documents", err);
    if (!o->docs)
        return -1;
    for (uint64_t d = 0; d < o->n_docs; d++) {
        if (tern_data_set_doc(s, d, &doc, err) < 0)
            return -1;
        struct counter c = {t, &o->docs[d], t->tokens + doc.first_token};
        for_grams(t, c.tokens, doc.n_tokens, (int32_t)tern_data_set_eos(s), tern_data_set_bos(s),
                  count, &c);
        o->all.grams += o->docs[d].grams;
        o->all.found += o->docs[d].found;
    }
    return 0;
}

static int check_same(const struct tern_data_set *a, const struct tern_data_set *b,
                      struct tern_err *err)
{
    if (memcmp(tern_data_set_vocab_hash(a), tern_data_set_vocab_hash(b), TERN_SHA256_BYTES) == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%s: tokenised with another vocabulary than %s, so that ids cannot be "
                        "compared. Build both with one tokenizer.",
                        tern_data_set_path(a), tern_data_set_path(b));
}

int tern_data_overlap(struct tern_data_set *const *train, size_t n_train,
                      const struct tern_data_set *held_out, const struct tern_data_overlap_how *how,
                      struct tern_data_overlap *ret_overlap, struct tern_err *err)
{
    struct tern_data_overlap o = {0};
    struct table t = {.gram = how->gram};
    int rc = -1;

    if (how->gram == 0 || how->gram > TERN_DATA_OVERLAP_GRAM_MAX)
        return tern_err_set(err, TERN_USAGE, "n-grams of %u ids; 1 to %d are allowed", how->gram,
                            TERN_DATA_OVERLAP_GRAM_MAX);
    for (size_t i = 0; i < n_train; i++)
        if (check_same(train[i], held_out, err) < 0)
            return -1;
    if (table_open(&t, held_out, err) == 0 && go_through(&t, train, n_train, how, err) == 0 &&
        count_docs(&t, held_out, &o, err) == 0) {
        *ret_overlap = o;
        rc = 0;
    } else {
        tern_data_overlap_free(&o);
    }
    table_close(&t);
    return rc;
}

void tern_data_overlap_free(struct tern_data_overlap *o)
{
    free(o->docs);
    *o = (struct tern_data_overlap){0};
}
