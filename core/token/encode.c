/* Text to ids.
 *
 * Normalise, then cut the text wherever no piece holds the two characters that meet there: no merge
 * can cross, so every stretch is merged alone, with the same result as merging the whole.  Short
 * stretches (words) are remembered with their ids, which is why most text is looked up. */
#include "core/token/vocab.h"

#include <stdlib.h>
#include <string.h>

/* A line of cache remembers a word; 2^15 lines (2 MiB) hold the running vocabulary of prose. */
enum { CACHE_BITS = 15, CACHE_KEY = 30, CACHE_IDS = 8 };

struct word {
    uint8_t len, n; /* len 0: the line is free */
    char key[CACHE_KEY];
    uint32_t ids[CACHE_IDS];
};

/* A run of characters that stay together; a list in an array, as merging takes from the middle. */
struct symbol {
    uint32_t symbol;
    uint32_t at, len; /* place in the normalised text; len 0: merged into the one before */
    int32_t prev, next;
};

/* A merge that was possible when it was noted. */
struct merge {
    uint64_t key; /* rank << 32 | left: the lowest rank first, the leftmost among equals */
    uint32_t right, len, symbol;
};

struct tern_token_encoder {
    const struct tern_token *t;
    struct word *cache;
    char *text; /* normalised */
    size_t text_len, text_cap;
    uint32_t *ids;
    size_t n_ids, ids_cap;
    struct symbol *symbols;
    size_t symbols_cap;
    struct merge *heap;
    size_t n_heap, heap_cap;
    bool after_unk; /* the last id is unk: more of the same adds none */
    bool saw_unk;   /* since put_stretch cleared it */
};

struct tern_token_encoder *tern_token_encoder_new(const struct tern_token *t, struct tern_err *err)
{
    struct tern_token_encoder *e = tern_alloc(1, sizeof *e, "an encoder", err);

    if (!e)
        return NULL;
    e->t = t;
    e->cache = tern_alloc((size_t)1 << CACHE_BITS, sizeof *e->cache, "an encoder", err);
    if (!e->cache) {
        free(e);
        return NULL;
    }
    return e;
}

void tern_token_encoder_free(struct tern_token_encoder *e)
{
    if (!e)
        return;
    free(e->cache);
    free(e->text);
    free(e->ids);
    free(e->symbols);
    free(e->heap);
    free(e);
}

/* Room for `n` things of `size` bytes in *p.  Nothing is asked for above what one text can need. */
static int reserve(void *p, size_t *cap, size_t n, size_t size, struct tern_err *err)
{
    void **at = p;

    if (n <= *cap)
        return 0;
    size_t grown = n + n / 2 + 1024;
    void *new = realloc(*at, grown * size);
    if (!new)
        return tern_err_set(err, TERN_FAILED, "no memory for %zu bytes of tokenizer work",
                            grown * size);
    *at = new;
    *cap = grown;
    return 0;
}

/* ---- normalising ---- */

/* e->text becomes `text` with the flags applied, spaces plain, bad bytes U+FFFD. */
static int normalise(struct tern_token_encoder *e, const char *text, size_t len,
                     struct tern_err *err)
{
    const struct tern_token *t = e->t;
    bool squeeze = t->remove_extra_whitespaces, after_space = squeeze;
    char *to;
    unsigned n;

    e->text_len = 0;
    while (squeeze && len && *text == ' ')
        text++, len--;
    if (len == 0)
        return 0;
    /* A bad byte becomes three; a space is added at one end. */
    if (reserve(&e->text, &e->text_cap, 3 * len + 1, 1, err) < 0)
        return -1;
    to = e->text;
    if (t->add_dummy_prefix && !t->whitespace_as_suffix)
        *to++ = ' ';
    for (const char *end = text + len; text < end; text += n) {
        if ((uint8_t)*text < 0x80) {
            n = 1;
            if (!(after_space && *text == ' '))
                *to++ = *text;
            after_space = squeeze && *text == ' ';
            continue;
        }
        after_space = false;
        tern_token_utf8_decode(text, (size_t)(end - text), &n);
        if (n == 0) {
            memcpy(to, "\xef\xbf\xbd", 3);
            to += 3;
            n = 1;
        } else if (n == 3 && t->escape_whitespaces && memcmp(text, TERN_SPACE_MARK, 3) == 0) {
            *to++ = ' ';
        } else {
            memcpy(to, text, n);
            to += n;
        }
    }
    while (squeeze && to > e->text && to[-1] == ' ')
        to--;
    if (t->add_dummy_prefix && t->whitespace_as_suffix)
        *to++ = ' ';
    e->text_len = (size_t)(to - e->text);
    return 0;
}

/* ---- writing ids ---- */

