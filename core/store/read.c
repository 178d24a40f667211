/* Heads, ranges and texts of objects. */
#include "core/store/call.h"
#include "core/store/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NUMBER = 32, WHOLE_MAX = 3 };

static uint64_t number_of(const struct tern_store_reply *r, const char *name)
{
    char text[NUMBER];
    int64_t n = 0;

    tern_str_int(tern_store_reply_header(r, name, text, sizeof text), 0, INT64_MAX, &n);
    return (uint64_t)n;
}

static int no_such(const struct tern_store *s, const char *key, struct tern_err *err)
{
    char *shown = tern_store_shown(s, key);

    tern_err_set(err, TERN_USAGE, "%s: there is no such object", shown);
    free(shown);
    return -1;
}

/* ---- heads ---- */

static int check_head(void *ctx, const struct tern_store_reply *r, char why[200],
                      struct tern_err *err)
{
    char length[NUMBER];

    (void)ctx, (void)err;
    if (r->end == TERN_STORE_ANSWERED &&
        *tern_store_reply_header(r, "content-length", length, sizeof length))
        return 0;
    snprintf(why, 200, "the server does not say how long it is");
    return r->end == TERN_STORE_ANSWERED ? 1 : 0;
}

int tern_store_head(struct tern_store *s, const char *name, struct tern_store_head *ret_head,
                    struct tern_err *err)
{
    struct tern_store_call c = {.method = "HEAD",
                                .key = tern_store_key(s, name),
                                .what = "cannot be looked at",
                                .check = check_head};
    struct tern_store_reply r;
    struct tern_buf first = {0};
    int rc = tern_store_do(s, &c, &r, &first, err);

    if (rc == 0 && r.status == 404) {
        tern_store_reply_free(&r);
    } else if (rc == 0 && r.status / 100 != 2) {
        rc = tern_err_set(err, TERN_FAILED, "%s: the server answers %ld", s->url.shown, r.status);
        tern_store_reply_free(&r);
    } else if (rc == 0) {
        const struct tern_store_reply hub = {.headers = first};
        char md5[2 * TERN_STORE_MD5 + 1];
        *ret_head = (struct tern_store_head){.bytes = number_of(&r, "content-length")};
        tern_store_reply_header(&r, "etag", ret_head->etag, sizeof ret_head->etag);
        tern_store_reply_header(&r, "x-amz-version-id", ret_head->version,
                                sizeof ret_head->version);
        tern_store_reply_header(&hub, "x-linked-etag", ret_head->linked_etag,
                                sizeof ret_head->linked_etag);
        tern_store_reply_header(&hub, "x-repo-commit", ret_head->commit, sizeof ret_head->commit);
        ret_head->etag_md5 = tern_store_digest_etag(&r, md5);
        ret_head->linked_bytes = number_of(&hub, "x-linked-size");
        tern_store_reply_free(&r);
        rc = 1;
    }
    tern_buf_free(&first);
    free(c.key);
    return rc;
}

/* ---- ranges ---- */

struct range {
    struct tern_store *s;
    const char *key, *etag;
    char *to;
    uint64_t at;
    size_t len, have;    /* bytes that are there: a next try goes on behind them */
    uint64_t whole;      /* size of the object, once a reply has it */
    char text[64];       /* the header's value: "bytes=0-99" */
    bool unchecked;      /* the checksum is not looked at */
    bool checked;        /* the headers of this answer */
    unsigned n_whole;    /* answers of more than was asked for */
    struct tern_err err; /* a failure for good, found in a header */
    char why[200];       /* a passing one */
};

static void range_begin(void *ctx)
{
    struct range *g = ctx;

    g->checked = false;
    g->why[0] = '\0';
    if (g->have == g->len) /* all came, and yet the transfer failed: at its very end */
        g->have = 0;
    snprintf(g->text, sizeof g->text, "bytes=%" PRIu64 "-%" PRIu64, g->at + g->have,
             g->at + g->len - 1);
}

static int too_short(struct range *g)
{
    char *shown = tern_store_shown(g->s, g->key);

    tern_err_set(&g->err, TERN_FAILED,
                 "%s: it ends before byte %" PRIu64 ": it has changed, or was cut. Begin again.",
                 shown, g->at + g->len - 1);
    free(shown);
    return -1;
}

static int changed(struct range *g)
{
    char *shown = tern_store_shown(g->s, g->key);

    tern_err_set(&g->err, TERN_FAILED,
                 "%s: another object has taken its place while it was read. Begin again.", shown);
    free(shown);
    return -1;
}

static int no_ranges(struct range *g)
{
    char *shown = tern_store_shown(g->s, g->key);

    tern_err_set(&g->err, TERN_USAGE,
                 "%s: the server sends files whole alone (it ignores HTTP's Range). Fetch the file "
                 "by other means (curl), and give its path.",
                 shown);
    free(shown);
    return -1;
}

/* Is this answer the range that was asked for, of the object that was asked for? */
static int range_headers(struct range *g, const struct tern_store_reply *r)
{
    char text[128], etag[TERN_STORE_ETAG];
    uint64_t first, last, whole;
    char after;

    g->checked = true;
    tern_store_reply_header(r, "etag", etag, sizeof etag);
    if (g->etag && *g->etag && *etag && strcmp(etag, g->etag) != 0)
        return changed(g);
    tern_store_reply_header(r, "content-length", text, sizeof text);
    /* A server without ranges sends the whole, from its first byte. */
    if (r->status == 200 && g->at == 0 && (!*text || number_of(r, "content-length") == g->len)) {
        g->have = 0;
        g->whole = *text ? g->len : 0;
        return 0;
    }
    if (r->status == 200 && ++g->n_whole == WHOLE_MAX)
        return no_ranges(g);
    tern_store_reply_header(r, "content-range", text, sizeof text);
    if (r->status == 206 && sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64 "%c", &first,
                                   &last, &whole, &after) == 3) {
        if (whole < g->at + g->len)
            return too_short(g);
        if (first == g->at + g->have && last == g->at + g->len - 1) {
            g->whole = whole;
            return 0;
        }
    }
    snprintf(g->why, sizeof g->why, "the server sends other bytes than %s of it", g->text);
    return -1;
}

