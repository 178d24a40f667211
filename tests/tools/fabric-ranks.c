/* Several ranks on this machine, for tests of the fabric.
 *
 *   random RANKS SEED OPERATIONS  random operations beside a plain reference
 *   kill RANKS VICTIM             VICTIM is killed amid operations; the others tell their errors
 *   stop RANKS VICTIM             the same with SIGSTOP
 *   starve RANKS VICTIM           VICTIM may open no more files where it is given a new buffer
 *   cram RANKS VICTIM             VICTIM has no buffer left for the communicator of a split
 *   lose RANKS                    operations until they fail, whatever the provider does to them
 *   poll RANKS VICTIM             as kill, and the others ask instead of waiting
 *   ahead RANKS                   rank 0 begins 64 short broadcasts while the others compute
 *   leave RANKS                   rank 0 begins a long broadcast and does not look again before the
 *                                 others have it and are gone
 *   quit RANKS                    rank 0 ends amid a broadcast: all of it arrives, or an error
 *   free RANKS                    memory that is freed at once after the operation on it
 *   late RANKS                    the last rank comes when the others have given up; their memory
 *                                 is gone by then, and their fabric still open
 *   uneven RANKS                  half of them compute for a while, often; then "sleeps: N" of rank
 *                                 0 in 40 barriers, without TEST_FABRIC_LATE, as a preloaded
 *                                 tern_test_sleeps() counts them
 *   paced RANKS                   the last one comes 9 ms late to each of 40 barriers; then the
 *                                 "yields: N" of rank 0 in one, as tern_test_yields() counts
 *   mismatch RANKS                the last rank calls something else
 *   differ RANKS                  the same where few elements are combined, and all others wait
 *   short RANKS                   one rank fewer comes than is expected
 *
 * RANKS 0: this process is one rank, started by srun or mpirun.  With TEST_FABRIC_ORDER=any the
 * float sums may be in any order (nodes that are no aligned blocks), with TEST_FABRIC_FAR=1 the
 * ranks are on hosts of different names; rank TEST_FABRIC_HASTY has a deadline of 2 s. */
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/rand.h"
#include "core/fabric/fabric.h"

#include <dlfcn.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 64, MAX_BYTES = 4 << 20 };
static const char *mode;
static uint64_t seed;
static int operations, victim;
static struct tern_err err;

static int say_error(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, err.text);
    return 1;
}

/* ---------------------------------------------------------------- random operations */

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

static int one(struct tern_comm *c, struct memory *m, uint64_t id, uint64_t bits)
{
    int n = tern_comm_size(c), me = tern_comm_rank(c), rc = -1;
    struct draw d = {.type = (enum tern_type)(bits % 6),
                     .op = (enum tern_op)(bits / 6 % 4),
                     .call = (int)(bits / 24 % 4),
                     .root = (int)(bits / 96 % (uint64_t)n),
                     .id = id};
    size_t es = tern_type_bytes(d.type), wrong = 0;
    bool shared = tern_rand_below(seed + 7, (uint64_t)me, id, 3) > 0 || id % 3 == 0;
    bool in_place = bits >> 40 & 1;
    char *in = (shared ? m->shared : m->own)[0], *out = (shared ? m->shared : m->own)[1];

    d.count = draw_count(bits >> 20, MAX_BYTES / es / (d.call == 0 || d.call == 3 ? 1 : (size_t)n));
    size_t whole = d.count * (size_t)(d.call == 1 ? n : 1), block = d.count * es;
    if (in_place && d.call == 1)
        out = in + (size_t)me * block;
    else if (in_place && d.call == 2)
        in = out + (size_t)me * block;
    for (size_t i = 0; i < whole; i++)
        put(d.call == 0 || d.call == 3 ? out : in, d.type, i, input(&d, me, i));
    if (d.call == 0)
        rc = tern_comm_all_reduce(c, out, d.count, d.type, d.op, &err);
    else if (d.call == 1)
        rc = tern_comm_reduce_scatter(c, in, out, d.count, d.type, d.op, &err);
    else if (d.call == 2)
        rc = tern_comm_all_gather(c, in, out, d.count, d.type, &err);
    else
        rc = tern_comm_broadcast(c, out, d.count, d.type, d.root, &err);
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
    if (d.call == 0) { /* the same bits everywhere */
        int64_t crc[2] = {tern_crc32c(0, out, block)};
        crc[1] = -crc[0];
        int64_t was = crc[0];
        if (tern_comm_all_reduce(c, crc, 2, TERN_I64, TERN_MAX, &err) < 0)
            return say_error("checksum");
        if (crc[0] != was || crc[1] != -was) {
            fprintf(stderr, "ranks differ in all_reduce %s %zu\n", tern_type_name(d.type), d.count);
            return 1;
        }
    }
    return 0;
}

