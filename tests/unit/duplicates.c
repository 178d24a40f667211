/* core/data: each hash is new once, whatever came between, in the memory that is promised. */
#include "core/base/hash.h"
#include "core/base/rand.h"
#include "core/data/duplicates.h"
#include "tests/unit/tap.h"

#include <string.h>

static void hash_of(uint64_t n, uint8_t to[16])
{
    const uint64_t v[2] = {tern_rand_u64(1, n, 0), tern_rand_u64(1, n, 1)};

    memcpy(to, v, sizeof v);
}

/* `n` hashes, each followed by one that came before. */
static void test_many(uint64_t n)
{
    struct tern_data_duplicates *d = tern_data_duplicates_new(NULL);
    uint64_t wrong = 0, now, peak, worst = 0;
    uint8_t hash[16];

    for (uint64_t i = 0; i < n; i++) {
        hash_of(i, hash);
        wrong += tern_data_duplicates_add(d, hash, NULL) != 1;
        hash_of(tern_rand_below(2, i, 0, i + 1), hash);
        wrong += tern_data_duplicates_add(d, hash, NULL) != 0;
        tern_data_duplicates_memory(d, &now, &peak);
        if (i + 1 >= 1000000 && now * 1000 / (i + 1) > worst)
            worst = now * 1000 / (i + 1);
    }
    for (uint64_t i = 0; i < n; i++) {
        hash_of(i, hash);
        wrong += tern_data_duplicates_add(d, hash, NULL) != 0;
    }
    ok(wrong == 0, "of %u hashes each is new once, and seen from then on", (unsigned)n);
    tern_data_duplicates_memory(d, &now, &peak);
    if (n > 1000000) {
        ok(worst <= 24000, "a million hashes and more take at most 24 bytes each");
        ok(peak <= now + now / 100, "the peak of memory is at most a hundredth above its end");
        printf("# at most %u.%03u bytes a hash\n", (unsigned)(worst / 1000),
               (unsigned)(worst % 1000));
    }
    tern_data_duplicates_free(d);
}

/* Hashes that differ in one bit, or share all bits that choose a place. */
static void test_near(void)
{
    struct tern_data_duplicates *d = tern_data_duplicates_new(NULL);
    uint8_t hash[16] = {0};
    uint64_t wrong = 0;

    wrong += tern_data_duplicates_add(d, hash, NULL) != 1;
    wrong += tern_data_duplicates_add(d, hash, NULL) != 0;
    for (int bit = 0; bit < 128; bit++) {
        hash[bit / 8] ^= (uint8_t)(1 << bit % 8);
        wrong += tern_data_duplicates_add(d, hash, NULL) != 1;
        wrong += tern_data_duplicates_add(d, hash, NULL) != 0;
        hash[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    ok(wrong == 0, "hashes of zeros but for one bit are distinguished");
    memset(hash, 0xff, sizeof hash);
    for (unsigned i = 0; i < 300; i++) {
        hash[2] = (uint8_t)i;
        hash[3] = (uint8_t)(i >> 8);
        wrong += tern_data_duplicates_add(d, hash, NULL) != 1;
    }
    for (unsigned i = 0; i < 300; i++) {
        hash[2] = (uint8_t)i;
        hash[3] = (uint8_t)(i >> 8);
        wrong += tern_data_duplicates_add(d, hash, NULL) != 0;
    }
    ok(wrong == 0, "hashes with one place, the last of its part, are distinguished");
    tern_data_duplicates_free(d);
}

int main(void)
{
    test_near();
    test_many(5000);
    test_many(tap_long() ? 20000000 : 1500000);
    tern_data_duplicates_free(NULL);
    return tap_done();
}
