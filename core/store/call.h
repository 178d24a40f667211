/* A store, and a call to it: requests, signed where it is S3, made again until they succeed or the
 * call's time is over. */
#ifndef TERN_STORE_CALL_H
#define TERN_STORE_CALL_H

#include <pthread.h>

#include "core/store/http.h"
#include "core/store/credentials.h"
#include "core/store/sign.h"
#include "core/store/store.h"
#include "core/store/url.h"

struct tern_store {
    struct tern_store_url url;
    struct tern_store_how how;
    char *bearer, *denied;
    struct tern_store_http *http;
    struct tern_store_provider *provider; /* NULL: requests are not signed */
    char *endpoint;       /* S3 other than Amazon's: "http://host:port/path"; or NULL */
    bool path_style;      /* the bucket stands in the path, not in the host */
    int halted;           /* atomic: tern_store_halt */
    pthread_mutex_t lock; /* of what follows */
    char region[64];
    int64_t skew_s; /* of the server's clock before ours */
};

enum { TERN_STORE_HEADERS = 8 };

/* What is wanted.  Names and values are not encoded. */
struct tern_store_call {
    const char *method;
    char *key; /* S3: of the object; "" is the bucket.  Otherwise what follows the URL, or "" */
    struct tern_store_pair query[6], headers[TERN_STORE_HEADERS];
    size_t n_query, n_headers;
    const void *body;
    size_t n_body;
    const char *what; /* "cannot read": for messages, behind the URL */
    int (*take)(void *ctx, const struct tern_store_reply *reply, const void *data, size_t n);
    /* Is this answer, 2xx and whole, right?  0; 1: make the request again, because of `why`; -1
     * with `err`.  May be NULL. */
    int (*check)(void *ctx, const struct tern_store_reply *reply, char why[200],
                 struct tern_err *err);
    /* Before the headers of a try are made: `take` begins anew.  It may change `headers`' values: a
     * try may go on where the last one ended. */
    void (*begin)(void *ctx);
    void *ctx;
    size_t text_max;
};

/* 0, the last reply in `ret_reply` (to be freed), whose status is 2xx, or 404 or 412 or 416: the
 * caller knows what these mean.  -1 otherwise; `ret_reply` holds nothing then.  `ret_first` (may be
 * NULL): the headers of the first of several answers that redirect. */
int tern_store_do(struct tern_store *s, struct tern_store_call *c,
                  struct tern_store_reply *ret_reply, struct tern_buf *ret_first,
                  struct tern_err *err);

/* The key of `name` (NULL: of the URL itself), malloc'ed; and what messages call it. */
char *tern_store_key(const struct tern_store *s, const char *name);
char *tern_store_shown(const struct tern_store *s, const char *key);
/* Tells the URL's object from all others, and is the same each time: endpoint, URL and query, but
 * no signature of a presigned URL.  malloc'ed; for digests, never shown. */
char *tern_store_place(const struct tern_store *s);

#endif
