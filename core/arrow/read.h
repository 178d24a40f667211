/* A reader, shared by the files of this room. */
#ifndef TERN_ARROW_READ_H
#define TERN_ARROW_READ_H

#include "core/arrow/arrow.h"
#include "core/arrow/flat.h"

enum {
    TERN_ARROW_META_MAX = 16 << 20, /* of one message's description: 4,096 nodes take 200 KiB */
    TERN_ARROW_NODES_MAX = 4096,    /* arrays in a schema, nested ones included */
    TERN_ARROW_DEPTH_MAX = 32,      /* of nesting */
    TERN_ARROW_BUFFER_MAX =
        1 << 30, /* bytes of one array in one batch; `datasets` writes 1,000 rows */
};

/* MessageHeader in Message.fbs. */
enum tern_arrow_header {
    TERN_ARROW_SCHEMA = 1,
    TERN_ARROW_DICTIONARY = 2,
    TERN_ARROW_BATCH = 3,
};
/* Codecs in Message.fbs; -1: none. */
enum { TERN_ARROW_PLAIN = -1, TERN_ARROW_LZ4 = 0, TERN_ARROW_ZSTD = 1 };
/* Type in Schema.fbs. */
enum tern_arrow_type {
    TERN_ARROW_T_NULL = 1,
    TERN_ARROW_T_INT = 2,
    TERN_ARROW_T_FLOAT = 3,
    TERN_ARROW_T_BINARY = 4,
    TERN_ARROW_T_UTF8 = 5,
    TERN_ARROW_T_BOOL = 6,
    TERN_ARROW_T_LIST = 12,
    TERN_ARROW_T_STRUCT = 13,
    TERN_ARROW_T_UNION = 14,
    TERN_ARROW_T_FIXED_LIST = 16,
    TERN_ARROW_T_MAP = 17,
    TERN_ARROW_T_LARGE_BINARY = 19,
    TERN_ARROW_T_LARGE_UTF8 = 20,
    TERN_ARROW_T_LARGE_LIST = 21,
    TERN_ARROW_T_RUN_END = 22,
    TERN_ARROW_T_BINARY_VIEW = 23,
    TERN_ARROW_T_UTF8_VIEW = 24,
    TERN_ARROW_T_LIST_VIEW = 25,
    TERN_ARROW_T_LARGE_LIST_VIEW = 26,
};

/* Bytes of an array in memory. */
struct tern_arrow_bytes {
    uint8_t *data;
    size_t len, cap;
};

/* An array of the schema: nodes stand in the order of their buffers, parents before children. */
struct tern_arrow_node {
    char *name, *words;
    int parent, end; /* -1: none; the first node behind its children */
    enum tern_arrow_type type;
    enum tern_arrow_kind kind;
    unsigned bits;        /* INT, REAL */
    bool is_signed, wide; /* wide: offsets of 64 bits */
    bool dictionary, views;
    unsigned n_buffers; /* without views */
    int64_t list_size;  /* of a fixed_size_list */
    bool used;

    /* Of the batch. */
    uint64_t length, nulls;
    size_t first_buffer;
    struct tern_arrow_bytes valid, offsets, values;
};

struct tern_arrow {
    int fd;
    char *path;
    uint64_t at, end, size; /* the next message; where messages end; the file */
    bool footer;            /* file form */
    bool records;           /* rows are read as such */
    bool ended;
    struct tern_arrow_node *node;
    int n_nodes, nodes_cap;
    struct tern_arrow_column *column;
    int *column_node;
    size_t n_columns;
    uint8_t *meta;
    size_t meta_cap;
    struct tern_arrow_bytes packed;
    /* The batch. */
    uint64_t rows, body, body_bytes;
    int codec;
};

/* Says "damaged Arrow file" of `a`; -1. */
int tern_arrow_bad(const struct tern_arrow *a, const char *why, struct tern_err *err);
/* Their names, malloc'ed, for a message. */
char *tern_arrow_list_columns(const struct tern_arrow *a);
/* From the message's header to nodes and columns. */
int tern_arrow_schema_read(struct tern_arrow *a, const struct tern_arrow_table *schema,
                           struct tern_err *err);
/* Bytes offset .. offset + len - 1 of the batch's body, decompressed. */
int tern_arrow_body_read(struct tern_arrow *a, uint64_t offset, uint64_t len,
                         struct tern_arrow_bytes *to, struct tern_err *err);
/* Of a node of kind INTS whose arrays are loaded: is a number null in a list that is not? */
bool tern_arrow_items_null(const struct tern_arrow *a, int list);
/* Cells of a node whose arrays are loaded: `i` < its length. */
bool tern_arrow_is_list(enum tern_arrow_type t); /* list, large_list, fixed_size_list */
bool tern_arrow_is_null(const struct tern_arrow_node *n, uint64_t i);
uint64_t tern_arrow_offset(const struct tern_arrow_node *n, uint64_t i); /* i <= its length */
void tern_arrow_list_range(const struct tern_arrow_node *n, uint64_t i, uint64_t *ret_first,
                           uint64_t *ret_end);
int64_t tern_arrow_number(const void *data, uint64_t i, unsigned bits, bool is_signed);
double tern_arrow_real_at(const struct tern_arrow_node *n, uint64_t i);
/* Room for `len` bytes and eight more. */
int tern_arrow_reserve(struct tern_arrow_bytes *b, size_t len, struct tern_err *err);

#endif
