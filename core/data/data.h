/* Token sets (.tds), the sampler and the mix.
 *
 * A token set is a sequence of documents, tokenised once.  Rows of any length are cut from it at
 * load.  Training asks the stages of the run, each a mix of sets, for sample i; evaluation walks
 * the rows of one set in order:
 *
 *     struct tern_data_stages *d = tern_data_stages_open(stages, n, seq_len, seed, err);
 *     for (i = first; i < last; i++)                       (i counts sequences over the whole run)
 *         tern_data_stages_sample(d, i, tokens, mask, starts, err);
 *
 *     struct tern_data_set *s = tern_data_set_open("pubmed-test.tds", err);
 *     for (r = 0; r < tern_data_set_rows(s, seq_len); r++)
 *         tern_data_set_row(s, seq_len, r, tokens, mask, err);
 *
 * Documents end with EOS and, as is usual in continual pre-training (Megatron-LM), begin without
 * BOS unless the set was built with it.  EOS may stand inside a document, too: chats have it behind
 * each turn.  The set's list of documents says where they begin.
 *
 * Sets and mixes never change after opening, as far as callers see: any number of threads may read.
 */
#ifndef TERN_DATA_DATA_H
#define TERN_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/hash.h"

/* ---- reading a set ---- */

struct tern_data_set;

/* Checks the header, its table and the file's size, not the contents: opening is cheap however
 * large the set.  Contents are read with pread(2), so that a file that shrinks or a disk that fails
 * is an error and not a SIGBUS.  Ids and places are checked as they are read.  A set at s3:// or
 * https:// is read by ranges, through a cache (core/store/reader.h), and every block of it is
 * compared with its digest. */
struct tern_data_set *tern_data_set_open(const char *path, struct tern_err *err);
/* Is a file that begins with these bytes a token set, by its magic alone? */
enum { TERN_DATA_SET_MAGIC = 8 };
bool tern_data_set_is(const char magic[TERN_DATA_SET_MAGIC]);
void tern_data_set_free(struct tern_data_set *s); /* NULL is fine */
/* Reads of other threads that wait for a server end within a second, with an error, as do all later
 * ones that need it.  A set on disk is read as before. */
void tern_data_set_halt(const struct tern_data_set *s);

const char *tern_data_set_path(const struct tern_data_set *s);
uint64_t tern_data_set_n_tokens(const struct tern_data_set *s); /* EOS (and BOS, if any) included */
uint64_t tern_data_set_n_docs(const struct tern_data_set *s);
uint64_t tern_data_set_text_bytes(const struct tern_data_set *s); /* of UTF-8 behind the tokens */
uint64_t tern_data_set_file_bytes(const struct tern_data_set *s);
uint32_t tern_data_set_n_vocab(const struct tern_data_set *s);
unsigned tern_data_set_token_bytes(const struct tern_data_set *s); /* 2 or 4, on disk */
uint32_t tern_data_set_eos(const struct tern_data_set *s);
int32_t tern_data_set_bos(const struct tern_data_set *s);   /* -1: documents begin without one */
bool tern_data_set_has_mask(const struct tern_data_set *s); /* some tokens are no targets */
const uint8_t *
tern_data_set_vocab_hash(const struct tern_data_set *s); /* TERN_SHA256_BYTES of them */
/* Of the header, and so of everything: it holds the checksum of all digests. */
void tern_data_set_digest(const struct tern_data_set *s, uint8_t digest[TERN_SHA256_BYTES]);
/* JSON text that the builder left: where tokens came from.  Belongs to `s`. */
const char *tern_data_set_meta(const struct tern_data_set *s);

/* Read everything and compare the digests; the error names the first damaged MiB. */
int tern_data_set_verify(const struct tern_data_set *s, struct tern_err *err);

/* Tokens first .. first + n - 1, exactly as stored. */
int tern_data_set_read(const struct tern_data_set *s, uint64_t first, size_t n, int32_t *tokens,
                       struct tern_err *err);

