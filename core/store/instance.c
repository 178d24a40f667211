/* Credentials from addresses on the machine's own link: a container's endpoint, and the instance's
 * metadata by IMDSv2.
 * https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html
 */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/store/credentials.h"
#include "core/store/url.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { TRIES = 3, TOKEN_TTL_S = 21600 };

struct ask {
    struct tern_store_http *http;
    const int *stop;
    const char *what; /* for messages */
};

/* 1 and the answer's text, 0 for "not found", -1.  A metadata service answers within
 * milliseconds: where none is, nothing answers. */
static int ask_for(const struct ask *a, const char *method, const char *url, const char *header,
                   struct tern_buf *ret_text, struct tern_err *err)
{
    char *headers[] = {(char *)(header ? header : "X-Tern: 1")};
    struct tern_store_reply r = {0};

    for (int i = 0; i < TRIES; i++) {
        struct tern_store_request q = {.method = method,
                                       .url = url,
                                       .headers = headers,
                                       .n_headers = header ? 1 : 0,
                                       .until_ns = tern_clock_boot_ns() + 5000000000,
                                       .connect_s = 1,
                                       .stall_s = 2,
                                       .stop = a->stop,
                                       .direct = true};
        tern_store_reply_free(&r);
        tern_store_http_do(a->http, &q, &r);
        if (r.end == TERN_STORE_ANSWERED && r.status < 500)
            break;
        if (r.end == TERN_STORE_STOPPED || r.end == TERN_STORE_LATE)
            break;
    }
    int rc = -1;
    if (r.end == TERN_STORE_ANSWERED && r.status == 200) {
        *ret_text = r.text;
        r.text = (struct tern_buf){0};
        rc = 1;
    } else if (r.end == TERN_STORE_ANSWERED && r.status == 404) {
        rc = 0;
    } else if (r.end == TERN_STORE_STOPPED) {
        tern_err_set(err, TERN_FAILED, "%s: interrupted", a->what);
    } else if (r.end == TERN_STORE_ANSWERED) {
        tern_err_set(err, TERN_TEMPFAIL, "%s: it answers with status %ld", a->what, r.status);
    } else {
        tern_err_set(err, TERN_TEMPFAIL, "%s: no answer: %s", a->what, r.why);
    }
    tern_store_reply_free(&r);
    return rc;
}

static char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    /* They become parts of headers. */
    for (const char *p = s; p && *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p > 126)
            return NULL;
    return s && *s ? tern_strdup(s) : NULL;
}

static int read_keys(const struct tern_buf *text, const char *what,
                     struct tern_store_credentials *ret_credentials, struct tern_err *err)
{
    struct tm tm = {0};
    json_t *j = tern_json_parse(text->data ? text->data : "", text->len, what, NULL);
    const char *expires = json_string_value(json_object_get(j, "Expiration"));
    struct tern_store_credentials k = {.access = text_of(j, "AccessKeyId"),
                                       .secret = text_of(j, "SecretAccessKey"),
                                       .token = text_of(j, "Token")};

    if (expires && strptime(expires, "%Y-%m-%dT%H:%M:%S", &tm))
        k.expires_s = timegm(&tm);
    json_decref(j);
    if (!k.access || !k.secret || (expires && !k.expires_s)) {
        tern_store_credentials_free(&k);
        return tern_err_set(err, TERN_TEMPFAIL, "%s: its answer holds no credentials", what);
    }
    *ret_credentials = k;
    return 1;
}

/* ---- containers ---- */

/* A token that goes with the request: of a file, which is renewed, or a variable. */
static int container_token(char **ret_header, struct tern_err *err)
{
    const char *file = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
               *token = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *text = NULL;
    size_t len;

    *ret_header = NULL;
    if (file && *file) {
        if (tern_fs_read(file, 65536, &text, &len, err) < 0)
            return -1;
        token = text;
    }
    if (token && *token) {
        if (strpbrk(token, "\r\n") && strpbrk(token, "\r\n")[1]) {
            free(text);
            return tern_err_set(err, TERN_USAGE,
                                "the token of a container's credentials has several lines");
        }
        *ret_header = tern_strf("Authorization: %.*s", (int)strcspn(token, "\r\n"), token);
    }
    free(text);
    return 0;
}

static bool may_request(const struct tern_store_url *u)
{
    /* The addresses of ECS and EKS on the link. */
    static const char *const known[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    const size_t n = u->host[0] == '[' ? strcspn(u->host, "]") + 1 : strcspn(u->host, ":");

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == n && memcmp(known[i], u->host, n) == 0)
            return true;
    return u->scheme == TERN_STORE_HTTPS || tern_store_url_loopback(u->host);
}

