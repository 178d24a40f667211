/* A file to object storage: in parts, several at once, to be gone on with after a failure. */
#ifndef TERN_STORE_PUSH_H
#define TERN_STORE_PUSH_H

#include "core/store/store.h"

struct tern_store_push_how {
    uint64_t part_bytes; /* 0: 16 MiB, or what makes 10,000 parts.  At least S3's 5 MiB */
    unsigned threads;    /* each with memory for a part; 0: 4 */
    /* Nothing is sent where the object is there already with these bytes, by its ETag: the file is
     * read once more. */
    bool keep_same;
    /* Called by any of the threads, one at a time.  May be NULL. */
    void (*progress)(void *ctx, uint64_t done_bytes, uint64_t all_bytes);
    void *ctx;
};

struct tern_store_pushed {
    uint64_t bytes, sent_bytes; /* of the file; of it sent now, and not by an earlier try */
    char etag[TERN_STORE_ETAG];
};

/* The object appears whole, at the end, or not at all.  On failure the parts that are there stay.
 * The next call for the same file and name compares them (by their MD5) and sends the others.  An
 * upload of a file that has changed since is replaced part by part.  `path` is for messages.
 * TERN_USAGE for a file that changes meanwhile. */
int tern_store_push(struct tern_store *s, const char *name, int fd, const char *path,
                    const struct tern_store_push_how *how, struct tern_store_pushed *ret_pushed,
                    struct tern_err *err);

#endif
