/* tern bench fabric: collectives by size, in the columns of nccl-tests
 * (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md):
 *
 *   algbw = size / time, where size is that of the whole buffer (for all_gather and
 *           reduce_scatter as many elements as every rank has the same share of, 0 when fewer are
 *           asked for than there are ranks); 1 GB/s = 10^9 bytes a second
 *   busbw = algbw * what each rank's link must carry at least of each byte: 2 (n-1)/n for
 *           all_reduce, (n-1)/n for all_gather and reduce_scatter, 1 for broadcast
 *   time  = the mean over -n calls, of the slowest rank; p50 and p99 are of single calls
 *   memory = inside a node, what memory alone takes for it (memory.h), ranks that share a core in
 *           turns, and share = memory / p50: 1 when a call takes no longer than that
 *   cpu   = what a call costs of the processor, in all threads of a rank: the mean over ranks.
 *           Waiting is part of it: our ranks and MPI's watch memory, and yield when there are more
 *           of them than cores */
#include "cmd/bench/bench.h"
#include "cmd/bench/local.h"
#include "cmd/bench/memory.h"
#include "cmd/bench/peer.h"
#include "cmd/bench/rows.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/fabric/mpi.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *ops_text, *type_text, *redop_text, *peer_text, *settings_text;
static uint64_t size_begin, size_end;
static int64_t factor, iterations, warmups, ranks;
static bool json, private_memory, in_place, list_settings, explain;

struct bench {
    struct tern_fabric *f;
    struct tern_comm *c;
    enum tern_type type;
    enum tern_op redop;
    size_t count; /* elements of the whole buffer */
    char *in, *out;
    struct bench_peer *peer; /* or NULL */
    double *times[2];        /* [iterations] of calls: ours, the peer's */
};

struct operation {
    const char *name;
    bool reduces, whole; /* whole: each rank holds the whole buffer before and after */
    enum bench_work work;
    double (*factor)(int n);
    int (*run)(struct bench *b, struct tern_err *err);
    int (*run_peer)(struct bench *b, struct tern_err *err);
    /* What rank `rank` must find at element i of what it checks. */
    double (*expected)(const struct bench *b, size_t i);
};

/* ---------------------------------------------------------------- contents */

/* Small whole numbers: every sum of them is exact in every type up to 72 ranks (252), and in all
 * but bf16, which rounds, and u8, which wraps, up to thousands. */
static double value(int rank, size_t i)
{
    return (double)((i * 7 + (size_t)rank * 3) % 8);
}

static void put(void *p, enum tern_type type, size_t i, double v)
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

static double get(const void *p, enum tern_type type, size_t i)
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
    double v = value(0, i);
    int n = tern_comm_size(b->c);

    for (int r = 1; r < n; r++) {
        double w = value(r, i);
        v = b->redop == TERN_MAX ? fmax(v, w) : b->redop == TERN_MIN ? fmin(v, w) : v + w;
    }
    if (b->type == TERN_U8)
        v = fmod(v, 256);
    if (b->redop == TERN_AVG)
        v = b->type >= TERN_I32 ? trunc(v / n) : v / n;
    return v;
}

/* ---------------------------------------------------------------- operations */

static size_t share(const struct bench *b)
{
    return b->count / (size_t)tern_comm_size(b->c);
}

/* Elements that a call moves, of all ranks together. */
static size_t moved(const struct bench *b, const struct operation *o)
{
    return o->whole ? b->count : share(b) * (size_t)tern_comm_size(b->c);
}

/* Where this rank's share has its place in the whole buffer. */
static char *own(const struct bench *b)
{
    return b->out + share(b) * (size_t)tern_comm_rank(b->c) * tern_type_bytes(b->type);
}

static int run_all_reduce(struct bench *b, struct tern_err *err)
{
    return tern_comm_all_reduce(b->c, b->out, b->count, b->type, b->redop, err);
}
static int run_reduce_scatter(struct bench *b, struct tern_err *err)
{
    return tern_comm_reduce_scatter(b->c, in_place ? b->out : b->in, in_place ? own(b) : b->out,
                                    share(b), b->type, b->redop, err);
}
static int run_all_gather(struct bench *b, struct tern_err *err)
{
    return tern_comm_all_gather(b->c, in_place ? own(b) : b->in, b->out, share(b), b->type, err);
}
static int run_broadcast(struct bench *b, struct tern_err *err)
{
    return tern_comm_broadcast(b->c, b->out, b->count, b->type, 0, err);
}

