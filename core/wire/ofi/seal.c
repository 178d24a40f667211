/* Seals of records: the proof that a rank made these bytes. */
#include "core/wire/ofi/record.h"

#include "core/base/hash.h"

#include <string.h>

enum {
    PLAIN = sizeof(struct tern_wire_control), /* bytes behind a head that are hashed as they are */
    BLOCK = 256,                              /* of what is longer, which are made 16 bytes first */
    WORDS = BLOCK / 8,
    SUM = 16,
    HEAD = sizeof(struct record) - RECORD_SECRET,
    FOLDED = EAGER_STREAM / BLOCK * SUM,
};

__extension__ typedef unsigned __int128 sum;
_Static_assert(sizeof(sum) == SUM && HEAD % 8 == 0 && FOLDED >= PLAIN, "there is room for both");

static uint64_t word(const uint8_t *p)
{
    uint64_t w;

    memcpy(&w, p, sizeof w);
    return w;
}

/* NH, as UMAC (RFC 4418) and VMAC have it, here with words of 64 bits.  Without the key no stranger
 * finds two blocks of one length with the same sum but by chance, one of 2^64.  It takes a sixth of
 * SipHash's time (64 KiB: 3 us and 18), and SipHash over the sums hides them. */
static sum block_sum(const uint64_t key[WORDS], const uint8_t *p, size_t n)
{
    uint8_t last[SUM] = {0};
    sum all = 0;
    size_t i = 0;

    for (; i + SUM <= n; i += SUM)
        all += (sum)(word(p + i) + key[i / 8]) * (word(p + i + 8) + key[i / 8 + 1]);
    if (i < n) { /* the length is in the head */
        memcpy(last, p + i, n - i);
        all += (sum)(word(last) + key[i / 8]) * (word(last + 8) + key[i / 8 + 1]);
    }
    return all;
}

/* The sums of all blocks; returns how many bytes they have. */
static size_t fold(const uint8_t secret[RECORD_SECRET], const uint8_t *p, size_t n, uint8_t *to)
{
    uint64_t key[WORDS];
    size_t len = 0;

    for (uint64_t i = 0; i < WORDS / 2; i++) /* nothing else that is hashed has eight bytes */
        tern_siphash(secret, &i, sizeof i, (uint8_t *)&key[2 * i]);
    for (size_t at = 0; at < n; at += BLOCK, len += SUM) {
        sum s = block_sum(key, p + at, n - at < BLOCK ? n - at : BLOCK);
        memcpy(to + len, &s, SUM);
    }
    return len;
}

void tern_wire_ofi_record_hash(const uint8_t secret[RECORD_SECRET], const void *record,
                               const void *payload, size_t more, uint8_t seal[RECORD_SECRET])
{
    uint8_t in[HEAD + FOLDED];

    memcpy(in, (const uint8_t *)record + RECORD_SECRET, HEAD);
    if (more > EAGER_STREAM) /* what is longer is no record */
        more = EAGER_STREAM;
    if (more > PLAIN)
        more = fold(secret, payload, more, in + HEAD);
    else if (more)
        memcpy(in + HEAD, payload, more);
    tern_siphash(secret, in, HEAD + more, seal);
}

void tern_wire_ofi_record_seal(const uint8_t secret[RECORD_SECRET], void *record,
                               const void *payload, size_t more)
{
    uint8_t *head = record;

    tern_wire_ofi_record_hash(secret, record, payload ? payload : head + sizeof(struct record),
                              more, head);
}
