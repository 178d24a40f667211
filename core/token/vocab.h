/* Inside the token room: a tokenizer file's contents, and the merge tables made from it.
 *
 * A reader (spm.c, tiktoken.c, json.c) fills in the first half of struct tern_token, up to
 * "tables"; tern_token_bpe_build (bpe.c) makes the rest.
 *
 * Pieces are kept in two spellings: `text` as the file has it, `match` as it stands in the text
 * that is merged.  In a vocabulary of characters a space is written U+2581 in the file.  Texts are
 * matched with that character turned into one plain space, which keeps words short.  The two
 * spellings are the same language when escape_whitespaces is on; when it is off nothing is turned.
 * In a vocabulary of bytes both are the bytes that the piece stands for.
 */
#ifndef TERN_TOKEN_VOCAB_H
#define TERN_TOKEN_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/token/classes.h"
#include "core/token/split.h"
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
    uint8_t kind;
};

/* Two neighbouring symbols become one.  A symbol is an id or, from n_vocab on, a character that is
 * no piece by itself but stands inside pieces. */
struct tern_pair {
    uint32_t left, right, merged;
    int32_t rank; /* TERN_RANK_NONE: the slot is free */
};

/* A slot of the table of pieces by their bytes. */
struct tern_name {
    uint32_t tag; /* other bits of the hash */
    uint32_t id1; /* id + 1; 0: the slot is free */
};

struct tern_char {
    uint32_t code;   /* Unicode scalar value */
    uint32_t symbol; /* TERN_SYMBOL_NONE: the slot is free */
};

enum tern_token_format {
    TERN_TOKEN_SENTENCEPIECE, /* .model: a protocol buffer */
    TERN_TOKEN_TIKTOKEN,      /* lines of base64 and rank */
    TERN_TOKEN_JSON,          /* Hugging Face's tokenizer.json */
};

/* A token that is found in text before any merging (tokenizer.json's added_tokens). */
struct tern_added {
    const char *text; /* as the file has it, len bytes */
    const char *find; /* as it is searched: normalised where `normalized`; find_len bytes */
    uint32_t len, find_len, id;
    bool special; /* found only where the encoder looks for special tokens */
    bool single_word, lstrip, rstrip;
    bool normalized; /* searched in normalised text */
};

/* One step of tokenizer.json's normalizer. */
struct tern_normal {
    enum tern_normal_kind {
        TERN_NORMAL_PREPEND, /* `to` before a text that is not empty */
        TERN_NORMAL_REPLACE, /* each `from` by `to` */
        TERN_NORMAL_NFC,
    } kind;
    const char *from, *to;
};
enum { TERN_NORMALS_MAX = 8 };
/* Bytes of a configuration beside a tokenizer: with chat templates and thousands of added tokens
 * they stay below 1 MiB. */
enum { TERN_TOKEN_CONFIG_MAX = 16 << 20 };

/* How tokenizer.json's Metaspace puts a space before a text that does not begin with one. */
enum tern_metaspace {
    TERN_METASPACE_NONE,
    TERN_METASPACE_NEVER,
    TERN_METASPACE_FIRST,
    TERN_METASPACE_ALWAYS
};

/* An owner of the memory that pieces and the like point into: a list of blocks. */
struct tern_pool {
    struct tern_pool *next;
    size_t used, size;
    char data[];
};

/* Where added tokens are looked for: in text as it is, or in normalised text. */
struct tern_finder {
    uint32_t *order; /* places in `added`, by the bytes of `find` */
    uint32_t n;
    bool any_plain;  /* some are no special ones */
    bool marks;      /* in that text a plain space stands for U+2581 */
    bool first[256]; /* first bytes of `find` */
};

/* Texts, of which the longest that another text begins with is looked for (prefix.c). */
struct tern_prefixes {
    struct tern_prefix {
        const char *text;
        uint32_t len, id;
    } * v; /* in the order of their bytes */
    uint32_t n;
    uint32_t first[257]; /* v[first[b]] to v[first[b + 1]] begin with the byte b */
};

