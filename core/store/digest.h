/* Checksums of whole objects, as S3 has them. */
#ifndef TERN_STORE_DIGEST_H
#define TERN_STORE_DIGEST_H

#include "core/store/http.h"

enum { TERN_STORE_MD5 = 16 };
/* False where libcrypto has no MD5 (FIPS mode). */
bool tern_store_md5(const void *data, size_t n, uint8_t ret_digest[TERN_STORE_MD5]);

/* Is an ETag (with or without its quotes) an MD5 of contents, and not of something else ("-2")?  In
 * `ret_hex`, lower case. */
bool tern_store_etag_md5(const char *etag, char ret_hex[2 * TERN_STORE_MD5 + 1]);

/* The MD5 of the contents, if the answer has it as its ETag: S3's, unless it is of parts or
 * encrypted by other keys than the server's own. */
bool tern_store_digest_etag(const struct tern_store_reply *r, char ret_hex[2 * TERN_STORE_MD5 + 1]);

/* Do the bytes of a whole object match all checksums that came with it? */
bool tern_store_digest_good(const struct tern_store_reply *r, const void *data, size_t n);

#endif