static int random_operations(struct tern_fabric *f)
{
    struct tern_comm *world = tern_fabric_world(f), *group = NULL;
    static struct memory m; /* after an error what was under way may still write there: kept */
    uint64_t bits = 0;
    int rc = 0;

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
            tern_comm_free(group);
            if (tern_comm_split(world, color, (int)(bits >> 50) & 1 ? -rank : rank, &group, &err) <
                0)
                return say_error("split");
            tern_fabric_free(f, m.shared[0]);
            m.shared[0] = tern_fabric_alloc(f, MAX_BYTES, &err);
        }
        struct tern_comm *c = bits >> 60 & 1 && k > 7 ? group : world;
        /* Groups of one split run at the same time, each with its own numbers. */
        if (c)
            rc = one(c, &m,
                     (uint64_t)k * 64 + (uint64_t)(c == world ? 63 : tern_comm_world_rank(c, 0)),
                     bits);
    }
    if (rc == 0 && tern_comm_barrier(world, &err) < 0)
        return say_error("barrier");
    for (int i = 0; i < 2; i++)
        free(m.own[i]);
    return rc;
}

/* ---------------------------------------------------------------- several at once */

enum { GROUPS = 3, DEPTH = 6, PENDING_MAX = 40000 };

struct begun {
    struct tern_comm *c;
    struct tern_pending pending;
    int64_t *buf;
    size_t count;
    int round;
};

/* Every rank begins and waits for the groups' operations in an order of its own; within a group the
 * order is the same for all. */
static int begin_all(struct begun *b, struct tern_comm **groups, int rank, int round)
{
    int next[GROUPS] = {0};

    for (int left = GROUPS * DEPTH; left > 0;) {
        int g = (int)(tern_rand_u64(seed + 11, (uint64_t)rank, (uint64_t)(round * 1000 + left)) %
                      GROUPS);
        while (next[g] == DEPTH)
            g = (g + 1) % GROUPS;
        struct begun *one = &b[g * DEPTH + next[g]];
        one->c = groups[g];
        one->round = round;
        one->count =
            tern_rand_u64(seed, (uint64_t)(round * GROUPS + g), (uint64_t)next[g]) % PENDING_MAX;
        for (size_t i = 0; i < one->count; i++)
            one->buf[i] = (int64_t)i * (tern_comm_rank(one->c) + 1) + round + next[g];
        next[g]++, left--;
        if (tern_comm_all_reduce_begin(one->c, one->buf, one->count, TERN_I64, TERN_SUM,
                                       &one->pending, &err) < 0)
            return say_error("begin");
    }
    return 0;
}

static int end_all(struct begun *b, int rank, int round)
{
    for (int k = 0; k < GROUPS * DEPTH; k++) {
        int which = (k * 5 + rank * 7 + round) % (GROUPS * DEPTH); /* 5 and 18 have no divisor */
        struct begun *one = &b[which];
        int n = tern_comm_size(one->c);
        bool done = false;
        int64_t until = tern_clock_boot_ns() + 10000000000;
        while (k % 2 && !done && tern_clock_boot_ns() < until)
            if (tern_comm_test(&one->pending, &done, &err) < 0)
                return say_error("test");
        if (k % 2 && !done) {
            fprintf(stderr, "rank %d: an operation is never done\n", rank);
            return 1;
        }
        if (tern_comm_wait(&one->pending, &err) < 0)
            return say_error("wait");
        for (size_t i = 0; i < one->count; i++)
            if (one->buf[i] !=
                (int64_t)i * n * (n + 1) / 2 + (int64_t)n * (round + which % DEPTH)) {
                fprintf(stderr, "rank %d: element %zu of %zu is wrong\n", rank, i, one->count);
                return 1;
            }
    }
    return 0;
}

