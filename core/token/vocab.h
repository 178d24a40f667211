/* Inside the token room: a tokenizer file's contents, and the merge tables made from it.
 *
 * Pieces are kept in two spellings.  In the file a space is written U+2581; texts are matched with
 * that character turned into one plain space, which keeps words short.  The two spellings are the
 * same language when escape_whitespaces is on; when it is off nothing is turned.
 */
#ifndef TERN_TOKEN_VOCAB_H
#define TERN_TOKEN_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/token/token.h"

/* Numbers of sentencepiece_model.proto; they enter the vocabulary's hash: do not renumber. */
enum tern_piece_kind {
    TERN_PIECE_NORMAL = 1,
    TERN_PIECE_UNKNOWN = 2,
    TERN_PIECE_CONTROL = 3,
    TERN_PIECE_USER_DEFINED = 4, /* found in text before any merging */
    TERN_PIECE_UNUSED = 5,
    TERN_PIECE_BYTE = 6,
};

enum {
    TERN_PIECE_BYTES_MAX = 4096, /* published ones stay below 64 */
    TERN_RANK_NONE = -1,
};

#define TERN_SYMBOL_NONE UINT32_MAX
#define TERN_SPACE_MARK "\xe2\x96\x81" /* U+2581 */

struct tern_piece {
    const char *text;  /* as in the file, len bytes */
    const char *match; /* as met in normalised text; NULL when it cannot be (or is no text) */
    uint32_t len, match_len;
    float score;
    int32_t rank;  /* place in the order of merges, equal for equal scores; or TERN_RANK_NONE */
    int32_t order; /* the same, equal scores by id */
    uint32_t emit; /* id written for it: another one only if a reserved piece has the same text */
    uint8_t kind;
};

/* Two neighbouring symbols become one.  A symbol is an id or, from n_vocab on, a character that is
 * no piece by itself but stands inside pieces. */
struct tern_pair {
    uint32_t left, right, merged;
    int32_t rank; /* TERN_RANK_NONE: the slot is free */
};

struct tern_char {
    uint32_t code;   /* Unicode scalar value */
    uint32_t symbol; /* TERN_SYMBOL_NONE: the slot is free */
};

struct tern_token {
    char *path;
    char *pool; /* the file; pieces[].text point into it */
    char *match_pool;

    struct tern_piece *pieces;
    uint32_t n_vocab;
    int32_t bos, eos, unk;
    uint32_t byte_id[256]; /* when byte_fallback */
    char *unk_surface;     /* decoded text of unk */

    bool byte_fallback;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
    bool whitespace_as_suffix;

    uint32_t *user; /* ids of user-defined pieces, longest first */
    uint32_t n_user;
    bool user_first[256]; /* first bytes of those */

    struct tern_pair *pairs; /* open addressing, pair_mask + 1 slots */
    uint32_t pair_mask;
    uint32_t ascii[128]; /* symbols of ASCII characters */
    struct tern_char *chars;
    uint32_t char_mask;
    uint32_t n_symbols;

    /* Which characters stand next to each other inside any piece: exact for ASCII, a hashed bitmap
     * (with false positives) for the others.  Merging never crosses where none do. */
    uint64_t ascii_near[128][2];
    uint64_t *near;
};

/* Bits of `near`: several times the ten thousand or so pairs of the largest vocabularies. */
enum { TERN_NEAR_BITS = 18 };

static inline uint32_t tern_near_slot(uint32_t a, uint32_t b)
{
    return (a * 0x9e3779b1u ^ b * 0x85ebca6bu) >> (32 - TERN_NEAR_BITS);
}

static inline uint32_t tern_pair_slot(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

static inline uint32_t tern_char_slot(uint32_t code)
{
    return code * 0x9e3779b1u >> 8;
}

/* The scalar value at `s` (n > 0 bytes) and how many bytes it takes; 0 bytes when it is not UTF-8
 * (overlong, surrogate, above U+10FFFF, cut off). */
uint32_t tern_token_utf8_decode(const char *s, size_t n, unsigned *bytes);

/* Read a SentencePiece model (spm.c): everything but the tables.  `pool` is t->pool, len bytes. */
int tern_token_spm_parse(struct tern_token *t, size_t len, struct tern_err *err);
/* Make the tables (bpe.c): match, rank, emit, user, pairs, chars, near, bos .. unk. */
int tern_token_bpe_build(struct tern_token *t, struct tern_err *err);

#endif