struct tern_data_set_doc {
    uint64_t first_token, n_tokens, text_bytes;
};
int tern_data_set_doc(const struct tern_data_set *s, uint64_t i, struct tern_data_set_doc *doc,
                      struct tern_err *err);
/* Documents first .. first + n - 1. */
int tern_data_set_docs(const struct tern_data_set *s, uint64_t first, size_t n,
                       struct tern_data_set_doc *docs, struct tern_err *err);
/* Of tokens first .. first + n - 1, 1 for each that is a target: all of them in a set without a
 * mask. */
int tern_data_set_mask(const struct tern_data_set *s, uint64_t first, size_t n, uint8_t *mask,
                       struct tern_err *err);

/* Rows of seq_len (> 0) targets: the documents one after the other, cut every seq_len tokens, so
 * ceil(n_tokens / seq_len) of them. */
uint64_t tern_data_set_rows(const struct tern_data_set *s, uint32_t seq_len);

/* Row r: inputs tokens[0 .. seq_len-1], target of place j is tokens[j+1], counted where mask[j] is
 * 1.  Every token of the set is a target in exactly one row (the very first follows an EOS, as
 * every other document's first does).  The last row is filled up with EOS and mask 0. tokens
 * [seq_len + 1], mask [seq_len]. */
int tern_data_set_row(const struct tern_data_set *s, uint32_t seq_len, uint64_t r, int32_t *tokens,
                      uint8_t *mask, struct tern_err *err);

/* Where the documents of row r begin, for attention that stays inside them.  Position j belongs to
 * the document that begins at position starts[j] <= j of the row, and is its position j -
 * starts[j].  Known from the set's list of documents, of which a few places are read.
 *
 * A document begins where no token of the one before helps to predict its first token.  It begins
 * with the EOS in front of it (which the document before does not attend to).  In a set built with
 * BOS it begins with its BOS.  So a document that is not cut has the same loss in every row.  A row
 * that begins in the middle of a document begins a new one.  Each EOS that fills up the last row is
 * one of its own. starts [seq_len]. */
int tern_data_set_starts(const struct tern_data_set *s, uint32_t seq_len, uint64_t r,
                         int32_t *starts, struct tern_err *err);

/* ---- packing: which documents share a row ---- */

/* Do not renumber: they enter a recipe's hashes.
 *
 *     concat    | a a a a a a . b | b b . c c c c c | c c c . - - - - |   tern_data_set_row
 *     best-fit  | c c c c c c c c | a a a a a a . - | b b b . c c c . |   . EOS   - padding
 *     padded    | a a a a a a . - | b b b . - - - - | c c c c c c c c | c c c . - - - - |
 */
enum tern_data_packing { TERN_DATA_CONCAT, TERN_DATA_BEST_FIT, TERN_DATA_PADDED };
/* A document that is longer than a row is cut into whole rows and a rest, or left out. */
enum tern_data_longer { TERN_DATA_LONGER_CUT, TERN_DATA_LONGER_DROP };

struct tern_data_pack_how {
    uint32_t seq_len; /* targets of a row; positive */
    enum tern_data_packing packing;
    enum tern_data_longer longer; /* of best-fit and padded; concat cuts anyway */
};

struct tern_data_pack_counts {
    uint64_t rows;
    uint64_t padding;                 /* targets of all rows without a token of the set */
    uint64_t cut;                     /* documents that are longer than a row, but for concat */
    uint64_t dropped, dropped_tokens; /* documents, and their tokens */
};

struct tern_data_pack;

/* How the documents of `s` (which is kept, and must outlive it) lie in rows: a pure function of the
 * set and `how`.  Reads the lengths of all documents, but for concat.  Best-fit-decreasing: the
 * longest document first, each into the row with the least room that it fits in.  Memory: at most
 * 12 bytes a document, 20 while it is made; nothing for concat. */
struct tern_data_pack *tern_data_pack_new(const struct tern_data_set *s,
                                          const struct tern_data_pack_how *how,
                                          struct tern_err *err);
void tern_data_pack_free(struct tern_data_pack *p); /* NULL is fine */

