/* A pickle as values: what its opcodes make, without anything being executed. */
#ifndef TERN_PYTORCH_PICKLE_H
#define TERN_PYTORCH_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/ckpt/ckpt.h"
#include "core/pytorch/pytorch.h"

enum tern_pytorch_kind {
    TERN_PYTORCH_NONE,
    TERN_PYTORCH_BOOL,
    TERN_PYTORCH_INT,
    TERN_PYTORCH_LONG, /* of more than eight bytes, which are its text */
    TERN_PYTORCH_TEXT,
    TERN_PYTORCH_TUPLE,
    TERN_PYTORCH_LIST,
    TERN_PYTORCH_DICT, /* items: key, value, key, value */
    TERN_PYTORCH_GLOBAL,
    TERN_PYTORCH_STORAGE,
    TERN_PYTORCH_TENSOR,
    TERN_PYTORCH_REFERENCE, /* to a tensor in another file, by its integer */
    TERN_PYTORCH_OPAQUE,    /* a number, bytes, a set, a device: holds no tensor */
};

/* What a global does when it is called (globals.c). */
enum tern_pytorch_call {
    TERN_PYTORCH_CALL_NONE, /* cannot be called */
    TERN_PYTORCH_CALL_DICT,
    TERN_PYTORCH_CALL_SIZE,
    TERN_PYTORCH_CALL_OPAQUE,
    TERN_PYTORCH_CALL_TENSOR, /* _rebuild_tensor, and its second and third version */
    TERN_PYTORCH_CALL_TENSOR_V3,
    TERN_PYTORCH_CALL_PARAMETER,
    TERN_PYTORCH_CALL_FROM_TYPE,
    TERN_PYTORCH_CALL_REFERENCE,
};

struct tern_pytorch_global {
    const char *module, *name;
    enum tern_pytorch_call call;
    bool storage, dtype; /* then: */
    enum tern_ckpt_type type;
    unsigned bytes; /* of an element */
};

struct tern_pytorch_value;

struct tern_pytorch_storage {
    const char *key; /* [key_len] */
    size_t key_len;
    uint64_t bytes; /* as the pickle says */
    uint64_t at;    /* in the file, when it has been found there */
    bool found;
    unsigned element; /* bytes of an element */
    unsigned number;
    /* Of old files: a part of another storage, from this byte on; else NULL. */
    struct tern_pytorch_storage *root;
    uint64_t root_at;
};

struct tern_pytorch_tensor_value {
    struct tern_pytorch_storage *storage;
    enum tern_ckpt_type type;
    unsigned bytes;                                  /* of an element */
    int64_t offset;                                  /* elements */
    const struct tern_pytorch_value *shape, *stride; /* tuples */
};

struct tern_pytorch_value {
    enum tern_pytorch_kind kind;
    union {
        int64_t integer;
        struct {
            const char *at; /* in the pickle, without an end */
            size_t len;
        } text;
        struct {
            struct tern_pytorch_value **v;
            size_t n, room;
        } items;
        const struct tern_pytorch_global *global;
        struct {
            struct tern_pytorch_storage *storage;
            const struct tern_pytorch_global *type;
        } storage;
        struct tern_pytorch_tensor_value *tensor;
    };
};

struct tern_pytorch_block; /* of memory */

/* What is listed of a file. */
enum tern_pytorch_take {
    TERN_PYTORCH_TENSORS,
    TERN_PYTORCH_PARTS,   /* also references, and one tensor alone */
    TERN_PYTORCH_NUMBERS, /* also whole numbers; see tern_pytorch_open_numbers */
};

int tern_pytorch_parse_as(const void *data, size_t len, const char *path,
                          enum tern_pytorch_take take, struct tern_pytorch_file *ret_file,
                          struct tern_err *err);

/* One file's pickles.  Memory of values is freed at once, by tern_pytorch_pickle_free. */
struct tern_pytorch_pickle {
    const char *path; /* for messages */
    const uint8_t *data;
    size_t len, at; /* the next byte to be read */
    enum tern_pytorch_take take;
    struct tern_err *err;

    struct tern_pytorch_block *blocks;
    size_t used; /* bytes of memory */
    struct tern_pytorch_value **stack, **memo;
    size_t n_stack, stack_room, memo_room;
    size_t *marks, n_marks, marks_room;
    struct tern_pytorch_storage **storages; /* [n_storages], by number */
    size_t n_storages, storages_room;
    unsigned *table; /* storages by key: number + 1, or 0 */
    size_t table_room;
    uint8_t hash_key[TERN_SIPHASH_BYTES]; /* of this table */
};

/* Interprets one pickle, from `p->at` to behind its STOP.  NULL with `p->err`. */
struct tern_pytorch_value *tern_pytorch_pickle_load(struct tern_pytorch_pickle *p);
void tern_pytorch_pickle_free(struct tern_pytorch_pickle *p);

/* Zeroed memory that lives as long as `p`; NULL with `p->err` above the ceiling. */
void *tern_pytorch_pickle_alloc(struct tern_pytorch_pickle *p, size_t bytes);
/* Room in *v for element `n`, of `size` bytes; *v is NULL at first, and *room 0. */
int tern_pytorch_pickle_grow(struct tern_pytorch_pickle *p, void *v, size_t size, size_t n,
                             size_t *room);
/* NULL with `p->err`. */
struct tern_pytorch_value *tern_pytorch_pickle_new(struct tern_pytorch_pickle *p,
                                                   enum tern_pytorch_kind kind);
/* Appends to a tuple, list or dict. */
int tern_pytorch_pickle_add(struct tern_pytorch_pickle *p, struct tern_pytorch_value *to,
                            struct tern_pytorch_value *v);
/* `p->err` gets the path, the words, and the byte; returns -1. */
int tern_pytorch_pickle_fail(struct tern_pytorch_pickle *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- parse.c ---- */

/* Bytes from the first to behind the last of a tensor's elements, of `element` bytes each; 0 of an
 * empty one.  -1 where these, or all elements with those that repeat, are beyond 2^62 bytes. */
int tern_pytorch_extent(const struct tern_pytorch_tensor *t, unsigned element, uint64_t *ret_bytes);

/* ---- globals.c ---- */

/* NULL with `p->err` for one that is not on the list. */
const struct tern_pytorch_global *tern_pytorch_global_find(struct tern_pytorch_pickle *p,
                                                           const char *module, size_t module_len,
                                                           const char *name, size_t name_len);
/* The value of global(*args).  NULL with `p->err`. */
struct tern_pytorch_value *tern_pytorch_global_call(struct tern_pytorch_pickle *p,
                                                    const struct tern_pytorch_value *global,
                                                    const struct tern_pytorch_value *args);
/* The storage that a persistent id names.  NULL with `p->err`. */
struct tern_pytorch_value *tern_pytorch_global_storage(struct tern_pytorch_pickle *p,
                                                       const struct tern_pytorch_value *id);
/* NULL when there is none of that key. */
struct tern_pytorch_storage *tern_pytorch_storage_find(const struct tern_pytorch_pickle *p,
                                                       const char *key, size_t len);

#endif