static int range_take(void *ctx, const struct tern_store_reply *r, const void *data, size_t n)
{
    struct range *g = ctx;

    if (!g->checked && range_headers(g, r) < 0)
        return -1;
    if (n > g->len - g->have) {
        snprintf(g->why, sizeof g->why, "the server sends more bytes than %s of it", g->text);
        g->have = 0;
        return -1;
    }
    memcpy(g->to + g->have, data, n);
    g->have += n;
    return 0;
}

static int range_check(void *ctx, const struct tern_store_reply *r, char why[200],
                       struct tern_err *err)
{
    struct range *g = ctx;

    if (g->err.code)
        return tern_err_set(err, g->err.code, "%s", g->err.text);
    if (!*g->why && g->have < g->len)
        snprintf(g->why, sizeof g->why, "the server sends fewer bytes than %s of it", g->text);
    if (!*g->why && !g->unchecked && g->at == 0 && g->whole == g->len &&
        !tern_store_digest_good(r, g->to, g->len)) {
        snprintf(g->why, sizeof g->why, "the bytes do not match the server's checksum of them");
        g->have = 0;
    }
    snprintf(why, 200, "%s", g->why);
    return *g->why ? 1 : 0;
}

/* 416 and 412 have one reason where the size was known before. */
static int range_status(struct range *g, long status, struct tern_err *err)
{
    if (status == 404)
        return no_such(g->s, g->key, err);
    if (status == 412) {
        changed(g);
        return tern_err_set(err, g->err.code, "%s", g->err.text);
    }
    too_short(g);
    return tern_err_set(err, g->err.code, "%s", g->err.text);
}

static int read_range(struct range *g, const char *name, struct tern_err *err)
{
    struct tern_store *s = g->s;
    struct tern_store_call c = {.method = "GET",
                                .key = tern_store_key(s, name),
                                .what = "cannot be read",
                                .take = range_take,
                                .check = range_check,
                                .begin = range_begin,
                                .ctx = g};
    struct tern_store_reply r;

    if (g->len == 0) {
        free(c.key);
        return 0;
    }
    g->key = c.key;
    c.headers[c.n_headers++] = (struct tern_store_pair){"Range", g->text};
    if (s->url.scheme == TERN_STORE_S3) {
        c.headers[c.n_headers++] = (struct tern_store_pair){"x-amz-checksum-mode", "ENABLED"};
        if (g->etag && *g->etag && !tern_str_starts(g->etag, "W/"))
            c.headers[c.n_headers++] = (struct tern_store_pair){"If-Match", g->etag};
    }
    int rc = tern_store_do(s, &c, &r, /* ret_first= */ NULL, err);
    if (rc == 0) {
        if (r.status / 100 != 2)
            rc = range_status(g, r.status, err);
        tern_store_reply_free(&r);
    }
    free(c.key);
    return rc;
}

int tern_store_read(struct tern_store *s, const char *name, const char *etag, uint64_t at,
                    size_t len, void *to, struct tern_err *err)
{
    struct range g = {.s = s, .etag = etag, .to = to, .at = at, .len = len};

    return read_range(&g, name, err);
}

int tern_store_read_unchecked(struct tern_store *s, const char *name, const char *etag, uint64_t at,
                              size_t len, void *to, struct tern_err *err)
{
    struct range g = {.s = s, .etag = etag, .to = to, .at = at, .len = len, .unchecked = true};

    return read_range(&g, name, err);
}

/* ---- texts ---- */

/* The URL of <URL>; rel="next"; malloc'ed, or NULL. */
static char *next_page(const struct tern_store_reply *r)
{
    char link[4096];
    const char *end, *begin;

    tern_store_reply_header(r, "link", link, sizeof link);
    end = strstr(link, ">; rel=\"next\"");
    if (!end)
        return NULL;
    for (begin = end; begin > link && *begin != '<'; begin--)
        ;
    return *begin == '<' ? tern_strf("%.*s", (int)(end - begin - 1), begin + 1) : NULL;
}

static int check_text(void *ctx, const struct tern_store_reply *r, char why[200],
                      struct tern_err *err)
{
    const struct tern_store_call *c = ctx;

    (void)why;
    if (r->cut)
        return tern_err_set(err, TERN_USAGE, "the server's answer is longer than %zu bytes",
                            c->text_max);
    return 0;
}

int tern_store_text(struct tern_store *s, const char *name, size_t max, char **ret_text,
                    size_t *ret_len, char **ret_next, struct tern_err *err)
{
    struct tern_store_call c = {.method = "GET",
                                .key = tern_store_key(s, name),
                                .what = "cannot be read",
                                .check = check_text,
                                .text_max = max};
    struct tern_store_reply r;

    c.ctx = &c;
    int rc = tern_store_do(s, &c, &r, /* ret_first= */ NULL, err);
    if (rc == 0 && r.status / 100 != 2) {
        rc = no_such(s, c.key, err);
        tern_store_reply_free(&r);
    }
    if (rc == 0) {
        *ret_len = r.text.len;
        *ret_text = r.text.data ? r.text.data : tern_strdup("");
        r.text = (struct tern_buf){0};
        if (ret_next)
            *ret_next = next_page(&r);
        tern_store_reply_free(&r);
    }
    free(c.key);
    return rc;
}
