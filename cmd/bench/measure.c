#include "cmd/bench/measure.h"

#include "core/base/clock.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* How far off it may be: a mean need not be a number of the type. A sum above 256 need not be one
 * of bf16, which rounds once, by half of 2^-7 at most. */
static double slack(const struct bench *b, const struct bench_operation *o, double expected)
{
    static const double of[] = {
        [TERN_F32] = 1e-6, [TERN_F64] = 1e-14, [TERN_BF16] = 1.0 / 256, [TERN_U8] = 0};
    bool rounds = b->redop == TERN_AVG || (b->redop == TERN_SUM && b->type == TERN_BF16);

    return o->reduces && rounds ? fabs(expected) * of[b->type] : 0;
}

static size_t count_wrong(struct bench *b, const struct bench_operation *o, bool by_peer)
{
    const char *result = o->scatters && b->in_place && !by_peer ? bench_own(b) : b->out;
    size_t n = o->scatters ? bench_share(b) : bench_moved(b, o), wrong = 0;

    for (size_t i = 0; i < n; i++) {
        double expected = o->expected(b, i), got = bench_get(result, b->type, i);
        wrong += !(fabs(got - expected) <= slack(b, o, expected));
    }
    return wrong;
}

/* One call on fresh contents, checked; then the calls that are not measured. */
static int prepare(struct bench *b, const struct bench_operation *o, bench_call *run, double *wrong,
                   struct tern_err *err)
{
    for (size_t i = 0; i < b->count; i++) {
        bench_put(b->in, b->type, i, bench_value(tern_fabric_comm_rank(b->c), i));
        bench_put(b->out, b->type, i, bench_value(tern_fabric_comm_rank(b->c), i));
    }
    if (b->in_place && o->gathers)
        memcpy(bench_own(b), b->in, bench_share(b) * tern_type_bytes(b->type));
    if (tern_fabric_barrier(b->c, err) < 0 || run(b, err) < 0)
        return -1;
    *wrong = (double)count_wrong(b, o, run == o->run_peer);
    for (int64_t i = 0; i < b->warmups; i++)
        if (run(b, err) < 0)
            return -1;
    return 0;
}

struct spent { /* by all calls, in microseconds */
    double wall, cpu;
};

