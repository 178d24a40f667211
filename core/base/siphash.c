/* SipHash-128, and comparing digests in constant time. */
#include "core/base/hash.h"

#include <string.h>

/* All machines of a job have one byte order: little endian, as the algorithm has it. */
static uint64_t word(const void *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t turn(uint64_t v, int by)
{
    return v << by | v >> (64 - by);
}

static inline void rounds(uint64_t v[4], int n)
{
    for (int i = 0; i < n; i++) {
        v[0] += v[1], v[1] = turn(v[1], 13) ^ v[0], v[0] = turn(v[0], 32);
        v[2] += v[3], v[3] = turn(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = turn(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = turn(v[1], 17) ^ v[2], v[2] = turn(v[2], 32);
    }
}

static inline void take(uint64_t v[4], uint64_t m)
{
    v[3] ^= m;
    rounds(v, 2);
    v[0] ^= m;
}

static uint64_t half(uint64_t v[4])
{
    rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void tern_siphash(const uint8_t key[TERN_SIPHASH_BYTES], const void *data, size_t len,
                  uint8_t to[TERN_SIPHASH_BYTES])
{
    const uint64_t k0 = word(key), k1 = word(key + 8);
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee,
                     k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
    const uint8_t *p = data;
    uint64_t last = (uint64_t)len << 56, out[2];

    for (size_t i = 0; i + 8 <= len; i += 8)
        take(v, word(p + i));
    for (size_t i = 0; i < len % 8; i++)
        last |= (uint64_t)p[len - len % 8 + i] << 8 * i;
    take(v, last);
    v[2] ^= 0xee;
    out[0] = half(v);
    v[1] ^= 0xdd;
    out[1] = half(v);
    memcpy(to, out, sizeof out);
}

bool tern_hash_same(const uint8_t *a, const uint8_t *b, size_t n)
{
    volatile uint8_t differ = 0;

    for (size_t i = 0; i < n; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}
