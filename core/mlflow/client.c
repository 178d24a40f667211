#include "core/mlflow/client.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/store/http.h"
#include "core/store/url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    URL_MAX = 2000,
    ANSWER_MAX = 256 << 20, /* the history of a metric: a hundred bytes a value */
    CONNECT_S = 10,
    STALL_S = 60, /* a server may think over a batch of a thousand values */
    DEADLINE_S = 600,
    WORDS = 200, /* of a server's message */
};
static const double first_wait_s = 0.2, wait_max_s = 20;

struct tern_mlflow {
    struct tern_store_http *http;
    char *url;           /* without a slash at its end */
    char *authorization; /* a header, or NULL */
    bool direct;         /* to this machine: a proxy would hear the credentials */
    double deadline_s;
    const int *stop;
};

const char *tern_mlflow_url(const struct tern_mlflow *m)
{
    return m->url;
}

/* ---------------------------------------------------------------- opening */

static bool is_host(const char *host, size_t n)
{
    bool good = n > 0 && n <= 255;

    for (size_t i = 0; good && i < n; i++)
        good = isalnum((unsigned char)host[i]) || strchr("-._:[]", host[i]);
    return good;
}

static int check_url(const char *url, bool *ret_secret, struct tern_err *err)
{
    const bool https = tern_str_starts(url, "https://");
    const char *host = https ? url + 8 : url + 7;

    if (!https && !tern_str_starts(url, "http://"))
        return tern_err_set(err, TERN_USAGE,
                            "--mlflow takes the URL of a tracking server: https://HOST or "
                            "http://HOST:PORT");
    const size_t n = strcspn(host, "/?#");
    if (memchr(host, '@', n))
        return tern_err_set(err, TERN_USAGE,
                            "--mlflow: a user or password in the URL would be seen in lists of "
                            "processes. Set MLFLOW_TRACKING_USERNAME and "
                            "MLFLOW_TRACKING_PASSWORD.");
    bool good = strlen(url) <= URL_MAX && is_host(host, n) && !strpbrk(host, "?#");
    for (const char *c = url; *c && good; c++)
        good = *c > ' ' && *c < 127;
    if (!good)
        return tern_err_set(err, TERN_USAGE,
                            "--mlflow: not the URL of a tracking server. Write https://HOST or "
                            "http://HOST:PORT, with a path if the server has one.");
    *ret_secret = https || tern_store_url_loopback(host);
    return 0;
}

static const char *given(const char *name)
{
    const char *s = getenv(name);

    return s && *s ? s : NULL;
}

/* MLflow's own client prefers a user over a token. */
static int read_credentials(struct tern_mlflow *m, bool secret, struct tern_err *err)
{
    const char *user = given("MLFLOW_TRACKING_USERNAME");
    const char *password = given("MLFLOW_TRACKING_PASSWORD"),
               *token = given("MLFLOW_TRACKING_TOKEN");
    const bool basic = user && password;

    if (!basic && !token)
        return 0;
    if (!secret)
        return tern_err_set(err, TERN_USAGE,
                            "%s: credentials are not sent over http:// to another machine. Use "
                            "https://, or unset MLFLOW_TRACKING_*.",
                            m->url);
    for (const char *c = basic ? "" : token; *c; c++)
        if (*c <= ' ' || *c >= 127)
            return tern_err_set(err, TERN_USAGE,
                                "MLFLOW_TRACKING_TOKEN holds characters that no token has");
    if (!basic) {
        m->authorization = tern_strf("Authorization: Bearer %s", token);
        return 0;
    }
    char *both = tern_strf("%s:%s", user, password);
    const size_t n = strlen(both);
    char *text = tern_alloc(4 * ((n + 2) / 3) + 1, 1, "credentials", err);
    if (text) {
        m->authorization =
            tern_strf("Authorization: Basic %s", tern_store_base64(text, (uint8_t *)both, n));
        explicit_bzero(text, strlen(text));
    }
    explicit_bzero(both, n);
    free(both);
    free(text);
    return m->authorization ? 0 : -1;
}

struct tern_mlflow *tern_mlflow_open(const char *url, const int *stop, struct tern_err *err)
{
    const char *deadline = tern_var("TERN_STORE_DEADLINE");
    struct tern_mlflow *m = NULL;
    bool secret = false;

