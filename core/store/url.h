/* URLs, and the encodings of HTTP. */
#ifndef TERN_STORE_URL_H
#define TERN_STORE_URL_H

#include "core/base/str.h"

enum tern_store_scheme { TERN_STORE_S3, TERN_STORE_HTTPS, TERN_STORE_HTTP };

struct tern_store_url {
    enum tern_store_scheme scheme;
    char *host;  /* with its port; S3: the bucket */
    char *path;  /* http: encoded, begins with a slash; S3: the key, not encoded */
    char *query; /* http: encoded, without the question mark; NULL: none */
    char *shown; /* for messages */
};
int tern_store_url_parse(const char *text, struct tern_store_url *ret_url, struct tern_err *err);
void tern_store_url_free(struct tern_store_url *u);

/* Is the host (with or without a port) this machine? */
bool tern_store_url_loopback(const char *host);
/* Where a redirect from `from` leads.  Only to https://, or as `from` is, to this machine. */
int tern_store_url_redirect(const struct tern_store_url *from, const char *location,
                            struct tern_store_url *ret_url, struct tern_err *err);

/* Percent-encoded as AWS signs it: all but letters, digits, - . _ ~, and / where `slashes`. */
void tern_store_encode(struct tern_buf *to, const char *s, bool slashes);
/* Undone, in place; -1 for what is no encoding, and for a NUL. */
int tern_store_decode(char *s);

/* Base64 with a NUL: 4 * ((n + 2) / 3) + 1 bytes; returns `to`. */
char *tern_store_base64(char *to, const uint8_t *bytes, size_t n);

#endif
