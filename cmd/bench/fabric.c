/* tern bench fabric: collectives by size, in the columns of nccl-tests
 * (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md):
 *
 *   algbw = size / time, where size is that of the whole buffer (count * ranks elements for
 *           all_gather and reduce_scatter); 1 GB/s = 10^9 bytes a second
 *   busbw = algbw * what each rank's link must carry at least of each byte: 2 (n-1)/n for
 *           all_reduce, (n-1)/n for all_gather and reduce_scatter, 1 for broadcast
 *   time  = the mean over -n calls, of the slowest rank; p50 and p99 are of single calls */
#include "cmd/bench/bench.h"
#include "cmd/bench/local.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *ops_text, *type_text, *redop_text;
static uint64_t size_begin, size_end;
static int64_t factor, iterations, warmups, ranks;
static bool json, private_memory;

struct bench {
    struct tern_fabric *f;
    struct tern_comm *c;
    enum tern_type type;
    enum tern_op redop;
    size_t count; /* elements of the whole buffer */
    char *in, *out;
};

struct operation {
    const char *name;
    bool reduces, whole; /* whole: each rank holds the whole buffer before and after */
    double (*factor)(int n);
    int (*run)(struct bench *b, struct tern_err *err);
    /* What rank `rank` must find at element i of what it checks. */
    double (*expected)(const struct bench *b, size_t i);
};

/* ---------------------------------------------------------------- contents */

/* Small whole numbers: every sum of them is exact in every type up to 8 ranks, and in all but bf16
 * and u8 up to thousands. */
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
    if (b->redop == TERN_AVG)
        v = b->type >= TERN_I32 ? trunc(v / n) : v / n;
    return v;
}

/* ---------------------------------------------------------------- operations */

static size_t share(const struct bench *b)
{
    return b->count / (size_t)tern_comm_size(b->c);
}

