#include "core/store/http.h"

#ifdef TERN_WITH_CURL

#define CURL_DISABLE_DEPRECATION /* the options' newer forms are younger than 7.61 */
#include "core/base/clock.h"
#include "core/base/version.h"

#include <ctype.h>
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IDLE_MAX = 32,            /* connections kept: more threads than that open new ones */
    HEADERS_BYTES = 64 << 10, /* S3 and hubs send below 4 KiB */
    TEXT_BYTES = 64 << 10,
    BUFFER_BYTES = 256 << 10, /* keeps calls below a thousandth of a transfer's time */
};

/* What is used of libcurl, all of it in 7.61. */
static struct {
    __typeof__(curl_global_init) *global_init;
    __typeof__(curl_easy_init) *init;
    __typeof__(curl_easy_setopt) *setopt;
    __typeof__(curl_easy_perform) *perform;
    __typeof__(curl_easy_reset) *reset;
    __typeof__(curl_easy_cleanup) *cleanup;
    __typeof__(curl_easy_strerror) *strerror;
    __typeof__(curl_slist_append) *append;
    __typeof__(curl_slist_free_all) *free_all;
} api;
static const char *load_failed;
#undef curl_easy_setopt

static void load(void)
{
    static const struct {
        const char *name;
        void **to;
    } names[] = {
        {"curl_global_init", (void **)&api.global_init},
        {"curl_easy_init", (void **)&api.init},
        {"curl_easy_setopt", (void **)&api.setopt},
        {"curl_easy_perform", (void **)&api.perform},
        {"curl_easy_reset", (void **)&api.reset},
        {"curl_easy_cleanup", (void **)&api.cleanup},
        {"curl_easy_strerror", (void **)&api.strerror},
        {"curl_slist_append", (void **)&api.append},
        {"curl_slist_free_all", (void **)&api.free_all},
    };
    void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

    load_failed = lib ? NULL : "libcurl.so.4 cannot be loaded";
    for (size_t i = 0; lib && i < sizeof names / sizeof *names; i++) {
        *names[i].to = dlsym(lib, names[i].name);
        if (!*names[i].to)
            load_failed = "libcurl.so.4 lacks a function";
    }
    if (!load_failed && api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        load_failed = "libcurl cannot begin";
}

struct tern_store_http {
    pthread_mutex_t lock;
    CURL *idle[IDLE_MAX];
    size_t n_idle;
};

struct tern_store_http *tern_store_http_new(struct tern_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    if (load_failed) {
        tern_err_set(err, TERN_FAILED, "s3:// and https:// need libcurl: %s. Install libcurl4.",
                     load_failed);
        return NULL;
    }
    struct tern_store_http *h = tern_alloc(1, sizeof *h, "connections", err);
    if (h)
        pthread_mutex_init(&h->lock, NULL);
    return h;
}

void tern_store_http_free(struct tern_store_http *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n_idle; i++)
        api.cleanup(h->idle[i]);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static CURL *borrow(struct tern_store_http *h)
{
    CURL *c = NULL;

    pthread_mutex_lock(&h->lock);
    if (h->n_idle)
        c = h->idle[--h->n_idle];
    pthread_mutex_unlock(&h->lock);
    return c ? c : api.init();
}

static void give_back(struct tern_store_http *h, CURL *c)
{
    api.reset(c); /* connections stay */
    pthread_mutex_lock(&h->lock);
    if (h->n_idle < IDLE_MAX) {
        h->idle[h->n_idle++] = c;
        c = NULL;
    }
    pthread_mutex_unlock(&h->lock);
    if (c)
        api.cleanup(c);
}

/* ---- one transfer ---- */

struct transfer {
    const struct tern_store_request *q;
    struct tern_store_reply *r;
    bool taken;
};

static size_t on_header(char *line, size_t one, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    struct tern_buf *to = &t->r->headers;
    int status;

    (void)one;
    if (n > 9 && memcmp(line, "HTTP/", 5) == 0) {
        /* "HTTP/1.1 206 ...", "HTTP/2 206"; those of an earlier answer (100) are gone. */
        tern_buf_clear(to);
        char head[32];
        snprintf(head, sizeof head, "%.*s", (int)(n < 31 ? n : 31), line);
        t->r->status = sscanf(head, "HTTP/%*[0-9.] %d", &status) == 1 ? status : 0;
        return n;
    }
    if (to->len + n > HEADERS_BYTES) {
        snprintf(t->r->why, sizeof t->r->why, "the server sends endless headers");
        t->taken = true;
        return 0;
    }
    const char *colon = memchr(line, ':', n);
    if (!colon || memchr(line, '\0', (size_t)(colon - line)))
        return n;
    for (const char *p = line; p < colon; p++)
        tern_buf_printf(to, "%c", tolower((unsigned char)*p));
    size_t end = n;
    while (end > 0 && strchr("\r\n \t", line[end - 1]))
        end--;
    const char *value = colon + 1;
    while (value < line + end && (*value == ' ' || *value == '\t'))
        value++;
    tern_buf_puts(to, ": ");
    if (line + end > value && !memchr(value, '\0', (size_t)(line + end - value)))
        tern_buf_add(to, value, (size_t)(line + end - value));
    tern_buf_puts(to, "\n");
    return n;
}

static size_t on_body(char *data, size_t one, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    const size_t most = t->q->text_max ? t->q->text_max : TEXT_BYTES;

    (void)one;
    if (t->r->status / 100 == 2 && t->q->take) {
        if (t->q->take(t->q->ctx, t->r, data, n) == 0)
            return n;
        t->taken = true;
        return n + 1; /* 0 would be fine for n = 0 */
    }
    if (t->r->text.len + n > most) {
        t->r->cut = true;
        if (t->r->status / 100 == 2) {
            snprintf(t->r->why, sizeof t->r->why, "the server's answer is too long");
            t->taken = true;
            return n + 1;
        }
        return n; /* of a failure, the beginning says enough */
    }
    tern_buf_add(&t->r->text, data, n);
    return n;
}

static bool stopped(const struct tern_store_request *q)
{
    return (q->stop && __atomic_load_n(q->stop, __ATOMIC_RELAXED)) ||
           (q->halt && __atomic_load_n(q->halt, __ATOMIC_RELAXED));
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct transfer *t = ctx;

    (void)a, (void)b, (void)c, (void)d;
    return stopped(t->q) || tern_clock_boot_ns() >= t->q->until_ns;
}

/* The newest of each option: 7.61 or older.  */
static void set_options(CURL *c, struct transfer *t, struct curl_slist *headers)
{
    const struct tern_store_request *q = t->q;
    const char *ca = getenv("AWS_CA_BUNDLE") ? getenv("AWS_CA_BUNDLE") : getenv("CURL_CA_BUNDLE");

    api.setopt(c, CURLOPT_URL, q->url);
    api.setopt(c, CURLOPT_PATH_AS_IS, 1L); /* 7.42: ".." of a key stays */
    api.setopt(c, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    api.setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    api.setopt(c, CURLOPT_NOSIGNAL, 1L);
    api.setopt(c, CURLOPT_HTTPHEADER, headers);
    api.setopt(c, CURLOPT_USERAGENT, "tern/" TERN_VERSION);
    api.setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    api.setopt(c, CURLOPT_HEADERDATA, t);
    api.setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    api.setopt(c, CURLOPT_WRITEDATA, t);
    api.setopt(c, CURLOPT_NOPROGRESS, 0L);
    api.setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress); /* 7.32; at least once a second */
    api.setopt(c, CURLOPT_XFERINFODATA, t);
    api.setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(q->connect_s * 1000));
    api.setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    api.setopt(c, CURLOPT_LOW_SPEED_TIME, (long)(q->stall_s < 1 ? 1 : q->stall_s));
    api.setopt(c, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    api.setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    if (ca && *ca)
        api.setopt(c, CURLOPT_CAINFO, ca);
    if (q->fresh)
        api.setopt(c, CURLOPT_FRESH_CONNECT, 1L);
    if (q->direct)
        api.setopt(c, CURLOPT_NOPROXY, "*");
    if (strcmp(q->method, "HEAD") == 0) {
        api.setopt(c, CURLOPT_NOBODY, 1L);
    } else if (q->body || strcmp(q->method, "GET") != 0) {
        api.setopt(c, CURLOPT_POST, 1L);
        api.setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->n_body);
        api.setopt(c, CURLOPT_POSTFIELDS, q->body ? q->body : "");
        api.setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
    }
}

