/* Uploads in parts. */
#include "core/store/digest.h"
#include "core/store/write.h"
#include "core/store/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 4 << 20 }; /* 1,000 parts or uploads */

/* One value of an answer. */
struct value {
    const char *path;
    char *to;
    size_t room;
    char code[64];
};

static int value_each(void *ctx, const char *path, const char *value)
{
    struct value *v = ctx;

    if (strcmp(tern_store_xml_below(path), v->path) == 0 && strlen(value) < v->room)
        memcpy(v->to, value, strlen(value) + 1);
    if (strcmp(path, "Error/Code") == 0)
        snprintf(v->code, sizeof v->code, "%s", value);
    return 0;
}

/* Sends `c` and reads the answer with `each`. */
static int ask(struct tern_store *s, struct tern_store_call *c,
               int (*each)(void *ctx, const char *path, const char *value), void *ctx,
               struct tern_err *err)
{
    struct tern_store_reply r;
    int rc = tern_store_may_write(s, err);

    if (rc == 0)
        rc = tern_store_do(s, c, &r, /* ret_first= */ NULL, err);
    if (rc < 0)
        return -1;
    if (r.status / 100 != 2) {
        rc = tern_store_wrong_status(s, c, r.status, err);
    } else if (each) {
        char *shown = tern_store_shown(s, c->key);
        rc = tern_store_xml(r.text.data ? r.text.data : (char *)"", r.text.len, shown, each, ctx,
                            err);
        free(shown);
    }
    tern_store_reply_free(&r);
    return rc;
}

int tern_store_upload_begin(struct tern_store *s, const char *name, char ret_id[TERN_STORE_ID],
                            struct tern_err *err)
{
    struct tern_store_call c = {.method = "POST",
                                .key = tern_store_key(s, name),
                                .what = "cannot begin an upload",
                                .query = {{"uploads", ""}},
                                .n_query = 1};
    char id[TERN_STORE_ID] = "";
    struct value v = {"UploadId", id, sizeof id, ""};
    int rc = ask(s, &c, value_each, &v, err);

    if (rc == 0 && !*id)
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: the server began no upload", s->url.shown);
    if (rc == 0)
        memcpy(ret_id, id, sizeof id);
    free(c.key);
    return rc;
}

int tern_store_upload_part(struct tern_store *s, const char *name, const char *id, const void *data,
                           struct tern_store_part *part, struct tern_err *err)
{
    char text[16];
    struct tern_store_call c = {.key = tern_store_key(s, name),
                                .what = "cannot upload a part",
                                .query = {{"partNumber", text}, {"uploadId", id}},
                                .n_query = 2};

    snprintf(text, sizeof text, "%u", part->number);
    int rc = tern_store_send(s, &c, data, part->bytes, part->etag, err);
    free(c.key);
    return rc;
}

/* ---- what is there ---- */

struct parts {
    int (*each)(void *ctx, const struct tern_store_part *p);
    void *ctx;
    struct tern_store_part part;
    char marker[16];
    bool truncated, bad;
};

static int parts_each(void *ctx, const char *path, const char *value)
{
    struct parts *p = ctx;
    int64_t n = 0;

    path = tern_store_xml_below(path);
    if (strcmp(path, "Part/PartNumber") == 0) {
        p->bad |= tern_str_int(value, 1, TERN_STORE_PARTS, &n) < 0;
        p->part.number = (unsigned)n;
    } else if (strcmp(path, "Part/Size") == 0) {
        p->bad |= tern_str_int(value, 0, INT64_MAX, &n) < 0;
        p->part.bytes = (uint64_t)n;
    } else if (strcmp(path, "Part/ETag") == 0) {
        snprintf(p->part.etag, sizeof p->part.etag, "%s", value);
    } else if (strcmp(path, "IsTruncated") == 0) {
        p->truncated = strcmp(value, "true") == 0;
    } else if (strcmp(path, "Part") == 0 && p->part.number == 0) {
        p->bad = true;
    } else if (strcmp(path, "Part") == 0 && !p->bad) {
        snprintf(p->marker, sizeof p->marker, "%u", p->part.number);
        const int rc = p->each(p->ctx, &p->part);
        p->part = (struct tern_store_part){0};
        return rc;
    }
    return p->bad;
}

int tern_store_upload_parts(struct tern_store *s, const char *name, const char *id,
                            int (*each)(void *ctx, const struct tern_store_part *p), void *ctx,
                            struct tern_err *err)
{
    struct parts p = {.each = each, .ctx = ctx};
    char *key = tern_store_key(s, name), before[16];
    int rc;

