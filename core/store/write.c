/* Objects in one request, lists, and deletion. */
#include "core/store/call.h"
#include "core/store/digest.h"
#include "core/store/write.h"
#include "core/store/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tern_store_may_write(const struct tern_store *s, struct tern_err *err)
{
    return s->url.scheme == TERN_STORE_S3
               ? 0
               : tern_err_set(err, TERN_USAGE, "%s: only s3:// can be written to", s->url.shown);
}

int tern_store_wrong_status(const struct tern_store *s, const struct tern_store_call *c,
                            long status, struct tern_err *err)
{
    char *shown = tern_store_shown(s, c->key);

    tern_err_set(err, TERN_USAGE, "%s: %s: the server answers %ld%s", shown, c->what, status,
                 status == 404 ? ": is there such a bucket?" : "");
    free(shown);
    return -1;
}

/* ---- bytes ---- */

struct sent {
    char hex[2 * TERN_STORE_MD5 + 1]; /* "": not known */
};

/* The ETag is the MD5 of what arrived, unless the server encrypts. */
static int check_sent(void *ctx, const struct tern_store_reply *r, char why[200],
                      struct tern_err *err)
{
    const struct sent *sent = ctx;
    char etag[TERN_STORE_ETAG], sse[64], told[2 * TERN_STORE_MD5 + 1];

    (void)err;
    if (!*tern_store_reply_header(r, "etag", etag, sizeof etag)) {
        snprintf(why, 200, "the server's answer has no ETag");
        return 1;
    }
    tern_store_reply_header(r, "x-amz-server-side-encryption", sse, sizeof sse);
    if (!*sent->hex || tern_str_starts(sse, "aws:kms") || !tern_store_etag_md5(etag, told) ||
        strcmp(told, sent->hex) == 0)
        return 0;
    snprintf(why, 200, "the server received other bytes than were sent");
    return 1;
}

int tern_store_send(struct tern_store *s, struct tern_store_call *c, const void *data, size_t len,
                    char ret_etag[TERN_STORE_ETAG], struct tern_err *err)
{
    uint8_t md5[TERN_STORE_MD5];
    char base64[32];
    struct sent sent = {""};
    struct tern_store_reply r;

    if (tern_store_may_write(s, err) < 0)
        return -1;
    if (tern_store_md5(data, len, md5)) {
        tern_hex(sent.hex, md5, sizeof md5);
        tern_store_base64(base64, md5, sizeof md5);
        c->headers[c->n_headers++] = (struct tern_store_pair){"Content-MD5", base64};
    }
    c->method = "PUT";
    c->body = len ? data : "";
    c->n_body = len;
    c->check = check_sent;
    c->ctx = &sent;
    int rc = tern_store_do(s, c, &r, /* ret_first= */ NULL, err);
    if (rc < 0)
        return -1;
    if (r.status / 100 != 2)
        rc = tern_store_wrong_status(s, c, r.status, err);
    else if (ret_etag)
        tern_store_reply_header(&r, "etag", ret_etag, TERN_STORE_ETAG);
    tern_store_reply_free(&r);
    return rc;
}

int tern_store_put(struct tern_store *s, const char *name, const void *data, size_t len,
                   char ret_etag[TERN_STORE_ETAG], struct tern_err *err)
{
    struct tern_store_call c = {.key = tern_store_key(s, name), .what = "cannot be written"};
    int rc = tern_store_send(s, &c, data, len, ret_etag, err);

    free(c.key);
    return rc;
}

int tern_store_delete(struct tern_store *s, const char *name, struct tern_err *err)
{
    struct tern_store_call c = {
        .method = "DELETE", .key = tern_store_key(s, name), .what = "cannot be deleted"};
    struct tern_store_reply r;
    int rc = tern_store_may_write(s, err);

    if (rc == 0)
        rc = tern_store_do(s, &c, &r, /* ret_first= */ NULL, err);
    if (rc == 0)
        tern_store_reply_free(&r);
    free(c.key);
    return rc;
}

/* ---- lists ---- */

