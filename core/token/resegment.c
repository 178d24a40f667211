/* SentencePiece vocabularies with unused pieces.
 *
 * Such a piece takes part in merging, and is taken apart again in the end.  It falls into the two
 * symbols of the pair that was noted last for it anywhere in the text, and those in turn.  So ids
 * of a word depend on the whole text, which is merged at once here, without a memory of words.
 * This is what sentencepiece 0.2.3 does (bpe_model.cc). */
#include "core/token/encoder.h"

#include <string.h>

enum { DEPTH_MAX = 100 }; /* so often a part of a part is taken apart; then it stays as it is */

/* The pair that was noted last for a piece; TERN_SYMBOL_NONE where there was none. */
struct tern_halves {
    uint32_t left, right;
};

/* Note the merge of two neighbours, if there is one.  A symbol that is no part of any pair (a
 * user-defined piece in text) is TERN_SYMBOL_NONE. */
static void note(struct tern_token_encoder *e, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    const struct tern_symbol *l = &e->symbols[left], *r = &e->symbols[right];
    const struct tern_pair *p = tern_token_pair(e->t, l->symbol, r->symbol);
    if (!p)
        return;
    tern_token_heap_push(e->heap, e->n_heap++,
                         (struct tern_merge){(uint64_t)(uint32_t)p->rank << 32 | (uint32_t)left,
                                             (uint32_t)right, l->len + r->len, p->merged});
    if (e->t->pieces[p->merged].kind == TERN_PIECE_UNUSED)
        e->halves[p->merged] = (struct tern_halves){l->symbol, r->symbol};
}

static size_t symbol_len(const struct tern_token *t, uint32_t symbol, const char *s, size_t len)
{
    unsigned bytes;

    if (symbol < t->n_vocab)
        return t->pieces[symbol].match_len;
    tern_token_utf8_decode(s, len, &bytes);
    return bytes;
}

/* Append the ids of a symbol whose text is `s`. */
static int put(struct tern_token_encoder *e, uint32_t symbol, const char *s, size_t len, int depth,
               struct tern_err *err)
{
    const struct tern_token *t = e->t;

    if (symbol >= t->n_vocab || t->pieces[symbol].kind != TERN_PIECE_UNUSED || depth > DEPTH_MAX)
        return tern_token_put_symbol(e, symbol, s, len, err);
    const struct tern_halves *h = &e->halves[symbol];
    if (h->left == TERN_SYMBOL_NONE)
        return tern_token_put_symbol(e, TERN_SYMBOL_NONE, s, len, err);
    size_t left = symbol_len(t, h->left, s, len);
    if (put(e, h->left, s, left, depth + 1, err) < 0)
        return -1;
    return put(e, h->right, s + left, len - left, depth + 1, err);
}

/* Characters and user-defined pieces; *n of them. */
static void cut(struct tern_token_encoder *e, const char *s, size_t len, int32_t *n)
{
    const struct tern_token *t = e->t;

    *n = 0;
    for (size_t at = 0, bytes; at < len; at += bytes, ++*n) {
        uint32_t symbol = TERN_SYMBOL_NONE, user;
        unsigned one;
        bytes = t->user.n ? tern_token_prefix(&t->user, s + at, len - at, &user) : 0;
        if (!bytes) {
            symbol = tern_token_char_symbol(t, tern_token_utf8_decode(s + at, len - at, &one));
            bytes = one;
        }
        e->symbols[*n] =
            (struct tern_symbol){symbol, (uint32_t)at, (uint32_t)bytes, *n - 1, *n + 1};
    }
    e->symbols[*n - 1].next = -1;
}

int tern_token_put_resegmented(struct tern_token_encoder *e, const char *text, size_t len,
                               struct tern_err *err)
{
    const struct tern_token *t = e->t;
    uint32_t user;
    int32_t n;

    if (len == 0)
        return 0;
    if (!e->halves && !(e->halves = tern_alloc(t->n_vocab, sizeof *e->halves, "an encoder", err)))
        return -1;
    memset(e->halves, 0xff, t->n_vocab * sizeof *e->halves);
    if (tern_token_reserve(&e->symbols, &e->symbols_cap, len, sizeof *e->symbols, err) < 0 ||
        tern_token_reserve(&e->heap, &e->heap_cap, 3 * len, sizeof *e->heap, err) < 0)
        return -1;
    cut(e, text, len, &n);
    struct tern_symbol *s = e->symbols;
    e->n_heap = 0;
    for (int32_t i = 1; i < n; i++)
        note(e, i - 1, i);
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
        note(e, l->prev, (int32_t)(l - s));
        note(e, (int32_t)(l - s), l->next);
    }
    for (int32_t i = 0; i >= 0; i = s[i].next) {
        const char *at = text + s[i].at;
        uint32_t symbol = s[i].symbol;
        if (symbol == TERN_SYMBOL_NONE && t->user.n &&
            tern_token_prefix(&t->user, at, s[i].len, &user) == s[i].len)
            symbol = user;
        if (put(e, symbol, at, s[i].len, /* depth= */ 0, err) < 0)
            return -1;
    }
    return 0;
}
