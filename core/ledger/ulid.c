/* Ids of runs: ULIDs, which sort by time. */
#include "core/base/clock.h"
#include "core/base/rand.h"
#include "core/ledger/ledger.h"

#include <string.h>

static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

char *tern_ledger_ulid_new(char to[TERN_ULID_SIZE])
{
    uint64_t ms = (uint64_t)tern_clock_wall_ns() / 1000000;
    uint8_t r[16];

    tern_rand_system(r, sizeof r);
    for (int i = 9; i >= 0; i--, ms >>= 5)
        to[i] = digits[ms & 31];
    for (int i = 0; i < 16; i++)
        to[10 + i] = digits[r[i] & 31];
    to[TERN_ULID_SIZE - 1] = '\0';
    return to;
}

bool tern_ledger_ulid_valid(const char *s)
{
    /* 26 digits hold 130 bits: the first is at most 7. */
    return strlen(s) == TERN_ULID_SIZE - 1 && strspn(s, digits) == TERN_ULID_SIZE - 1 &&
           s[0] <= '7';
}
