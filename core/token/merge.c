/* One word to ids: its characters, or its bytes, merged pair by pair. */
#include "core/token/encoder.h"

#include <stdlib.h>
#include <string.h>

int tern_token_reserve(void *p, size_t *cap, size_t n, size_t size, struct tern_err *err)
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

/* ---- writing ids ---- */

int tern_token_put(struct tern_token_encoder *e, uint32_t id, struct tern_err *err)
{
    if (e->n_ids == e->ids_cap &&
        tern_token_reserve(&e->ids, &e->ids_cap, e->n_ids + 1, sizeof *e->ids, err) < 0)
        return -1;
    e->ids[e->n_ids++] = id;
    return 0;
}

/* A character that is no piece: its bytes, or unk, or nothing. */
static int put_unknown(struct tern_token_encoder *e, const char *s, size_t len,
                       struct tern_err *err)
{
    const struct tern_token *t = e->t;

    if (!t->byte_fallback) {
        if (t->drop_unknown)
            return 0;
        bool more = e->after_unk && !t->split_unk;
        e->after_unk = e->saw_unk = true;
        return more ? 0 : tern_token_put(e, (uint32_t)t->unk, err);
    }
    if (len == 1 && *s == ' ' && t->escape_whitespaces) {
        s = TERN_SPACE_MARK;
        len = 3;
    }
    for (size_t i = 0; i < len; i++)
        if (tern_token_put(e, t->byte_id[(uint8_t)s[i]], err) < 0)
            return -1;
    return 0;
}

int tern_token_put_symbol(struct tern_token_encoder *e, uint32_t symbol, const char *s, size_t len,
                          struct tern_err *err)
{
    if (symbol >= e->t->n_vocab)
        return put_unknown(e, s, len, err);
    e->after_unk = false;
    return tern_token_put(e, symbol, err);
}

/* ---- pairs ---- */

struct result {
    uint32_t rank, symbol;
};

enum { NO_RANK = INT32_MAX }; /* above every rank */

static const struct result none = {NO_RANK, TERN_SYMBOL_NONE};

/* The piece whose bytes are those of two neighbours; its id is its rank.  Looking texts up takes
 * several times as long as asking what was found for the same two before. */
static struct result pair_by_text(struct tern_token_encoder *e, uint32_t left, uint32_t right,
                                  const char *s, size_t len)
{
    struct tern_pair *known =
        &e->pairs[tern_pair_hash(e->t->seed, left, right) >> (32 - TERN_KNOWN_PAIRS_BITS)];

    if (known->rank == TERN_RANK_NONE || known->left != left || known->right != right) {
        uint32_t id = tern_token_find(e->t, s, len);
        *known = (struct tern_pair){left, right, id, 0};
    }
    return known->merged == TERN_SYMBOL_NONE ? none : (struct result){known->merged, known->merged};
}

/* What two neighbours become, whose bytes are at `s`. */
static inline struct result pair(struct tern_token_encoder *e, uint32_t left, uint32_t right,
                                 const char *s, size_t len)
{
    if (e->t->by_text)
        return pair_by_text(e, left, right, s, len);
    const struct tern_pair *p = tern_token_pair(e->t, left, right);
    return p ? (struct result){(uint32_t)p->rank, p->merged} : none;
}

uint32_t tern_token_char_symbol(const struct tern_token *t, uint32_t code)
{
    if (code < 128)
        return t->ascii[code];
    for (uint32_t k = tern_char_slot(code) & t->char_mask;; k = (k + 1) & t->char_mask)
        if (t->chars[k].symbol == TERN_SYMBOL_NONE || t->chars[k].code == code)
            return t->chars[k].symbol;
}

/* The symbol that `s` begins with, and its bytes. */
static inline uint32_t first_symbol(const struct tern_token *t, const char *s, size_t n,
                                    unsigned *bytes)
{
    if (t->byte_level) {
        *bytes = 1;
        return t->byte_symbol[(uint8_t)*s];
    }
    return tern_token_char_symbol(t, tern_token_utf8_decode(s, n, bytes));
}

int tern_token_keep_known(struct tern_token_encoder *e, const char **s, size_t *len,
                          struct tern_err *err)
{
    struct tern_buf *to = &e->scratch[4];
    unsigned bytes;

    tern_buf_clear(to);
    for (size_t k = 0; k < *len; k += bytes) {
        uint32_t symbol = first_symbol(e->t, *s + k, *len - k, &bytes);
        /* A space that is no piece begins a word before it vanishes. */
        if (symbol < e->t->n_vocab || ((*s)[k] == ' ' && e->t->metaspace_split))
            tern_buf_add(to, *s + k, bytes);
    }
    *s = to->len ? to->data : "";
    *len = to->len;
    return tern_buf_check(to, "a text", err);
}

/* ---- short words ---- */

/* So many symbols lie in arrays, in which the best pair is looked for each time. */
enum { SHORT = 32 };

static int merge_short(struct tern_token_encoder *e, const char *s, size_t len,
                       struct tern_err *err)
{
    const struct tern_token *t = e->t;
    uint32_t symbol[SHORT];
    struct result next[SHORT]; /* of symbol i and i + 1 */
    uint8_t at[SHORT + 1];
    unsigned n = 0, bytes;

