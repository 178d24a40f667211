#include "cmd/bench/memory.h"

#include "core/coll/copy.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Zero, which the compiler must not know. */
static volatile uint64_t nothing;

TERN_COLL_CLONES static void in_place(uint64_t *v, size_t n)
{
    uint64_t add = nothing;

    for (size_t i = 0; i < n; i++)
        v[i] += add;
}

/* Each line of the parts once, as core/fabric/reduce.c does and says why. */
TERN_COLL_CLONES static void gather_up(uint64_t *to, const uint64_t *from, size_t n, int parts,
                                       bool past)
{
    enum { LINE = 8 }; /* words */
    size_t at = 0;

    for (; at + LINE <= n; at += LINE) {
        uint64_t sum[LINE] = {0};
        for (int p = 0; p < parts; p++)
            for (size_t k = 0; k < LINE; k++)
                sum[k] += from[(size_t)p * n + at + k];
        if (past)
            tern_coll_copy_past(to + at, sum, sizeof sum);
        else
            memcpy(to + at, sum, sizeof sum);
    }
    for (; at < n; at++) {
        to[at] = 0;
        for (int p = 0; p < parts; p++)
            to[at] += from[(size_t)p * n + at];
    }
}

/* To as many places. */
static void spread(char *to, const char *from, size_t bytes, int places)
{
    enum { BLOCK = 4096 };

    for (size_t at = 0, len; at < bytes; at += len) {
        len = bytes - at < BLOCK ? bytes - at : BLOCK;
        for (int p = 0; p < places; p++)
            tern_coll_copy_past(to + (size_t)p * bytes + at, from + at, len);
    }
}

void bench_memory_move(enum bench_work work, void *to, const void *from, size_t bytes, int parts,
                       size_t cache)
{
    size_t words = bytes / sizeof(uint64_t), each = bytes / (size_t)parts;
    /* As tern_coll_task_past takes them: what this rank gives and gets. */
    bool slice = work != BENCH_IN_PLACE && work != BENCH_COPY;
    bool past = bytes + (slice ? each : bytes) >= cache / (size_t)parts;

    switch (work) {
    case BENCH_IN_PLACE:
        in_place(to, words);
        break;
    case BENCH_GATHER_UP:
        gather_up(to, from, words / (size_t)parts, parts, past);
        break;
    case BENCH_SPREAD_REST:
        parts--;
        bytes -= each;
        /* fall through */
    case BENCH_SPREAD:
        if (past)
            spread(to, from, each, parts);
        else
            memcpy(to, from, bytes);
        break;
    case BENCH_COPY:
        if (past)
            tern_coll_copy_past(to, from, bytes);
        else
            memcpy(to, from, bytes);
        break;
    }
    tern_coll_copy_past_end();
}
