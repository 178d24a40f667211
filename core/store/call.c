#include "core/store/call.h"

#include "core/base/clock.h"
#include "core/base/rand.h"
#include "core/store/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    CONNECT_S = 10,
    BACKOFF_MAX_S = 20,
    REDIRECTS_MAX = 5,
    LINE_BYTES = 2048, /* of a header that is looked at */
};

/* The tries of one call. */
struct tries {
    struct tern_store *s;
    struct tern_store_call *c;
    char *shown;
    int64_t begun_ns, until_ns;
    double wait_s;
    unsigned n, skewed, moved, refused;
    char region[64]; /* that the answer tells */
    char asked[64];  /* of the request */
    struct tern_store_credentials keys;
    char why[200]; /* of the last failure */
    char code[64]; /* S3's word for it, or "" */
};

/* ---- one request ---- */

struct made {
    char *url;
    char *headers[TERN_STORE_HEADERS + 6];
    size_t n;
};

static void made_free(struct made *m)
{
    free(m->url);
    for (size_t i = 0; i < m->n; i++) {
        explicit_bzero(m->headers[i], strlen(m->headers[i]));
        free(m->headers[i]);
    }
    *m = (struct made){0};
}

static void add_header(struct made *m, const char *name, const char *value)
{
    if (m->n < sizeof m->headers / sizeof *m->headers)
        m->headers[m->n++] = tern_strf("%s: %s", name, value);
}

/* Scheme and host of S3, and the path that stands before the key. */
static void s3_address(const struct tries *t, char **ret_scheme, char **ret_host, char **ret_path)
{
    const struct tern_store *s = t->s;
    const char *bucket = s->url.host;

    if (!s->endpoint) {
        const char *end = tern_str_starts(t->region, "cn-") ? ".cn" : "";
        *ret_scheme = tern_strdup("https://");
        *ret_host = s->path_style ? tern_strf("s3.%s.amazonaws.com%s", t->region, end)
                                  : tern_strf("%s.s3.%s.amazonaws.com%s", bucket, t->region, end);
        *ret_path =
            s->path_style ? tern_strf("/%s/%s", bucket, t->c->key) : tern_strf("/%s", t->c->key);
        return;
    }
    const char *host = strstr(s->endpoint, "://") + 3;
    const size_t n = strcspn(host, "/");
    *ret_scheme = tern_strf("%.*s", (int)(host - s->endpoint), s->endpoint);
    *ret_host = s->path_style ? tern_strf("%.*s", (int)n, host)
                              : tern_strf("%s.%.*s", bucket, (int)n, host);
    *ret_path = s->path_style ? tern_strf("%s/%s/%s", host + n, bucket, t->c->key)
                              : tern_strf("%s/%s", host + n, t->c->key);
}

/* "host:443" is sent as "host". */
static void drop_port(const char *scheme, char *host)
{
    const char *port = strcmp(scheme, "https://") == 0 ? ":443" : ":80";

    if (tern_str_ends(host, port))
        host[strlen(host) - strlen(port)] = '\0';
}

static int make_s3(struct tries *t, struct made *m, struct tern_err *err)
{
    struct tern_store_call *c = t->c;
    struct tern_store_pair headers[TERN_STORE_HEADERS + 4];
    struct tern_buf url = {0}, authorization = {0};
    char *scheme, *host, *path, time_text[20], hex[TERN_SHA256_HEX];
    uint8_t digest[TERN_SHA256_BYTES];
    size_t n = 0;
    struct tm tm;

    pthread_mutex_lock(&t->s->lock);
    snprintf(t->region, sizeof t->region, "%s", t->s->region);
    snprintf(t->asked, sizeof t->asked, "%s", t->s->region);
    const time_t now = (time_t)(tern_clock_wall_ns() / 1000000000 + t->s->skew_s);
    pthread_mutex_unlock(&t->s->lock);
    s3_address(t, &scheme, &host, &path);
    drop_port(scheme, host);
    tern_buf_printf(&url, "%s%s", scheme, host);
    tern_store_encode(&url, path, /* slashes= */ true);
    if (c->n_query) {
        tern_buf_puts(&url, "?");
        tern_store_query(&url, c->query, c->n_query);
    }
    for (; n < c->n_headers; n++)
        headers[n] = c->headers[n];
    if (t->s->provider) {
        gmtime_r(&now, &tm);
        strftime(time_text, sizeof time_text, "%Y%m%dT%H%M%SZ", &tm);
        tern_sha256(c->body ? c->body : "", c->n_body, digest);
        tern_hex(hex, digest, sizeof digest);
        headers[n++] = (struct tern_store_pair){"x-amz-content-sha256", hex};
        headers[n++] = (struct tern_store_pair){"x-amz-date", time_text};
        if (t->keys.token)
            headers[n++] = (struct tern_store_pair){"x-amz-security-token", t->keys.token};
        const struct tern_store_sign sign = {.method = c->method,
                                             .host = host,
                                             .path = path,
                                             .query = c->query,
                                             .n_query = c->n_query,
                                             .headers = headers,
                                             .n_headers = n,
                                             .payload = hex,
                                             .access = t->keys.access,
                                             .secret = t->keys.secret,
                                             .region = t->region,
                                             .service = "s3",
                                             .time = time_text};
        tern_store_sign(&sign, &authorization);
    }
    for (size_t i = 0; i < n; i++)
        add_header(m, headers[i].name, headers[i].value);
    if (authorization.data)
        add_header(m, "Authorization", authorization.data);
    const int rc = tern_buf_check(&url, "a URL", err);
    m->url = rc == 0 ? tern_strdup(url.data) : NULL;
    tern_buf_free(&url);
    tern_buf_free(&authorization);
    free(scheme);
    free(host);
    free(path);
    return rc;
}