static double cpu_us(void)
{
    struct timespec t;

    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0
               ? (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3
               : 0;
}

/* Calls [from, to); adds what they took together. */
static int time_calls(struct bench *b, bench_call *run, double *times, int64_t from, int64_t to,
                      struct spent *sum, struct tern_err *err)
{
    if (tern_fabric_barrier(b->c, err) < 0)
        return -1;
    double cpu = cpu_us();
    int64_t start = tern_clock_boot_ns();
    for (int64_t i = from; i < to; i++) {
        int64_t before = tern_clock_boot_ns();
        if (run(b, err) < 0)
            return -1;
        times[i] = (double)(tern_clock_boot_ns() - before) / 1e3;
    }
    sum->wall += (double)(tern_clock_boot_ns() - start) / 1e3;
    sum->cpu += cpu_us() - cpu;
    return 0;
}

static int summarize(struct bench *b, const struct bench_operation *o, double *times,
                     const struct spent *sum, double wrong, struct bench_times *t,
                     struct tern_err *err)
{
    double worst[4] = {sum->wall / (double)b->iterations, 0, 0, wrong};
    double cpu = sum->cpu / (double)b->iterations;

    qsort(times, (size_t)b->iterations, sizeof *times, by_value);
    worst[1] = times[b->iterations / 2];
    worst[2] = times[(99 * b->iterations + 99) / 100 - 1];
    if (tern_fabric_all_reduce(b->c, worst, 4, TERN_F64, TERN_MAX, err) < 0 ||
        tern_fabric_all_reduce(b->c, &cpu, 1, TERN_F64, TERN_AVG, err) < 0)
        return -1;
    size_t bytes = bench_moved(b, o) * tern_type_bytes(b->type);
    *t = (struct bench_times){.mean_us = worst[0], .p50_us = worst[1], .p99_us = worst[2]};
    t->algbw = worst[0] > 0 ? (double)bytes / worst[0] / 1e3 : 0;
    t->busbw = t->algbw * o->factor(tern_fabric_comm_size(b->c));
    t->wrong = worst[3];
    t->cpu_us = cpu;
    return 0;
}

/* Ours, the peer's and memory's in turns, so that what else this machine does hits all. */
enum { TURNS = 5, TURN_BYTES = 64 << 10 };

/* Memory's turns: with more ranks than cores they work one after the other. So the time from the
 * first one's begin to the last one's end counts. */
struct memory_turns {
    double span[2 * TURNS]; /* of this rank: minus the begin, and the end, in us */
    double calls[TURNS];
    int n;
};

static int time_memory(struct bench *b, const struct bench_operation *o, int64_t calls,
                       struct memory_turns *m, struct tern_err *err)
{
    size_t bytes = bench_moved(b, o) * tern_type_bytes(b->type);

    if (tern_fabric_barrier(b->c, err) < 0)
        return -1;
    m->span[2 * m->n] = -(double)tern_clock_boot_ns() / 1e3;
    bool idle = o->rooted && tern_fabric_comm_rank(b->c) == 0;
    /* Where ranks share a core they take turns call by call, as the calls of the operation do.  On
     * its own a rank would find the bytes of the call before in the caches.  Few bytes are in them
     * anyhow, and a yield would be all that counts. */
    bool turns = bytes >= TURN_BYTES && tern_fabric_load(b->f) > 1;
    enum bench_work work = b->in_place && o->work == BENCH_SPREAD ? BENCH_SPREAD_REST : o->work;
    for (int64_t i = 0; i < calls && !idle; i++) {
        bench_memory_move(work, b->out, b->in, bytes, tern_fabric_comm_size(b->c),
                          tern_fabric_cache(b->f));
        if (turns)
            sched_yield();
    }
    m->span[2 * m->n + 1] = (double)tern_clock_boot_ns() / 1e3;
    m->calls[m->n++] = (double)calls;
    return 0;
}

/* A call of the median turn, in us. */
static int sum_up_memory(struct bench *b, struct memory_turns *m, double *us, struct tern_err *err)
{
    double each[TURNS];

    if (tern_fabric_all_reduce(b->c, m->span, 2 * (size_t)m->n, TERN_F64, TERN_MAX, err) < 0)
        return -1;
    for (int k = 0; k < m->n; k++)
        each[k] = (m->span[2 * k] + m->span[2 * k + 1]) / m->calls[k];
    qsort(each, (size_t)m->n, sizeof *each, by_value);
    *us = each[m->n / 2];
    return 0;
}

int bench_measure(struct bench *b, const struct bench_operation *o, struct bench_row *ret_row,
                  struct tern_err *err)
{
    bench_call *const run[2] = {o->run, o->run_peer};
    struct bench_times *const to[2] = {&ret_row->ours, &ret_row->peer};
    struct spent sum[2] = {{0}};
    double wrong[2] = {0};
    struct memory_turns memory = {.n = 0};
    bool in_node = tern_fabric_nodes(b->f) == 1 && tern_fabric_comm_size(b->c) > 1;
    int sides = b->peer ? 2 : 1, turns = b->peer || in_node ? TURNS : 1;

    for (int s = 0; s < sides; s++)
        if (prepare(b, o, run[s], &wrong[s], err) < 0)
            return -1;
    for (int k = 0; k < turns; k++) {
        int64_t from = b->iterations * k / turns, until = b->iterations * (k + 1) / turns;
        for (int s = 0; s < sides && until > from; s++)
            if (time_calls(b, run[s], b->times[s], from, until, &sum[s], err) < 0)
                return -1;
        if (in_node && until > from && time_memory(b, o, until - from, &memory, err) < 0)
            return -1;
    }
    ret_row->memory_us = 0;
    if (in_node && sum_up_memory(b, &memory, &ret_row->memory_us, err) < 0)
        return -1;
    for (int s = 0; s < sides; s++)
        if (summarize(b, o, b->times[s], &sum[s], wrong[s], to[s], err) < 0)
            return -1;
    ret_row->op = o->name;
    ret_row->type = tern_type_name(b->type);
    ret_row->redop = o->reduces ? tern_op_name(b->redop) : "none";
    ret_row->count = bench_moved(b, o);
    ret_row->bytes = ret_row->count * tern_type_bytes(b->type);
    ret_row->root = o->rooted ? 0 : -1;
    ret_row->compared = b->peer != NULL;
    return 0;
}
