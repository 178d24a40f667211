#include "core/store/sign.h"

#include "core/store/url.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEADERS_MAX = 33, BLOCK = 64 };

void tern_store_hmac(const void *key, size_t n_key, const void *data, size_t n,
                     uint8_t ret_digest[TERN_SHA256_BYTES])
{
    uint8_t pad[BLOCK] = {0}, inner[TERN_SHA256_BYTES];

    if (n_key > BLOCK)
        tern_sha256(key, n_key, pad);
    else
        memcpy(pad, key, n_key);
    for (int i = 0; i < BLOCK; i++)
        pad[i] ^= 0x36;
    struct tern_sha256 *s = tern_sha256_new();
    tern_sha256_add(s, pad, BLOCK);
    tern_sha256_add(s, data, n);
    tern_sha256_end(s, inner);
    for (int i = 0; i < BLOCK; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    s = tern_sha256_new();
    tern_sha256_add(s, pad, BLOCK);
    tern_sha256_add(s, inner, sizeof inner);
    tern_sha256_end(s, ret_digest);
    explicit_bzero(pad, sizeof pad);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted by the encoded name, then by the encoded value: a NUL between them sorts before any byte,
 * as the end of a name does. */
void tern_store_query(struct tern_buf *to, const struct tern_store_pair *query, size_t n)
{
    struct pair {
        char *name, *value;
    } *pairs = calloc(n + 1, sizeof *pairs);

    if (!pairs) {
        to->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct tern_buf name = {0}, value = {0};
        tern_store_encode(&name, query[i].name, /* slashes= */ false);
        tern_store_encode(&value, query[i].value, /* slashes= */ false);
        /* Insertion: few pairs, nearly sorted. */
        size_t at = i;
        for (; at > 0; at--) {
            const int by_name = strcmp(pairs[at - 1].name, name.data ? name.data : "");
            if (by_name < 0 ||
                (by_name == 0 && strcmp(pairs[at - 1].value, value.data ? value.data : "") <= 0))
                break;
            pairs[at] = pairs[at - 1];
        }
        pairs[at].name = name.data ? name.data : tern_strdup("");
        pairs[at].value = value.data ? value.data : tern_strdup("");
        to->failed |= name.failed || value.failed;
    }
    for (size_t i = 0; i < n; i++) {
        tern_buf_printf(to, "%s%s=%s", i ? "&" : "", pairs[i].name, pairs[i].value);
        free(pairs[i].name);
        free(pairs[i].value);
    }
    free(pairs);
}

/* "name:value", the value without blanks at its ends and with one for several inside. */
static char *header_line(const char *name, const char *value)
{
    struct tern_buf b = {0};

    for (; *name; name++)
        tern_buf_printf(&b, "%c", tolower((unsigned char)*name));
    tern_buf_puts(&b, ":");
    for (bool first = true;; first = false) {
        value += strspn(value, " \t\r\n");
        const size_t n = strcspn(value, " \t\r\n");
        if (n == 0)
            break;
        if (!first)
            tern_buf_puts(&b, " ");
        tern_buf_add(&b, value, n);
        value += n;
    }
    return b.data ? b.data : tern_strdup(":");
}

/* Headers into `to`, and their names into `ret_names`. */
static void add_headers(const struct tern_store_sign *s, struct tern_buf *to,
                        struct tern_buf *ret_names)
{
    char *lines[HEADERS_MAX];
    size_t n = 0;

    lines[n++] = header_line("host", s->host);
    for (size_t i = 0; i < s->n_headers && n < HEADERS_MAX; i++)
        lines[n++] = header_line(s->headers[i].name, s->headers[i].value);
    /* A colon sorts behind a hyphen and the digits: names are compared without it. */
    for (size_t i = 0; i < n; i++)
        *strchr(lines[i], ':') = '\0';
    qsort(lines, n, sizeof *lines, by_text);
    for (size_t i = 0; i < n; i++) {
        tern_buf_printf(to, "%s:%s\n", lines[i], lines[i] + strlen(lines[i]) + 1);
        tern_buf_printf(ret_names, "%s%s", i ? ";" : "", lines[i]);
        free(lines[i]);
    }
}

static void sign_key(const struct tern_store_sign *s, uint8_t ret_key[TERN_SHA256_BYTES])
{
    char *secret = tern_strf("AWS4%s", s->secret);

    tern_store_hmac(secret, strlen(secret), s->time, 8, ret_key);
    tern_store_hmac(ret_key, TERN_SHA256_BYTES, s->region, strlen(s->region), ret_key);
    tern_store_hmac(ret_key, TERN_SHA256_BYTES, s->service, strlen(s->service), ret_key);
    tern_store_hmac(ret_key, TERN_SHA256_BYTES, "aws4_request", 12, ret_key);
    explicit_bzero(secret, strlen(secret));
    free(secret);
}

void tern_store_sign(const struct tern_store_sign *s, struct tern_buf *ret_authorization)
{
    struct tern_buf canonical = {0}, names = {0}, text = {0};
    uint8_t digest[TERN_SHA256_BYTES], key[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];

    tern_buf_printf(&canonical, "%s\n", s->method);
    tern_store_encode(&canonical, s->path, /* slashes= */ true);
    tern_buf_puts(&canonical, "\n");
    tern_store_query(&canonical, s->query, s->n_query);
    tern_buf_puts(&canonical, "\n");
    add_headers(s, &canonical, &names);
    tern_buf_printf(&canonical, "\n%s\n%s", names.data, s->payload);

    tern_sha256(canonical.data, canonical.len, digest);
    tern_buf_printf(&text, "AWS4-HMAC-SHA256\n%s\n%.8s/%s/%s/aws4_request\n%s", s->time, s->time,
                    s->region, s->service, tern_hex(hex, digest, sizeof digest));
    sign_key(s, key);
    tern_store_hmac(key, sizeof key, text.data, text.len, digest);
    explicit_bzero(key, sizeof key);
    tern_buf_printf(ret_authorization,
                    "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/aws4_request, SignedHeaders=%s, "
                    "Signature=%s",
                    s->access, s->time, s->region, s->service, names.data,
                    tern_hex(hex, digest, sizeof digest));
    ret_authorization->failed |= canonical.failed || names.failed || text.failed;
    tern_buf_free(&canonical);
    tern_buf_free(&names);
    tern_buf_free(&text);
}