    do {
        struct tern_store_call c = {.method = "GET",
                                    .key = key,
                                    .what = "cannot list an upload's parts",
                                    .query = {{"uploadId", id}},
                                    .n_query = 1,
                                    .text_max = PAGE_BYTES};
        snprintf(before, sizeof before, "%s", p.marker);
        if (*before)
            c.query[c.n_query++] = (struct tern_store_pair){"part-number-marker", before};
        p.truncated = false;
        rc = ask(s, &c, parts_each, &p, err);
        if (p.bad ||
            (rc == 0 && p.truncated && strtoul(p.marker, NULL, 10) <= strtoul(before, NULL, 10)))
            rc = tern_err_set(err, TERN_TEMPFAIL, "%s: the server's list of parts is damaged",
                              s->url.shown);
    } while (rc == 0 && p.truncated);
    free(key);
    return rc;
}

struct uploads {
    const char *key;
    char name[1100], id[TERN_STORE_ID], begun[64];
    char newest[TERN_STORE_ID], newest_begun[64];
};

static int uploads_each(void *ctx, const char *path, const char *value)
{
    struct uploads *u = ctx;

    path = tern_store_xml_below(path);
    if (strcmp(path, "Upload/Key") == 0) {
        snprintf(u->name, sizeof u->name, "%s", value);
    } else if (strcmp(path, "Upload/UploadId") == 0) {
        snprintf(u->id, sizeof u->id, "%s", strlen(value) < sizeof u->id ? value : "");
    } else if (strcmp(path, "Upload/Initiated") == 0) {
        snprintf(u->begun, sizeof u->begun, "%s", value);
    } else if (strcmp(path, "Upload") == 0) {
        if (strcmp(u->name, u->key) == 0 && *u->id &&
            (!*u->newest || strcmp(u->begun, u->newest_begun) >= 0)) {
            memcpy(u->newest, u->id, sizeof u->newest);
            memcpy(u->newest_begun, u->begun, sizeof u->newest_begun);
        }
        u->begun[0] = u->name[0] = u->id[0] = '\0';
    }
    return 0;
}

int tern_store_upload_find(struct tern_store *s, const char *name, char ret_id[TERN_STORE_ID],
                           struct tern_err *err)
{
    struct uploads u = {.key = tern_store_key(s, name)};
    /* Uploads of the first 1,000 names that begin so: the name itself sorts first. */
    struct tern_store_call c = {.method = "GET",
                                .key = (char *)"",
                                .what = "cannot list unfinished uploads",
                                .query = {{"uploads", ""}, {"prefix", u.key}},
                                .n_query = 2,
                                .text_max = PAGE_BYTES};
    int rc = ask(s, &c, uploads_each, &u, err);

    if (rc == 0 && *u.newest) {
        memcpy(ret_id, u.newest, sizeof u.newest);
        rc = 1;
    }
    free((char *)u.key);
    return rc;
}

/* ---- leftovers ---- */

enum { CLEAR_MAX = 1000 }; /* a page of the server's */

struct clear {
    char **names, **ids; /* [n]: keys, and uploads of them */
    size_t n;
    char *name, *id;
};

static void hold(char **to, const char *value)
{
    free(*to);
    *to = tern_strdup(value);
}

static int clear_each(void *ctx, const char *path, const char *value)
{
    struct clear *c = ctx;

    path = tern_store_xml_below(path);
    if (strcmp(path, "Upload/Key") == 0) {
        hold(&c->name, value);
    } else if (strcmp(path, "Upload/UploadId") == 0) {
        hold(&c->id, value);
    } else if (strcmp(path, "Upload") == 0 && c->name && c->id && c->n < CLEAR_MAX) {
        c->names[c->n] = c->name;
        c->ids[c->n++] = c->id;
        c->name = c->id = NULL;
    }
    return 0;
}

int tern_store_upload_clear(struct tern_store *s, const char *prefix, struct tern_err *err)
{
    struct clear c = {.names = tern_alloc(CLEAR_MAX, sizeof *c.names, "names of uploads", err),
                      .ids = tern_alloc(CLEAR_MAX, sizeof *c.ids, "names of uploads", err)};
    char *root = tern_store_key(s, "x"), *whole = tern_store_key(s, prefix);
    const size_t n_root = strlen(root) - 1;
    struct tern_store_call call = {.method = "GET",
                                   .key = (char *)"",
                                   .what = "cannot list unfinished uploads",
                                   .query = {{"uploads", ""}, {"prefix", whole}},
                                   .n_query = 2,
                                   .text_max = PAGE_BYTES};
    int rc = c.names && c.ids ? ask(s, &call, clear_each, &c, err) : -1;

    for (size_t i = 0; i < c.n; i++) {
        if (rc == 0 && tern_str_starts(c.names[i], whole))
            rc = tern_store_upload_abort(s, c.names[i] + n_root, c.ids[i], err);
        free(c.names[i]);
        free(c.ids[i]);
    }
    free(c.name);
    free(c.id);
    free(c.names);
    free(c.ids);
    free(root);
    free(whole);
    return rc;
}