static int pending_operations(struct tern_fabric *f)
{
    struct tern_comm *groups[GROUPS] = {tern_fabric_world(f)};
    int rank = tern_fabric_rank(f), rc = 0;
    struct begun b[GROUPS * DEPTH];

    const struct tern_comm_part parts[] = {{rank / 2, rank, &groups[1]},
                                           {rank % 2, rank, &groups[2]}};
    if (tern_comm_splits(groups[0], parts, 2, &err) < 0)
        return say_error("splits");
    for (int i = 0; i < GROUPS * DEPTH; i++) {
        b[i].buf = i % 3 ? tern_fabric_alloc(f, PENDING_MAX * sizeof *b[i].buf, &err)
                         : calloc(PENDING_MAX, sizeof *b[i].buf);
        if (!b[i].buf)
            return say_error("memory");
    }
    for (int round = 0; round < operations && rc == 0; round++) {
        rc = begin_all(b, groups, rank, round);
        if (rc == 0 && tern_fabric_progress(f, &err) < 0)
            rc = say_error("progress");
        if (rc == 0)
            rc = end_all(b, rank, round);
    }
    for (int i = 0; i < GROUPS * DEPTH; i += 3)
        free(b[i].buf);
    return rc;
}

/* The root computes while the others already have it and go. */
static int broadcast_at_leisure(struct tern_fabric *f, char *v, size_t bytes)
{
    struct tern_pending p;

    if (tern_comm_broadcast_begin(tern_fabric_world(f), v, bytes, TERN_U8, 0, &p, &err) < 0 ||
        tern_fabric_progress(f, &err) < 0)
        return -1;
    if (tern_fabric_rank(f) == 0)
        tern_clock_sleep_ns(5000000);
    return tern_comm_wait(&p, &err);
}

static int free_at_once(struct tern_fabric *f)
{
    for (int k = 0; k < 30; k++) {
        const size_t bytes = 100000 - 3000 * (size_t)k; /* one write */
        char *v = tern_fabric_alloc(f, bytes, &err);
        if (!v)
            return say_error("memory");
        memset(v, tern_fabric_rank(f) == 0 ? k : 0, bytes);
        if (broadcast_at_leisure(f, v, bytes) < 0)
            return say_error("broadcast");
        if (v[0] != k || v[bytes - 1] != k) {
            fprintf(stderr, "broadcast %d is wrong\n", k);
            return 1;
        }
        tern_fabric_free(f, v);
    }
    return 0;
}

/* As many as may be begun at once: more than a receiver keeps of what it has not asked for. */
static int run_ahead(struct tern_fabric *f)
{
    enum { BEGUN = 64, COUNT = 16 };
    static int32_t v[BEGUN][COUNT];
    struct tern_pending p[BEGUN];
    bool root = tern_fabric_rank(f) == 0;

    if (!root)
        tern_clock_sleep_ns(300000000);
    for (int k = 0; k < BEGUN; k++) {
        for (int i = 0; i < COUNT; i++)
            v[k][i] = root ? k * COUNT + i : -1;
        if (tern_comm_broadcast_begin(tern_fabric_world(f), v[k], COUNT, TERN_I32, 0, &p[k], &err) <
            0)
            return say_error("broadcast");
    }
    if (tern_comm_wait(&p[BEGUN - 1], &err) < 0)
        return say_error("wait");
    for (int k = 0; k < BEGUN; k++)
        for (int i = 0; i < COUNT; i++)
            if (v[k][i] != k * COUNT + i) {
                fprintf(stderr, "broadcast %d is wrong\n", k);
                return 1;
            }
    return 0;
}

static int gone[2]; /* a pipe that the others close with their end */

static int leave(struct tern_fabric *f)
{
    enum { COUNT = 1 << 20 };
    struct tern_comm *c = tern_fabric_world(f);
    struct tern_pending p;
    uint8_t *v = tern_fabric_alloc(f, COUNT, &err);
    bool root = tern_fabric_rank(f) == 0;
    char byte;

    if (!v)
        return say_error("alloc");
    memset(v, root ? 7 : 0, COUNT);
    if (tern_comm_broadcast_begin(c, v, COUNT, TERN_U8, 0, &p, &err) < 0 ||
        tern_fabric_progress(f, &err) < 0)
        return say_error("broadcast");
    if (root) {
        close(gone[1]);
        if (read(gone[0], &byte, 1) != 0)
            return 1;
    }
    if (tern_comm_wait(&p, &err) < 0)
        return say_error("broadcast");
    if (v[0] != 7 || memcmp(v, v + 1, COUNT - 1) != 0)
        return fprintf(stderr, "a broadcast is wrong\n"), 1;
    return 0;
}