struct tern_data_pack_counts tern_data_pack_counts(const struct tern_data_pack *p);
/* Targets of row r that are tokens of the set, masked ones among them. */
uint32_t tern_data_pack_filled(const struct tern_data_pack *p, uint64_t r);

/* Row r, as tern_data_set_row.  In best-fit and padded a row begins with a document, whose input 0
 * is an EOS or, in a set with BOS, its BOS.  Or it begins with a piece of a cut document, behind
 * the token before it.  Other documents follow an EOS.  What is left is EOS with mask 0.  Every
 * token that is not dropped is a target once, but a BOS never, so that a document has the same
 * targets in every row.  starts [seq_len] as tern_data_set_starts, or NULL. */
int tern_data_pack_row(const struct tern_data_pack *p, uint64_t r, int32_t *tokens, uint8_t *mask,
                       int32_t *starts, struct tern_err *err);

/* ---- the mix ---- */

struct tern_data_mix_source {
    const char *path;
    double weight; /* share of samples, relative to the sum of all; positive */
};

/* Where a sample came from. */
struct tern_data_mix_where {
    uint32_t source; /* place in the list given to tern_data_mix_open */
    uint64_t epoch;  /* how often the source had been seen whole before */
    uint64_t row;
};

enum { TERN_DATA_MIX_SOURCES_MAX = 256 };

struct tern_data_mix;

/* Opens the sets (all of one vocabulary, none without a row) and packs them.  `sources` is not
 * kept. */
struct tern_data_mix *tern_data_mix_open(const struct tern_data_mix_source *sources, size_t n,
                                         const struct tern_data_pack_how *how, uint64_t seed,
                                         struct tern_err *err);
void tern_data_mix_free(struct tern_data_mix *m); /* NULL is fine */

uint32_t tern_data_mix_seq_len(const struct tern_data_mix *m);
size_t tern_data_mix_n_sources(const struct tern_data_mix *m);
/* The opened set of one source, and its rows; they belong to `m`. */
const struct tern_data_set *tern_data_mix_set(const struct tern_data_mix *m, size_t source);
const struct tern_data_pack *tern_data_mix_pack(const struct tern_data_mix *m, size_t source);
/* Rows of all sources together: one epoch, where weights are in proportion to sizes. */
uint64_t tern_data_mix_rows(const struct tern_data_mix *m);

/* Sample i of `stage`: a pure function of (seed, stage, i) and of the sources, independent of ranks
 * and batch size.  Among samples 0 .. i-1 each source's count differs from its share of i by less
 * than the number of sources (by less than 1 with two).  A source's rows come in a keyed
 * permutation, every row once an epoch, another permutation each epoch and stage.
 * tokens [seq_len + 1], mask and starts [seq_len] as in tern_data_pack_row; `starts` may be NULL.
 */
int tern_data_mix_sample(const struct tern_data_mix *m, uint64_t stage, uint64_t i, int32_t *tokens,
                         uint8_t *mask, int32_t *starts, struct tern_err *err);
/* Where it comes from, without reading anything. */
void tern_data_mix_locate(const struct tern_data_mix *m, uint64_t stage, uint64_t i,
                          struct tern_data_mix_where *where);
/* How many of samples 0 .. i-1 each source has: counts [sources]. */
void tern_data_mix_counts(const struct tern_data_mix *m, uint64_t stage, uint64_t i,
                          uint64_t *counts);
/* And how many tokens of its set were targets in them, masked ones among them.  Next to nothing,
 * where the last row alone is short.  Else each sample is located between the last call's `i` and
 * this one's: half an epoch's at most. */
void tern_data_mix_tokens(const struct tern_data_mix *m, uint64_t stage, uint64_t i,
                          uint64_t *tokens);

/* ---- the stages of a run ---- */

/* From sample `first` on, until the next stage's. */
struct tern_data_stage {
    uint64_t first; /* 0 of the first stage */
    const struct tern_data_mix_source *sources;
    size_t n;
};

