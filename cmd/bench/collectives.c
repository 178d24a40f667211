#include "cmd/bench/collectives.h"

#include "core/wire/mpi/mpi.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- contents */

double bench_value(int rank, size_t i)
{
    return (double)((i * 7 + (size_t)rank * 3) % 8);
}

void bench_put(void *p, enum tern_type type, size_t i, double v)
{
    float f = (float)v;
    uint32_t bits;

    switch (type) {
    case TERN_F32:
        ((float *)p)[i] = f;
        break;
    case TERN_F64:
        ((double *)p)[i] = v;
        break;
    case TERN_BF16:
        memcpy(&bits, &f, 4);
        ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
        break;
    case TERN_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    case TERN_I64:
        ((int64_t *)p)[i] = (int64_t)v;
        break;
    case TERN_U8:
        ((uint8_t *)p)[i] = (uint8_t)v;
        break;
    }
}

double bench_get(const void *p, enum tern_type type, size_t i)
{
    uint32_t bits;
    float f;

    switch (type) {
    case TERN_F32:
        return ((const float *)p)[i];
    case TERN_F64:
        return ((const double *)p)[i];
    case TERN_BF16:
        bits = (uint32_t)((const uint16_t *)p)[i] << 16;
        memcpy(&f, &bits, 4);
        return f;
    case TERN_I32:
        return ((const int32_t *)p)[i];
    case TERN_I64:
        return (double)((const int64_t *)p)[i];
    case TERN_U8:
        return ((const uint8_t *)p)[i];
    }
    return 0;
}

static double combined(const struct bench *b, size_t i)
{
    double v = bench_value(0, i);
    int n = tern_fabric_comm_size(b->c);

    for (int r = 1; r < n; r++) {
        double w = bench_value(r, i);
        v = b->redop == TERN_MAX ? fmax(v, w) : b->redop == TERN_MIN ? fmin(v, w) : v + w;
    }
    if (b->type == TERN_U8)
        v = fmod(v, 256);
    if (b->redop == TERN_AVG)
        v = b->type >= TERN_I32 ? trunc(v / n) : v / n;
    return v;
}

/* ---------------------------------------------------------------- operations */

size_t bench_share(const struct bench *b)
{
    return b->count / (size_t)tern_fabric_comm_size(b->c);
}

size_t bench_moved(const struct bench *b, const struct bench_operation *o)
{
    return o->whole ? b->count : bench_share(b) * (size_t)tern_fabric_comm_size(b->c);
}

char *bench_own(const struct bench *b)
{
    return b->out + bench_share(b) * (size_t)tern_fabric_comm_rank(b->c) * tern_type_bytes(b->type);
}

static int run_all_reduce(struct bench *b, struct tern_err *err)
{
    return tern_fabric_all_reduce(b->c, b->out, b->count, b->type, b->redop, err);
}
static int run_reduce_scatter(struct bench *b, struct tern_err *err)
{
    return tern_fabric_reduce_scatter(b->c, b->in_place ? b->out : b->in,
                                      b->in_place ? bench_own(b) : b->out, bench_share(b), b->type,
                                      b->redop, err);
}
static int run_all_gather(struct bench *b, struct tern_err *err)
{
    return tern_fabric_all_gather(b->c, b->in_place ? bench_own(b) : b->in, b->out, bench_share(b),
                                  b->type, err);
}
static int run_broadcast(struct bench *b, struct tern_err *err)
{
    return tern_fabric_broadcast(b->c, b->out, b->count, b->type, 0, err);
}

static int peer_all_reduce(struct bench *b, struct tern_err *err)
{
    const struct bench_peer *p = b->peer;
    return bench_peer_check(p, p->mpi->all_reduce(b->out, b->count, p->type, p->op), err);
}
static int peer_reduce_scatter(struct bench *b, struct tern_err *err)
{
    const struct bench_peer *p = b->peer;
    const char *in = b->in_place ? NULL : b->in;

    return bench_peer_check(p, p->mpi->reduce_scatter(in, b->out, bench_share(b), p->type, p->op),
                            err);
}
static int peer_all_gather(struct bench *b, struct tern_err *err)
{
    const struct bench_peer *p = b->peer;
    const char *in = b->in_place ? NULL : b->in;

    return bench_peer_check(p, p->mpi->all_gather(in, b->out, bench_share(b), p->type), err);
}
static int peer_broadcast(struct bench *b, struct tern_err *err)
{
    const struct bench_peer *p = b->peer;
    return bench_peer_check(p, p->mpi->broadcast(b->out, b->count, p->type, 0), err);
}

static double expect_scattered(const struct bench *b, size_t i)
{
    return combined(b, i + bench_share(b) * (size_t)tern_fabric_comm_rank(b->c));
}
static double expect_gathered(const struct bench *b, size_t i)
{
    return bench_share(b) ? bench_value((int)(i / bench_share(b)), i % bench_share(b)) : 0;
}
static double expect_root(const struct bench *b, size_t i)
{
    (void)b;
    return bench_value(0, i);
}

static double twice(int n)
{
    return 2.0 * (n - 1) / n;
}
static double once(int n)
{
    return (double)(n - 1) / n;
}
static double one(int n)
{
    (void)n;
    return 1;
}

const struct bench_operation bench_operations[BENCH_OPERATIONS] = {
    {
        .name = "all_reduce",
        .reduces = true,
        .whole = true,
        .work = BENCH_IN_PLACE,
        .factor = twice,
        .run = run_all_reduce,
        .run_peer = peer_all_reduce,
        .expected = combined,
    },
    {
        .name = "reduce_scatter",
        .reduces = true,
        .scatters = true,
        .work = BENCH_GATHER_UP,
        .factor = once,
        .run = run_reduce_scatter,
        .run_peer = peer_reduce_scatter,
        .expected = expect_scattered,
    },
    {
        .name = "all_gather",
        .gathers = true,
        .work = BENCH_SPREAD,
        .factor = once,
        .run = run_all_gather,
        .run_peer = peer_all_gather,
        .expected = expect_gathered,
    },
    {
        .name = "broadcast",
        .whole = true,
        .rooted = true,
        .work = BENCH_COPY,
        .factor = one,
        .run = run_broadcast,
        .run_peer = peer_broadcast,
        .expected = expect_root,
    },
};
