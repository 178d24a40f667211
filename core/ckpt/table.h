/* An open checkpoint in memory: the slices of each array, and their places in the shards.  The
 * manifest and the headers of safetensors files are read into it; nothing in it is trusted before
 * tern_ckpt_table_check() has passed. */
#ifndef TERN_CKPT_TABLE_H
#define TERN_CKPT_TABLE_H

#include "core/base/hash.h"
#include "core/ckpt/ckpt.h"

struct tern_ckpt_slice {
    uint64_t start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS];
    uint64_t offset;                 /* of its first byte in the file */
    uint64_t stride[TERN_CKPT_DIMS]; /* elements; of a strided one alone */
    unsigned shard;
    bool strided;  /* else the elements follow each other */
    bool digested; /* `sha256` is known */
    bool checked;  /* and was found right through this handle */
    uint8_t sha256[TERN_SHA256_BYTES];
};

struct tern_ckpt_table_entry {
    struct tern_ckpt_info info; /* the name is owned */
    struct tern_ckpt_slice *slices;
    size_t n;
};

struct tern_ckpt_shard {
    char *name;
    uint64_t bytes, header_bytes;
    uint8_t header_sha256[TERN_SHA256_BYTES];
    int fd;         /* -1: not open */
    uint64_t next;  /* the byte after those that were read last */
    uint64_t ahead; /* the storage was asked for the bytes before this one */
    bool near;      /* it is read from the folder `near` */
};

/* A small file published with the checkpoint. */
struct tern_ckpt_extra {
    char *name;
    uint64_t bytes;
    uint8_t sha256[TERN_SHA256_BYTES];
};

enum {
    TERN_CKPT_SHARDS_MAX = 65536,    /* sixteen times the ranks of 128 full Trn1 nodes */
    TERN_CKPT_ENTRIES_MAX = 1 << 20, /* 700 tensors of a 70B model, by four kinds, 300 times over */
    TERN_CKPT_FILES_MAX = 64,
    TERN_CKPT_FILE_MAX = 64 << 20, /* a small file; the largest tokenizer.json is 35 MB */
};

struct tern_ckpt {
    char *path;
    char *near; /* the same checkpoint on this node (tern_ckpt_read_near), or NULL */
    uint64_t step;
    json_t *manifest; /* NULL for a Hugging Face folder */
    char digest[TERN_SHA256_HEX];
    struct tern_ckpt_shard *shards;
    size_t n_shards;
    struct tern_ckpt_table_entry *entries;
    size_t n_entries;
    size_t *by_name; /* [n_entries] */
    struct tern_ckpt_extra *files;
    size_t n_files;
    char *piece;     /* a buffer of one read, made on first use */
    unsigned opened; /* shards opened so far: which one to close next */
};

/* An empty table; aborts without memory.  Free it with tern_ckpt_close. */
struct tern_ckpt *tern_ckpt_table_new(const char *path);

/* Product of `shape` [ndim]; -1 above 2^62: two such sums still fit into an off_t. */
int tern_ckpt_shape_elements(const uint64_t *shape, int ndim, uint64_t *n);
/* The same in bytes of `type`; -1 above 2^62. */
int tern_ckpt_shape_bytes(const uint64_t *shape, int ndim, enum tern_ckpt_type type,
                          uint64_t *bytes);

/* Bytes from the first element of `s` to the end of the last one; -1 above 2^62. */
int tern_ckpt_slice_bytes(const struct tern_ckpt_info *info, const struct tern_ckpt_slice *s,
                          uint64_t *bytes);

/* The slices tile `info`'s shape exactly: none sticks out, no two overlap, none is missing.
 * Sorts `slices`. */
int tern_ckpt_table_tiles(const struct tern_ckpt_info *info, struct tern_ckpt_slice *slices,
                          size_t n, struct tern_err *err);

/* Everything that a manifest may lie about: bounds, tiling, duplicate names.  Fills by_name. */
int tern_ckpt_table_check(struct tern_ckpt *c, struct tern_err *err);

/* NULL when there is none. */
struct tern_ckpt_table_entry *tern_ckpt_table_find(const struct tern_ckpt *c, const char *name);

#endif