static enum tern_store_end judge(const struct transfer *t, CURLcode rc)
{
    if (stopped(t->q))
        return TERN_STORE_STOPPED;
    if (rc == CURLE_OK)
        return TERN_STORE_ANSWERED;
    if (t->taken)
        return TERN_STORE_TAKEN;
    if (tern_clock_boot_ns() >= t->q->until_ns)
        return TERN_STORE_LATE;
    switch ((int)rc) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case 51: /* CURLE_PEER_FAILED_VERIFICATION before 7.62 */
    case 60: /* CURLE_SSL_CACERT, since then the same */
        return TERN_STORE_NEVER;
    default:
        return TERN_STORE_AGAIN;
    }
}

/* perform(), during which a broken connection raises no SIGPIPE in this thread: OpenSSL writes
 * without MSG_NOSIGNAL. */
static CURLcode perform(CURL *c)
{
    sigset_t pipe_only, before, pending;
    const struct timespec now = {0};

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    const bool was = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    const CURLcode rc = api.perform(c);
    sigpending(&pending);
    if (!was && sigismember(&pending, SIGPIPE) == 1)
        sigtimedwait(&pipe_only, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void tern_store_http_do(struct tern_store_http *h, const struct tern_store_request *q,
                        struct tern_store_reply *ret_reply)
{
    struct transfer t = {.q = q, .r = ret_reply};
    /* No 100-continue (S3 answers at once), no type of a form. */
    struct curl_slist *headers = api.append(NULL, "Expect:");
    CURL *c = borrow(h);

    *ret_reply = (struct tern_store_reply){.headers.max = 2 * HEADERS_BYTES};
    headers = headers ? api.append(headers, "Content-Type:") : NULL;
    for (size_t i = 0; headers && i < q->n_headers; i++)
        headers = api.append(headers, q->headers[i]);
    if (!c || !headers) {
        ret_reply->end = TERN_STORE_NEVER;
        snprintf(ret_reply->why, sizeof ret_reply->why, "no memory for libcurl");
        if (c)
            give_back(h, c);
        return;
    }
    set_options(c, &t, headers);
    const CURLcode rc = perform(c);
    ret_reply->end = judge(&t, rc);
    if (ret_reply->end != TERN_STORE_ANSWERED && !*ret_reply->why)
        snprintf(ret_reply->why, sizeof ret_reply->why, "%s", api.strerror(rc));
    api.free_all(headers);
    give_back(h, c);
}

#else

struct tern_store_http *tern_store_http_new(struct tern_err *err)
{
    tern_err_set(
        err, TERN_USAGE,
        "this tern was built without libcurl, which s3:// and https:// need. Build it "
        "where libcurl's headers are (libcurl4-openssl-dev), or copy the file here first.");
    return NULL;
}

void tern_store_http_free(struct tern_store_http *h)
{
    (void)h;
}

void tern_store_http_do(struct tern_store_http *h, const struct tern_store_request *q,
                        struct tern_store_reply *ret_reply)
{
    (void)h, (void)q;
    *ret_reply = (struct tern_store_reply){.end = TERN_STORE_NEVER};
}

#endif
