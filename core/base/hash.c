#include "core/base/hash.h"

#include "core/base/again.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static int file_once(const char *path, uint8_t digest[TERN_SHA256_BYTES], struct tern_err *err)
{
    enum { PIECE = 1 << 20 };
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC));

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
    const int why = errno;
    tern_sha256_end(s, n == 0 ? digest : NULL);
    errno = why;
    int rc = n == 0 ? 0 : tern_err_sys(err, "%s: cannot read", path);
    free(piece);
    close(fd);
    return rc;
}

int tern_sha256_file(const char *path, uint8_t digest[TERN_SHA256_BYTES], struct tern_err *err)
{
    struct tern_again a = {0};
    int rc;

    do {
        errno = 0;
        rc = file_once(path, digest, err);
    } while (rc < 0 && tern_again_stale(&a));
    return rc;
}