static int put(struct tern_token_encoder *e, uint32_t id, struct tern_err *err)
{
    if (e->n_ids == e->ids_cap &&
        reserve(&e->ids, &e->ids_cap, e->n_ids + 1, sizeof *e->ids, err) < 0)
        return -1;
    e->ids[e->n_ids++] = id;
    return 0;
}

/* A character that is no piece: its bytes, or unk once for a run of them. */
static int put_unknown(struct tern_token_encoder *e, const char *s, size_t len,
                       struct tern_err *err)
{
    const struct tern_token *t = e->t;

    if (!t->byte_fallback) {
        int rc = e->after_unk ? 0 : put(e, (uint32_t)t->unk, err);
        e->after_unk = e->saw_unk = true;
        return rc;
    }
    if (len == 1 && *s == ' ' && t->escape_whitespaces) {
        s = TERN_SPACE_MARK;
        len = 3;
    }
    for (size_t i = 0; i < len; i++)
        if (put(e, t->byte_id[(uint8_t)s[i]], err) < 0)
            return -1;
    return 0;
}

static int put_symbol(struct tern_token_encoder *e, uint32_t symbol, const char *s, size_t len,
                      struct tern_err *err)
{
    const struct tern_token *t = e->t;

    if (symbol >= t->n_vocab)
        return put_unknown(e, s, len, err);
    uint32_t id = t->pieces[symbol].emit;
    if (t->pieces[id].kind == TERN_PIECE_UNKNOWN)
        return put_unknown(e, s, len, err);
    e->after_unk = false;
    return put(e, id, err);
}

/* ---- merging ---- */

static void heap_push(struct merge *heap, size_t n, struct merge m)
{
    while (n > 0 && heap[(n - 1) / 2].key > m.key) {
        heap[n] = heap[(n - 1) / 2];
        n = (n - 1) / 2;
    }
    heap[n] = m;
}