    if (check_url(url, &secret, err) < 0 ||
        !(m = tern_alloc(1, sizeof *m, "a connection to MLflow", err)))
        return NULL;
    size_t n = strlen(url);
    while (n && url[n - 1] == '/')
        n--;
    m->url = tern_strf("%.*s", (int)n, url);
    m->stop = stop;
    m->direct = secret && tern_str_starts(url, "http://");
    m->deadline_s = DEADLINE_S;
    if (deadline && tern_str_real(deadline, 0.001, 1e9, &m->deadline_s) < 0)
        tern_err_set(err, TERN_USAGE, "TERN_STORE_DEADLINE=%s; it takes seconds, above 0",
                     deadline);
    else if (read_credentials(m, secret, err) == 0 && (m->http = tern_store_http_new(err)))
        return m;
    tern_mlflow_close(m);
    return NULL;
}

void tern_mlflow_close(struct tern_mlflow *m)
{
    if (!m)
        return;
    tern_store_http_free(m->http);
    if (m->authorization)
        explicit_bzero(m->authorization, strlen(m->authorization));
    free(m->authorization);
    free(m->url);
    free(m);
}

/* ---------------------------------------------------------------- requests */

int tern_mlflow_pause(struct tern_mlflow *m, struct tern_mlflow_tries *t, struct tern_err *err)
{
    const int64_t now = tern_clock_boot_ns(), until = t->begun_ns + (int64_t)(m->deadline_s * 1e9);

    t->wait_s = t->wait_s ? 2 * t->wait_s : first_wait_s;
    if (t->wait_s > wait_max_s)
        t->wait_s = wait_max_s;
    const int64_t again = now + (int64_t)(t->wait_s * 1e9);
    if (again >= until)
        return tern_err_set(err, TERN_TEMPFAIL, "%s: %s; tried %u times (TERN_STORE_DEADLINE)",
                            m->url, t->why, t->n);
    while (tern_clock_boot_ns() < again) {
        if (m->stop && __atomic_load_n(m->stop, __ATOMIC_RELAXED))
            return tern_err_set(err, TERN_FAILED, "interrupted");
        tern_clock_sleep_ns(20000000);
    }
    return 0;
}

/* A server's own words, in one line; they may be anything, as all texts of errors. */
static void words_of(const struct tern_store_reply *r, const json_t *j, char to[WORDS])
{
    const char *message = json_string_value(json_object_get(j, "message"));

    if (!message || !*message)
        message = j || !r->text.data ? "" : r->text.data;
    snprintf(to, WORDS, "%s%s", *message ? ": " : "", message);
    for (char *c = to; *c; c++)
        if (*c == '\n' || *c == '\r' || *c == '\t')
            *c = ' ';
}

static enum tern_mlflow_answer refuse(struct tern_mlflow *m, const char *call,
                                      const struct tern_store_reply *r, const json_t *j,
                                      struct tern_err *err)
{
    const char *code = json_string_value(json_object_get(j, "error_code"));
    const int n = (int)strcspn(call, "?");
    char words[WORDS], location[WORDS];

    if (code && strcmp(code, "RESOURCE_DOES_NOT_EXIST") == 0)
        return TERN_MLFLOW_ABSENT;
    if (code && strcmp(code, "RESOURCE_ALREADY_EXISTS") == 0)
        return TERN_MLFLOW_THERE;
    words_of(r, j, words);
    if (r->status == 401 || r->status == 403)
        tern_err_set(err, TERN_USAGE,
                     "%s: %.*s: not allowed (%ld)%s. Credentials: MLFLOW_TRACKING_TOKEN, or "
                     "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.",
                     m->url, n, call, r->status, words);
    else if (r->status / 100 == 3)
        tern_err_set(err, TERN_USAGE, "%s: %.*s: the server sends the request elsewhere%s%s",
                     m->url, n, call,
                     *tern_store_reply_header(r, "location", location, WORDS) ? ", to " : "",
                     location);
    else if (!code)
        tern_err_set(err, TERN_USAGE, "%s: %.*s: %ld%s. Is it the URL of an MLflow server?", m->url,
                     n, call, r->status, words);
    else
        tern_err_set(err, TERN_USAGE, "%s: %.*s: %ld %.60s%s", m->url, n, call, r->status, code,
                     words);
    return TERN_MLFLOW_FAILED;
}