static int quit(struct tern_fabric *f)
{
    enum { COUNT = 512 << 20 };
    struct tern_comm *c = tern_fabric_world(f);
    struct tern_pending p;
    uint8_t *v = tern_fabric_alloc(f, COUNT, &err);
    size_t wrong = 0;

    if (!v)
        return say_error("alloc");
    memset(v, tern_fabric_rank(f) == 0 ? 7 : 1, COUNT);
    if (tern_comm_barrier(c, &err) < 0)
        return say_error("barrier");
    if (tern_fabric_rank(f) == 0) {
        if (tern_comm_broadcast_begin(c, v, COUNT, TERN_U8, 0, &p, &err) < 0 ||
            tern_fabric_progress(f, &err) < 0)
            return say_error("broadcast");
        tern_clock_sleep_ns(20000000);
        return 0;
    }
    if (tern_comm_broadcast(c, v, COUNT, TERN_U8, 0, &err) < 0)
        return 0;
    for (size_t i = 0; i < COUNT; i++)
        wrong += v[i] != 7;
    if (wrong)
        fprintf(stderr, "%zu bytes of a broadcast are wrong\n", wrong);
    return wrong > 0;
}

/* ---------------------------------------------------------------- failures */

static bool kills(void)
{
    return strcmp(mode, "kill") == 0 || strcmp(mode, "poll") == 0;
}

static int reduce(struct tern_fabric *f, float *v, size_t count)
{
    struct tern_comm *c = tern_fabric_world(f);
    struct tern_pending p;
    bool done = false;

    if (strcmp(mode, "poll") != 0)
        return tern_comm_all_reduce(c, v, count, TERN_F32, TERN_SUM, &err);
    if (tern_comm_all_reduce_begin(c, v, count, TERN_F32, TERN_SUM, &p, &err) < 0)
        return -1;
    while (!done)
        if (tern_comm_test(&p, &done, &err) < 0)
            return -1;
    return 0;
}

static int say_after(int64_t start)
{
    dprintf(2, "after %.1f s: code %d: %s\n", /* at once, whole */
            (double)(tern_clock_boot_ns() - start) / 1e9, (int)err.code, err.text);
    return 3;
}

static int late(struct tern_fabric *f)
{
    const size_t block = 1 << 20;
    int rank = tern_fabric_rank(f), size = tern_fabric_size(f);
    size_t bytes = block * (size_t)size;
    char *v = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int64_t start = tern_clock_boot_ns();

    if (v == MAP_FAILED)
        return 1;
    memset(v, 1, bytes);
    if (rank == size - 1)
        tern_clock_sleep_ns(1500000000);
    if (tern_comm_all_gather(tern_fabric_world(f), v + (size_t)rank * block, v, block, TERN_U8,
                             &err) == 0)
        return 0;
    if (rank < size - 1) {
        munmap(v, bytes);
        tern_clock_sleep_ns(start + 2000000000 - tern_clock_boot_ns());
    }
    return say_after(start);
}

static int until_error(struct tern_fabric *f)
{
    float *v = tern_fabric_alloc(f, 1 << 20, &err);
    int rank = tern_fabric_rank(f), size = tern_fabric_size(f);
    bool few = strcmp(mode, "differ") == 0, differs = few || strcmp(mode, "mismatch") == 0;
    struct rlimit files = {0};

    if (!v)
        return say_error("memory");
    for (int i = 0;; i++) {
        int64_t start = tern_clock_boot_ns();
        int rc;
        if (i == 20 && rank == victim && (kills() || strcmp(mode, "stop") == 0))
            raise(kills() ? SIGKILL : SIGSTOP);
        if (i == 20 && strcmp(mode, "starve") == 0) {
            v = tern_fabric_alloc(f, 1 << 20, &err);
            getrlimit(RLIMIT_NOFILE, &files);
            const struct rlimit none = {0, files.rlim_max};
            if (!v || (rank == victim && setrlimit(RLIMIT_NOFILE, &none) < 0))
                return say_error("starve");
        }
        if (i == 20 && rank == size - 1 && few)
            tern_clock_sleep_ns(200000000);
        struct tern_comm *new;
        while (i == 20 && rank == victim && strcmp(mode, "cram") == 0)
            if (!tern_fabric_alloc(f, 1, &err))
                break;
        if (i == 20 && strcmp(mode, "cram") == 0)
            rc = tern_comm_split(tern_fabric_world(f), 0, 0, &new, &err);
        else if (i == 20 && rank == size - 1 && differs)
            rc = tern_comm_all_gather(tern_fabric_world(f), v, v + 1024, 64, TERN_F32, &err);
        else
            rc = reduce(f, v, few ? 1000 : i % 2 ? 4096 : 200000);
        if (rc < 0 && files.rlim_cur) /* leak checkers want some */
            setrlimit(RLIMIT_NOFILE, &files);
        if (rc < 0)
            return say_after(start);
    }
}

