/* AWS Signature Version 4, as S3 has it: the path is encoded once and stays as it is.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html */
#ifndef TERN_STORE_SIGN_H
#define TERN_STORE_SIGN_H

#include "core/base/hash.h"
#include "core/base/str.h"

struct tern_store_pair {
    const char *name, *value;
};

struct tern_store_sign {
    const char *method, *host;
    const char *path;                                      /* not encoded; begins with a slash */
    const struct tern_store_pair *query, *headers;         /* neither encoded nor sorted */
    size_t n_query, n_headers;                             /* of headers at most 32 */
    const char *payload;                                   /* SHA-256 in hex */
    const char *access, *secret, *region, *service, *time; /* "20130524T000000Z" */
};
/* The value of the header Authorization.  All headers given are signed, and Host. */
void tern_store_sign(const struct tern_store_sign *s, struct tern_buf *ret_authorization);

/* The query, encoded and sorted: as it is signed, and sent. */
void tern_store_query(struct tern_buf *to, const struct tern_store_pair *query, size_t n);

/* HMAC with SHA-256 (RFC 2104). */
void tern_store_hmac(const void *key, size_t n_key, const void *data, size_t n,
                     uint8_t ret_digest[TERN_SHA256_BYTES]);

#endif
