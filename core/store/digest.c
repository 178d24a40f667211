#include "core/store/digest.h"

#include "core/base/hash.h"
#include "core/store/url.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <string.h>

bool tern_store_md5(const void *data, size_t n, uint8_t ret_digest[TERN_STORE_MD5])
{
    return EVP_Digest(data, n, ret_digest, NULL, EVP_md5(), NULL) == 1;
}

bool tern_store_etag_md5(const char *etag, char ret_hex[2 * TERN_STORE_MD5 + 1])
{
    const char *s = etag + (*etag == '"');
    size_t n = 0;

    for (; n < 2 * TERN_STORE_MD5 && isxdigit((unsigned char)s[n]); n++)
        ret_hex[n] = (char)tolower((unsigned char)s[n]);
    ret_hex[n] = '\0';
    return n == 2 * TERN_STORE_MD5 && (s[n] == '\0' || (s[n] == '"' && s[n + 1] == '\0'));
}

static bool good_crc(const struct tern_store_reply *r, const void *data, size_t n)
{
    char told[64], ours[16];

    if (!*tern_store_reply_header(r, "x-amz-checksum-crc32c", told, sizeof told) ||
        strchr(told, '-')) /* of parts' checksums */
        return true;
    const uint32_t crc = tern_crc32c(0, data, n);
    const uint8_t bytes[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8),
                              (uint8_t)crc};
    return strcmp(told, tern_store_base64(ours, bytes, sizeof bytes)) == 0;
}

static bool good_sha256(const struct tern_store_reply *r, const void *data, size_t n)
{
    char told[64], ours[64];
    uint8_t digest[TERN_SHA256_BYTES];

    if (!*tern_store_reply_header(r, "x-amz-checksum-sha256", told, sizeof told) ||
        strchr(told, '-'))
        return true;
    tern_sha256(data, n, digest);
    return strcmp(told, tern_store_base64(ours, digest, sizeof digest)) == 0;
}

bool tern_store_digest_etag(const struct tern_store_reply *r, char ret_hex[2 * TERN_STORE_MD5 + 1])
{
    char text[64];

    if (!*tern_store_reply_header(r, "x-amz-request-id", text, sizeof text) ||
        *tern_store_reply_header(r, "x-amz-server-side-encryption-customer-algorithm", text,
                                 sizeof text))
        return false;
    tern_store_reply_header(r, "x-amz-server-side-encryption", text, sizeof text);
    return !tern_str_starts(text, "aws:kms") &&
           tern_store_etag_md5(tern_store_reply_header(r, "etag", text, sizeof text), ret_hex);
}

static bool good_etag(const struct tern_store_reply *r, const void *data, size_t n)
{
    char told[2 * TERN_STORE_MD5 + 1], ours[2 * TERN_STORE_MD5 + 1];
    uint8_t digest[TERN_STORE_MD5];

    if (!tern_store_digest_etag(r, told) || !tern_store_md5(data, n, digest))
        return true;
    return strcmp(told, tern_hex(ours, digest, sizeof digest)) == 0;
}

bool tern_store_digest_good(const struct tern_store_reply *r, const void *data, size_t n)
{
    return good_crc(r, data, n) && good_sha256(r, data, n) && good_etag(r, data, n);
}
