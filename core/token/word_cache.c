/* Words met before, with their ids: most text is looked up and not merged.
 *
 * A short word and its ids take half a line of the processor's cache; two share one, and the newer
 * one stands first.  Longer words have a table of their own.  Words are looked up many at a time,
 * so that their lines are on their way together. */
#include "core/token/encoder.h"

#include <stdlib.h>
#include <string.h>

/* Table sizes: the words of 24 MB of mixed English (some 250,000) fit in 8 MiB. */
enum { SHORT_BITS = 17, LONG_BITS = 13 };
enum { KEY = 15, SHORT_IDS = 4, LONG_KEY = 38, LONG_IDS = 6 };

struct short_word {
    uint64_t key[2];         /* the word, zeros behind it; the last byte is its length, 0: free */
    uint32_t ids[SHORT_IDS]; /* the first one has their number from bit ID_BITS on */
};
enum { ID_BITS = 24 };
_Static_assert(TERN_TOKEN_VOCAB_MAX <= 1 << ID_BITS, "an id leaves room for a number");

struct set {
    struct short_word way[2];
};

struct long_word {
    uint8_t len, n; /* len 0: free */
    char key[LONG_KEY];
    uint32_t ids[LONG_IDS];
};

struct tern_words {
    struct set *sets;
    struct long_word *longs;
};

struct tern_words *tern_token_word_cache_new(struct tern_err *err)
{
    struct tern_words *w = tern_alloc(1, sizeof *w, "an encoder", err);

    if (!w)
        return NULL;
    if (posix_memalign((void **)&w->sets, 64, sizeof *w->sets << SHORT_BITS) != 0)
        w->sets = NULL;
    w->longs = tern_alloc((size_t)1 << LONG_BITS, sizeof *w->longs, "an encoder", err);
    if (!w->sets || !w->longs) {
        tern_err_set(err, TERN_FAILED, "no memory for an encoder");
        tern_token_word_cache_free(w);
        return NULL;
    }
    memset(w->sets, 0, sizeof *w->sets << SHORT_BITS);
    return w;
}

void tern_token_word_cache_free(struct tern_words *w)
{
    if (!w)
        return;
    free(w->sets);
    free(w->longs);
    free(w);
}

static const uint64_t mix = 0x9e3779b97f4a7c15u;

static inline size_t short_place(const uint64_t key[2])
{
    uint64_t h = (key[0] ^ (key[1] << 29 | key[1] >> 35)) * mix;

    return (h ^ h >> 32) * mix >> (64 - SHORT_BITS);
}

static struct long_word *long_place(struct tern_words *words, const char *s, size_t len)
{
    const uint64_t h = tern_token_bytes_hash(mix, s, len);

    return &words->longs[(h * mix) >> (64 - LONG_BITS)];
}

/* Append a word's ids by merging, and remember them. */
static int put_new_short(struct tern_token_encoder *e, struct set *set, const uint64_t key[2],
                         const char *s, size_t len, struct tern_err *err)
{
    size_t first = e->n_ids;

    e->saw_unk = false;
    if (tern_token_merge(e, s, len, err) < 0)
        return -1;
    size_t n = e->n_ids - first;
    /* A word with unk depends on the text before it. */
    if (e->saw_unk || n > SHORT_IDS)
        return 0;
    set->way[1] = set->way[0];
    struct short_word *w = &set->way[0];
    memcpy(w->key, key, sizeof w->key);
    memset(w->ids, 0, sizeof w->ids);
    memcpy(w->ids, e->ids + first, n * sizeof *w->ids);
    w->ids[0] |= (uint32_t)n << ID_BITS;
    return 0;
}

static int put_long(struct tern_token_encoder *e, const char *s, size_t len, struct tern_err *err)
{
    if (len > LONG_KEY)
        return tern_token_merge(e, s, len, err);
    struct long_word *w = long_place(e->words, s, len);
    if (w->len == len && memcmp(w->key, s, len) == 0) {
        if (tern_token_reserve(&e->ids, &e->ids_cap, e->n_ids + LONG_IDS, sizeof *e->ids, err) < 0)
            return -1;
        memcpy(e->ids + e->n_ids, w->ids, sizeof w->ids);
        e->n_ids += w->n;
        e->after_unk = false;
        return 0;
    }
    size_t first = e->n_ids;
    e->saw_unk = false;
    if (tern_token_merge(e, s, len, err) < 0)
        return -1;
    size_t n = e->n_ids - first;
    if (e->saw_unk || n > LONG_IDS)
        return 0;
    w->len = (uint8_t)len;
    w->n = (uint8_t)n;
    memcpy(w->key, s, len);
    memcpy(w->ids, e->ids + first, n * sizeof *w->ids);
    return 0;
}

/* A word of at most KEY bytes as a key; `room` bytes may be read. */
static inline void read_key(uint64_t key[2], const char *s, size_t len, size_t room)
{
    if (room >= 2 * sizeof *key) {
        memcpy(key, s, 2 * sizeof *key);
        uint64_t low = len < 8 ? ((uint64_t)1 << 8 * len) - 1 : UINT64_MAX;
        uint64_t high = len > 8 ? ((uint64_t)1 << (8 * len - 64)) - 1 : 0;
        key[0] &= low;
        key[1] &= high;
    } else {
        key[0] = key[1] = 0;
        memcpy(key, s, len);
    }
    key[1] |= (uint64_t)len << 56;
}

struct probe {
    uint64_t key[2];
    struct set *set; /* NULL: a longer word */
};

static inline const struct short_word *known(const struct probe *p)
{
    const struct short_word *w = p->set->way;

    if (w[0].key[0] == p->key[0] && w[0].key[1] == p->key[1])
        return &w[0];
    return w[1].key[0] == p->key[0] && w[1].key[1] == p->key[1] ? &w[1] : NULL;
}

int tern_token_word_cache_put(struct tern_token_encoder *e, const char *s, size_t room,
                              const uint32_t *ends, size_t n, struct tern_err *err)
{
    struct probe probes[TERN_WORDS_BATCH];
    uint32_t at = 0;

    for (size_t i = 0; i < n; at = ends[i++]) {
        struct probe *p = &probes[i];
        const size_t len = ends[i] - at;
        p->set = NULL;
        if (len > KEY)
            continue;
        read_key(p->key, s + at, len, room - at);
        p->set = &e->words->sets[short_place(p->key)];
        __builtin_prefetch(p->set);
    }
    at = 0;
    for (size_t i = 0; i < n; at = ends[i++]) {
        /* For the ids of all words that are left, as long as they are known. */
        if (e->ids_cap - e->n_ids < (n - i) * SHORT_IDS &&
            tern_token_reserve(&e->ids, &e->ids_cap, e->n_ids + (n - i) * SHORT_IDS, sizeof *e->ids,
                               err) < 0)
            return -1;
        const struct probe *p = &probes[i];
        const struct short_word *w = p->set ? known(p) : NULL;
        if (w) {
            uint32_t *to = e->ids + e->n_ids;
            memcpy(to, w->ids, sizeof w->ids);
            e->n_ids += to[0] >> ID_BITS;
            to[0] &= ((uint32_t)1 << ID_BITS) - 1;
            e->after_unk = false;
        } else if ((p->set ? put_new_short(e, p->set, p->key, s + at, ends[i] - at, err)
                           : put_long(e, s + at, ends[i] - at, err)) < 0) {
            return -1;
        }
    }
    return 0;
}