/* `at`: where redirects have led. */
static int make_http(struct tries *t, const struct tern_store_url *at, struct made *m,
                     struct tern_err *err)
{
    struct tern_buf url = {0};
    const char *prefix = at->scheme == TERN_STORE_HTTPS ? "https://" : "http://";

    tern_buf_printf(&url, "%s%s%s", prefix, at->host, at->path);
    if (at == &t->s->url && *t->c->key) {
        if (!tern_str_ends(at->path, "/"))
            tern_buf_puts(&url, "/");
        tern_store_encode(&url, t->c->key, /* slashes= */ true);
    }
    if (at->query)
        tern_buf_printf(&url, "?%s", at->query);
    for (size_t i = 0; i < t->c->n_headers; i++)
        add_header(m, t->c->headers[i].name, t->c->headers[i].value);
    /* The token is for the host that the user named, over the same scheme. */
    if (t->s->bearer && at->scheme == t->s->url.scheme && strcmp(at->host, t->s->url.host) == 0)
        add_header(m, "Authorization", t->s->bearer);
    const int rc = tern_buf_check(&url, "a URL", err);
    m->url = rc == 0 ? tern_strdup(url.data) : NULL;
    tern_buf_free(&url);
    return rc;
}

static void begin(const struct tries *t)
{
    if (t->c->begin)
        t->c->begin(t->c->ctx);
}

static void send_it(struct tries *t, struct made *m, struct tern_store_reply *r)
{
    const struct tern_store_request q = {
        .method = t->c->method,
        .url = m->url,
        .headers = m->headers,
        .n_headers = m->n,
        .body = t->c->body,
        .n_body = t->c->n_body,
        .take = t->c->take,
        .ctx = t->c->ctx,
        .text_max = t->c->text_max,
        .until_ns = t->until_ns,
        .connect_s = CONNECT_S,
        .stall_s = t->s->how.stall_s,
        .stop = t->s->how.stop,
        .halt = &t->s->halted,
        .direct = t->s->url.scheme == TERN_STORE_HTTP ||
                  (t->s->endpoint && tern_store_url_loopback(strstr(t->s->endpoint, "://") + 3)),
    };

    tern_store_http_do(t->s->http, &q, r);
    made_free(m);
}

/* https: through its redirects. */
static int send_http(struct tries *t, struct tern_store_reply *r, struct tern_buf *first,
                     struct tern_err *err)
{
    struct tern_store_url to = {0};
    struct made m = {0};
    char location[LINE_BYTES * 2];
    int rc = 0;

    for (int i = 0;; i++) {
        const struct tern_store_url *at = i ? &to : &t->s->url;
        begin(t);
        rc = make_http(t, at, &m, err);
        if (rc < 0)
            break;
        tern_store_reply_free(r);
        send_it(t, &m, r);
        if (i == 0 && first) {
            tern_buf_clear(first);
            if (r->headers.data)
                tern_buf_puts(first, r->headers.data);
        }
        if (r->end != TERN_STORE_ANSWERED || r->status < 301 || r->status > 308 || r->status == 304)
            break;
        tern_store_reply_header(r, "location", location, sizeof location);
        if (i == REDIRECTS_MAX || !*location) {
            rc = tern_err_set(err, TERN_FAILED, "%s: %s: the server redirects without an end",
                              t->shown, t->c->what);
            break;
        }
        struct tern_store_url next = {0};
        rc = tern_store_url_redirect(at, location, &next, err);
        tern_store_url_free(&to);
        to = next;
        if (rc < 0)
            break;
    }
    made_free(&m);
    tern_store_url_free(&to);
    return rc;
}

