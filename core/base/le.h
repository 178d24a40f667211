/* Little-endian words of file formats, at any address.
 *
 *     uint8_t head[12], *to = head;
 *     to = tern_le_put32(to, magic);
 *     to = tern_le_put64(to, bytes);
 *
 * Each put returns the place behind its word. */
#ifndef TERN_BASE_LE_H
#define TERN_BASE_LE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t tern_le_get16(const void *at)
{
    uint16_t v;

    memcpy(&v, at, sizeof v);
    return le16toh(v);
}

static inline uint32_t tern_le_get32(const void *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof v);
    return le32toh(v);
}

static inline uint64_t tern_le_get64(const void *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof v);
    return le64toh(v);
}

static inline uint8_t *tern_le_put16(void *at, uint16_t v)
{
    v = htole16(v);
    memcpy(at, &v, sizeof v);
    return (uint8_t *)at + sizeof v;
}

static inline uint8_t *tern_le_put32(void *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof v);
    return (uint8_t *)at + sizeof v;
}

static inline uint8_t *tern_le_put64(void *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof v);
    return (uint8_t *)at + sizeof v;
}

#endif
