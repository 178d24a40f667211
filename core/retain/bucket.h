/* Copies of checkpoints in object storage (checkpoint.mirror: s3://BUCKET/PREFIX).
 *
 *     PREFIX/step-00001500/shard-00000-of-00002.safetensors ...    the folder's files
 *     PREFIX/step-00001500/manifest.json        sent last: with it the copy is complete
 *     PREFIX/step-00001500/manifest.json.bad    in its place: the copy was found damaged, and a new
 *                                               one of that step takes its place
 *     PREFIX/step_100.files.json                as the manifest, of an external checkpoint: sizes,
 *                                               digests
 *     PREFIX/.step-00001500.RUN.new             there while run RUN copies: what lies under the
 *                                               name is its half copy
 *
 * A copy that was interrupted is continued by the next process: whole objects and parts of uploads
 * stay.  Objects under the name that no mark of the run announces are another user's, and are left
 * alone.  Objects that another run's mark announces are left alone, too: two runs with one prefix
 * never share a copy.
 *
 * Threads: one.
 */
#ifndef TERN_RETAIN_BUCKET_H
#define TERN_RETAIN_BUCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "core/base/tree.h"
#include "core/ckpt/ckpt.h"
#include "core/store/store.h"

struct tern_retain_bucket;

/* Sends nothing yet.  `how` may be NULL: the usual limits. */
struct tern_retain_bucket *tern_retain_bucket_open(const char *url, const char *run_id,
                                                   const struct tern_store_how *how,
                                                   struct tern_err *err);
void tern_retain_bucket_close(struct tern_retain_bucket *b); /* NULL is fine */

/* The object that completes the copy `name`: `own` a manifest, else a list of files.  malloc'ed. */
char *tern_retain_bucket_seal(const char *name, bool own);
/* Its text, malloc'ed; *ret_text NULL where there is none: no complete copy. */
int tern_retain_bucket_sealed(struct tern_retain_bucket *b, const char *name, bool own,
                              char **ret_text, size_t *ret_len, struct tern_err *err);

/* Are all files there, with their sizes, that the manifest `c` of copy `name` names?  1, 0, -1. */
int tern_retain_bucket_is_whole(struct tern_retain_bucket *b, const char *name,
                                const struct tern_ckpt *c, struct tern_err *err);
/* The copy `name`, whose manifest is `text`, is damaged: it counts no more. */
int tern_retain_bucket_mark_bad(struct tern_retain_bucket *b, const char *name, const char *text,
                                size_t len, struct tern_err *err);

enum tern_retain_bucket_kind {
    TERN_RETAIN_BUCKET_NEW,     /* no complete copy is there */
    TERN_RETAIN_BUCKET_SAME,    /* one is there of the same checkpoint: are its objects, too? */
    TERN_RETAIN_BUCKET_REPLACE, /* one of another checkpoint is there, and gives way */
};

struct tern_retain_bucket_copy {
    const char *from; /* the folder */
    const char *name; /* of the copy, below the bucket's URL */
    /* Its files.  With digests (an external checkpoint) each is read and compared before it is
     * sent.  With times of change each must still have its own. */
    const struct tern_tree *files;
    bool own; /* manifest.json is sent last, else the list of files */
    enum tern_retain_bucket_kind kind;
};
/* Are all its files there, with their sizes?  1, 0, -1. */
int tern_retain_bucket_has_all(struct tern_retain_bucket *b,
                               const struct tern_retain_bucket_copy *c, struct tern_err *err);
/* 0: copied; 1: all of it was there; -1.  TERN_USAGE where another user's objects or another run's
 * mark have the name.  Other objects
 * below the name of a copy that is new, or replaces one, go before it is complete. */
int tern_retain_bucket_copy(struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                            struct tern_err *err);

/* Can names at `url` be listed?  A bucket that is wrong is known before the first checkpoint.  A
 * quarter of a minute at most. */
int tern_retain_bucket_probe(const char *url, struct tern_err *err);
/* Likewise, with other limits. */
int tern_retain_bucket_probe_by(const char *url, const struct tern_store_how *how,
                                struct tern_err *err);

/* Remove the run's half copies that no process will finish. */
int tern_retain_bucket_sweep(struct tern_retain_bucket *b, struct tern_err *err);

#endif
