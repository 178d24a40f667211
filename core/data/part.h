/* Parts of a token set: several processes build one set from the same files.
 *
 * The files, one after the other, are cut into shares where documents begin.  A share becomes a
 * part: a token set of its own with a hash of every document, where duplicates are removed.  A
 * record (JSON) says what it was built from.  Parts in their order, one after the other, are the
 * set.
 *
 *     files   |----a.jsonl----|--b.jsonl.gz--|---------c.jsonl---------|
 *     shares  |   0   |       1              |      2      |     3     |
 *
 * A file of lines that is not compressed, or of parted text, is cut inside; others are taken whole.
 */
#ifndef TERN_DATA_PART_H
#define TERN_DATA_PART_H

#include "core/data/data.h"
#include "core/text/text.h"

/* ---- shares ---- */

enum { TERN_DATA_SHARES_MAX = 65536 };

struct tern_data_share_how {
    char *const *paths;
    size_t n_paths;
    struct tern_text_how text;
};

/* A place in the files: byte `byte` of paths[path]; {n_paths, 0} is their end. */
struct tern_data_place {
    size_t path;
    uint64_t byte;
};

/* What is given is kept. */
struct tern_data_shares;
/* TERN_USAGE where one of the files is standard input or a pipe, which has no places. */
struct tern_data_shares *tern_data_shares_open(const struct tern_data_share_how *how,
                                               struct tern_err *err);
uint64_t tern_data_shares_bytes(const struct tern_data_shares *s); /* of all files, as stored */
/* Where share k of n begins: 0 <= k <= n.  It is the same for every process, as long as the files
 * stay as they are. */
int tern_data_shares_place(const struct tern_data_shares *s, uint64_t k, uint64_t n,
                           struct tern_data_place *ret_place, struct tern_err *err);
/* How many bytes lie between two places. */
uint64_t tern_data_shares_between(const struct tern_data_shares *s, struct tern_data_place from,
                                  struct tern_data_place to);
/* A name of the files as they are now: their paths, sizes and times of change (in seconds). */
void tern_data_shares_digest(const struct tern_data_shares *s, char ret_hex[TERN_SHA256_HEX]);
void tern_data_shares_close(struct tern_data_shares *s); /* NULL is fine */

/* ---- parts ---- */

/* TERN_USAGE where it is no part. */
struct tern_data_part;
struct tern_data_part *tern_data_part_open(const char *path, struct tern_err *err);
/* Read all of it and compare the digests. */
int tern_data_part_check(const struct tern_data_part *p, struct tern_err *err);
const char *tern_data_part_path(const struct tern_data_part *p);
/* Its record, JSON text, and the set's notes. */
const char *tern_data_part_record(const struct tern_data_part *p);
const char *tern_data_part_meta(const struct tern_data_part *p);
struct tern_data_set_kind tern_data_part_kind(const struct tern_data_part *p);
bool tern_data_part_has_hashes(const struct tern_data_part *p);

struct tern_data_part_doc {
    const uint32_t *ids; /* with BOS and EOS; until the next call */
    const uint8_t *mask; /* NULL of a kind without */
    const uint8_t *hash; /* TERN_DATA_HASH bytes; NULL of a part without */
    size_t n_ids;
    uint64_t text_bytes;
};
/* Document after document: 1, 0 at the end, -1. */
int tern_data_part_next(struct tern_data_part *p, struct tern_data_part_doc *ret_doc,
                        struct tern_err *err);
void tern_data_part_close(struct tern_data_part *p); /* NULL is fine */

#endif