/* ---- the end ---- */

/* S3 may answer 200 and then report a failure in the body. */
static int check_end(void *ctx, const struct tern_store_reply *r, char why[200],
                     struct tern_err *err)
{
    (void)ctx, (void)err;
    if (r->text.data && strstr(r->text.data, "<CompleteMultipartUploadResult"))
        return 0;
    snprintf(why, 200, "the server did not put the parts together");
    return 1;
}

/* The ETag of an object in parts: the MD5 of their MD5s, and their number. */
static bool parts_etag(const struct tern_store_part *parts, size_t n, char *to, size_t room)
{
    uint8_t digest[TERN_STORE_MD5];
    char hex[2 * TERN_STORE_MD5 + 1];
    struct tern_buf all = {0};
    bool good = true;

    for (size_t i = 0; i < n && good; i++) {
        good = tern_store_etag_md5(parts[i].etag, hex);
        for (size_t k = 0; good && k < TERN_STORE_MD5; k++) {
            const char two[3] = {hex[2 * k], hex[2 * k + 1], '\0'};
            const char byte = (char)strtoul(two, NULL, 16);
            tern_buf_add(&all, &byte, 1);
        }
    }
    good = good && all.data && !all.failed && tern_store_md5(all.data, all.len, digest);
    if (good)
        snprintf(to, room, "\"%s-%zu\"", tern_hex(hex, digest, sizeof digest), n);
    tern_buf_free(&all);
    return good;
}

int tern_store_upload_end(struct tern_store *s, const char *name, const char *id,
                          const struct tern_store_part *parts, size_t n, struct tern_err *err)
{
    struct tern_buf body = {0};
    struct tern_store_call c = {.method = "POST",
                                .key = tern_store_key(s, name),
                                .what = "cannot end an upload",
                                .query = {{"uploadId", id}},
                                .n_query = 1,
                                .check = check_end};
    struct tern_store_reply r;
    struct tern_store_head head;
    char etag[64];
    int rc = tern_store_may_write(s, err);

    tern_buf_puts(&body, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < n; i++) {
        char hex[TERN_STORE_ETAG];
        snprintf(hex, sizeof hex, "%s", parts[i].etag + (parts[i].etag[0] == '"'));
        hex[strcspn(hex, "\"<>&")] = '\0';
        tern_buf_printf(&body,
                        "<Part><PartNumber>%u</PartNumber><ETag>&quot;%s&quot;</ETag></Part>",
                        parts[i].number, hex);
    }
    tern_buf_puts(&body, "</CompleteMultipartUpload>");
    c.body = body.data;
    c.n_body = body.len;
    if (rc == 0)
        rc = tern_buf_check(&body, "a list of parts", err);
    if (rc == 0)
        rc = tern_store_do(s, &c, &r, /* ret_first= */ NULL, err);
    if (rc == 0) {
        const long status = r.status;
        tern_store_reply_free(&r);
        /* No such upload: an earlier try may have ended it, and its answer been lost. */
        if (status / 100 != 2 &&
            (status != 404 || !parts_etag(parts, n, etag, sizeof etag) ||
             tern_store_head(s, name, &head, NULL) != 1 || strcmp(head.etag, etag) != 0))
            rc = tern_store_wrong_status(s, &c, status, err);
    }
    tern_buf_free(&body);
    free(c.key);
    return rc;
}

int tern_store_upload_abort(struct tern_store *s, const char *name, const char *id,
                            struct tern_err *err)
{
    struct tern_store_call c = {.method = "DELETE",
                                .key = tern_store_key(s, name),
                                .what = "cannot abort an upload",
                                .query = {{"uploadId", id}},
                                .n_query = 1};
    struct tern_store_reply r;
    int rc = tern_store_may_write(s, err);

    if (rc == 0)
        rc = tern_store_do(s, &c, &r, /* ret_first= */ NULL, err);
    if (rc == 0)
        tern_store_reply_free(&r);
    free(c.key);
    return rc;
}
