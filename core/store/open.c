/* Opening a store: its endpoint, region and limits; keys and what messages call them. */
#include "core/store/call.h"

#include "core/base/vars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DEADLINE_S = 600 }; /* a part of 64 MiB at 1 Mbit/s */

static int set_how(struct tern_store *s, const struct tern_store_how *how, struct tern_err *err)
{
    const char *deadline = tern_var("TERN_STORE_DEADLINE");

    if (how)
        s->how = *how;
    if (s->how.denied)
        s->denied = tern_strdup(s->how.denied);
    if (s->how.bearer)
        s->bearer = tern_strf("Bearer %s", s->how.bearer);
    if (s->bearer && strpbrk(s->bearer, "\r\n"))
        return tern_err_set(err, TERN_USAGE, "%s: its token has several lines", s->url.shown);
    if (!(s->how.deadline_s > 0)) {
        s->how.deadline_s = DEADLINE_S;
        if (deadline && tern_str_real(deadline, 0.001, 1e6, &s->how.deadline_s) < 0)
            return tern_err_set(err, TERN_USAGE,
                                "TERN_STORE_DEADLINE=%s; it takes seconds, above 0", deadline);
    }
    if (!(s->how.stall_s > 0))
        s->how.stall_s = 30;
    if (!(s->how.backoff_s > 0))
        s->how.backoff_s = 0.1;
    return 0;
}

/* "http://host:port/path": nothing behind it. */
static int set_endpoint(struct tern_store *s, const char *text, struct tern_err *err)
{
    struct tern_store_url u = {0};
    size_t n = strlen(text);

    /* A site's own store may be without TLS: the user said so. */
    char *as_https =
        tern_str_starts(text, "http://") ? tern_strf("https://%s", text + 7) : tern_strdup(text);
    const int rc = tern_store_url_parse(as_https, &u, NULL);
    const bool good = rc == 0 && u.scheme == TERN_STORE_HTTPS && !u.query;
    if (rc == 0)
        tern_store_url_free(&u);
    free(as_https);
    if (!good)
        return tern_err_set(err, TERN_USAGE,
                            "the endpoint of S3 (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or "
                            "endpoint_url of the profile) is not a URL such as https://HOST:PORT");
    while (n && text[n - 1] == '/')
        n--;
    s->endpoint = tern_strf("%.*s", (int)n, text);
    return 0;
}

static bool host_can_have(const char *bucket)
{
    for (const char *p = bucket; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '-'))
            return false; /* a dot, too: the certificate does not hold for it */
    return strlen(bucket) >= 3 && strlen(bucket) <= 63;
}

/* The first of the variables, else the profile's value; malloc'ed or NULL. */
static int setting(const char *first, const char *second, const char *under, const char *key,
                   char **ret_value, struct tern_err *err)
{
    const char *v = first ? getenv(first) : NULL;

    if ((!v || !*v) && second)
        v = getenv(second);
    if (v && *v) {
        *ret_value = tern_strdup(v);
        return 0;
    }
    return tern_store_config(under, key, ret_value, err);
}

