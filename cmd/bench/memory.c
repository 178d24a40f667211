#include "cmd/bench/memory.h"

#include "core/fabric/copy.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#pragma GCC optimize("O3")

/* Zero, which the compiler must not know. */
static volatile uint64_t nothing;

static void in_place(uint64_t *v, size_t n)
{
    uint64_t add = nothing;

    for (size_t i = 0; i < n; i++)
        v[i] += add;
}

static void gather_up(uint64_t *to, const uint64_t *from, size_t n, int parts, bool past)
{
    enum { BLOCK = 512 }; /* words that stay in the first-level cache */
    uint64_t sum[BLOCK];

    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        uint64_t *into = past ? sum : to + at;
        memcpy(into, from + at, len * sizeof *to);
        for (int p = 1; p < parts; p++) {
            const uint64_t *more = from + (size_t)p * n + at;
            for (size_t i = 0; i < len; i++)
                into[i] += more[i];
        }
        if (past)
            tern_copy_past(to + at, sum, len * sizeof *to);
    }
}

void bench_memory_move(enum bench_work work, void *to, const void *from, size_t bytes, int parts,
                       size_t cache)
{
    size_t words = bytes / sizeof(uint64_t);
    size_t written = work == BENCH_GATHER_UP ? bytes / (size_t)parts : bytes;
    bool past = bytes + written >= cache / (size_t)parts;

    switch (work) {
    case BENCH_IN_PLACE:
        in_place(to, words);
        break;
    case BENCH_GATHER_UP:
        gather_up(to, from, words / (size_t)parts, parts, past);
        break;
    case BENCH_COPY:
        if (past)
            tern_copy_past(to, from, bytes);
        else
            memcpy(to, from, bytes);
        break;
    }
    tern_copy_past_end();
}
