/* tern bench fabric: collectives by size, in the columns of nccl-tests
 * (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md):
 *
 *   algbw = size / time, where size is that of the whole buffer (for all_gather and
 *           reduce_scatter as many elements as every rank has the same share of, 0 when fewer are
 *           given than there are ranks); 1 GB/s = 10^9 bytes a second
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
#include "cmd/bench/measure.h"

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/wire/wireup.h"

#include <stdlib.h>
#include <string.h>

static const char *ops_text, *type_text, *redop_text, *peer_text, *settings_text;
static uint64_t size_begin, size_end;
static int64_t factor, iterations, warmups, ranks;
static bool json, private_memory, in_place, list_settings, explain;

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
    bool speaks = tern_fabric_comm_rank(b->c) == 0;
    json_t *rows = json_array();
    struct bench_row row = {0};
    int rc = 0;

    if (speaks && explain)
        rc = bench_rows_explain(b->f, json ? stderr : stdout, err);
    if (speaks && !json)
        heading(b);
    for (int i = 0; i < BENCH_OPERATIONS && rc == 0; i++) {
        for (uint64_t s = size_begin;
             s <= size_end && rc == 0 && bench_peer_listed(ops_text, bench_operations[i].name);
             s = s ? s * (uint64_t)factor : 1) {
            b->count = s / tern_type_bytes(b->type);
            rc = bench_measure(b, &bench_operations[i], &row, err);
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
                                                tern_fabric_comm_size(b->c), in_place, rows),
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
    struct bench b = {.type = chosen_type(),
                      .redop = chosen_redop(),
                      .in_place = in_place,
                      .iterations = iterations,
                      .warmups = warmups};
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
    return bench_operations[i].name;
}

static int check_ops(struct tern_err *err)
{
    char *list = ops_text ? tern_strdup(ops_text) : NULL, *at = list, *word;
    int rc = 0;

    while (rc == 0 && (word = strsep(&at, ",")))
        rc = one_of("op", word, operation_name, BENCH_OPERATIONS, err);
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
    if (ranks == 0 && !tern_wire_up_mpi_launched())
        return tern_err_set(err, TERN_USAGE,
                            "--peer mpi: MPI has started no rank here. Give --ranks N, or start it "
                            "with srun --mpi=pmix or mpirun");
    return bench_peer_has(chosen_type(), chosen_redop(), err);
}

/* Pass this process's options on to the ranks that mpirun starts. */
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
     .help = "all_gather finds a rank's own share in the whole buffer, and reduce_scatter leaves "
             "it there, as in a trainer (the others always work in place)"},
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
        "wrong. With --peer mpi, MPI's own collectives are timed beside ours. With --ranks it then "
        "starts mpirun itself, unbound, with mpi_yield_when_idle where ranks exceed cores. It runs "
        "once in each of the settings in which Open MPI may be at its best.",
    .examples = "tern bench fabric --ranks 4 --op all_reduce -b 64K -e 16M\n"
                "srun --mpi=pmix -N 4 --ntasks-per-node=1 tern bench fabric --op all_gather\n"
                "tern bench fabric --peer mpi --ranks 4 -f 8",
    .opts = options,
    .run = run,
};
