#include "tests/lib/fabric_random.h"

#include "core/base/hash.h"
#include "core/base/rand.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 4 << 20 };
static uint64_t seed;
static struct tern_err err;

static int say_error(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, err.text);
    return 1;
}

struct draw {
    enum tern_type type;
    enum tern_op op;
    int call, root;
    size_t count;
    uint64_t id;
};

/* Values whose float sums depend on the order, and whose integers wrap. */
static double input(const struct draw *d, int member, size_t i)
{
    uint64_t r = tern_rand_u64(seed + d->id, (uint64_t)member, i);

    switch (d->type) {
    case TERN_I32:
        return (double)(int32_t)r;
    case TERN_I64:
        return (double)((int64_t)r >> 12); /* what a double holds exactly */
    case TERN_U8:
        return (double)(uint8_t)r;
    case TERN_BF16: {
        uint32_t bits = (uint32_t)(r & 0x81ff) << 16 | 0x3f000000;
        float f;
        memcpy(&f, &bits, 4);
        return f;
    }
    case TERN_F32:
        return (float)((double)(int64_t)r / 3e15);
    default:
        return (double)(int64_t)r / 3e15;
    }
}

static void put(void *p, enum tern_type t, size_t i, double v)
{
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, 4);
    if (t == TERN_F32)
        ((float *)p)[i] = f;
    else if (t == TERN_F64)
        ((double *)p)[i] = v;
    else if (t == TERN_BF16)
        ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
    else if (t == TERN_I32)
        ((int32_t *)p)[i] = (int32_t)v;
    else if (t == TERN_I64)
        ((int64_t *)p)[i] = (int64_t)v;
    else
        ((uint8_t *)p)[i] = (uint8_t)v;
}

/* The plain reference: element i over members [lo, lo + n), as the header defines the order. */
static void reference(const struct draw *d, int lo, int n, size_t i, double *f, int64_t *w)
{
    int h = 1;
    double g;
    int64_t x;

    if (n == 1) {
        *f = input(d, lo, i);
        *w = d->type >= TERN_I32 ? (int64_t)*f : 0;
        return;
    }
    while (2 * h < n)
        h *= 2;
    reference(d, lo, h, i, f, w);
    reference(d, lo + h, n - h, i, &g, &x);
    if (d->op == TERN_MAX || d->op == TERN_MIN) {
        bool right = d->op == TERN_MAX ? g > *f : g < *f;
        *f = right ? g : *f;
        *w = right ? x : *w;
        return;
    }
    *f = d->type == TERN_F64 ? *f + g : (double)((float)*f + (float)g);
    *w = (int64_t)((uint64_t)*w + (uint64_t)x);
    if (d->type == TERN_I32)
        *w = (int32_t)*w;
    else if (d->type == TERN_U8)
        *w = (uint8_t)*w;
}

static bool right(const struct draw *d, int n, const void *got, size_t at, size_t i)
{
    size_t es = tern_type_bytes(d->type);
    const char *g = (const char *)got + at * es;
    double f;
    int64_t w, have = 0;

    reference(d, 0, n, i, &f, &w);
    if (d->type >= TERN_I32) {
        w = d->op == TERN_AVG ? w / n : w;
        have = d->type == TERN_I32   ? *(const int32_t *)g
               : d->type == TERN_I64 ? *(const int64_t *)g
                                     : *(const uint8_t *)g;
        return have == w;
    }
    if (d->op == TERN_AVG)
        f = d->type == TERN_F64 ? f / n : (double)((float)f / (float)n);
    uint32_t bits = d->type == TERN_BF16 ? (uint32_t) * (const uint16_t *)g << 16 : 0;
    float narrow;
    memcpy(&narrow, d->type == TERN_BF16 ? (const void *)&bits : g, 4);
    double v = d->type == TERN_F64 ? *(const double *)g : narrow;
    bool exact = !getenv("TEST_FABRIC_ORDER") || d->op == TERN_MAX || d->op == TERN_MIN;
    if (d->type == TERN_BF16) /* one rounding: half a unit of eight bits */
        return fabs(v - f) <= fabs(f) / 256 + (exact ? 0 : 1e-5);
    return exact ? v == f : fabs(v - f) <= 1e-6 * 3100 * n;
}

/* Now and then `whole`, as much as the memory holds; else less, since the reference is slow. */
static size_t draw_count(uint64_t r, size_t whole)
{
    static const size_t some[] = {0, 1, 63, 64, 65, 511, 513};
    size_t n = r % 16 < 7     ? some[r % 16]
               : r % 16 == 15 ? whole - r / 16 % 3
                              : (r >> 8) % (r % 2 ? 5000 : whole / 16);

    return n < whole ? n : whole;
}

struct memory {
    char *shared[2], *own[2];
};

/* The result of an all_reduce has the same bits on all ranks. */
static int same_everywhere(struct tern_comm *c, const struct draw *d, const char *out)
{
    const int64_t mine = tern_crc32c(0, out, d->count * tern_type_bytes(d->type));
    int64_t crc[2] = {mine, -mine};

    if (tern_fabric_all_reduce(c, crc, 2, TERN_I64, TERN_MAX, &err) < 0)
        return say_error("checksum");
    if (crc[0] == mine && crc[1] == -mine)
        return 0;
    fprintf(stderr, "ranks differ in all_reduce %s %zu\n", tern_type_name(d->type), d->count);
    return 1;
}

