/* Bytes changed at random, the same in each run: for the fuzz targets. */
#ifndef TESTS_FUZZ_MUTATE_H
#define TESTS_FUZZ_MUTATE_H

#include "tests/unit/tap.h"

#include <stdint.h>

static uint64_t fuzz_state = 1;

static inline uint32_t fuzz_pick(uint32_t n)
{
    fuzz_state = fuzz_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(fuzz_state >> 33) % n;
}

/* How many inputs: FUZZ_RUNS, else FUZZ_TIMES times `few`; that is twenty in the long list. */
static inline int fuzz_runs(int few)
{
    const char *runs = getenv("FUZZ_RUNS"), *times = getenv("FUZZ_TIMES");

    return runs ? atoi(runs) : few * (times ? atoi(times) : tap_long() ? 20 : 1);
}

/* A changed copy of data[len], 1 to 3 changes: a byte, a word of `words` (NULL-terminated) put in
 * or over, a part taken out or doubled, the end cut off.  malloc'ed to its exact size, so that a
 * byte too far is seen; *ret_len is at most len + 3 * 64. */
static inline char *fuzz_mutate(const char *data, size_t len, const char *const *words,
                                size_t *ret_len)
{
    size_t cap = len + 3 * 64 + 1, n_words = 0;
    char *to = malloc(cap);

    while (words[n_words])
        n_words++;
    memcpy(to, data, len);
    for (uint32_t changes = 1 + fuzz_pick(3); changes > 0; changes--) {
        size_t at = fuzz_pick((uint32_t)len + 1), n = fuzz_pick(16);
        const char *w = words[fuzz_pick((uint32_t)n_words)];
        n = n < len - at ? n : len - at;
        switch (fuzz_pick(8)) {
        case 0:
        case 1:
        case 2:
            if (at < len)
                to[at] = fuzz_pick(3) ? (char)(to[at] ^ 1 << fuzz_pick(8)) : (char)fuzz_pick(256);
            break;
        case 3:
        case 4:
            n = strlen(w);
            memmove(to + at + n, to + at, len - at);
            memcpy(to + at, w, n);
            len += n;
            break;
        case 5:
            n = strlen(w) < len - at ? strlen(w) : len - at;
            memcpy(to + at, w, n);
            break;
        case 6:
            memmove(to + at, to + at + n, len - at - n);
            len -= n;
            break;
        default:
            if (fuzz_pick(4)) {
                memmove(to + at + n, to + at, len - at);
                len += n;
            } else {
                len = at;
            }
        }
    }
    char *exact = malloc(len ? len : 1);
    memcpy(exact, to, len);
    free(to);
    *ret_len = len;
    return exact;
}

#endif