/* Take the first of `n` merges; n - 1 are left. */
static struct merge heap_pop(struct merge *heap, size_t n)
{
    struct merge top = heap[0], last = heap[--n];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key)
            child++;
        if (last.key <= heap[child].key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* Note the merge of two neighbours, if there is one.  A text of n characters never notes more than
 * 3 n: n - 1 at first, and two after each of at most n - 1 merges. */
static void note(struct tern_token_encoder *e, int32_t left, int32_t right)
{
    const struct tern_token *t = e->t;

    if (left < 0 || right < 0)
        return;
    const struct symbol *l = &e->symbols[left], *r = &e->symbols[right];
    if (l->symbol == TERN_SYMBOL_NONE || r->symbol == TERN_SYMBOL_NONE)
        return;
    for (uint32_t k = tern_pair_slot(l->symbol, r->symbol) & t->pair_mask;;
         k = (k + 1) & t->pair_mask) {
        const struct tern_pair *p = &t->pairs[k];
        if (p->rank == TERN_RANK_NONE)
            return;
        if (p->left == l->symbol && p->right == r->symbol) {
            struct merge m = {(uint64_t)(uint32_t)p->rank << 32 | (uint32_t)left, (uint32_t)right,
                              l->len + r->len, p->merged};
            heap_push(e->heap, e->n_heap++, m);
            return;
        }
    }
}

static uint32_t symbol_of(const struct tern_token *t, uint32_t code)
{
    if (code < 128)
        return t->ascii[code];
    for (uint32_t k = tern_char_slot(code) & t->char_mask;; k = (k + 1) & t->char_mask)
        if (t->chars[k].symbol == TERN_SYMBOL_NONE || t->chars[k].code == code)
            return t->chars[k].symbol;
}

static int merge(struct tern_token_encoder *e, size_t at, size_t len, struct tern_err *err)
{
    int32_t n = 0;
    unsigned bytes;

    if (reserve(&e->symbols, &e->symbols_cap, len, sizeof *e->symbols, err) < 0 ||
        reserve(&e->heap, &e->heap_cap, 3 * len, sizeof *e->heap, err) < 0)
        return -1;
    struct symbol *s = e->symbols;
    for (size_t k = at; k < at + len; k += bytes, n++) {
        uint32_t code = tern_token_utf8_decode(e->text + k, at + len - k, &bytes);
        s[n] = (struct symbol){symbol_of(e->t, code), (uint32_t)k, bytes, n - 1, n + 1};
    }
    s[n - 1].next = -1;
    e->n_heap = 0;
    for (int32_t i = 1; i < n; i++)
        note(e, i - 1, i);
    while (e->n_heap) {
        struct merge m = heap_pop(e->heap, e->n_heap--);
        struct symbol *l = &s[(uint32_t)m.key], *r = &s[m.right];
        /* One of the two has merged with another since. */
        if (l->len == 0 || r->len == 0 || l->len + r->len != m.len)
            continue;
        l->symbol = m.symbol;
        l->len = m.len;
        r->len = 0;
        l->next = r->next;
        if (r->next >= 0)
            s[r->next].prev = (int32_t)(l - s);
        note(e, l->prev, (int32_t)(l - s));
        note(e, (int32_t)(l - s), l->next);
    }
    for (int32_t i = 0; i >= 0; i = s[i].next)
        if (put_symbol(e, s[i].symbol, e->text + s[i].at, s[i].len, err) < 0)
            return -1;
    return 0;
}

/* ---- stretches ---- */

static struct word *cache_line(struct tern_token_encoder *e, const char *s, size_t len)
{
    const uint64_t k = 0x9e3779b97f4a7c15u;
    uint64_t h = len, w;

    for (; len >= 8; s += 8, len -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * k;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, s, len);
    h = (h ^ w) * k;
    h ^= h >> 32;
    return &e->cache[(h * k) >> (64 - CACHE_BITS)];
}

/* The ids of a stretch of several characters. */
static int put_stretch(struct tern_token_encoder *e, size_t at, size_t len, struct tern_err *err)
{
    if (len > CACHE_KEY)
        return merge(e, at, len, err);
    struct word *w = cache_line(e, e->text + at, len);
    if (w->len == len && memcmp(w->key, e->text + at, len) == 0) {
        if (e->n_ids + CACHE_IDS > e->ids_cap &&
            reserve(&e->ids, &e->ids_cap, e->n_ids + CACHE_IDS, sizeof *e->ids, err) < 0)
            return -1;
        memcpy(e->ids + e->n_ids, w->ids, sizeof w->ids);
        e->n_ids += w->n;
        e->after_unk = false;
        return 0;
    }
    size_t first = e->n_ids;
    e->saw_unk = false;
    if (merge(e, at, len, err) < 0)
        return -1;
    size_t n = e->n_ids - first;
    /* A word with unk depends on the text before it. */
    if (e->saw_unk || n > CACHE_IDS)
        return 0;
    w->len = (uint8_t)len;
    w->n = (uint8_t)n;
    memcpy(w->key, e->text + at, len);
    memcpy(w->ids, e->ids + first, n * sizeof *w->ids);
    return 0;
}

/* Bytes of the longest user-defined piece that text at `s` begins with, and its id; 0 for none. */
static size_t user_match(const struct tern_token *t, const char *s, size_t n, uint32_t *id)
{
    if (!t->user_first[(uint8_t)*s])
        return 0;
    for (uint32_t i = 0; i < t->n_user; i++) {
        const struct tern_piece *p = &t->pieces[t->user[i]];
        if (p->match_len <= n && memcmp(p->match, s, p->match_len) == 0) {
            *id = t->user[i];
            return p->match_len;
        }
    }
    return 0;
}

static bool near(const struct tern_token *t, uint32_t a, uint32_t b)
{
    if (a < 128 && b < 128)
        return t->ascii_near[a][b >> 6] >> (b & 63) & 1;
    uint32_t slot = tern_near_slot(a, b);
    return t->near[slot >> 6] >> (slot & 63) & 1;
}

static int put_text(struct tern_token_encoder *e, struct tern_err *err)
{
    const struct tern_token *t = e->t;
    const char *s = e->text;
    const size_t len = e->text_len;
    unsigned n;

    for (size_t at = 0, end; at < len; at = end) {
        uint32_t id, code, first;
        size_t user = t->n_user ? user_match(t, s + at, len - at, &id) : 0;
        if (user) {
            end = at + user;
            if (put_symbol(e, id, s + at, user, err) < 0)
                return -1;
            continue;
        }
        first = code = tern_token_utf8_decode(s + at, len - at, &n);
        bool several = false;
        for (end = at + n; end < len; end += n, several = true) {
            uint32_t following = tern_token_utf8_decode(s + end, len - end, &n);
            if (!near(t, code, following) || (t->n_user && user_match(t, s + end, len - end, &id)))
                break;
            code = following;
        }
        if ((several ? put_stretch(e, at, end - at, err)
                     : put_symbol(e, symbol_of(t, first), s + at, end - at, err)) < 0)
            return -1;
    }
    return 0;
}

int tern_token_encode(struct tern_token_encoder *e, const char *text, size_t len,
                      const uint32_t **ids, size_t *n, struct tern_err *err)
{
    if (len > TERN_TOKEN_TEXT_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "a text of %zu bytes; one text may have %d. Split it into documents.",
                            len, TERN_TOKEN_TEXT_MAX);
    e->n_ids = 0;
    e->after_unk = false;
    if (normalise(e, text, len, err) < 0 || put_text(e, err) < 0)
        return -1;
    *ids = e->ids;
    *n = e->n_ids;
    return 0;
}
