#include "cmd/bench/peer.h"

#include "cmd/bench/rows.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/wire/mpi/mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------- in a rank */

static const int types[] = {
    [TERN_F32] = TERN_MPI_F32, [TERN_F64] = TERN_MPI_F64, [TERN_BF16] = -1,
    [TERN_I32] = TERN_MPI_I32, [TERN_I64] = TERN_MPI_I64, [TERN_U8] = TERN_MPI_U8};
static const int ops[] = {[TERN_SUM] = TERN_MPI_SUM,
                          [TERN_AVG] = -1,
                          [TERN_MAX] = TERN_MPI_MAX,
                          [TERN_MIN] = TERN_MPI_MIN};

int bench_peer_has(enum tern_type type, enum tern_op op, struct tern_err *err)
{
    if (types[type] < 0)
        return tern_err_set(err, TERN_USAGE,
                            "--peer mpi: MPI knows no %s; it has f32, f64, i32, "
                            "i64 and u8",
                            tern_type_name(type));
    if (ops[op] < 0)
        return tern_err_set(err, TERN_USAGE, "--peer mpi: MPI knows no %s; it has sum, max and min",
                            tern_op_name(op));
    return 0;
}

struct bench_peer *bench_peer_open(enum tern_type type, enum tern_op op, struct tern_err *err)
{
    const struct tern_mpi *mpi = tern_wire_mpi_start(0, err);
    struct bench_peer *p = mpi ? tern_alloc(1, sizeof *p, "the peer", err) : NULL;

    if (!p) {
        if (mpi)
            tern_wire_mpi_stop(true);
        return NULL;
    }
    p->mpi = mpi;
    p->type = (enum tern_mpi_type)types[type];
    p->op = (enum tern_mpi_op)ops[op];
    return p;
}

void bench_peer_close(struct bench_peer *p)
{
    if (p)
        tern_wire_mpi_stop(false);
    free(p);
}

const char *bench_peer_name(void)
{
    return tern_wire_mpi_library();
}

int bench_peer_check(const struct bench_peer *p, int code, struct tern_err *err)
{
    return code ? tern_err_set(err, TERN_TEMPFAIL, "%s: %s", bench_peer_name(), p->mpi->text(code))
                : 0;
}

/* ---------------------------------------------------------------- Open MPI's settings */

/* Each is tried where its component is built in, in ompi_info's words. */
static const struct setting {
    const char *name, *component, *what;
    const char *mca[8]; /* name, value, ... */
} settings[] = {
    {"default",
     NULL,
     "as it comes: coll tuned, single copies by CMA where the kernel lets it",
     {NULL}},
    {"two-copies",
     "btl: vader",
     "through its shared segments, without CMA",
     {"btl_vader_single_copy_mechanism", "none"}},
    {"two-copies", "smsc: cma", "through its shared segments, without CMA", {"smsc", "^cma"}},
    {"halving",
     "coll: tuned",
     "tuned: Rabenseifner, recursive halving, recursive doubling",
     {"coll_tuned_use_dynamic_rules", "1", "coll_tuned_allreduce_algorithm", "6",
      "coll_tuned_reduce_scatter_block_algorithm", "3", "coll_tuned_allgather_algorithm", "3"}},
    {"ring",
     "coll: tuned",
     "tuned: ring, butterfly, ring",
     {"coll_tuned_use_dynamic_rules", "1", "coll_tuned_allreduce_algorithm", "4",
      "coll_tuned_reduce_scatter_block_algorithm", "4", "coll_tuned_allgather_algorithm", "4"}},
    {"han", "coll: han", "coll han first", {"coll_han_priority", "100"}},
    {"sm", "coll: sm ", "coll sm first", {"coll_sm_priority", "100"}},
    {"xhc", "coll: xhc", "coll xhc first (5.0)", {"coll_xhc_priority", "100"}},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* What ompi_info prints; "" where it is not there. */
static char *components(void)
{
    struct tern_buf text = {.max = 4 << 20};
    char part[4096];
    FILE *f = popen("ompi_info 2>/dev/null", "r");
    size_t n;

    while (f && (n = fread(part, 1, sizeof part, f)) > 0)
        tern_buf_add(&text, part, n);
    if (f)
        pclose(f);
    return text.data ? text.data : tern_strdup("");
}

int bench_peer_list(struct tern_err *err)
{
    char *have = components();

    if (!*have) {
        free(have);
        return tern_err_set(err, TERN_FAILED, "there is no Open MPI here (ompi_info says nothing)");
    }
    for (int i = 0; i < SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if (s->component && !strstr(have, s->component))
            continue;
        printf("%-12s %s", s->name, s->what);
        for (int k = 0; k < 8 && s->mca[k]; k += 2)
            printf("%s--mca %s %s", k ? " " : ": ", s->mca[k], s->mca[k + 1]);
        printf("\n");
    }
    free(have);
    return 0;
}

bool bench_peer_listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return !list;
}

/* ---------------------------------------------------------------- mpirun */