struct tern_data_stages;

/* Opens the mix of each stage; all sets are of one vocabulary.  A set of several stages is opened
 * and packed once.  `stages` is not kept. */
struct tern_data_stages *tern_data_stages_open(const struct tern_data_stage *stages, size_t n,
                                               const struct tern_data_pack_how *how, uint64_t seed,
                                               struct tern_err *err);
void tern_data_stages_free(struct tern_data_stages *s); /* NULL is fine */
size_t tern_data_stages_n(const struct tern_data_stages *s);
/* The first sample of a stage. */
uint64_t tern_data_stages_first(const struct tern_data_stages *s, size_t stage);
const struct tern_data_mix *tern_data_stages_mix(const struct tern_data_stages *s, size_t stage);

/* The stage of sample i of the run. */
size_t tern_data_stages_at(const struct tern_data_stages *s, uint64_t i);
/* Sample i of the run is sample i - first of its stage's mix: `tokens`, `mask` and `starts` as in
 * tern_data_mix_sample. */
int tern_data_stages_sample(const struct tern_data_stages *s, uint64_t i, int32_t *tokens,
                            uint8_t *mask, int32_t *starts, struct tern_err *err);
/* The same without reading anything: the set, which belongs to `s`, and the place in it. */
const struct tern_data_set *tern_data_stages_locate(const struct tern_data_stages *s, uint64_t i,
                                                    struct tern_data_mix_where *where);

/* ---- writing a set ---- */

enum {
    TERN_DATA_HASH = 16,            /* bytes */
    TERN_DATA_PART_MAX = 256 << 20, /* a million files take 100 MB */
};

/* How the tokens were made. */
struct tern_data_set_kind {
    uint32_t n_vocab;
    uint32_t eos;
    int32_t bos; /* put before every document; -1 for none */
    bool mask;   /* tern_data_set_add may be given one */
    uint8_t vocab_hash[TERN_SHA256_BYTES];
};

struct tern_data_set_writer;

/* The set appears under `path` at commit, whole, or not at all.  Memory is bounded: the document
 * index waits in an unnamed file beside it. */
struct tern_data_set_writer *
tern_data_set_create(const char *path, const struct tern_data_set_kind *kind, struct tern_err *err);
/* One document without BOS and EOS, which are added.  `mask` [n]: 1 where the token is a target, of
 * a kind that has one; NULL: all are (EOS is always a target, BOS never).  `text_bytes`: of the
 * text behind it. */
int tern_data_set_add(struct tern_data_set_writer *w, const uint32_t *ids, const uint8_t *mask,
                      size_t n, uint64_t text_bytes, struct tern_err *err);
/* The same; `cut`: of a document that goes on, the EOS is no target, either. */
int tern_data_set_add_cut(struct tern_data_set_writer *w, const uint32_t *ids, const uint8_t *mask,
                          size_t n, bool cut, uint64_t text_bytes, struct tern_err *err);
/* One document as another set of the kind has it, with BOS and EOS. */
int tern_data_set_add_stored(struct tern_data_set_writer *w, const uint32_t *ids,
                             const uint8_t *mask, size_t n, uint64_t text_bytes,
                             struct tern_err *err);
/* Of a part of a set, before the first document: tern_data_set_hash will follow each of them. */
int tern_data_set_hashes(struct tern_data_set_writer *w, struct tern_err *err);
int tern_data_set_hash(struct tern_data_set_writer *w, const uint8_t hash[TERN_DATA_HASH],
                       struct tern_err *err);
/* Of a part of a set: what it says of itself (part.h), JSON text of at most TERN_DATA_PART_MAX
 * bytes, which is kept. */
void tern_data_set_part(struct tern_data_set_writer *w, const char *part);
/* `meta`: JSON text of at most 1 MiB.  Frees `w` in any case. */
int tern_data_set_commit(struct tern_data_set_writer *w, const char *meta, struct tern_err *err);
void tern_data_set_abort(struct tern_data_set_writer *w); /* leaves nothing; NULL is fine */

#endif
