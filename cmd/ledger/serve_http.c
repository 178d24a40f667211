/* HTTP for tern ledger serve, by libmicrohttpd, which is loaded when it is needed. */
#include "cmd/ledger/serve.h"

#ifdef TERN_WITH_MHD

#include <dlfcn.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECTIONS = 16,
    TIMEOUT_S = 20,    /* of a connection that is silent */
    MEMORY = 32 << 10, /* of a connection: its request, headers and all */
};

/* libmicrohttpd 0.9.71 or newer. */
static struct {
    __typeof__(MHD_start_daemon) *start;
    __typeof__(MHD_stop_daemon) *stop;
    __typeof__(MHD_create_response_from_buffer) *response;
    __typeof__(MHD_add_response_header) *header;
    __typeof__(MHD_queue_response) *queue;
    __typeof__(MHD_destroy_response) *destroy;
    __typeof__(MHD_get_connection_values) *values;
} api;

int serve_http_check(struct tern_err *err)
{
    const struct {
        const char *name;
        void **to;
    } names[] = {
        {"MHD_start_daemon", (void **)&api.start},
        {"MHD_stop_daemon", (void **)&api.stop},
        {"MHD_create_response_from_buffer", (void **)&api.response},
        {"MHD_add_response_header", (void **)&api.header},
        {"MHD_queue_response", (void **)&api.queue},
        {"MHD_destroy_response", (void **)&api.destroy},
        {"MHD_get_connection_values", (void **)&api.values},
    };
    void *lib = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *names[i].to = lib ? dlsym(lib, names[i].name) : NULL;
        if (!*names[i].to)
            return tern_err_set(err, TERN_USAGE,
                                "libmicrohttpd.so.12 cannot be loaded. Install libmicrohttpd12, "
                                "or write the page to a file: tern ledger report.");
    }
    return 0;
}

static enum MHD_Result on_header(void *ctx, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    struct serve_request *q = ctx;

    (void)kind;
    if (strcasecmp(name, "Host") == 0) {
        q->n_hosts++;
        q->host = value ? value : "";
    } else if (strcasecmp(name, "Sec-Fetch-Site") == 0) {
        q->site = value ? value : "";
    }
    return MHD_YES;
}

static enum MHD_Result on_argument(void *ctx, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    struct serve_request *q = ctx;

    (void)kind;
    if (strcmp(name, "have") == 0)
        q->have = value;
    else if (strcmp(name, "run") == 0 && q->n_runs < COMPARE_RUNS_MAX - 1 && value)
        q->runs[q->n_runs++] = (char *)value;
    else
        q->too_many = true;
    return MHD_YES;
}

static enum MHD_Result send_answer(struct MHD_Connection *c, struct serve_answer *a)
{
    static const char *const headers[][2] = {
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cache-Control", "no-store"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
    };
    struct MHD_Response *r = api.response(a->len, a->body, MHD_RESPMEM_MUST_FREE);
    /* The page's own policy stands in it: both hold. */
    const char *policy = strncmp(a->type, "text/html", 9) == 0
                             ? "frame-ancestors 'none'"
                             : "default-src 'none'; frame-ancestors 'none'; sandbox";

    if (!r) {
        free(a->body);
        return MHD_NO;
    }
    api.header(r, "Content-Type", a->type);
    api.header(r, "Content-Security-Policy", policy);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        api.header(r, headers[i][0], headers[i][1]);
    if (a->status == 405)
        api.header(r, "Allow", "GET, HEAD");
    if (a->status != 200)
        api.header(r, "Connection", "close");
    const enum MHD_Result rc = api.queue(c, a->status, r);
    api.destroy(r);
    return rc;
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **state)
{
    static int seen;
    struct serve_request q = {.method = method, .path = url};
    struct serve_answer a;

    (void)version, (void)data;
    if (*n_data) /* a body, which no request here has */
        return MHD_NO;
    if (!*state && (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)) {
        *state = &seen; /* the headers are whole: the next call answers */
        return MHD_YES;
    }
    api.values(c, MHD_HEADER_KIND, on_header, &q);
    api.values(c, MHD_GET_ARGUMENT_KIND, on_argument, &q);
    serve_answer(ctx, &q, &a);
    return send_answer(c, &a);
}

/* libmicrohttpd's own complaints are of clients' requests. */
static void on_log(void *ctx, const char *format, va_list ap)
{
    (void)ctx, (void)format, (void)ap;
}

/* Nothing that a page asks for needs an escape, and %00 would hide what stands behind it. */
static size_t leave_escapes(void *ctx, struct MHD_Connection *c, char *text)
{
    (void)ctx, (void)c;
    return strlen(text);
}

int serve_http(struct serve *s, struct tern_err *err)
{
    sigset_t ends;
    int sig = 0;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* in the server's thread, too */
    struct MHD_Daemon *d =
        api.start(MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, s,
                  MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_UNESCAPE_CALLBACK,
                  leave_escapes, NULL, MHD_OPTION_LISTEN_SOCKET, s->fd, MHD_OPTION_CONNECTION_LIMIT,
                  (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S,
                  MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY, MHD_OPTION_END);
    if (!d)
        return tern_err_set(err, TERN_FAILED, "libmicrohttpd does not start");
    sigwait(&ends, &sig);
    api.stop(d);
    return sig == SIGHUP ? 128 + sig : 0;
}

#else

int serve_http_check(struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "this tern was built without libmicrohttpd, which serve needs. Build it "
                        "where libmicrohttpd's headers are (libmicrohttpd-dev), or write the page "
                        "to a file: tern ledger report.");
}

int serve_http(struct serve *s, struct tern_err *err)
{
    (void)s;
    return serve_http_check(err);
}

#endif
