#include "core/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Eight tables, so that eight bytes are looked up at a time ("slicing by 8"). */
static uint32_t table[8][256];

__attribute__((constructor)) static void table_fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = (c >> 1) ^ (c & 1 ? 0x82f63b78u : 0);
        table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            table[t][i] = (table[t - 1][i] >> 8) ^ table[0][table[t - 1][i] & 0xff];
}

static uint32_t crc_tables(uint32_t c, const uint8_t *p, size_t len)
{
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        w ^= c;
        c = 0;
        for (int t = 0; t < 8; t++)
            c ^= table[7 - t][(w >> (8 * t)) & 0xff];
    }
    while (len--)
        c = (c >> 8) ^ table[0][(c ^ *p++) & 0xff];
    return c;
}

#ifdef __x86_64__
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t c, const uint8_t *p,
                                                            size_t len)
{
    uint64_t c64 = c;

    for (; len >= 8; p += 8, len -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        c64 = _mm_crc32_u64(c64, w);
    }
    c = (uint32_t)c64;
    while (len--)
        c = _mm_crc32_u8(c, *p++);
    return c;
}
#endif

uint32_t tern_crc32c(uint32_t crc, const void *data, size_t len)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_sse42(~crc, data, len);
#endif
    return ~crc_tables(~crc, data, len);
}

struct tern_sha256 {
    EVP_MD_CTX *md;
};

static void require(bool ok)
{
    if (!ok) {
        fputs("tern: libcrypto cannot make a SHA-256 digest\n", stderr);
        abort();
    }
}

struct tern_sha256 *tern_sha256_new(void)
{
    struct tern_sha256 *s = malloc(sizeof *s);

    require(s != NULL);
    s->md = EVP_MD_CTX_new();
    require(s->md && EVP_DigestInit_ex(s->md, EVP_sha256(), NULL) == 1);
    return s;
}

void tern_sha256_add(struct tern_sha256 *s, const void *data, size_t len)
{
    require(EVP_DigestUpdate(s->md, data, len) == 1);
}

void tern_sha256_end(struct tern_sha256 *s, uint8_t digest[TERN_SHA256_BYTES])
{
    if (digest)
        require(EVP_DigestFinal_ex(s->md, digest, NULL) == 1);
    EVP_MD_CTX_free(s->md);
    free(s);
}

void tern_sha256(const void *data, size_t len, uint8_t digest[TERN_SHA256_BYTES])
{
    struct tern_sha256 *s = tern_sha256_new();

    tern_sha256_add(s, data, len);
    tern_sha256_end(s, digest);
}

char *tern_hex(char *to, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        snprintf(to + 2 * i, 3, "%02x", bytes[i]);
    to[2 * n] = '\0';
    return to;
}

int tern_sha256_file(const char *path, uint8_t digest[TERN_SHA256_BYTES], struct tern_err *err)
{
    enum { PIECE = 1 << 20 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return tern_err_sys(err, "%s: cannot open", path);
    struct tern_sha256 *s = tern_sha256_new();
    char *piece = malloc(PIECE);
    ssize_t n = -1;
    require(piece != NULL);
    while ((n = read(fd, piece, PIECE)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        tern_sha256_add(s, piece, (size_t)n);
    }
    tern_sha256_end(s, n == 0 ? digest : NULL);
    int rc = n == 0 ? 0 : tern_err_sys(err, "%s: cannot read", path);
    free(piece);
    close(fd);
    return rc;
}