static int send_s3(struct tries *t, struct tern_store_reply *r, struct tern_err *err)
{
    struct made m = {0};

    if (t->s->provider &&
        tern_store_provider_get(t->s->provider, t->refused ? t->keys.access : NULL, &t->keys, err) <
            0)
        return -1;
    begin(t);
    if (make_s3(t, &m, err) < 0) {
        made_free(&m);
        return -1;
    }
    tern_store_reply_free(r);
    send_it(t, &m, r);
    return 0;
}

/* ---- what an answer means ---- */

static int find_code(void *ctx, const char *path, const char *value)
{
    struct tries *t = ctx;

    if (strcmp(path, "Error/Code") == 0 && strlen(value) < sizeof t->code &&
        strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.") ==
            strlen(value))
        snprintf(t->code, sizeof t->code, "%s", value);
    if (strcmp(path, "Error/Region") == 0 && strlen(value) < sizeof t->region)
        snprintf(t->region, sizeof t->region, "%s", value);
    return 0;
}

/* The code, and the region that an answer tells, into `t`. */
static void read_answer(struct tries *t, struct tern_store_reply *r)
{
    char region[64];

    t->code[0] = '\0';
    if (r->text.data && r->status / 100 != 2)
        tern_store_xml(r->text.data, r->text.len, t->shown, find_code, t, NULL);
    if (*tern_store_reply_header(r, "x-amz-bucket-region", region, sizeof region))
        snprintf(t->region, sizeof t->region, "%s", region);
    if (r->end == TERN_STORE_ANSWERED)
        snprintf(t->why, sizeof t->why, "the server answers %ld%s%s", r->status,
                 *t->code ? " " : "", t->code);
    else if (r->end != TERN_STORE_LATE)
        snprintf(t->why, sizeof t->why, "%s", r->why);
    else if (!*t->why)
        snprintf(t->why, sizeof t->why, "no answer in time");
}

/* The bucket lies in another region than this request went to.  Another thread may know by now. */
static bool region_moved(struct tries *t, const struct tern_store_reply *r)
{
    if (r->status != 301 && r->status != 307 && r->status != 400)
        return false;
    if (strspn(t->region, "abcdefghijklmnopqrstuvwxyz0123456789-") < strlen(t->region))
        return false;
    if (!*t->region || strcmp(t->region, t->asked) == 0)
        return false;
    pthread_mutex_lock(&t->s->lock);
    snprintf(t->s->region, sizeof t->s->region, "%s", t->region);
    pthread_mutex_unlock(&t->s->lock);
    return true;
}

/* Our clock is wrong: the server's is taken. */
static bool clock_moved(struct tries *t, const struct tern_store_reply *r)
{
    char date[64];
    struct tm tm = {0};

    if (strcmp(t->code, "RequestTimeTooSkewed") != 0 ||
        !strptime(tern_store_reply_header(r, "date", date, sizeof date), "%a, %d %b %Y %H:%M:%S",
                  &tm))
        return false;
    pthread_mutex_lock(&t->s->lock);
    t->s->skew_s = (int64_t)timegm(&tm) - tern_clock_wall_ns() / 1000000000;
    pthread_mutex_unlock(&t->s->lock);
    return true;
}

static bool passing_status(const struct tries *t, long status)
{
    static const char *const codes[] = {"SlowDown",           "RequestTimeout", "InternalError",
                                        "ServiceUnavailable", "BadDigest",      "OperationAborted"};

    if (status == 429 || status == 408 || (status >= 500 && status != 501))
        return true;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(t->code, codes[i]) == 0)
            return true;
    return false;
}

static int refuse(struct tries *t, const struct tern_store_reply *r, struct tern_err *err)
{
    const char *help = "";

    if (r->end == TERN_STORE_STOPPED)
        return tern_err_set(err, TERN_FAILED, "%s: %s: interrupted", t->shown, t->c->what);
    if (r->status == 401 || r->status == 403)
        help = t->s->denied ? t->s->denied
               : t->s->url.scheme == TERN_STORE_S3
                   ? ". The credentials, or the bucket's policy, do not "
                     "allow it."
                   : ". It wants other credentials.";
    return tern_err_set(err, r->end == TERN_STORE_ANSWERED ? TERN_USAGE : TERN_FAILED,
                        "%s: %s: %s%s", t->shown, t->c->what, t->why, help);
}