static int peer_all_reduce(struct bench *b, struct tern_err *err)
{
    const struct bench_peer *p = b->peer;
    return bench_peer_check(p, p->mpi->all_reduce(b->out, b->count, p->type, p->op), err);
}
static int peer_reduce_scatter(struct bench *b, struct tern_err *err)
{
    const struct bench_peer *p = b->peer;
    const char *in = in_place ? NULL : b->in;

    return bench_peer_check(p, p->mpi->reduce_scatter(in, b->out, share(b), p->type, p->op), err);
}
static int peer_all_gather(struct bench *b, struct tern_err *err)
{
    const struct bench_peer *p = b->peer;
    const char *in = in_place ? NULL : b->in;

    return bench_peer_check(p, p->mpi->all_gather(in, b->out, share(b), p->type), err);
}
static int peer_broadcast(struct bench *b, struct tern_err *err)
{
    const struct bench_peer *p = b->peer;
    return bench_peer_check(p, p->mpi->broadcast(b->out, b->count, p->type, 0), err);
}

static double expect_scattered(const struct bench *b, size_t i)
{
    return combined(b, i + share(b) * (size_t)tern_comm_rank(b->c));
}
static double expect_gathered(const struct bench *b, size_t i)
{
    return share(b) ? value((int)(i / share(b)), i % share(b)) : 0;
}
static double expect_root(const struct bench *b, size_t i)
{
    (void)b;
    return value(0, i);
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

static const struct operation operations[] = {
    {"all_reduce", true, true, BENCH_IN_PLACE, twice, run_all_reduce, peer_all_reduce, combined},
    {"reduce_scatter", true, false, BENCH_GATHER_UP, once, run_reduce_scatter, peer_reduce_scatter,
     expect_scattered},
    {"all_gather", false, false, BENCH_SPREAD, once, run_all_gather, peer_all_gather,
     expect_gathered},
    {"broadcast", false, true, BENCH_COPY, one, run_broadcast, peer_broadcast, expect_root},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* ---------------------------------------------------------------- one line */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* How far off it may be: a mean need not be a number of the type, nor a sum above 256 one of bf16,
 * which rounds once, by half of 2^-7 at most. */
static double slack(const struct bench *b, const struct operation *o, double want)
{
    static const double of[] = {
        [TERN_F32] = 1e-6, [TERN_F64] = 1e-14, [TERN_BF16] = 1.0 / 256, [TERN_U8] = 0};
    bool rounds = b->redop == TERN_AVG || (b->redop == TERN_SUM && b->type == TERN_BF16);

    return o->reduces && rounds ? fabs(want) * of[b->type] : 0;
}

static size_t count_wrong(struct bench *b, const struct operation *o, bool by_peer)
{
    bool scattered = o->expected == expect_scattered;
    const char *result = scattered && in_place && !by_peer ? own(b) : b->out;
    size_t n = scattered ? share(b) : moved(b, o), wrong = 0;

    for (size_t i = 0; i < n; i++) {
        double want = o->expected(b, i), got = get(result, b->type, i);
        wrong += !(fabs(got - want) <= slack(b, o, want));
    }
    return wrong;
}

typedef int call(struct bench *b, struct tern_err *err);

/* One call on fresh contents, checked; then the calls that are not measured. */
static int prepare(struct bench *b, const struct operation *o, call *run, double *wrong,
                   struct tern_err *err)
{
    for (size_t i = 0; i < b->count; i++) {
        put(b->in, b->type, i, value(tern_comm_rank(b->c), i));
        put(b->out, b->type, i, value(tern_comm_rank(b->c), i));
    }
    if (in_place && o->expected == expect_gathered)
        memcpy(own(b), b->in, share(b) * tern_type_bytes(b->type));
    if (tern_comm_barrier(b->c, err) < 0 || run(b, err) < 0)
        return -1;
    *wrong = (double)count_wrong(b, o, run == o->run_peer);
    for (int64_t i = 0; i < warmups; i++)
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
static int time_calls(struct bench *b, call *run, double *times, int64_t from, int64_t to,
                      struct spent *sum, struct tern_err *err)
{
    if (tern_comm_barrier(b->c, err) < 0)
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

static int summarize(struct bench *b, const struct operation *o, double *times,
                     const struct spent *sum, double wrong, struct bench_times *t,
                     struct tern_err *err)
{
    double worst[4] = {sum->wall / (double)iterations, 0, 0, wrong};
    double cpu = sum->cpu / (double)iterations;

    qsort(times, (size_t)iterations, sizeof *times, by_value);
    worst[1] = times[iterations / 2];
    worst[2] = times[(99 * iterations + 99) / 100 - 1];
    if (tern_comm_all_reduce(b->c, worst, 4, TERN_F64, TERN_MAX, err) < 0 ||
        tern_comm_all_reduce(b->c, &cpu, 1, TERN_F64, TERN_AVG, err) < 0)
        return -1;
    size_t bytes = moved(b, o) * tern_type_bytes(b->type);
    *t = (struct bench_times){.mean_us = worst[0], .p50_us = worst[1], .p99_us = worst[2]};
    t->algbw = worst[0] > 0 ? (double)bytes / worst[0] / 1e3 : 0;
    t->busbw = t->algbw * o->factor(tern_comm_size(b->c));
    t->wrong = worst[3];
    t->cpu_us = cpu;
    return 0;
}

/* Ours, the peer's and memory's in turns, so that what else this machine does hits all. */
enum { TURNS = 5, TURN_BYTES = 64 << 10 };

/* Memory's turns: with more ranks than cores they work one after the other, so what counts is from
 * the first one's begin to the last one's end. */
struct memory_turns {
    double span[2 * TURNS]; /* of this rank: minus the begin, and the end, in us */
    double calls[TURNS];
    int n;
};

static int time_memory(struct bench *b, const struct operation *o, int64_t calls,
                       struct memory_turns *m, struct tern_err *err)
{
    size_t bytes = moved(b, o) * tern_type_bytes(b->type);

    if (tern_comm_barrier(b->c, err) < 0)
        return -1;
    m->span[2 * m->n] = -(double)tern_clock_boot_ns() / 1e3;
    bool idle = o->expected == expect_root && tern_comm_rank(b->c) == 0;
    /* Where ranks share a core they take turns call by call, as the calls of the operation do: on
     * its own a rank would find what it moved in the call before in the caches.  Few bytes are in
     * them anyhow, and a yield would be all that counts. */
    bool turns = bytes >= TURN_BYTES && tern_fabric_load(b->f) > 1;
    enum bench_work work = in_place && o->work == BENCH_SPREAD ? BENCH_SPREAD_REST : o->work;
    for (int64_t i = 0; i < calls && !idle; i++) {
        bench_memory_move(work, b->out, b->in, bytes, tern_comm_size(b->c),
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

    if (tern_comm_all_reduce(b->c, m->span, 2 * (size_t)m->n, TERN_F64, TERN_MAX, err) < 0)
        return -1;
    for (int k = 0; k < m->n; k++)
        each[k] = (m->span[2 * k] + m->span[2 * k + 1]) / m->calls[k];
    qsort(each, (size_t)m->n, sizeof *each, by_value);
    *us = each[m->n / 2];
    return 0;
}

static int measure(struct bench *b, const struct operation *o, struct bench_row *row,
                   struct tern_err *err)
{
    call *const run[2] = {o->run, o->run_peer};
    struct bench_times *const to[2] = {&row->ours, &row->peer};
    struct spent sum[2] = {{0}};
    double wrong[2] = {0};
    struct memory_turns memory = {.n = 0};
    bool in_node = tern_fabric_nodes(b->f) == 1 && tern_comm_size(b->c) > 1;
    int sides = b->peer ? 2 : 1, turns = b->peer || in_node ? TURNS : 1;

    for (int s = 0; s < sides; s++)
        if (prepare(b, o, run[s], &wrong[s], err) < 0)
            return -1;
    for (int k = 0; k < turns; k++) {
        int64_t from = iterations * k / turns, until = iterations * (k + 1) / turns;
        for (int s = 0; s < sides && until > from; s++)
            if (time_calls(b, run[s], b->times[s], from, until, &sum[s], err) < 0)
                return -1;
        if (in_node && until > from && time_memory(b, o, until - from, &memory, err) < 0)
            return -1;
    }
    row->memory_us = 0;
    if (in_node && sum_up_memory(b, &memory, &row->memory_us, err) < 0)
        return -1;
    for (int s = 0; s < sides; s++)
        if (summarize(b, o, b->times[s], &sum[s], wrong[s], to[s], err) < 0)
            return -1;
    row->op = o->name;
    row->type = tern_type_name(b->type);
    row->redop = o->reduces ? tern_op_name(b->redop) : "none";
    row->count = moved(b, o);
    row->bytes = row->count * tern_type_bytes(b->type);
    row->root = o->expected == expect_root ? 0 : -1;
    row->compared = b->peer != NULL;
    return 0;
}

/* ---------------------------------------------------------------- the whole table */

static void heading(const struct bench *b)
{
    if (tern_fabric_size(b->f) == 1)
        tern_warn("one rank alone: nothing goes between ranks, and the rates mean nothing. Give "
                  "--ranks N, or start it with srun --mpi=pmix or mpirun.");
    printf("# tern bench fabric: %s\n", tern_fabric_about(b->f));
    if (b->peer)
        printf("# beside %s's own collectives, in turns\n", bench_peer_name());
    printf("# %lld calls after %lld%s; busbw as nccl-tests defines it; memory %s\n",
           (long long)iterations, (long long)warmups, in_place ? ", in place" : "",
           private_memory ? "private" : "from tern_fabric_alloc");
    bench_rows_heading(b->peer != NULL);
}

static enum tern_type chosen_type(void)
{
    enum tern_type t = 0;

    while (t < TERN_U8 && strcmp(tern_type_name(t), type_text) != 0)
        t++;
    return t;
}

static enum tern_op chosen_redop(void)
{
    enum tern_op o = 0;

    while (o < TERN_MIN && strcmp(tern_op_name(o), redop_text) != 0)
        o++;
    return o;
}

static int table(struct bench *b, struct tern_err *err)
{
    bool speaks = tern_comm_rank(b->c) == 0;
    json_t *rows = json_array();
    struct bench_row row = {0};
    int rc = 0;

    if (speaks && explain)
        rc = bench_rows_explain(b->f, json ? stderr : stdout, err);
    if (speaks && !json)
        heading(b);
    for (int i = 0; i < OPERATIONS && rc == 0; i++) {
        for (uint64_t s = size_begin;
             s <= size_end && rc == 0 && bench_peer_listed(ops_text, operations[i].name);
             s = s ? s * (uint64_t)factor : 1) {
            b->count = s / tern_type_bytes(b->type);
            rc = measure(b, &operations[i], &row, err);
            if (rc < 0)
                break;
            if (speaks && !json)
                bench_rows_print(&row);
            json_array_append_new(rows, bench_rows_json(&row));
        }
    }
    if (rc == 0)
        rc = bench_rows_finish(bench_rows_table(tern_fabric_about(b->f),
                                                b->peer ? bench_peer_name() : NULL,
                                                tern_comm_size(b->c), in_place, rows),
                               json, !speaks, err);
    json_decref(rows);
    return rc;
}

static char *buffer(struct bench *b, struct tern_err *err)
{
    return private_memory ? tern_alloc(size_end + 8, 1, "the buffer", err)
                          : tern_fabric_alloc(b->f, size_end + 8, err);
}

static int body(const struct tern_fabric_options *o, struct tern_err *err)
{
    const struct tern_fabric_options by_peer = {.wireup = TERN_WIREUP_MPI};
    struct bench b = {.type = chosen_type(), .redop = chosen_redop()};
    int rc = -1;

    if (peer_text) {
        b.peer = bench_peer_open(b.type, b.redop, err);
        o = &by_peer;
        if (!b.peer)
            return -1;
    }
    b.f = tern_fabric_open(o, err);
    if (!b.f)
        goto out;
    b.c = tern_fabric_world(b.f);
    b.in = buffer(&b, err);
    b.out = b.in ? buffer(&b, err) : NULL;
    for (int s = 0; s < 2 && b.out; s++)
        b.times[s] = tern_alloc((size_t)iterations, sizeof *b.times[s], "the times", err);
    if (b.out && b.times[0] && b.times[1])
        rc = table(&b, err);
    if (private_memory) {
        free(b.in);
        free(b.out);
    }
    free(b.times[0]);
    free(b.times[1]);
out:
    tern_fabric_close(b.f);
    bench_peer_close(b.peer);
    return rc;
}

static int one_of(const char *what, const char *given, const char *(*name)(int), int n,
                  struct tern_err *err)
{
    char all[200] = "";

    for (int i = 0; i < n; i++) {
        if (strcmp(given, name(i)) == 0)
            return 0;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", name(i));
    }
    return tern_err_set(err, TERN_USAGE, "--%s: '%s' is none of %s", what, given, all);
}

static const char *type_name(int i)
{
    return tern_type_name((enum tern_type)i);
}
static const char *redop_name(int i)
{
    return tern_op_name((enum tern_op)i);
}
static const char *operation_name(int i)
{
    return operations[i].name;
}

static int check_ops(struct tern_err *err)
{
    char *list = ops_text ? tern_strdup(ops_text) : NULL, *at = list, *word;
    int rc = 0;

    while (rc == 0 && (word = strsep(&at, ",")))
        rc = one_of("op", word, operation_name, OPERATIONS, err);
    free(list);
    return rc;
}

static int check_peer(struct tern_err *err)
{
    if (!peer_text)
        return settings_text
                   ? tern_err_set(err, TERN_USAGE, "--peer-settings is for --peer mpi --ranks N")
                   : 0;
    if (strcmp(peer_text, "mpi") != 0)
        return tern_err_set(err, TERN_USAGE, "--peer: '%s' is not mpi", peer_text);
    if (size_end / tern_type_bytes(chosen_type()) > INT32_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "--peer mpi: MPI counts up to 2^31 - 1 elements; choose a smaller "
                            "--end");
    if (ranks == 0 && !tern_fabric_mpi_launched())
        return tern_err_set(err, TERN_USAGE,
                            "--peer mpi: MPI has started no rank here. Give --ranks N, or start it "
                            "with srun --mpi=pmix or mpirun");
    return bench_peer_has(chosen_type(), chosen_redop(), err);
}

/* What the ranks that mpirun starts are to do, the same as this process was told. */
static int by_mpirun(struct tern_err *err)
{
    char begin[24], end[24], by[24], n[24], w[24];
    char *args[24];
    int k = 0;

    snprintf(begin, sizeof begin, "%llu", (unsigned long long)size_begin);
    snprintf(end, sizeof end, "%llu", (unsigned long long)size_end);
    snprintf(by, sizeof by, "%lld", (long long)factor);
    snprintf(n, sizeof n, "%lld", (long long)iterations);
    snprintf(w, sizeof w, "%lld", (long long)warmups);
    const char *const fixed[] = {"-b", begin, "-e", end,  "-f",      by,   "-n",
                                 n,    "-w",  w,    "-d", type_text, "-o", redop_text};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        args[k++] = (char *)(uintptr_t)fixed[i];
    if (ops_text) {
        args[k++] = (char *)(uintptr_t) "--op";
        args[k++] = (char *)(uintptr_t)ops_text;
    }
    if (private_memory)
        args[k++] = (char *)(uintptr_t) "--private";
    if (in_place)
        args[k++] = (char *)(uintptr_t) "--in-place";
    return bench_peer_settings((int)ranks, settings_text, args, k, json, err);
}

static int run(int n_args, char **args, struct tern_err *err)
{
    (void)n_args;
    (void)args;
    if (list_settings)
        return bench_peer_list(err);
    if (check_ops(err) < 0 || one_of("type", type_text, type_name, TERN_U8 + 1, err) < 0 ||
        one_of("redop", redop_text, redop_name, TERN_MIN + 1, err) < 0)
        return -1;
    if (size_begin > size_end || size_end > (1ull << 36) || factor < 2 || iterations < 1 ||
        iterations > 10000000 || ranks > 1024)
        return tern_err_set(
            err, TERN_USAGE,
            "the sizes must go from --begin up to --end (at most 64G) by a --factor "
            "of 2 or more, with at least one call, on at most 1024 ranks");
    if (check_peer(err) < 0)
        return -1;
    if (explain && peer_text && ranks > 0)
        return tern_err_set(err, TERN_USAGE,
                            "--explain is not for --peer with --ranks: leave --peer out");
    if (ranks == 0)
        return body(NULL, err);
    return peer_text ? by_mpirun(err) : bench_local((int)ranks, body, err);
}

static const struct tern_opt options[] = {
    {"op", 0, TERN_OPT_TEXT, "LIST", .to.text = &ops_text,
     .help = "operations, with commas: all_reduce, reduce_scatter, all_gather, broadcast (all)"},
    {"begin", 'b', TERN_OPT_SIZE, "SIZE", "8", .to.bytes = &size_begin, .help = "smallest buffer"},
    {"end", 'e', TERN_OPT_SIZE, "SIZE", "64M", .to.bytes = &size_end, .help = "largest buffer"},
    {"factor", 'f', TERN_OPT_INT, "N", "2", .to.integer = &factor,
     .help = "each size is so many times the one before"},
    {"iterations", 'n', TERN_OPT_INT, "N", "20", .to.integer = &iterations,
     .help = "calls measured"},
    {"warmup", 'w', TERN_OPT_INT, "N", "5", .to.integer = &warmups,
     .help = "calls before that, not measured"},
    {"type", 'd', TERN_OPT_TEXT, "TYPE", "f32", .to.text = &type_text,
     .help = "f32, f64, bf16, i32, i64 or u8"},
    {"redop", 'o', TERN_OPT_TEXT, "OP", "sum", .to.text = &redop_text,
     .help = "sum, avg, max or min"},
    {"private", 0, TERN_OPT_FLAG, .to.flag = &private_memory,
     .help =
         "use malloc'ed buffers, which others on the node cannot reach, instead of shared ones"},
    {"in-place", 0, TERN_OPT_FLAG, .to.flag = &in_place,
     .help =
         "all_gather finds a rank's own share in the whole buffer, and reduce_scatter leaves it "
         "there, as a trainer has them (the others always work in place)"},
    {"ranks", 0, TERN_OPT_INT, "N", "0", .to.integer = &ranks,
     .help = "start so many ranks on this machine; 0: this process is one rank, as srun or mpirun "
             "started it"},
    {"peer", 0, TERN_OPT_TEXT, "mpi", .to.text = &peer_text,
     .help = "time MPI's own collectives beside ours, in turns on the same buffers; the ratio is "
             "its median call's time by ours"},
    {"peer-settings", 0, TERN_OPT_TEXT, "LIST", .to.text = &settings_text,
     .help = "with --peer and --ranks: settings of Open MPI to try, with commas; each row is of "
             "the one in which Open MPI was fastest (all)"},
    {"list-peer-settings", 0, TERN_OPT_FLAG, .to.flag = &list_settings,
     .help = "print those settings, and what they are to mpirun"},
    {"explain", 0, TERN_OPT_FLAG, .to.flag = &explain,
     .help = "first tell which algorithm serves which sizes, by the round's time and the wire's "
             "speed that were measured when the ranks met"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

const struct tern_cmd bench_fabric = {
    .name = "fabric",
    .summary = "time and check the collectives by size, in the columns of nccl-tests",
    .about =
        "Every rank runs it: start it with srun --mpi=pmix or mpirun, or let it start ranks on "
        "this machine with --ranks. The first rank prints. Exit status 1 when any value is "
        "wrong. With --peer mpi, MPI's own collectives are timed beside ours; with --ranks it then "
        "starts mpirun itself, unbound, with mpi_yield_when_idle where ranks exceed cores, once in "
        "each of the settings in which Open MPI may be at its best.",
    .examples = "tern bench fabric --ranks 4 --op all_reduce -b 64K -e 16M\n"
                "srun --mpi=pmix -N 4 --ntasks-per-node=1 tern bench fabric --op all_gather\n"
                "tern bench fabric --peer mpi --ranks 4 -f 8",
    .opts = options,
    .run = run,
};