struct page {
    int (*each)(void *ctx, const struct tern_store_entry *e);
    void *ctx;
    size_t n_root; /* bytes of the names that are the store's own */
    char *key, *etag, *more;
    uint64_t bytes;
    bool truncated, bad;
    int rc; /* of each */
};

static void keep(char **to, const char *value)
{
    free(*to);
    *to = tern_strdup(value);
}

static int page_each(void *ctx, const char *path, const char *value)
{
    struct page *p = ctx;
    int64_t n = 0;

    path = tern_store_xml_below(path);
    if (strcmp(path, "Contents/Key") == 0) {
        keep(&p->key, value);
        p->bad |= tern_store_decode(p->key) < 0 || strlen(p->key) < p->n_root;
    } else if (strcmp(path, "Contents/ETag") == 0) {
        keep(&p->etag, value);
    } else if (strcmp(path, "Contents/Size") == 0) {
        p->bad |= tern_str_int(value, 0, INT64_MAX, &n) < 0;
        p->bytes = (uint64_t)n;
    } else if (strcmp(path, "IsTruncated") == 0) {
        p->truncated = strcmp(value, "true") == 0;
    } else if (strcmp(path, "NextContinuationToken") == 0) {
        keep(&p->more, value);
    } else if (strcmp(path, "Contents") == 0 && p->key && !p->bad) {
        const struct tern_store_entry e = {
            .name = p->key + p->n_root, .bytes = p->bytes, .etag = p->etag ? p->etag : ""};
        p->rc = p->each(p->ctx, &e);
        keep(&p->etag, "");
        p->bytes = 0;
    }
    return p->rc || p->bad;
}

static int list_page(struct tern_store *s, struct page *p, const char *prefix, char *shown,
                     struct tern_err *err)
{
    struct tern_store_call c = {.method = "GET",
                                .key = (char *)"",
                                .what = "cannot be listed",
                                .text_max = 16 << 20, /* 1,000 keys of 1 KiB, encoded */
                                .query = {{"list-type", "2"}, {"encoding-type", "url"}},
                                .n_query = 2};
    struct tern_store_reply r;

    c.query[c.n_query++] = (struct tern_store_pair){"prefix", prefix};
    char *token = p->more;
    p->more = NULL;
    if (token)
        c.query[c.n_query++] = (struct tern_store_pair){"continuation-token", token};
    p->truncated = false;
    int rc = tern_store_do(s, &c, &r, /* ret_first= */ NULL, err);
    if (rc < 0) {
        free(token);
        return -1;
    }
    if (r.status / 100 != 2) {
        rc = tern_store_wrong_status(s, &c, r.status, err);
    } else {
        rc = tern_store_xml(r.text.data ? r.text.data : (char *)"", r.text.len, shown, page_each, p,
                            err);
        const bool again = p->more && token && strcmp(token, p->more) == 0;
        if (p->bad || (rc == 0 && p->truncated && (!p->more || again)))
            rc = tern_err_set(err, TERN_TEMPFAIL, "%s: the server's list is damaged", shown);
    }
    free(token);
    tern_store_reply_free(&r);
    return rc;
}

int tern_store_list(struct tern_store *s, const char *prefix,
                    int (*each)(void *ctx, const struct tern_store_entry *e), void *ctx,
                    struct tern_err *err)
{
    struct page p = {.each = each, .ctx = ctx};
    int rc = s->url.scheme == TERN_STORE_S3
                 ? 0
                 : tern_err_set(err, TERN_USAGE, "%s: only s3:// can be listed", s->url.shown);

    if (rc < 0)
        return -1;
    /* What stands before a name of the store: its URL, and a slash. */
    char *root = tern_store_key(s, "x"), *shown = tern_store_shown(s, s->url.path);
    p.n_root = strlen(root) - 1;
    root[p.n_root] = '\0';
    char *whole = tern_strf("%s%s", root, prefix);
    do
        rc = list_page(s, &p, whole, shown, err);
    while (rc == 0 && p.truncated);
    free(p.key);
    free(p.etag);
    free(p.more);
    free(whole);
    free(shown);
    free(root);
    return rc;
}
