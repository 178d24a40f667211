/* What an open checkpoint is in memory: which slice of which array lies where.  The manifest and
 * the headers of safetensors files are read into it; nothing in it is trusted before
 * ckpt_table_check() has passed. */
#ifndef TERN_CKPT_TABLE_H
#define TERN_CKPT_TABLE_H

#include "core/base/hash.h"
#include "core/ckpt/ckpt.h"

struct ckpt_slice {
    uint64_t start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS];
    uint64_t offset; /* of its first byte in the file */
    unsigned shard;
    bool digested; /* `sha256` is known */
    bool checked;  /* and was found right through this handle */
    uint8_t sha256[TERN_SHA256_BYTES];
};

struct ckpt_entry {
    struct tern_ckpt_info info; /* the name is owned */
    struct ckpt_slice *slices;
    size_t n;
};

struct ckpt_shard {
    char *name;
    uint64_t bytes, header_bytes;
    uint8_t header_sha256[TERN_SHA256_BYTES];
    int fd; /* -1: not open */
};

/* A small file published with the checkpoint. */
struct ckpt_extra {
    char *name;
    uint64_t bytes;
    uint8_t sha256[TERN_SHA256_BYTES];
};

enum {
    CKPT_SHARDS_MAX = 65536,    /* sixteen times the ranks of 128 full Trn1 nodes */
    CKPT_ENTRIES_MAX = 1 << 20, /* 700 tensors of a 70B model, by four kinds, 300 times over */
    CKPT_FILES_MAX = 64,
    CKPT_MANIFEST_MAX = 256 << 20, /* 200 bytes a slice: a million slices */
    CKPT_FILE_MAX = 64 << 20,      /* a small file; the largest tokenizer.json is 35 MB */
};

struct tern_ckpt {
    char *path;
    uint64_t step;
    json_t *manifest; /* NULL for a Hugging Face folder */
    char digest[TERN_SHA256_HEX];
    struct ckpt_shard *shards;
    size_t n_shards;
    struct ckpt_entry *entries;
    size_t n_entries;
    size_t *by_name; /* [n_entries] */
    struct ckpt_extra *files;
    size_t n_files;
    char *piece;     /* what is read at a time, made on first use */
    unsigned opened; /* shards opened so far: which one to close next */
};

/* Product of `shape` [ndim]; -1 above 2^62: two such sums still fit into an off_t. */
int ckpt_elements(const uint64_t *shape, int ndim, uint64_t *n);
/* The same in bytes of `type`; -1 above 2^62. */
int ckpt_bytes(const uint64_t *shape, int ndim, enum tern_ckpt_type type, uint64_t *bytes);

/* The slices tile `info`'s shape exactly: none sticks out, no two overlap, none is missing.
 * Sorts `slices`. */
int ckpt_tiles(const struct tern_ckpt_info *info, struct ckpt_slice *slices, size_t n,
               struct tern_err *err);

/* Everything that a manifest may lie about: bounds, tiling, duplicate names.  Fills by_name. */
int ckpt_table_check(struct tern_ckpt *c, struct tern_err *err);

/* NULL when there is none. */
struct ckpt_entry *ckpt_entry_find(const struct tern_ckpt *c, const char *name);

#endif
