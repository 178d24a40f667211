/* Checksums: CRC-32C (Castagnoli) to notice torn and flipped bytes, SHA-256 to name content,
 * SipHash to authenticate short messages with a key. */
#ifndef TERN_BASE_HASH_H
#define TERN_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* CRC-32C of `data` continued from `crc` (0 to begin): crc32c("123456789") = 0xe3069283. */
uint32_t tern_crc32c(uint32_t crc, const void *data, size_t len);
/* The same masked, as TFRecord files have it: a CRC of bytes that hold CRCs is weak. */
uint32_t tern_crc32c_masked(const void *data, size_t len);

/* SipHash-2-4 with 128 bits of result (Aumasson, Bernstein, 2012). */
#define TERN_SIPHASH_BYTES 16 /* of the key, and of the result */
void tern_siphash(const uint8_t key[TERN_SIPHASH_BYTES], const void *data, size_t len,
                  uint8_t to[TERN_SIPHASH_BYTES]);
/* Are these secrets or digests of `n` bytes equal?  Takes as long however many bytes are right. */
bool tern_hash_same(const uint8_t *a, const uint8_t *b, size_t n);

#define TERN_SHA256_BYTES 32
#define TERN_SHA256_HEX 65 /* with the NUL */

/* A digest in the making.  One thread at a time. */
struct tern_sha256;
struct tern_sha256 *tern_sha256_new(void); /* aborts without memory */
void tern_sha256_add(struct tern_sha256 *s, const void *data, size_t len);
/* Writes the digest and frees `s`; `digest` may be NULL. */
void tern_sha256_end(struct tern_sha256 *s, uint8_t digest[TERN_SHA256_BYTES]);

void tern_sha256(const void *data, size_t len, uint8_t digest[TERN_SHA256_BYTES]);
/* Lower-case hex with a NUL; returns `to`. */
char *tern_hex(char *to, const uint8_t *bytes, size_t n);
/* The whole file, read in pieces. */
int tern_sha256_file(const char *path, uint8_t digest[TERN_SHA256_BYTES], struct tern_err *err);

#endif