static int run_all_reduce(struct bench *b, struct tern_err *err)
{
    return tern_comm_all_reduce(b->c, b->out, b->count, b->type, b->redop, err);
}
static int run_reduce_scatter(struct bench *b, struct tern_err *err)
{
    return tern_comm_reduce_scatter(b->c, b->in, b->out, share(b), b->type, b->redop, err);
}
static int run_all_gather(struct bench *b, struct tern_err *err)
{
    return tern_comm_all_gather(b->c, b->in, b->out, share(b), b->type, err);
}
static int run_broadcast(struct bench *b, struct tern_err *err)
{
    return tern_comm_broadcast(b->c, b->out, b->count, b->type, 0, err);
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
    {"all_reduce", true, true, twice, run_all_reduce, combined},
    {"reduce_scatter", true, false, once, run_reduce_scatter, expect_scattered},
    {"all_gather", false, false, once, run_all_gather, expect_gathered},
    {"broadcast", false, true, one, run_broadcast, expect_root},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* ---------------------------------------------------------------- one line */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static size_t count_wrong(struct bench *b, const struct operation *o)
{
    bool scattered = o->expected == expect_scattered;
    size_t n = scattered ? share(b) : o->whole ? b->count : share(b) * (size_t)tern_comm_size(b->c);
    size_t wrong = 0;

    for (size_t i = 0; i < n; i++) {
        double want = o->expected(b, i), got = get(b->out, b->type, i);
        /* A mean need not be a number of the type. */
        double slack = b->redop == TERN_AVG && o->reduces ? fabs(want) / 128 : 0;
        wrong += !(fabs(got - want) <= slack);
    }
    return wrong;
}

struct line {
    double mean_us, p50_us, p99_us, algbw, busbw;
    double wrong;
};

static int measure(struct bench *b, const struct operation *o, struct line *l, double *times,
                   struct tern_err *err)
{
    double worst[4];
    int64_t start;

    for (size_t i = 0; i < b->count; i++) {
        put(b->in, b->type, i, value(tern_comm_rank(b->c), i));
        put(b->out, b->type, i, value(tern_comm_rank(b->c), i));
    }
    if (o->run(b, err) < 0)
        return -1;
    worst[3] = (double)count_wrong(b, o);
    for (int64_t i = 0; i < warmups; i++)
        if (o->run(b, err) < 0)
            return -1;
    if (tern_comm_barrier(b->c, err) < 0)
        return -1;
    start = tern_clock_boot_ns();
    for (int64_t i = 0; i < iterations; i++) {
        int64_t before = tern_clock_boot_ns();
        if (o->run(b, err) < 0)
            return -1;
        times[i] = (double)(tern_clock_boot_ns() - before) / 1e3;
    }
    worst[0] = (double)(tern_clock_boot_ns() - start) / 1e3 / (double)iterations;
    qsort(times, (size_t)iterations, sizeof *times, by_value);
    worst[1] = times[iterations / 2];
    worst[2] = times[(size_t)((double)(iterations - 1) * 0.99)];
    if (tern_comm_all_reduce(b->c, worst, 4, TERN_F64, TERN_MAX, err) < 0)
        return -1;
    size_t bytes =
        (o->whole ? b->count : share(b) * (size_t)tern_comm_size(b->c)) * tern_type_bytes(b->type);
    l->mean_us = worst[0];
    l->p50_us = worst[1];
    l->p99_us = worst[2];
    l->algbw = worst[0] > 0 ? (double)bytes / worst[0] / 1e3 : 0;
    l->busbw = l->algbw * o->factor(tern_comm_size(b->c));
    l->wrong = worst[3];
    return 0;
}

static void show(const struct bench *b, const struct operation *o, const struct line *l,
                 json_t *rows)
{
    size_t bytes = b->count * tern_type_bytes(b->type);
    const char *redop = o->reduces ? tern_op_name(b->redop) : "none";
    int root = o->expected == expect_root ? 0 : -1;

    if (!rows) {
        printf("%12zu %12zu %6s %6s %4d %-15s %10.2f %8.2f %8.2f %6.0f %10.2f %10.2f\n", bytes,
               b->count, tern_type_name(b->type), redop, root, o->name, l->mean_us, l->algbw,
               l->busbw, l->wrong, l->p50_us, l->p99_us);
        fflush(stdout);
        return;
    }
    json_array_append_new(
        rows, json_pack("{s:s s:I s:I s:s s:s s:i s:f s:f s:f s:I s:f s:f}", "op", o->name, "bytes",
                        (json_int_t)bytes, "count", (json_int_t)b->count, "type",
                        tern_type_name(b->type), "redop", redop, "root", root, "time_us",
                        l->mean_us, "algbw", l->algbw, "busbw", l->busbw, "wrong",
                        (json_int_t)l->wrong, "p50_us", l->p50_us, "p99_us", l->p99_us));
}

/* ---------------------------------------------------------------- the whole table */

static void heading(const struct bench *b)
{
    printf("# tern bench fabric: %s\n", tern_fabric_about(b->f));
    printf("# %lld calls after %lld; busbw as nccl-tests defines it; memory %s\n",
           (long long)iterations, (long long)warmups,
           private_memory ? "private" : "from tern_fabric_alloc");
    printf("#%11s %12s %6s %6s %4s %-15s %10s %8s %8s %6s %10s %10s\n", "size", "count", "type",
           "redop", "root", "op", "time", "algbw", "busbw", "#wrong", "p50", "p99");
    printf("#%11s %12s %6s %6s %4s %-15s %10s %8s %8s %6s %10s %10s\n", "(B)", "(elements)", "", "",
           "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)");
}

static bool chosen(const char *name)
{
    const char *p = ops_text;
    size_t n = strlen(name);

    while (p && *p) {
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
        p = strchr(p, ',');
        p = p ? p + 1 : NULL;
    }
    return !ops_text;
}

static int table(struct bench *b, struct tern_err *err)
{
    bool speaks = tern_comm_rank(b->c) == 0;
    json_t *rows = json ? json_array() : NULL;
    double *times = tern_alloc((size_t)iterations, sizeof *times, "the times", err), sum = 0,
           wrong = 0;
    int lines = 0, rc = times ? 0 : -1;
    struct line l;

    if (speaks && !json)
        heading(b);
    for (int i = 0; i < OPERATIONS && rc == 0; i++) {
        for (uint64_t s = size_begin; s <= size_end && rc == 0 && chosen(operations[i].name);
             s = s ? s * (uint64_t)factor : 1) {
            b->count = s / tern_type_bytes(b->type);
            rc = measure(b, &operations[i], &l, times, err);
            if (rc < 0)
                break;
            if (speaks)
                show(b, &operations[i], &l, rows);
            sum += l.busbw;
            wrong += l.wrong;
            lines++;
        }
    }
    if (rc == 0 && speaks && !json)
        printf("# out of bounds values: %.0f %s\n# average bus bandwidth: %.4g GB/s\n", wrong,
               wrong ? "FAILED" : "OK", lines ? sum / lines : 0);
    if (rc == 0 && speaks && json) {
        json_t *all = json_pack("{s:s s:i s:O s:f s:I}", "fabric", tern_fabric_about(b->f), "ranks",
                                tern_comm_size(b->c), "rows", rows, "average_busbw",
                                lines ? sum / lines : 0, "wrong", (json_int_t)wrong);
        rc = tern_json_print(stdout, all, err);
        json_decref(all);
    }
    json_decref(rows);
    free(times);
    if (rc == 0 && wrong > 0)
        return tern_err_set(err, TERN_FAILED, "%.0f values are wrong", wrong);
    return rc;
}

static int body(const struct tern_fabric_options *o, struct tern_err *err)
{
    struct bench b = {0};
    int rc = -1;

    while (b.type < TERN_U8 && strcmp(tern_type_name(b.type), type_text) != 0)
        b.type++;
    while (b.redop < TERN_MIN && strcmp(tern_op_name(b.redop), redop_text) != 0)
        b.redop++;
    b.f = tern_fabric_open(o, err);
    if (!b.f)
        return -1;
    b.c = tern_fabric_world(b.f);
    b.in = private_memory ? tern_alloc(size_end + 8, 1, "the buffer", err)
                          : tern_fabric_alloc(b.f, size_end + 8, err);
    b.out = private_memory ? tern_alloc(size_end + 8, 1, "the buffer", err)
                           : tern_fabric_alloc(b.f, size_end + 8, err);
    if (b.in && b.out)
        rc = table(&b, err);
    if (private_memory) {
        free(b.in);
        free(b.out);
    }
    tern_fabric_close(b.f);
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

static int run(int n_args, char **args, struct tern_err *err)
{
    (void)n_args;
    (void)args;
    if (check_ops(err) < 0 || one_of("type", type_text, type_name, TERN_U8 + 1, err) < 0 ||
        one_of("redop", redop_text, redop_name, TERN_MIN + 1, err) < 0)
        return -1;
    if (size_begin > size_end || size_end > (1ull << 36) || factor < 2 || iterations < 1 ||
        iterations > 10000000 || ranks > 1024)
        return tern_err_set(
            err, TERN_USAGE,
            "the sizes must go from --begin up to --end (at most 64G) by a --factor "
            "of 2 or more, with at least one call, on at most 1024 ranks");
    return ranks > 0 ? bench_local((int)ranks, body, err) : body(NULL, err);
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
    {"ranks", 0, TERN_OPT_INT, "N", "0", .to.integer = &ranks,
     .help = "start so many ranks on this machine; 0: this process is one rank, as srun or mpirun "
             "started it"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

const struct tern_cmd bench_fabric = {
    .name = "fabric",
    .summary = "time and check the collectives by size, in the columns of nccl-tests",
    .about =
        "Every rank runs it: start it with srun --mpi=pmix or mpirun, or let it start ranks on "
        "this machine with --ranks. The first rank prints. Exit status 1 when any value is "
        "wrong.",
    .examples = "tern bench fabric --ranks 4 --op all_reduce -b 64K -e 16M\n"
                "srun --mpi=pmix -N 4 --ntasks-per-node=1 tern bench fabric --op all_gather",
    .opts = options,
    .run = run,
};