static int one(struct tern_comm *c, struct memory *m, uint64_t id, uint64_t bits)
{
    int n = tern_fabric_comm_size(c), me = tern_fabric_comm_rank(c), rc = -1;
    struct draw d = {.type = (enum tern_type)(bits % 6),
                     .op = (enum tern_op)(bits / 6 % 4),
                     .call = (int)(bits / 24 % 4),
                     .root = (int)(bits / 96 % (uint64_t)n),
                     .id = id};
    size_t es = tern_type_bytes(d.type), wrong = 0;
    bool shared = tern_rand_below(seed + 7, (uint64_t)me, id, 3) > 0 || id % 3 == 0;
    bool in_place = bits >> 40 & 1;
    bool out_shared = bits >> 41 & 3 ? shared : !shared;
    char *in = (shared ? m->shared : m->own)[0], *out = (out_shared ? m->shared : m->own)[1];

    d.count = draw_count(bits >> 20, MAX_BYTES / es / (d.call == 0 || d.call == 3 ? 1 : (size_t)n));
    size_t whole = d.count * (size_t)(d.call == 1 ? n : 1), block = d.count * es;
    if (in_place && d.call == 1)
        out = in + (size_t)me * block;
    else if (in_place && d.call == 2)
        in = out + (size_t)me * block;
    for (size_t i = 0; i < whole; i++)
        put(d.call == 0 || d.call == 3 ? out : in, d.type, i, input(&d, me, i));
    if (d.call == 0)
        rc = tern_fabric_all_reduce(c, out, d.count, d.type, d.op, &err);
    else if (d.call == 1)
        rc = tern_fabric_reduce_scatter(c, in, out, d.count, d.type, d.op, &err);
    else if (d.call == 2)
        rc = tern_fabric_all_gather(c, in, out, d.count, d.type, &err);
    else
        rc = tern_fabric_broadcast(c, out, d.count, d.type, d.root, &err);
    if (rc < 0)
        return say_error("operation");
    if (d.call <= 1) {
        size_t step = d.count > 4096 ? 61 : 1;
        for (size_t i = 0; i < d.count; i += step)
            wrong += !right(&d, n, out, i, i + (d.call ? (size_t)me * d.count : 0));
    } else {
        char want[8];
        for (int r = 0; r < (d.call == 2 ? n : 1); r++)
            for (size_t i = 0; i < d.count; i++) {
                put(want, d.type, 0, input(&d, d.call == 2 ? r : d.root, i));
                wrong += memcmp(out + ((size_t)r * d.count + i) * es, want, es) != 0;
            }
    }
    if (wrong) {
        fprintf(stderr,
                "call %d type %s op %s count %zu ranks %d in place %d shared %d: %zu wrong\n",
                d.call, tern_type_name(d.type), tern_op_name(d.op), d.count, n, in_place, shared,
                wrong);
        return 1;
    }
    return d.call == 0 ? same_everywhere(c, &d, out) : 0;
}

int fabric_random(struct tern_fabric *f, uint64_t from, int operations)
{
    struct tern_comm *world = tern_fabric_world(f), *group = NULL;
    static struct memory m; /* after an error what was under way may still write there: kept */
    uint64_t bits = 0;
    int rc = 0;

    seed = from;

    for (int i = 0; i < 2; i++) {
        m.shared[i] = tern_fabric_alloc(f, MAX_BYTES, &err);
        m.own[i] = calloc(1, MAX_BYTES);
        if (!m.shared[i] || !m.own[i])
            return say_error("memory");
    }
    for (int k = 0; k < operations && rc == 0; k++) {
        uint64_t new = tern_rand_u64(seed, 99, (uint64_t)k);
        /* Now and then the last one once more, in place or not, in shared memory or not. */
        bits = k && new % 3 == 0 ? (bits & ~(1ull << 40)) | (new & 1ull << 40) : new;
        if (k % 16 == 7) { /* a new group, with a rank left out now and then; memory moves too */
            int rank = tern_fabric_rank(f), color = (int)((bits >> (rank % 32)) & 3) - 1;
            tern_fabric_comm_free(group);
            if (tern_fabric_comm_split(world, color, (int)(bits >> 50) & 1 ? -rank : rank, &group,
                                       &err) < 0)
                return say_error("split");
            tern_fabric_free(f, m.shared[0]);
            m.shared[0] = tern_fabric_alloc(f, MAX_BYTES, &err);
        }
        struct tern_comm *c = bits >> 60 & 1 && k > 7 ? group : world;
        /* Groups of one split run at the same time, each with its own numbers. */
        if (c)
            rc = one(c, &m,
                     (uint64_t)k * 64 +
                         (uint64_t)(c == world ? 63 : tern_fabric_comm_world_rank(c, 0)),
                     bits);
    }
    if (rc == 0 && tern_fabric_barrier(world, &err) < 0)
        return say_error("barrier");
    for (int i = 0; i < 2; i++)
        free(m.own[i]);
    return rc;
}