/* What is done about an answer: 0: it is good; 1: at once again; 2: later again; -1. */
static int judge(struct tries *t, struct tern_store_reply *r, struct tern_err *err)
{
    const bool s3 = t->s->url.scheme == TERN_STORE_S3;

    read_answer(t, r);
    if (r->end == TERN_STORE_AGAIN || r->end == TERN_STORE_LATE)
        return 2;
    if (r->end == TERN_STORE_TAKEN || (r->end == TERN_STORE_ANSWERED && r->status / 100 == 2)) {
        if (t->c->check) {
            const int rc = t->c->check(t->c->ctx, r, t->why, err);
            if (rc != 0)
                return rc < 0 ? -1 : 2;
        }
        return r->end == TERN_STORE_ANSWERED ? 0 : refuse(t, r, err);
    }
    if (r->end != TERN_STORE_ANSWERED)
        return refuse(t, r, err);
    if (s3 && t->moved < 2 && region_moved(t, r)) {
        t->moved++;
        return 1;
    }
    if (s3 && t->skewed < 1 && clock_moved(t, r)) {
        t->skewed++;
        return 1;
    }
    if (s3 && t->refused < 1 &&
        (strcmp(t->code, "ExpiredToken") == 0 || strcmp(t->code, "InvalidToken") == 0)) {
        t->refused++;
        return 1;
    }
    if (passing_status(t, r->status))
        return 2;
    if (r->status == 404 || r->status == 412 || r->status == 416)
        return 0;
    return refuse(t, r, err);
}

static bool stopped(const struct tern_store *s)
{
    return (s->how.stop && __atomic_load_n(s->how.stop, __ATOMIC_RELAXED)) ||
           __atomic_load_n(&s->halted, __ATOMIC_RELAXED);
}

/* Decorrelated jitter: a random wait between the first one and three times the last one
 * (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), or as long as the
 * server asks for.  -1 where the call's time ends before. */
static int wait_for_next(struct tries *t, const struct tern_store_reply *r, struct tern_err *err)
{
    const double first = t->s->how.backoff_s;
    char text[32], took[32];
    double asked = 0;
    uint64_t random;

    tern_rand_system(&random, sizeof random);
    t->wait_s = first + (3 * t->wait_s - first) * ((double)(random >> 11) / 9007199254740992.0);
    if (tern_str_real(tern_store_reply_header(r, "retry-after", text, sizeof text), 0, 1e6,
                      &asked) == 0 &&
        asked > t->wait_s)
        t->wait_s = asked;
    if (t->wait_s > BACKOFF_MAX_S)
        t->wait_s = BACKOFF_MAX_S;
    const int64_t again_ns = tern_clock_boot_ns() + (int64_t)(t->wait_s * 1e9);
    if (again_ns >= t->until_ns)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: %s: %s; tried %u times in %s (TERN_STORE_DEADLINE)", t->shown,
                            t->c->what, t->why, t->n,
                            tern_str_seconds(took, sizeof took,
                                             (double)(tern_clock_boot_ns() - t->begun_ns) / 1e9));
    for (int64_t left; (left = again_ns - tern_clock_boot_ns()) > 0;) {
        if (stopped(t->s))
            return tern_err_set(err, TERN_FAILED, "%s: %s: interrupted", t->shown, t->c->what);
        tern_clock_sleep_ns(left < 50000000 ? left : 50000000);
    }
    return 0;
}

int tern_store_do(struct tern_store *s, struct tern_store_call *c,
                  struct tern_store_reply *ret_reply, struct tern_buf *ret_first,
                  struct tern_err *err)
{
    const bool s3 = s->url.scheme == TERN_STORE_S3;
    struct tries t = {.s = s,
                      .c = c,
                      .begun_ns = tern_clock_boot_ns(),
                      .wait_s = s->how.backoff_s,
                      .shown = tern_store_shown(s, c->key)};
    struct tern_store_reply r = {0};
    int rc;

    t.until_ns = t.begun_ns + (int64_t)(s->how.deadline_s * 1e9);
    for (;;) {
        struct tern_store_credentials old = t.keys;
        t.n++;
        rc = s3 ? send_s3(&t, &r, err) : send_http(&t, &r, ret_first, err);
        if (s3 && s->provider && old.access && old.access != t.keys.access)
            tern_store_credentials_free(&old);
        if (rc == 0)
            rc = judge(&t, &r, err);
        if (rc == 2)
            rc = wait_for_next(&t, &r, err) < 0 ? -1 : 1;
        if (rc != 1)
            break;
    }
    tern_store_credentials_free(&t.keys);
    free(t.shown);
    if (rc < 0)
        tern_store_reply_free(&r);
    else
        *ret_reply = r;
    return rc;
}