struct tern_token {
    enum tern_token_format format;
    uint64_t seed; /* of hashes: odd, random, so that no file makes its texts collide */
    char *path;
    char *pool; /* SentencePiece: the file; pieces[].text point into it */
    char *match_pool;
    struct tern_pool *texts; /* other formats' texts */

    struct tern_piece *pieces;
    uint32_t n_vocab;
    uint32_t n_model; /* ids below are the model's, others were added to it (tokenizer.json) */
    int32_t bos, eos, unk;
    uint32_t byte_id[256]; /* when byte_fallback */
    char *unk_surface;     /* decoded text of unk; empty where it is special */

    bool byte_fallback;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
    bool whitespace_as_suffix;
    struct tern_charsmap *charsmap; /* SentencePiece's nfkc and the like; NULL: identity */
    bool has_unused;                /* pieces that are taken apart again after merging */
    struct tern_prefixes user_raw;  /* user-defined pieces that the normaliser leaves as they are */

    /* Vocabularies of bytes (tiktoken, tokenizer.json with ByteLevel). */
    bool byte_level;
    bool by_text;      /* tiktoken: two neighbours merge when their bytes together are a piece */
    bool whole_first;  /* a word that is a piece is not merged (ignore_merges; tiktoken) */
    bool prefix_space; /* ByteLevel's add_prefix_space */
    enum tern_split split; /* how text is cut into words */
    bool split_digits;     /* before that, every digit by itself (SmolLM) */

    /* tokenizer.json. */
    bool drop_unknown; /* no unk_token: what has no piece vanishes */
    bool split_unk;    /* fuse_unk is off: one unk for every character */
    struct tern_normal normals[TERN_NORMALS_MAX];
    unsigned n_normals;
    enum tern_metaspace metaspace;
    bool metaspace_split; /* words begin at their space */
    struct tern_added *added;
    uint32_t n_added;
    bool strip_first; /* the decoder takes one space off the beginning */
    bool drop_first;  /* Metaspace's decoder: all space marks of the first token */
    bool show_bytes;  /* the decoder leaves "<0x0A>" as it is */
    bool begins;      /* the post-processor puts a special token before a text */

    /* ---- tables, made by tern_token_bpe_build ---- */

    struct tern_finder finders[2]; /* of added tokens that are not `normalized`, and that are */

    struct tern_prefixes user; /* user-defined pieces as met in normalised text */

    uint32_t byte_symbol[256]; /* byte_level: the piece of one byte, or TERN_SYMBOL_NONE */
    struct tern_name *names;   /* byte_level: pieces by their bytes; names_mask + 1 slots */
    uint32_t names_mask;

    struct tern_pair *pairs; /* open addressing, pair_mask + 1 slots */
    /* A bit for the hash of every pair. Most pairs that are looked up are none, and this fits the
     * processor's cache where the table does not. */
    uint64_t *maybe;
    uint32_t pair_mask;
    uint32_t ascii[128]; /* symbols of ASCII characters */
    struct tern_char *chars;
    uint32_t char_mask;
    uint32_t n_symbols;

    /* Which characters stand next to each other inside any piece: exact for ASCII, a hashed bitmap
     * (with false positives) for the others.  Merging never crosses where none do. */
    uint64_t ascii_near[128][2];
    uint64_t *near;
    /* The same of classes (classes.h): bit b of joins[a], some character of class a stands before
     * one of class b. */
    uint8_t joins[TERN_CLASSES];
    bool by_class; /* words are apart by their classes */
};

/* Bits of `near`: several times the ten thousand or so pairs of the largest vocabularies. */
enum { TERN_NEAR_BITS = 18 };

static inline uint32_t tern_near_slot(uint32_t a, uint32_t b)
{
    return (a * 0x9e3779b1u ^ b * 0x85ebca6bu) >> (32 - TERN_NEAR_BITS);
}

/* Its upper bits are for the bit in `maybe`, its lower ones for the slot. */
static inline uint32_t tern_pair_hash(uint64_t seed, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * seed;
    return (uint32_t)(h >> 32);
}

enum { TERN_MAYBE_BITS = 20 };

static inline uint32_t tern_char_slot(uint32_t code)
{
    return code * 0x9e3779b1u >> 8;
}

