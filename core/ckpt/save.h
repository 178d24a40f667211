/* A save under way: what its stages share (save.c, staging.c, shard.c, flush.c, publish.c). */
#ifndef TERN_CKPT_SAVE_H
#define TERN_CKPT_SAVE_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/ckpt/local.h"

/* What the ranks exchange as a save begins, and after each stage. */
struct tern_ckpt_report {
    int32_t code; /* enum tern_code */
    int32_t node;
    uint32_t attempt, shards;
    uint64_t step, bytes, table_bytes;
    int64_t copy_ns, write_ns; /* that this rank took */
    char text[960];
};

enum tern_ckpt_stage {
    TERN_CKPT_PREPARES,  /* leaders: the temporary folder */
    TERN_CKPT_WRITES,    /* every rank its shard, rank 0 the small files, too */
    TERN_CKPT_PUBLISHES, /* leaders */
};

/* Where a save's bytes come from that are not in memory: `n` rows of array `i`'s slice, elements of
 * its first dimension; of a scalar the whole.  0, or -1 with `err`. */
typedef int tern_ckpt_save_source(void *ctx, size_t i, uint64_t first, uint64_t n, void *to,
                                  struct tern_err *err);

struct tern_ckpt_saving {
    struct tern_ckpt_save_options o; /* all it points to is this save's own; no peers, no lease */
    struct tern_ckpt_peers peers;
    struct tern_ckpt_lease *lease; /* of rank 0, else NULL */
    int rank, size;
    bool leads; /* makes the folder and gives it its name: rank 0, or each node's first rank */
    tern_ckpt_save_source *source; /* NULL: the arrays' data are in memory */
    void *source_ctx;
    /* Of rank 0: the last word before the rename, on what lies in `temp`; NULL: none. */
    int (*check)(void *ctx, const char *temp, struct tern_err *err);
    void *check_ctx;
    char *from_path;        /* of a flush: the node's copy; NULL: a save out of memory */
    struct tern_ckpt *from; /* it is open, from stage WRITES on */
    unsigned char *parts;   /* which of its files this rank brings, [tern_ckpt_parts] */
    bool with_parts;        /* they were given, and `from` is open, or nothing is to be brought */
    /* This rank's shard. */
    const struct tern_ckpt_array **own; /* [n_own] of o.arrays */
    size_t n_own, head_len;
    char *head, *table; /* table: JSON, what rank 0 needs to know of the shard */
    uint64_t bytes;     /* of the shard */
    struct tern_ckpt_report mine;
    /* The same on every rank. */
    struct tern_ckpt_report *reports; /* [size] */
    char *temp, *final;
    uint64_t total; /* bytes of all shards; on rank 0 of the small files, too */
    uint64_t room;  /* bytes of the shards that come into this rank's folder */
    json_t *files;  /* of rank 0: list of the small files, for the manifest */
    /* Of leaders. */
    bool made;      /* the temporary folder may exist; set in stage PREPARES */
    char *tables;   /* [size * pitch]: every rank's */
    size_t pitch;   /* bytes */
    uint64_t whole; /* bytes of what was published */
    char digest[65];
    /* The stage under way: in a thread, or without one in tern_ckpt_save_advance. */
    enum tern_ckpt_stage stage;
    bool staged, threaded;
    pthread_t thread;
    atomic_bool ready, halt; /* halt: the save is given up */
    int rc;                  /* of the stage, */
    struct tern_err err;     /* and its error */
};

/* What this rank's shard will hold: its header, and its bytes. */
int tern_ckpt_save_plan(struct tern_ckpt_saving *s, struct tern_err *err);
/* This rank's slices, copied; from now on they are written from there. */
int tern_ckpt_save_stage(struct tern_ckpt_saving *s, struct tern_ckpt_staging *staging,
                         struct tern_err *err);
/* Leaders: room, and the temporary folder. */
int tern_ckpt_save_prepare(struct tern_ckpt_saving *s, struct tern_err *err);
/* Stage WRITES of this rank: its shard and table; on rank 0 the small files, too. */
int tern_ckpt_save_write(struct tern_ckpt_saving *s, struct tern_err *err);
/* A whole small file, durable. */
int tern_ckpt_save_small(const char *path, const char *text, size_t len, struct tern_err *err);
/* A new file with room for `bytes`; its descriptor, or -1. */
int tern_ckpt_save_create(const char *path, uint64_t bytes, struct tern_err *err);
/* The file is durable, closed, and as long as it was meant to be; closes `fd` in any case. */
int tern_ckpt_save_seal(int fd, uint64_t bytes, const char *path, struct tern_err *err);
/* Frees what is known of the folder. */
void tern_ckpt_save_forget(struct tern_ckpt_saving *s);
/* Frees what the save holds, but not `s`; no stage is under way. */
void tern_ckpt_save_clear(struct tern_ckpt_saving *s);
/* What is known of the checkpoint on rank 0 when its manifest is written, or on all ranks at the
 * end. */
void tern_ckpt_save_fill(const struct tern_ckpt_saving *s, const char *digest, uint64_t bytes,
                         struct tern_ckpt_saved *ret_saved);
/* Stage PUBLISHES, of leaders. */
int tern_ckpt_save_publish(struct tern_ckpt_saving *s, struct tern_err *err);

/* ---- flush.c: a save out of the nodes' copies */

/* Fills `from_path` and `bytes`; with o->parts opens the copy, too. */
int tern_ckpt_flush_plan(struct tern_ckpt_saving *s, const struct tern_ckpt_flush_options *o,
                         struct tern_err *err);
/* Stage WRITES of this rank: its parts, each byte digested on the way. */
int tern_ckpt_flush_write(struct tern_ckpt_saving *s, struct tern_err *err);
/* The manifest's bytes, as they are in the node's copy, malloc'ed; s->digest is set. */
int tern_ckpt_flush_manifest(struct tern_ckpt_saving *s, char **ret_text, size_t *ret_len,
                             struct tern_err *err);

#endif