/* Those who wait sleep meanwhile. */
static int uneven(struct tern_fabric *f)
{
    enum { ROUNDS = 12, BARRIERS = 40, COMPUTE_NS = 40000000 };
    struct tern_comm *c = tern_fabric_world(f);
    int (*sleeps)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "tern_test_sleeps");

    for (int i = 0; i < ROUNDS; i++) {
        int64_t until = tern_clock_boot_ns() + COMPUTE_NS;
        while ((tern_fabric_rank(f) + i) % 2 && tern_clock_boot_ns() < until)
            ;
        if (tern_comm_barrier(c, &err) < 0)
            return say_error("barrier");
    }
    unsetenv("TEST_FABRIC_LATE");
    int before = sleeps ? sleeps() : 0;
    for (int i = 0; i < BARRIERS; i++)
        if (tern_comm_barrier(c, &err) < 0)
            return say_error("barrier");
    if (tern_fabric_rank(f) == 0)
        printf("sleeps: %d\n", sleeps ? sleeps() - before : -1);
    return 0;
}

/* As the pieces of a large operation come over a slow link. */
static int paced(struct tern_fabric *f)
{
    enum { BARRIERS = 40, LATE_NS = 9000000 };
    int (*yields)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "tern_test_yields");
    bool last = tern_fabric_rank(f) == tern_fabric_size(f) - 1;

    for (int i = 0; i < BARRIERS; i++) {
        if (last)
            tern_clock_sleep_ns(LATE_NS);
        if (tern_comm_barrier(tern_fabric_world(f), &err) < 0)
            return say_error("barrier");
    }
    if (tern_fabric_rank(f) == 0)
        printf("yields: %d\n", yields ? yields() / BARRIERS : -1);
    return 0;
}

static int rank_main(const struct tern_fabric_options *o)
{
    struct tern_fabric *f = tern_fabric_open(o, &err);

    if (!f)
        return say_error("open");
    int rc = strcmp(mode, "random") == 0    ? random_operations(f)
             : strcmp(mode, "pending") == 0 ? pending_operations(f)
             : strcmp(mode, "ahead") == 0   ? run_ahead(f)
             : strcmp(mode, "leave") == 0   ? leave(f)
             : strcmp(mode, "quit") == 0    ? quit(f)
             : strcmp(mode, "free") == 0    ? free_at_once(f)
             : strcmp(mode, "uneven") == 0  ? uneven(f)
             : strcmp(mode, "paced") == 0   ? paced(f)
             : strcmp(mode, "late") == 0    ? late(f)
                                            : until_error(f);
    tern_fabric_close(f);
    return rc;
}

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[2]) : -1, worst = 0, status, ended = 0;
    const char *hasty = getenv("TEST_FABRIC_HASTY");
    pid_t pids[MAX_RANKS], pid;

    if (n < 0 || n > MAX_RANKS)
        return 2;
    mode = argv[1];
    victim = argc > 3 ? atoi(argv[3]) : -1;
    seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    operations = argc > 4 ? atoi(argv[4]) : 100;
    if (n == 0)
        return rank_main(NULL);
    struct tern_rendezvous *r = tern_rendezvous_open("127.0.0.1", n, &err);
    if (!r)
        return say_error("rendezvous");
    int start = strcmp(mode, "short") == 0 ? n - 1 : n;
    if (pipe(gone) < 0)
        return 1;
    for (int i = 0; i < start; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct tern_fabric_options o = {.wireup = TERN_WIREUP_SOCKET,
                                            .socket = tern_rendezvous_address(r),
                                            .rank = i,
                                            .size = n};
            char host[16];
            snprintf(host, sizeof host, "node-%d", i);
            if (getenv("TEST_FABRIC_FAR"))
                setenv("SLURMD_NODENAME", host, 1);
            if (hasty && i == atoi(hasty))
                o.deadline_s = 2;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            exit(rank_main(&o));
        }
    }
    close(gone[1]);
    int waited = strcmp(mode, "stop") == 0 ? start - 1 : start;
    while (ended < waited && tern_rendezvous_step(r, &err) == 0) {
        struct pollfd p = {tern_rendezvous_fd(r), POLLIN, 0};
        poll(&p, 1, 10);
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            ended++;
            bool meant = kills() && pid == pids[victim];
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : meant ? 0 : 128 + WTERMSIG(status);
            worst = code > worst ? code : worst;
        }
    }
    if (strcmp(mode, "stop") == 0)
        kill(pids[victim], SIGKILL);
    tern_rendezvous_close(r);
    return worst;
}
