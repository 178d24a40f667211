/* Little-endian words (core/base/le.h). */
#include "core/base/le.h"
#include "tests/unit/tap.h"

int main(void)
{
    static const char want[] = "\x02\x01\x06\x05\x84\x83\x0e\x0d\x0c\x0b\x0a\x09\x08\xf7";
    uint8_t b[16] = {0};
    const uint8_t *end =
        tern_le_put64(tern_le_put32(tern_le_put16(b + 1, 0x0102), 0x83840506), 0xf708090a0b0c0d0e);

    ok(end == b + 15 && memcmp(b + 1, want, 14) == 0 && b[0] == 0 && b[15] == 0,
       "words of 2, 4 and 8 bytes lie lowest byte first, at an odd address");
    ok(tern_le_get16(b + 1) == 0x0102 && tern_le_get32(b + 3) == 0x83840506 &&
           tern_le_get64(b + 7) == 0xf708090a0b0c0d0e,
       "words of 2, 4 and 8 bytes are read back");
    return tap_done();
}
