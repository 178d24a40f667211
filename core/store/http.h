/* One HTTP request, made once, by libcurl, which is loaded when it is first needed. Programs that
 * need no object storage neither wait for its forty libraries nor lack them. */
#ifndef TERN_STORE_HTTP_H
#define TERN_STORE_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

/* Connections that are kept for the next request.  Threads: any. */
struct tern_store_http;
struct tern_store_http *tern_store_http_new(struct tern_err *err);
void tern_store_http_free(struct tern_store_http *h); /* NULL is fine */

struct tern_store_reply;
struct tern_store_request {
    const char *method, *url;
    char *const *headers; /* "Name: value" */
    size_t n_headers;
    const void *body; /* of n_body bytes; NULL: none */
    size_t n_body;
    /* Takes the body of a 2xx answer, whose headers are in `reply`: 0, or -1 to end the transfer.
     * NULL: it goes to reply->text. */
    int (*take)(void *ctx, const struct tern_store_reply *reply, const void *data, size_t n);
    void *ctx;
    size_t text_max;  /* of reply->text; longer ones are cut; 0: 64 KiB */
    int64_t until_ns; /* boot clock */
    double connect_s, stall_s;
    const int *stop, *halt; /* not 0: the transfer ends; each may be NULL */
    bool direct;            /* no proxy, whatever the environment says */
    bool fresh; /* on a new connection: when a kept one breaks, libcurl makes the request again */
};

enum tern_store_end {
    TERN_STORE_ANSWERED, /* with some status, whole */
    TERN_STORE_AGAIN,    /* the connection or the body failed: another try may help */
    TERN_STORE_TAKEN,    /* `take` ended it */
    TERN_STORE_NEVER,    /* trying again will not help: a certificate, a scheme */
    TERN_STORE_STOPPED,
    TERN_STORE_LATE,
};

struct tern_store_reply {
    enum tern_store_end end;
    long status;
    struct tern_buf headers; /* lines "name: value", names in lower case, each with a newline */
    struct tern_buf text;
    bool cut;      /* the text was longer */
    char why[200]; /* unless it was answered */
};
/* Fills `ret_reply`, which tern_store_reply_free frees. */
void tern_store_http_do(struct tern_store_http *h, const struct tern_store_request *q,
                        struct tern_store_reply *ret_reply);
void tern_store_reply_free(struct tern_store_reply *r);

/* The value of a header of the answer; "" where there is none, or it is longer than `to`. */
char *tern_store_reply_header(const struct tern_store_reply *r, const char *name, char *to,
                              size_t n);

#endif
