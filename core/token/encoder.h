/* Inside the token room: one thread's working memory, shared by the files that make ids. */
#ifndef TERN_TOKEN_ENCODER_H
#define TERN_TOKEN_ENCODER_H

#include "core/base/str.h"
#include "core/token/vocab.h"

/* A run of characters that stay together; a list in an array, as merging takes from the middle. */
struct tern_symbol {
    uint32_t symbol;
    uint32_t at, len; /* place in the word; len 0: merged into the one before */
    int32_t prev, next;
};

/* A merge that was possible when it was noted. */
struct tern_merge {
    uint64_t key; /* rank << 32 | left: the lowest rank first, the leftmost among equals */
    uint32_t right, len, symbol;
};

/* Twice as many as a million words of prose ask for often; they fit the processor's cache. */
enum { TERN_KNOWN_PAIRS_BITS = 15 };

struct tern_token_encoder {
    const struct tern_token *t;
    bool specials; /* special tokens are found in text */
    struct tern_words *words;
    char *text; /* normalised */
    size_t text_len, text_cap;
    /* Of segments.c: two of the normaliser, one with a space before it, the text when it was
     * mended. */
    struct tern_buf scratch[5];
    uint32_t *ids;
    size_t n_ids, ids_cap;
    struct tern_symbol *symbols;
    size_t symbols_cap;
    struct tern_pair *pairs; /* by_text: pairs looked up before */
    struct tern_merge *heap;
    size_t n_heap, heap_cap;
    struct tern_halves *halves; /* of resegment.c: by id */
    bool after_unk;             /* the last id is unk: more of the same adds none */
    bool saw_unk;               /* since a word began */
};

/* Room for `n` things of `size` bytes in *p, *cap of which are there. */
int tern_token_reserve(void *p, size_t *cap, size_t n, size_t size, struct tern_err *err);

/* e->text becomes SentencePiece's normalised `text`: spaces are plain, bad bytes U+FFFD. */
int tern_token_spm_normalise(struct tern_token_encoder *e, const char *text, size_t len,
                             struct tern_err *err);

/* Append one id, or a symbol's: `s` is its text. */
int tern_token_put(struct tern_token_encoder *e, uint32_t id, struct tern_err *err);
int tern_token_put_symbol(struct tern_token_encoder *e, uint32_t symbol, const char *s, size_t len,
                          struct tern_err *err);

/* drop_unknown: *s, *len without the characters that are no piece, whose neighbours merge. */
int tern_token_keep_known(struct tern_token_encoder *e, const char **s, size_t *len,
                          struct tern_err *err);
/* Append the ids of a word (len > 0) by merging it (merge.c). */
int tern_token_merge(struct tern_token_encoder *e, const char *s, size_t len, struct tern_err *err);

/* Append the ids of SentencePiece's normalised text by a vocabulary with unused pieces
 * (resegment.c). */
int tern_token_put_resegmented(struct tern_token_encoder *e, const char *s, size_t len,
                               struct tern_err *err);

/* The symbol of a character, or TERN_SYMBOL_NONE; the pair that two neighbours are, or NULL. */
uint32_t tern_token_char_symbol(const struct tern_token *t, uint32_t code);
/* What two symbols merge to; NULL for nothing. */
static inline const struct tern_pair *tern_token_pair(const struct tern_token *t, uint32_t left,
                                                      uint32_t right)
{
    if (left == TERN_SYMBOL_NONE || right == TERN_SYMBOL_NONE)
        return NULL;
    const uint32_t hash = tern_pair_hash(t->seed, left, right),
                   bit = hash >> (32 - TERN_MAYBE_BITS);
    if (!(t->maybe[bit >> 6] >> (bit & 63) & 1))
        return NULL;
    for (uint32_t k = hash & t->pair_mask;; k = (k + 1) & t->pair_mask) {
        const struct tern_pair *p = &t->pairs[k];
        if (p->rank == TERN_RANK_NONE)
            return NULL;
        if (p->left == left && p->right == right)
            return p;
    }
}
/* A heap of `n` merges: add one; take the first, n - 1 are left. */
void tern_token_heap_push(struct tern_merge *heap, size_t n, struct tern_merge m);
struct tern_merge tern_token_heap_pop(struct tern_merge *heap, size_t n);

/* ---- words that were met before (words.c) ---- */

struct tern_words *tern_token_word_cache_new(struct tern_err *err);
void tern_token_word_cache_free(struct tern_words *w);

enum { TERN_WORDS_BATCH = 256 };
/* Append the ids of `n` words (<= TERN_WORDS_BATCH): word i is s[ends[i - 1] .. ends[i]), the first
 * begins at 0.  `room`: bytes that may be read from `s`. */
int tern_token_word_cache_put(struct tern_token_encoder *e, const char *s, size_t room,
                              const uint32_t *ends, size_t n, struct tern_err *err);

/* Append the ids of a text by tokenizer.json (segments.c). */
int tern_token_put_segments(struct tern_token_encoder *e, const char *s, size_t n,
                            struct tern_err *err);
/* Append the ids of normalised text that is cut into words where no piece crosses (encode.c). */
int tern_token_put_text(struct tern_token_encoder *e, const char *s, size_t len,
                        struct tern_err *err);
/* Append the ids of text that t->split cuts into words. */
int tern_token_put_split(struct tern_token_encoder *e, const char *s, size_t n,
                         struct tern_err *err);

#endif