int tern_store_credentials_container(struct tern_store_http *h, const int *stop,
                                     struct tern_store_credentials *ret_credentials,
                                     struct tern_err *err)
{
    static const char name[] = "the container's credentials";
    const struct ask a = {h, stop, name};
    const char *relative = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
               *full = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    struct tern_store_url u = {0};
    struct tern_buf text = {0};
    char *url, *header = NULL;
    int rc;

    if (relative && *relative)
        url = tern_strf("http://169.254.170.2%s", relative);
    else if (full && *full)
        url = tern_strdup(full);
    else
        return 0;
    /* Of the parser, only its refusal of http:// elsewhere does not count. */
    struct tern_err why = {0};
    char *checked =
        tern_str_starts(url, "http://") ? tern_strf("https://%s", url + 7) : tern_strdup(url);
    rc = tern_store_url_parse(checked, &u, &why);
    if (rc == 0 && tern_str_starts(url, "http://"))
        u.scheme = TERN_STORE_HTTP;
    if (rc < 0 || u.scheme == TERN_STORE_S3 || !may_request(&u))
        rc = tern_err_set(
            err, TERN_USAGE,
            "%s: AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https:// nor an address "
            "of this machine",
            name);
    if (rc == 0)
        rc = container_token(&header, err);
    if (rc == 0) {
        rc = ask_for(&a, "GET", url, header, &text, err);
        if (rc == 0)
            rc = tern_err_set(err, TERN_USAGE, "%s: there are none at that address", name);
        if (rc > 0)
            rc = read_keys(&text, name, ret_credentials, err);
    }
    if (text.data)
        explicit_bzero(text.data, text.len);
    tern_buf_free(&text);
    tern_store_url_free(&u);
    free(checked);
    free(header);
    free(url);
    return rc;
}

/* ---- the instance ---- */

static int of_role(const struct ask *a, const char *base, const char *header,
                   struct tern_store_credentials *ret_credentials, struct tern_err *err)
{
    struct tern_buf role = {0}, keys = {0};
    char *url = tern_strf("%s/latest/meta-data/iam/security-credentials/", base);
    int rc = ask_for(a, "GET", url, header, &role, err);

    if (rc > 0) {
        const char *name = role.data ? role.data : "";
        const size_t n = strcspn(name, "\r\n");
        free(url);
        if (n == 0 || n > 128 ||
            strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                         "0123456789+=,.@_-") < n) {
            tern_buf_free(&role);
            return tern_err_set(err, TERN_TEMPFAIL, "%s: its answer names no role", a->what);
        }
        url = tern_strf("%s/latest/meta-data/iam/security-credentials/%.*s", base, (int)n, name);
        rc = ask_for(a, "GET", url, header, &keys, err);
    }
    if (rc > 0)
        rc = read_keys(&keys, a->what, ret_credentials, err);
    if (keys.data)
        explicit_bzero(keys.data, keys.len);
    tern_buf_free(&keys);
    tern_buf_free(&role);
    free(url);
    return rc;
}

int tern_store_credentials_instance(struct tern_store_http *h, const int *stop,
                                    struct tern_store_credentials *ret_credentials,
                                    struct tern_err *err)
{
    const struct ask a = {h, stop, "the instance's metadata"};
    const char *off = getenv("AWS_EC2_METADATA_DISABLED"),
               *endpoint = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    struct tern_buf token = {0};
    struct tern_err why = {0};

    if (off && strcasecmp(off, "true") == 0)
        return 0;
    if (!endpoint || !*endpoint)
        endpoint = "http://169.254.169.254";
    size_t n = strlen(endpoint);
    while (n && endpoint[n - 1] == '/')
        n--;
    char *base = tern_strf("%.*s", (int)n, endpoint);
    char *url = tern_strf("%s/latest/api/token", base);
    char *ttl = tern_strf("X-aws-ec2-metadata-token-ttl-seconds: %d", TOKEN_TTL_S);
    int rc = ask_for(&a, "PUT", url, ttl, &token, &why);
    if (rc < 0 && (!getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT") || why.code == TERN_FAILED)) {
        /* No such service: not an instance of Amazon's. */
        rc = why.code == TERN_FAILED ? tern_err_set(err, why.code, "%s", why.text) : 0;
    } else if (rc < 0) {
        tern_err_set(err, why.code, "%s", why.text);
    } else if (rc > 0 && (!token.data || strpbrk(token.data, "\r\n"))) {
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: its answer is no token", a.what);
    }
    if (rc > 0) {
        char *header = tern_strf("X-aws-ec2-metadata-token: %s", token.data);
        rc = of_role(&a, base, header, ret_credentials, err);
        free(header);
    }
    tern_buf_free(&token);
    free(ttl);
    free(url);
    free(base);
    return rc;
}