static enum tern_mlflow_answer judge(struct tern_mlflow *m, const char *call,
                                     const struct tern_store_reply *r, struct tern_mlflow_tries *t,
                                     json_t **ret_answer, struct tern_err *err)
{
    enum tern_mlflow_answer answer;
    char words[WORDS];

    if (r->end == TERN_STORE_AGAIN || r->end == TERN_STORE_LATE) {
        if (r->end != TERN_STORE_LATE || !*t->why) /* else the last answer says more */
            snprintf(t->why, sizeof t->why, "%.*s: %s", (int)strcspn(call, "?"), call,
                     r->end == TERN_STORE_LATE ? "no answer in time" : r->why);
        return TERN_MLFLOW_AGAIN;
    }
    if (r->end != TERN_STORE_ANSWERED) {
        tern_err_set(err, TERN_FAILED, "%s: %s", m->url,
                     r->end == TERN_STORE_STOPPED ? "interrupted" : r->why);
        return TERN_MLFLOW_FAILED;
    }
    json_t *j = r->text.data && !r->cut
                    ? json_loadb(r->text.data, r->text.len, JSON_REJECT_DUPLICATES, NULL)
                    : NULL;
    if (r->status == 429 || r->status / 100 == 5) {
        words_of(r, j, words);
        snprintf(t->why, sizeof t->why, "%.*s: %ld%s", (int)strcspn(call, "?"), call, r->status,
                 words);
        answer = TERN_MLFLOW_AGAIN;
    } else if (r->status / 100 != 2) {
        answer = refuse(m, call, r, j, err);
    } else if (!json_is_object(j)) {
        tern_mlflow_strange(m, call, err);
        answer = TERN_MLFLOW_FAILED;
    } else {
        answer = TERN_MLFLOW_DONE;
        if (ret_answer)
            *ret_answer = json_incref(j);
    }
    json_decref(j);
    return answer;
}

static enum tern_mlflow_answer ask(struct tern_mlflow *m, const char *call, const json_t *body,
                                   bool fresh, struct tern_mlflow_tries *t, json_t **ret_answer,
                                   struct tern_err *err)
{
    char *headers[] = {"Content-Type: application/json", m->authorization};
    char *url = tern_strf("%s/api/2.0/mlflow/%s", m->url, call);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct tern_store_reply r;

    if (!t->begun_ns)
        t->begun_ns = tern_clock_boot_ns();
    if (body && !text) {
        free(url);
        tern_err_set(err, TERN_TEMPFAIL, "no memory for a request to MLflow");
        return TERN_MLFLOW_FAILED;
    }
    t->n++;
    const struct tern_store_request q = {.method = body ? "POST" : "GET",
                                         .url = url,
                                         .headers = headers,
                                         .n_headers = m->authorization ? 2 : 1,
                                         .body = text,
                                         .n_body = text ? strlen(text) : 0,
                                         .text_max = ANSWER_MAX,
                                         .until_ns = t->begun_ns + (int64_t)(m->deadline_s * 1e9),
                                         .connect_s = CONNECT_S,
                                         .stall_s = STALL_S,
                                         .stop = m->stop,
                                         .direct = m->direct,
                                         .fresh = fresh};
    tern_store_http_do(m->http, &q, &r);
    enum tern_mlflow_answer answer = judge(m, call, &r, t, ret_answer, err);
    tern_store_reply_free(&r);
    free(text);
    free(url);
    return answer;
}

enum tern_mlflow_answer tern_mlflow_try(struct tern_mlflow *m, const char *call, const json_t *body,
                                        struct tern_mlflow_tries *t, json_t **ret_answer,
                                        struct tern_err *err)
{
    return ask(m, call, body, /* fresh= */ true, t, ret_answer, err);
}

enum tern_mlflow_answer tern_mlflow_do(struct tern_mlflow *m, const char *call, const json_t *body,
                                       json_t **ret_answer, struct tern_err *err)
{
    struct tern_mlflow_tries t = {0};
    enum tern_mlflow_answer answer;

    while ((answer = ask(m, call, body, /* fresh= */ false, &t, ret_answer, err)) ==
           TERN_MLFLOW_AGAIN)
        if (tern_mlflow_pause(m, &t, err) < 0)
            return TERN_MLFLOW_FAILED;
    return answer;
}

int tern_mlflow_strange(struct tern_mlflow *m, const char *call, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: %.*s: the answer is not MLflow's. Is it the URL of an MLflow server?",
                        m->url, (int)strcspn(call, "?"), call);
}
