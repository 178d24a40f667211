/* Object storage: objects at s3://BUCKET/KEY (any endpoint that speaks S3), and files at https://
 * (http:// on this machine alone), which can only be read.
 *
 *     struct tern_store *s = tern_store_open("s3://corpora/pubmed", NULL, err);
 *     struct tern_store_head head;
 *     tern_store_head(s, "train.tds", &head, err);           (s3://corpora/pubmed/train.tds)
 *     tern_store_read(s, "train.tds", head.etag, 4096, 1024, to, err);
 *     tern_store_close(s);
 *
 * A name is joined to the URL by a slash; NULL is the URL itself.  Names are bytes, not
 * percent-encoded.  Requests to S3 are signed (AWS Signature Version 4).  Credentials and region
 * come from the usual places: the environment, the profile files, a container's endpoint, the
 * instance's metadata.  They appear in no message, and the query of a URL does not either.
 *
 * A request that fails for a passing reason is made again, later each time, until its time is over:
 * then the error is TERN_TEMPFAIL.  Such reasons are 5xx, 429, SlowDown, a reset, a stall, a body
 * cut short, and bytes that do not match their checksum.  What is not there or not allowed is
 * TERN_USAGE at once.
 *
 * Threads: any number may use one store.  Memory: what the caller gives, a buffer of libcurl's a
 * transfer, and lists one page (1,000 names) at a time.
 */
#ifndef TERN_STORE_STORE_H
#define TERN_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/hash.h"

enum {
    TERN_STORE_ETAG = 256,    /* bytes with the NUL; with its quotes as HTTP has them */
    TERN_STORE_ID = 1024,     /* of an upload */
    TERN_STORE_PARTS = 10000, /* of one upload, numbered from 1 (S3's limit) */
};

/* Is it a URL that this room opens, and not a path? */
bool tern_store_is(const char *path);

struct tern_store_how {
    const int *stop;   /* not 0, perhaps set by a signal's handler: requests end with an error */
    double deadline_s; /* of one call, retries included; 0: TERN_STORE_DEADLINE */
    double stall_s;    /* without a byte: the request is made again; 0: 30 */
    double backoff_s;  /* the first wait before a retry; 0: 0.1 */
    const char
        *denied; /* behind the message of a 401 or 403, instead of advice on AWS; a copy is kept */
    const char *bearer; /* https: a token for the URL's own host, not for others; kept as a copy */
};

struct tern_store;
/* Looks the credentials up when they are first needed.  `how` may be NULL. */
struct tern_store *tern_store_open(const char *url, const struct tern_store_how *how,
                                   struct tern_err *err);
void tern_store_close(struct tern_store *s); /* NULL is fine */
/* Calls of other threads end within a second, with an error, as do all later ones.  NULL is fine.
 */
void tern_store_halt(struct tern_store *s);
/* For messages: without its query.  Belongs to `s`. */
const char *tern_store_url(const struct tern_store *s);
/* Can objects be written (s3://)? */
bool tern_store_writes(const struct tern_store *s);

/* ---- reading ---- */

struct tern_store_head {
    uint64_t bytes;
    char etag[TERN_STORE_ETAG];    /* "": the server gives none */
    char version[TERN_STORE_ETAG]; /* x-amz-version-id */
    bool etag_md5;                 /* S3: it is the MD5 of the contents */
    /* Of a Hugging Face hub: the digest of the contents (with quotes), their size (0: none), the
     * commit. */
    char linked_etag[TERN_STORE_ETAG], commit[64];
    uint64_t linked_bytes;
};
/* 1 and `head`; 0 where there is no such object; -1. */
int tern_store_head(struct tern_store *s, const char *name, struct tern_store_head *ret_head,
                    struct tern_err *err);
/* Bytes at .. at + len - 1, all of them, into `to`.  `etag`, from a head: the object must still be
 * that one (TERN_FAILED, if not); NULL or "": whatever is there.  An object that is read whole is
 * compared with the checksum that the server has for it.  That is a CRC-32C, a SHA-256, or an ETag
 * that is its MD5. */
int tern_store_read(struct tern_store *s, const char *name, const char *etag, uint64_t at,
                    size_t len, void *to, struct tern_err *err);
/* Likewise, without the checksum, for a caller that has a digest of its own. It wants an object
 * that is damaged at the server at once and not an error after minutes. */
int tern_store_read_unchecked(struct tern_store *s, const char *name, const char *etag, uint64_t at,
                              size_t len, void *to, struct tern_err *err);
/* A text of at most `max` bytes; malloc'ed, with a NUL behind it.  `ret_next` (may be NULL): the
 * URL of the next page (Link: rel="next"), or NULL; malloc'ed. */
int tern_store_text(struct tern_store *s, const char *name, size_t max, char **ret_text,
                    size_t *ret_len, char **ret_next, struct tern_err *err);

struct tern_store_entry {
    const char *name; /* behind the store's URL */
    uint64_t bytes;
    const char *etag;
};
/* Every object whose name begins with `prefix` ("" for all), in the order of their bytes.  `each`
 * returns 0 to go on; anything else ends the list and is returned. */
int tern_store_list(struct tern_store *s, const char *prefix,
                    int (*each)(void *ctx, const struct tern_store_entry *e), void *ctx,
                    struct tern_err *err);

/* ---- writing (s3:// alone) ---- */

/* An object in one request, at most 5 GiB.  It is there whole or not at all; the server compares it
 * with our digests.  `ret_etag` may be NULL. */
int tern_store_put(struct tern_store *s, const char *name, const void *data, size_t len,
                   char ret_etag[TERN_STORE_ETAG], struct tern_err *err);
/* Fine when it is gone already. */
int tern_store_delete(struct tern_store *s, const char *name, struct tern_err *err);

/* An object in parts of at least 5 MiB (the last may be smaller), in any order, by any threads.
 * Nothing is to be seen under its name until it is completed.  An upload that is neither completed
 * nor aborted is kept, and paid for: tern_store_upload_find finds it again. */
int tern_store_upload_begin(struct tern_store *s, const char *name, char ret_id[TERN_STORE_ID],
                            struct tern_err *err);
struct tern_store_part {
    unsigned number;
    uint64_t bytes;
    char etag[TERN_STORE_ETAG];
};
/* `data` are the part's bytes; its etag is set on success. */
int tern_store_upload_part(struct tern_store *s, const char *name, const char *id, const void *data,
                           struct tern_store_part *part, struct tern_err *err);
/* The parts that are there, by number; as tern_store_list. */
int tern_store_upload_parts(struct tern_store *s, const char *name, const char *id,
                            int (*each)(void *ctx, const struct tern_store_part *p), void *ctx,
                            struct tern_err *err);
/* `parts`, by number, become the object. */
int tern_store_upload_end(struct tern_store *s, const char *name, const char *id,
                          const struct tern_store_part *parts, size_t n, struct tern_err *err);
/* Fine when it is gone already. */
int tern_store_upload_abort(struct tern_store *s, const char *name, const char *id,
                            struct tern_err *err);
/* The newest unfinished upload of that name: 1; 0 where there is none; -1. */
int tern_store_upload_find(struct tern_store *s, const char *name, char ret_id[TERN_STORE_ID],
                           struct tern_err *err);
/* Aborts the unfinished uploads of all names that begin with `prefix`, at most 1,000 of them. */
int tern_store_upload_clear(struct tern_store *s, const char *prefix, struct tern_err *err);

#endif
