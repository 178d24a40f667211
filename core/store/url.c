#include "core/store/url.h"

#include "core/store/store.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { URL_MAX = 8192 };

static const struct {
    const char *prefix;
    enum tern_store_scheme scheme;
} schemes[] = {
    {"s3://", TERN_STORE_S3}, {"https://", TERN_STORE_HTTPS}, {"http://", TERN_STORE_HTTP}};

bool tern_store_is(const char *path)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (tern_str_starts(path, schemes[i].prefix))
            return true;
    return false;
}

bool tern_store_url_loopback(const char *host)
{
    const size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    unsigned part[4];
    char dot;

    if ((n == 9 && memcmp(host, "localhost", n) == 0) || (n == 5 && memcmp(host, "[::1]", n) == 0))
        return true;
    char text[16];
    if (n >= sizeof text)
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    return sscanf(text, "%3u.%3u.%3u.%3u%c", &part[0], &part[1], &part[2], &part[3], &dot) == 4 &&
           part[0] == 127;
}

static int copy(char **to, const char *s, size_t n, struct tern_err *err)
{
    *to = tern_alloc(n + 1, 1, "a URL", err);
    if (!*to)
        return -1;
    memcpy(*to, s, n);
    return 0;
}

void tern_store_url_free(struct tern_store_url *u)
{
    free(u->host);
    free(u->path);
    free(u->query);
    free(u->shown);
    *u = (struct tern_store_url){0};
}

static bool good_bucket(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-._", s[i]))
            return false;
    return n > 0 && n <= 255 && s[0] != '.' && s[0] != '-';
}

static int parse_s3(const char *rest, struct tern_store_url *u, struct tern_err *err)
{
    const size_t n = strcspn(rest, "/");
    const char *key = rest[n] ? rest + n + 1 : rest + n;

    if (!good_bucket(rest, n))
        return tern_err_set(err, TERN_USAGE,
                            "s3://%.*s: not a bucket's name. Write s3://BUCKET/KEY.",
                            (int)(n < 80 ? n : 80), rest);
    if (strlen(key) > 1024)
        return tern_err_set(err, TERN_USAGE, "s3://%.*s: a key has at most 1024 bytes", (int)n,
                            rest);
    if (copy(&u->host, rest, n, err) < 0 || copy(&u->path, key, strlen(key), err) < 0)
        return -1;
    u->shown = tern_strf("s3://%s/%s", u->host, u->path);
    return 0;
}

static int parse_http(const char *rest, struct tern_store_url *u, struct tern_err *err)
{
    const char *prefix = u->scheme == TERN_STORE_HTTPS ? "https" : "http";
    const size_t n = strcspn(rest, "/?#");
    const char *path = rest + n;
    const size_t n_path = strcspn(path, "?#");
    const char *query = path[n_path] == '?' ? path + n_path + 1 : NULL;

    if (memchr(rest, '@', n))
        return tern_err_set(err, TERN_USAGE,
                            "a URL with a user or password before the host: it would be seen in "
                            "lists of processes and in logs. Give the URL without it.");
    if (n == 0 || n > 255)
        return tern_err_set(err, TERN_USAGE, "%s://: a URL without a host", prefix);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)rest[i]) && !strchr("-._:[]", rest[i]))
            return tern_err_set(err, TERN_USAGE, "%s://%.*s: not a host's name", prefix, (int)n,
                                rest);
    if (copy(&u->host, rest, n, err) < 0 ||
        (n_path ? copy(&u->path, path, n_path, err) : copy(&u->path, "/", 1, err)) < 0 ||
        (query && copy(&u->query, query, strcspn(query, "#"), err) < 0))
        return -1;
    u->shown = tern_strf("%s://%s%s", prefix, u->host, u->path);
    if (u->scheme == TERN_STORE_HTTP && !tern_store_url_loopback(u->host))
        return tern_err_set(err, TERN_USAGE,
                            "%s: http:// is read from this machine alone, since others could "
                            "change it on its way. Use https://.",
                            u->shown);
    return 0;
}

int tern_store_url_parse(const char *text, struct tern_store_url *ret_url, struct tern_err *err)
{
    struct tern_store_url u = {0};
    const size_t n = strlen(text);

    if (n > URL_MAX)
        return tern_err_set(err, TERN_USAGE, "a URL of %zu bytes; at most %d are read", n, URL_MAX);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const size_t skip = strlen(schemes[i].prefix);
        if (strncmp(text, schemes[i].prefix, skip) != 0)
            continue;
        u.scheme = schemes[i].scheme;
        for (size_t k = 0; k < n; k++)
            if ((unsigned char)text[k] < (u.scheme == TERN_STORE_S3 ? ' ' : '!') || text[k] == 127)
                return tern_err_set(err, TERN_USAGE,
                                    "a URL with a blank or a control character at byte %zu; write "
                                    "%%20 for a blank",
                                    k);
        if ((u.scheme == TERN_STORE_S3 ? parse_s3 : parse_http)(text + skip, &u, err) < 0) {
            tern_store_url_free(&u);
            return -1;
        }
        *ret_url = u;
        return 0;
    }
    return tern_err_set(err, TERN_USAGE, "%.80s: not a URL. Allowed are s3:// and https://.", text);
}

int tern_store_url_redirect(const struct tern_store_url *from, const char *location,
                            struct tern_store_url *ret_url, struct tern_err *err)
{
    const char *prefix = from->scheme == TERN_STORE_HTTPS ? "https://" : "http://";
    struct tern_err why = {0};
    char *text;

    if (tern_str_starts(location, "//"))
        text = tern_strf("%s%s", prefix, location + 2);
    else if (location[0] == '/')
        text = tern_strf("%s%s%s", prefix, from->host, location);
    else
        text = tern_strdup(location);
    int rc = tern_str_starts(text, "https://") ||
                     (from->scheme == TERN_STORE_HTTP && tern_str_starts(text, "http://"))
                 ? tern_store_url_parse(text, ret_url, &why)
                 : -1;
    if (rc < 0)
        tern_err_set(err, TERN_USAGE,
                     "%s: the server redirects to another kind of address than https://, which is "
                     "not followed",
                     from->shown);
    free(text);
    return rc;
}

void tern_store_encode(struct tern_buf *to, const char *s, bool slashes)
{
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if ((c < 128 && isalnum(c)) || strchr("-._~", c) || (slashes && c == '/'))
            tern_buf_add(to, s, 1);
        else
            tern_buf_printf(to, "%%%02X", c);
    }
}

int tern_store_decode(char *s)
{
    char *to = s;

    for (; *s; s++) {
        if (*s == '+') {
            *to++ = ' ';
        } else if (*s != '%') {
            *to++ = *s;
        } else {
            if (!isxdigit((unsigned char)s[1]) || !isxdigit((unsigned char)s[2]))
                return -1;
            const char hex[3] = {s[1], s[2], '\0'};
            *to = (char)strtoul(hex, NULL, 16);
            if (!*to++)
                return -1;
            s += 2;
        }
    }
    *to = '\0';
    return 0;
}

char *tern_store_base64(char *to, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *p = to;

    for (size_t i = 0; i < n; i += 3) {
        const size_t have = n - i < 3 ? n - i : 3;
        const uint32_t w = (uint32_t)bytes[i] << 16 | (have > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                           (have > 2 ? bytes[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            *p++ = k <= have ? digits[w >> (18 - 6 * k) & 63] : '=';
    }
    *p = '\0';
    return to;
}