static void exec_mpirun(int n, const struct setting *s, char **args, int n_args)
{
    char *v[80], number[24], exe[4096];
    cpu_set_t cpus;
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    int k = 0;

    exe[len > 0 ? len : 0] = '\0';
    snprintf(number, sizeof number, "%d", n);
#define WORD(w) v[k++] = (char *)(uintptr_t)(w)
    WORD("mpirun");
    if (geteuid() == 0)
        WORD("--allow-run-as-root");
    WORD("--oversubscribe");
    WORD("--bind-to");
    WORD("none");
    WORD("-n");
    WORD(number);
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) < n) {
        WORD("--mca");
        WORD("mpi_yield_when_idle");
        WORD("1");
    }
    for (int i = 0; i < 8 && s->mca[i]; i += 2) {
        WORD("--mca");
        WORD(s->mca[i]);
        WORD(s->mca[i + 1]);
    }
    WORD(exe);
    WORD("fabric");
    WORD("--peer");
    WORD("mpi");
    WORD("--json");
    for (int i = 0; i < n_args; i++)
        WORD(args[i]);
    WORD(NULL);
#undef WORD
    execvp(v[0], v);
    _exit(errno == ENOENT ? 127 : 126);
}

/* The table that the ranks print, or NULL. */
static json_t *run_one(int n, const struct setting *s, char **args, int n_args,
                       struct tern_err *err)
{
    struct tern_buf text = {.max = 256 << 20};
    char part[65536];
    int to[2], status = 0;
    ssize_t got;

    if (pipe2(to, O_CLOEXEC) < 0) {
        tern_err_sys(err, "a pipe to mpirun");
        return NULL;
    }
    pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != self)
            _exit(TERN_FAILED);
        dup2(to[1], STDOUT_FILENO);
        exec_mpirun(n, s, args, n_args);
    }
    close(to[1]);
    while (pid > 0 && ((got = read(to[0], part, sizeof part)) > 0 || (got < 0 && errno == EINTR)))
        tern_buf_add(&text, part, got > 0 ? (size_t)got : 0);
    close(to[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    json_t *table = NULL;
    if (pid < 0)
        tern_err_sys(err, "cannot start mpirun");
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        tern_err_set(err, TERN_FAILED,
                     "mpirun is not installed: --peer mpi needs Open MPI "
                     "(openmpi-bin)");
    else if (status)
        tern_err_set(err, TERN_FAILED, "the ranks under mpirun (setting %s) failed; above is why",
                     s->name);
    else
        table = tern_json_parse(text.data ? text.data : "", text.len, "the ranks' output", err);
    tern_buf_free(&text);
    return table;
}

/* Keep of each row the one with the faster peer.  Both tables have the same rows. */
static void merge(json_t *best, const json_t *other, const char *name)
{
    json_t *rows = json_object_get(best, "rows"), *row;
    struct bench_row a, b;
    size_t i;

    json_array_foreach(json_object_get(other, "rows"), i, row)
    {
        json_object_set_new(json_object_get(row, "peer"), "setting", json_string(name));
        if (bench_rows_parse(row, &b, NULL) < 0)
            continue;
        if (best == other || bench_rows_parse(json_array_get(rows, i), &a, NULL) < 0 ||
            b.peer.p50_us < a.peer.p50_us)
            json_array_set(rows, i, row);
    }
}

static int print(const json_t *best, const char *tried, int n, bool json, struct tern_err *err)
{
    const char *fabric = json_string_value(json_object_get(best, "fabric"));
    const char *peer = json_string_value(json_object_get(best, "peer"));
    bool in_place = json_is_true(json_object_get(best, "in_place"));
    json_t *rows = json_object_get(best, "rows"), *row;
    struct bench_row r;
    size_t i;

    if (!json) {
        printf("# tern bench fabric: %s\n# beside %s's own collectives, in turns; each row is of "
               "the setting in which that was fastest (p50), of%s%s\n",
               fabric, peer, tried, in_place ? "; in place" : "");
        bench_rows_heading(true);
        json_array_foreach(rows, i, row)
        {
            if (bench_rows_parse(row, &r, err) < 0)
                return -1;
            bench_rows_print(&r);
        }
    }
    return bench_rows_finish(bench_rows_table(fabric, peer, n, in_place, rows), json, false, err);
}

int bench_peer_settings(int n, const char *only, char **args, int n_args, bool json,
                        struct tern_err *err)
{
    char *plugin = tern_wire_mpi_plugin(err), *have = plugin ? components() : NULL;
    struct tern_buf tried = {0};
    json_t *best = NULL;
    int rc = plugin ? 0 : -1;

    free(plugin);
    for (int i = 0; i < SETTINGS && rc == 0; i++) {
        const struct setting *s = &settings[i];
        if (!bench_peer_listed(only, s->name) || (s->component && !strstr(have, s->component)))
            continue;
        if (isatty(STDERR_FILENO))
            tern_info("setting %s: %s", s->name, s->what);
        json_t *table = run_one(n, s, args, n_args, err);
        if (!table) {
            rc = -1;
            break;
        }
        merge(best ? best : table, table, s->name);
        if (!best)
            best = json_incref(table);
        json_decref(table);
        tern_buf_printf(&tried, " %s", s->name);
    }
    if (rc == 0 && !best)
        rc = tern_err_set(err, TERN_USAGE,
                          "--peer-settings: none of '%s' is a setting here; --list-peer-settings "
                          "prints them",
                          only);
    if (rc == 0)
        rc = print(best, tried.data, n, json, err);
    json_decref(best);
    tern_buf_free(&tried);
    free(have);
    return rc;
}