static inline uint64_t tern_token_bytes_hash(uint64_t k, const char *s, size_t len)
{
    uint64_t h = len * k, w;

    for (; len >= 8; s += 8, len -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * k;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, s, len);
    h = (h ^ w) * k;
    return h ^ h >> 29;
}

/* The scalar value at `s` (n > 0 bytes) and how many bytes it takes. 0 bytes when it is not UTF-8
 * (overlong, surrogate, above U+10FFFF, cut off). */
uint32_t tern_token_utf8_decode(const char *s, size_t n, unsigned *bytes);

/* One without pieces; its seed is set. */
struct tern_token *tern_token_new(struct tern_err *err);

/* `n` bytes that live as long as `t`; NULL without memory. */
void *tern_token_keep(struct tern_token *t, size_t n, struct tern_err *err);

/* Readers: everything but the tables.  t->path is the file; spm: t->pool is its contents, len bytes
 * (tiktoken: the same; json reads the file itself). */
int tern_token_spm_parse(struct tern_token *t, size_t len, struct tern_err *err);
bool tern_token_is_tiktoken(const char *text, size_t len);
int tern_token_tiktoken_parse(struct tern_token *t, size_t len, struct tern_err *err);
/* tokenizer.json; merges are added with tern_token_merge. */
int tern_token_json_parse(struct tern_token *t, struct tern_err *err);

/* Room for the merges of a list (tokenizer.json), and one of them: the first in the list has rank
 * 0. The last of several of one pair counts. */
int tern_token_merges_new(struct tern_token *t, size_t n, struct tern_err *err);
void tern_token_merge_add(struct tern_token *t, uint32_t left, uint32_t right, uint32_t merged,
                          int32_t rank);

/* Make the tables (bpe.c): match (where the reader has set none), rank, user, pairs, chars,
 * near, byte_symbol, names. */
int tern_token_bpe_build(struct tern_token *t, struct tern_err *err);

/* The tables of added tokens (segments.c). */
int tern_token_added_build(struct tern_token *t, struct tern_err *err);

/* byte_level: the piece whose bytes are these, or TERN_SYMBOL_NONE. */
uint32_t tern_token_find(const struct tern_token *t, const char *s, size_t len);

/* ---- a folder (folder.c) ---- */

/* The file to read for `path`, a file or a folder: tokenizer.model before tokenizer.json;
 * malloc'ed, or NULL with a word. */
char *tern_token_file(const char *path, struct tern_err *err);
/* Set t->bos and t->eos as the folder of `file` has them: by name in tokenizer_config.json, else in
 * special_tokens_map.json.  For tokenizer.json, else by id in config.json or
 * generation_config.json.  Else it is the one special token with a well-known name, which is
 * logged.  A name that is not in the vocabulary is an error; other formats keep their own then,
 * with a warning. */
int tern_token_specials(struct tern_token *t, const char *file, struct tern_err *err);

/* ---- prefixes (prefix.c) ---- */

/* p->v and p->n are filled in (texts that are not empty, each once): order them. */
void tern_token_prefixes_sort(struct tern_prefixes *p);
/* Bytes of the longest text that `s` (n > 0 bytes) begins with, and its id; 0 for none.  Of more
 * than 64, the longest of the 64 shortest. */
size_t tern_token_prefix(const struct tern_prefixes *p, const char *s, size_t n, uint32_t *id);

/* ---- SentencePiece's character maps (charsmap.c) ---- */

/* From precompiled_charsmap; NULL (TERN_USAGE) when it is damaged.  `name` is for messages. */
struct tern_charsmap *tern_token_charsmap_new(const char *data, size_t len, const char *name,
                                              struct tern_err *err);
void tern_token_charsmap_free(struct tern_charsmap *m);
/* Add all of the map to a digest. */
void tern_token_charsmap_digest(const struct tern_charsmap *m, struct tern_sha256 *s);
/* What the text at `s` (n > 0 bytes) begins with becomes *to, *to_len bytes (0: nothing): how many
 * bytes of `s` that takes.  0 when nothing maps there. */
size_t tern_token_charsmap_next(const struct tern_charsmap *m, const char *s, size_t n,
                                const char **to, size_t *to_len);

#endif