    for (size_t k = 0; k < len; k += bytes) {
        at[n] = (uint8_t)k;
        symbol[n++] = first_symbol(t, s + k, len - k, &bytes);
    }
    at[n] = (uint8_t)len;
    for (unsigned i = 0; i + 1 < n; i++)
        next[i] = pair(e, symbol[i], symbol[i + 1], s + at[i], at[i + 2] - at[i]);
    while (n > 1) {
        unsigned best = 0;
        for (unsigned i = 1; i + 1 < n; i++)
            if (next[i].rank < next[best].rank)
                best = i;
        if (next[best].rank == NO_RANK)
            break;
        symbol[best] = next[best].symbol;
        n--;
        for (unsigned i = best + 1; i < n; i++) {
            symbol[i] = symbol[i + 1];
            next[i - 1] = next[i];
            at[i] = at[i + 1];
        }
        at[n] = (uint8_t)len;
        if (best > 0)
            next[best - 1] = pair(e, symbol[best - 1], symbol[best], s + at[best - 1],
                                  at[best + 1] - at[best - 1]);
        if (best + 1 < n)
            next[best] =
                pair(e, symbol[best], symbol[best + 1], s + at[best], at[best + 2] - at[best]);
    }
    for (unsigned i = 0; i < n; i++)
        if (tern_token_put_symbol(e, symbol[i], s + at[i], at[i + 1] - at[i], err) < 0)
            return -1;
    return 0;
}

/* ---- long words ---- */

void tern_token_heap_push(struct tern_merge *heap, size_t n, struct tern_merge m)
{
    while (n > 0 && heap[(n - 1) / 2].key > m.key) {
        heap[n] = heap[(n - 1) / 2];
        n = (n - 1) / 2;
    }
    heap[n] = m;
}

/* Take the first of `n` merges; n - 1 are left. */
struct tern_merge tern_token_heap_pop(struct tern_merge *heap, size_t n)
{
    struct tern_merge top = heap[0], last = heap[--n];
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
static void note(struct tern_token_encoder *e, const char *text, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    const struct tern_symbol *l = &e->symbols[left], *r = &e->symbols[right];
    struct result x = pair(e, l->symbol, r->symbol, text + l->at, (size_t)l->len + r->len);
    if (x.rank == NO_RANK)
        return;
    tern_token_heap_push(e->heap, e->n_heap++,
                         (struct tern_merge){(uint64_t)x.rank << 32 | (uint32_t)left,
                                             (uint32_t)right, l->len + r->len, x.symbol});
}

static int merge_long(struct tern_token_encoder *e, const char *text, size_t len,
                      struct tern_err *err)
{
    int32_t n = 0;
    unsigned bytes;

    if (tern_token_reserve(&e->symbols, &e->symbols_cap, len, sizeof *e->symbols, err) < 0 ||
        tern_token_reserve(&e->heap, &e->heap_cap, 3 * len, sizeof *e->heap, err) < 0)
        return -1;
    struct tern_symbol *s = e->symbols;
    for (size_t k = 0; k < len; k += bytes, n++) {
        uint32_t symbol = first_symbol(e->t, text + k, len - k, &bytes);
        s[n] = (struct tern_symbol){symbol, (uint32_t)k, bytes, n - 1, n + 1};
    }
    s[n - 1].next = -1;
    e->n_heap = 0;
    for (int32_t i = 1; i < n; i++)
        note(e, text, i - 1, i);
    while (e->n_heap) {
        struct tern_merge m = tern_token_heap_pop(e->heap, e->n_heap--);
        struct tern_symbol *l = &s[(uint32_t)m.key], *r = &s[m.right];
        /* One of the two has merged with another since. */
        if (l->len == 0 || r->len == 0 || l->len + r->len != m.len)
            continue;
        l->symbol = m.symbol;
        l->len = m.len;
        r->len = 0;
        l->next = r->next;
        if (r->next >= 0)
            s[r->next].prev = (int32_t)(l - s);
        note(e, text, l->prev, (int32_t)(l - s));
        note(e, text, (int32_t)(l - s), l->next);
    }
    for (int32_t i = 0; i >= 0; i = s[i].next)
        if (tern_token_put_symbol(e, s[i].symbol, text + s[i].at, s[i].len, err) < 0)
            return -1;
    return 0;
}

int tern_token_merge(struct tern_token_encoder *e, const char *s, size_t len, struct tern_err *err)
{
    if (e->t->whole_first) {
        uint32_t id = tern_token_find(e->t, s, len);
        if (id != TERN_SYMBOL_NONE) {
            e->after_unk = false;
            return tern_token_put(e, id, err);
        }
    }
    if (e->t->drop_unknown && e->t->byte_level) {
        if (tern_token_keep_known(e, &s, &len, err) < 0)
            return -1;
        if (len == 0)
            return 0;
    }
    return len <= SHORT ? merge_short(e, s, len, err) : merge_long(e, s, len, err);
}