static int open_s3(struct tern_store *s, struct tern_err *err)
{
    const char *anonymous = tern_var("TERN_S3_ANONYMOUS");
    char *region = NULL, *endpoint = NULL, *style = NULL;
    int rc = -1;

    if (setting("AWS_REGION", "AWS_DEFAULT_REGION", NULL, "region", &region, err) < 0 ||
        setting("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL, "endpoint_url", &endpoint, err) <
            0 ||
        setting(NULL, NULL, "s3", "addressing_style", &style, err) < 0)
        goto out;
    /* Where none is set, the first answer tells the bucket's. */
    snprintf(s->region, sizeof s->region, "%s", region ? region : "us-east-1");
    if (strspn(s->region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") <
        strlen(s->region)) {
        tern_err_set(err, TERN_USAGE, "AWS_REGION, or region of the profile: not a region's name");
        goto out;
    }
    if (endpoint && set_endpoint(s, endpoint, err) < 0)
        goto out;
    s->path_style = style && strcmp(style, "path") == 0      ? true
                    : style && strcmp(style, "virtual") == 0 ? false
                                                             : endpoint != NULL;
    if (!host_can_have(s->url.host))
        s->path_style = true;
    if (!anonymous || strcmp(anonymous, "0") == 0) {
        s->provider = tern_store_provider_new(s->http, s->how.stop, err);
        if (!s->provider)
            goto out;
    }
    rc = 0;
out:
    free(region);
    free(endpoint);
    free(style);
    return rc;
}

struct tern_store *tern_store_open(const char *url, const struct tern_store_how *how,
                                   struct tern_err *err)
{
    struct tern_store *s = tern_alloc(1, sizeof *s, "a store", err);

    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    if (tern_store_url_parse(url, &s->url, err) < 0 || set_how(s, how, err) < 0)
        goto fail;
    s->http = tern_store_http_new(err);
    if (!s->http) {
        tern_err_prefix(err, "%s", s->url.shown);
        goto fail;
    }
    if (s->url.scheme == TERN_STORE_S3 && open_s3(s, err) < 0)
        goto fail;
    return s;
fail:
    tern_store_close(s);
    return NULL;
}

void tern_store_close(struct tern_store *s)
{
    if (!s)
        return;
    tern_store_provider_free(s->provider);
    tern_store_http_free(s->http);
    if (s->bearer)
        explicit_bzero(s->bearer, strlen(s->bearer));
    free(s->bearer);
    free(s->denied);
    free(s->endpoint);
    tern_store_url_free(&s->url);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void tern_store_halt(struct tern_store *s)
{
    if (s)
        __atomic_store_n(&s->halted, 1, __ATOMIC_RELAXED);
}

const char *tern_store_url(const struct tern_store *s)
{
    return s->url.shown;
}

bool tern_store_writes(const struct tern_store *s)
{
    return s->url.scheme == TERN_STORE_S3;
}

char *tern_store_key(const struct tern_store *s, const char *name)
{
    const char *root = s->url.scheme == TERN_STORE_S3 ? s->url.path : "";

    if (!name || !*name)
        return tern_strdup(root);
    return *root && !tern_str_ends(root, "/") ? tern_strf("%s/%s", root, name)
                                              : tern_strf("%s%s", root, name);
}

/* Parameters of presigned URLs, which differ each time that one object is signed. */
static const char *const SIGNED_S3[] = {"AWSAccessKeyId", "GoogleAccessId", "Key-Pair-Id", "Policy",
                                        "Expires",        "Signature",      NULL};
static const char *const SIGNED_AZURE[] = {"sv",  "ss",  "srt", "sr",  "sp",    "se",
                                           "st",  "sip", "spr", "sig", "skoid", "sktid",
                                           "skt", "ske", "sks", "skv", NULL};

/* Has a query the parameter `name`?  Its names are those before '='. */
static bool has_param(const char *query, const char *name)
{
    const size_t len = strlen(name);

    for (const char *p = query; *p; p += strcspn(p, "&"), p += *p == '&')
        if (strncasecmp(p, name, len) == 0 && p[len] == '=')
            return true;
    return false;
}

/* Is the parameter at `p` part of the signature of its query? */
static bool is_signature(const char *query, const char *p)
{
    const char *const *names = has_param(query, "Signature") ? SIGNED_S3
                               : has_param(query, "sig")     ? SIGNED_AZURE
                                                             : NULL;

    if (strncasecmp(p, "X-Amz-", 6) == 0 || strncasecmp(p, "X-Goog-", 7) == 0)
        return true;
    for (; names && *names; names++)
        if (strncasecmp(p, *names, strlen(*names)) == 0 && p[strlen(*names)] == '=')
            return true;
    return false;
}

char *tern_store_place(const struct tern_store *s)
{
    const char *query = s->url.query ? s->url.query : "";
    struct tern_buf place = {0};

    tern_buf_printf(&place, "%s\n%s\n", s->endpoint ? s->endpoint : "", s->url.shown);
    for (const char *p = query; *p;) {
        const size_t n = strcspn(p, "&");
        if (!is_signature(query, p))
            tern_buf_printf(&place, "%.*s&", (int)n, p);
        p += n + (p[n] == '&');
    }
    return place.data;
}

char *tern_store_shown(const struct tern_store *s, const char *key)
{
    char *shown;

    if (s->url.scheme == TERN_STORE_S3)
        shown = tern_strf("s3://%s/%s", s->url.host, key);
    else
        shown = tern_strf("%s%s%s", s->url.shown,
                          *key && !tern_str_ends(s->url.shown, "/") ? "/" : "", key);
    tern_str_mask(shown);
    return shown;
}
