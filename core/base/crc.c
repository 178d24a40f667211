/* CRC-32C: the processor's instruction where it has one, tables elsewhere. */
#include "core/base/hash.h"

#include <string.h>

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

uint32_t tern_crc32c_masked(const void *data, size_t len)
{
    const uint32_t crc = tern_crc32c(0, data, len);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
