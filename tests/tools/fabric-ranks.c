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
 *   gather RANKS                  all-gathers of which each rank's input and result may be shared
 *                                 or private, in all combinations: right, and nothing is copied
 *                                 more often than must be (TERN_FABRIC_CACHE=0: past the caches)
 *   free RANKS                    memory that is freed at once after the operation on it
 *   late RANKS                    the last rank comes when the others have given up; their memory
 *                                 is gone by then, and their fabric still open
 *   uneven RANKS                  half of them compute for a while, often; then "sleeps: N" of rank
 *                                 0 in 40 barriers, without TEST_FABRIC_LATE, as a preloaded
 *                                 tern_test_sleeps() counts them
 *   paced RANKS                   the last one comes 9 ms late to each of 40 barriers; then the
 *                                 "yields: N" of rank 0 in one, as tern_test_yields() counts
 *   busy RANKS VICTIM MS [MS]     VICTIM computes for MS amid operations, or until the others have
 *                                 ended; with TEST_FABRIC_SAVES it says before that it writes a
 *                                 checkpoint, for a minute; then, with TEST_FABRIC_STEP, it
 *                                 computes in a step of so many seconds for the second MS
 *   turns RANKS 0 MS              rank 0 waits for the others one after the other: they come to an
 *                                 all-reduce after MS, 0.2 s apart
 *   hold RANKS VICTIM MS          VICTIM, and then all ranks are stopped for MS amid operations and
 *                                 go on, those that waited first
 *   mismatch RANKS                the last rank calls something else
 *   differ RANKS                  the same where few elements are combined, and all others wait
 *   short RANKS                   one rank fewer comes than is expected
 *
 * RANKS 0: this process is one rank, started by srun or mpirun.  With TEST_FABRIC_ORDER=any the
 * float sums may be in any order (nodes that are no aligned blocks), with TEST_FABRIC_FAR=1 the
 * ranks are on hosts of different names; rank TEST_FABRIC_HASTY has a deadline of 2 s. */
#include "core/base/clock.h"
#include "core/base/rand.h"
#include "core/fabric/fabric.h"
#include "core/wire/rendezvous.h"
#include "tests/lib/fabric_random.h"

#include <dlfcn.h>
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

enum { MAX_RANKS = 64 };
static const char *mode;
static uint64_t seed;
static int operations, again, victim;
static struct tern_err err;

static int say_error(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, err.text);
    return 1;
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
            one->buf[i] = (int64_t)i * (tern_fabric_comm_rank(one->c) + 1) + round + next[g];
        next[g]++, left--;
        if (tern_fabric_all_reduce_begin(one->c, one->buf, one->count, TERN_I64, TERN_SUM,
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
        int n = tern_fabric_comm_size(one->c);
        bool done = false;
        int64_t until = tern_clock_boot_ns() + 10000000000;
        while (k % 2 && !done && tern_clock_boot_ns() < until)
            if (tern_fabric_test(&one->pending, &done, &err) < 0)
                return say_error("test");
        if (k % 2 && !done) {
            fprintf(stderr, "rank %d: an operation is never done\n", rank);
            return 1;
        }
        if (tern_fabric_wait(&one->pending, &err) < 0)
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
    if (tern_fabric_comm_splits(groups[0], parts, 2, &err) < 0)
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

    if (tern_fabric_broadcast_begin(tern_fabric_world(f), v, bytes, TERN_U8, 0, &p, &err) < 0 ||
        tern_fabric_progress(f, &err) < 0)
        return -1;
    if (tern_fabric_rank(f) == 0)
        tern_clock_sleep_ns(5000000);
    return tern_fabric_wait(&p, &err);
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
        if (tern_fabric_broadcast_begin(tern_fabric_world(f), v[k], COUNT, TERN_I32, 0, &p[k],
                                        &err) < 0)
            return say_error("broadcast");
    }
    if (tern_fabric_wait(&p[BEGUN - 1], &err) < 0)
        return say_error("wait");
    for (int k = 0; k < BEGUN; k++)
        for (int i = 0; i < COUNT; i++)
            if (v[k][i] != k * COUNT + i)
                return fprintf(stderr, "broadcast %d is wrong\n", k), 1;
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
    if (tern_fabric_broadcast_begin(c, v, COUNT, TERN_U8, 0, &p, &err) < 0 ||
        tern_fabric_progress(f, &err) < 0)
        return say_error("broadcast");
    if (root) {
        close(gone[1]);
        if (read(gone[0], &byte, 1) != 0)
            return 1;
    }
    if (tern_fabric_wait(&p, &err) < 0)
        return say_error("broadcast");
    if (v[0] != 7 || memcmp(v, v + 1, COUNT - 1) != 0)
        return fprintf(stderr, "a broadcast is wrong\n"), 1;
    return 0;
}

static int quit(struct tern_fabric *f)
{
    enum { COUNT = 64 << 20 };
    struct tern_comm *c = tern_fabric_world(f);
    struct tern_pending p;
    uint8_t *v = tern_fabric_alloc(f, COUNT, &err);
    size_t wrong = 0;

    if (!v)
        return say_error("alloc");
    memset(v, tern_fabric_rank(f) == 0 ? 7 : 1, COUNT);
    if (tern_fabric_barrier(c, &err) < 0)
        return say_error("barrier");
    if (tern_fabric_rank(f) == 0) {
        if (tern_fabric_broadcast_begin(c, v, COUNT, TERN_U8, 0, &p, &err) < 0 ||
            tern_fabric_progress(f, &err) < 0)
            return say_error("broadcast");
        tern_clock_sleep_ns(2000000);
        return 0;
    }
    if (tern_fabric_broadcast(c, v, COUNT, TERN_U8, 0, &err) < 0)
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
        return tern_fabric_all_reduce(c, v, count, TERN_F32, TERN_SUM, &err);
    if (tern_fabric_all_reduce_begin(c, v, count, TERN_F32, TERN_SUM, &p, &err) < 0)
        return -1;
    while (!done)
        if (tern_fabric_test(&p, &done, &err) < 0)
            return -1;
    return 0;
}

static int say_after(int64_t start)
{
    dprintf(2, "after %.1f s: code %d: %s\n", /* at once, whole */
            (double)(tern_clock_boot_ns() - start) / 1e9, (int)err.code, err.text);
    return 3;
}

static int gather(struct tern_fabric *f)
{
    enum { N = 70001 };
    struct tern_comm *world = tern_fabric_world(f);
    const char *cache = getenv("TERN_FABRIC_CACHE");
    bool past = cache && strcmp(cache, "0") == 0;
    int rank = tern_fabric_rank(f), n = tern_fabric_size(f), wrong = 0;
    size_t all = (size_t)n * N * sizeof(float);
    /* [shared] */
    float *in[2] = {malloc(all), tern_fabric_alloc(f, all, &err)};
    float *out[2] = {malloc(all), tern_fabric_alloc(f, all, &err)};

    for (int k = 0; k < 1 << 2 * n && in[0] && in[1] && out[0] && out[1]; k++) {
        const float *from = in[k >> 2 * rank & 1];
        float *to = out[k >> (2 * rank + 1) & 1];
        uint64_t staged = tern_fabric_staged_bytes(f);
        int inputs = 0, results = 0;
        for (int r = 0; r < n; r++) {
            inputs += k >> 2 * r & 1;
            results += k >> (2 * r + 1) & 1;
        }
        for (int i = 0; i < N; i++)
            in[k >> 2 * rank & 1][i] = (float)(rank * N + i + k);
        memset(to, 0, all);
        if (tern_fabric_all_gather(world, from, to, N, TERN_F32, &err) < 0)
            return say_error("all_gather");
        for (int i = 0; i < n * N; i++)
            wrong += to[i] != (float)(i + k);
        bool stages = inputs < n && !(past && results == n);
        wrong += (tern_fabric_staged_bytes(f) > staged) != stages;
        if (wrong)
            dprintf(2, "rank %d, combination %d: %d wrong\n", rank, k, wrong);
    }
    free(in[0]);
    free(out[0]);
    return wrong ? 1 : 0;
}

static int turns(struct tern_fabric *f)
{
    int rank = tern_fabric_rank(f);
    float v = 1;

    if (tern_fabric_barrier(tern_fabric_world(f), &err) < 0)
        return say_error("barrier");
    if (rank)
        tern_clock_sleep_ns(operations * 1000000ll + rank * 200000000ll);
    int64_t start = tern_clock_boot_ns();
    return tern_fabric_all_reduce(tern_fabric_world(f), &v, 1, TERN_F32, TERN_SUM, &err) == 0
               ? 0
               : say_after(start);
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
    /* The others have given up by then, and have had the time to free their memory. */
    const char *deadline = getenv("TERN_DEADLINE");
    int64_t late_ns = (int64_t)((deadline ? strtod(deadline, NULL) : 0) * 2e9) + 900000000;
    if (rank == size - 1)
        tern_clock_sleep_ns(late_ns);
    if (tern_fabric_all_gather(tern_fabric_world(f), v + (size_t)rank * block, v, block, TERN_U8,
                               &err) == 0)
        return 0;
    if (rank < size - 1) {
        munmap(v, bytes);
        tern_clock_sleep_ns(start + late_ns + 500000000 - tern_clock_boot_ns());
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
            rc = tern_fabric_comm_split(tern_fabric_world(f), 0, 0, &new, &err);
        else if (i == 20 && rank == size - 1 && differs)
            rc = tern_fabric_all_gather(tern_fabric_world(f), v, v + 1024, 64, TERN_F32, &err);
        else
            rc = reduce(f, v, few ? 1000 : i % 2 ? 4096 : 200000);
        if (rc < 0 && files.rlim_cur) /* leak checkers want some */
            setrlimit(RLIMIT_NOFILE, &files);
        if (rc < 0)
            return say_after(start);
    }
}

/* Ranks that wait sleep meanwhile. */
static int uneven(struct tern_fabric *f)
{
    enum { ROUNDS = 12, BARRIERS = 40, COMPUTE_NS = 40000000 };
    struct tern_comm *c = tern_fabric_world(f);
    int (*sleeps)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "tern_test_sleeps");

    for (int i = 0; i < ROUNDS; i++) {
        int64_t until = tern_clock_boot_ns() + COMPUTE_NS;
        while ((tern_fabric_rank(f) + i) % 2 && tern_clock_boot_ns() < until)
            ;
        if (tern_fabric_barrier(c, &err) < 0)
            return say_error("barrier");
    }
    unsetenv("TEST_FABRIC_LATE");
    int before = sleeps ? sleeps() : 0;
    for (int i = 0; i < BARRIERS; i++)
        if (tern_fabric_barrier(c, &err) < 0)
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
        if (tern_fabric_barrier(tern_fabric_world(f), &err) < 0)
            return say_error("barrier");
    }
    if (tern_fabric_rank(f) == 0)
        printf("yields: %d\n", yields ? yields() / BARRIERS : -1);
    return 0;
}

/* Operations that all end well, whatever happens amid them. */
static int steady(struct tern_fabric *f)
{
    float *v = tern_fabric_alloc(f, 1 << 20, &err);

    if (!v)
        return say_error("memory");
    for (int i = 0; i < 40; i++) {
        int64_t start = tern_clock_boot_ns();
        bool mine = i == 20 && tern_fabric_rank(f) == victim;
        if (mine && strcmp(mode, "hold") == 0)
            raise(SIGSTOP);
        if (mine && strcmp(mode, "busy") == 0) {
            const char *step = getenv("TEST_FABRIC_STEP");
            struct pollfd others = {gone[0], POLLIN, 0};
            close(gone[1]);
            if (getenv("TEST_FABRIC_SAVES"))
                tern_fabric_set_activity(f, TERN_FABRIC_SAVES, 60);
            poll(&others, 1, operations);
            tern_fabric_set_activity(f, TERN_FABRIC_COMPUTES, step ? atof(step) : 0);
            poll(&others, 1, step ? again : 0);
            tern_fabric_set_activity(f, TERN_FABRIC_COMPUTES, 0);
        }
        if (reduce(f, v, 4096) < 0)
            return say_after(start);
    }
    return 0;
}

/* Of mode hold, whose victim has stopped itself. */
static void hold_all(const pid_t *pids, int n)
{
    for (int i = 0; i < n; i++)
        kill(pids[i], SIGSTOP);
    tern_clock_sleep_ns(operations * 1000000ll);
    for (int i = 0; i < n; i++)
        if (i != victim)
            kill(pids[i], SIGCONT);
    tern_clock_sleep_ns(1200000000); /* less than TERN_LIVENESS */
    kill(pids[victim], SIGCONT);
}

static int rank_main(const struct tern_fabric_options *o)
{
    if (getenv("TEST_FABRIC_ENTERS_LATE") && o && o->rank == o->size - 1)
        tern_clock_sleep_ns(atoll(getenv("TEST_FABRIC_ENTERS_LATE")) * 1000000000ll);
    struct tern_fabric *f = tern_fabric_open(o, &err);
    if (!f)
        return say_error("open");
    int rc = strcmp(mode, "random") == 0    ? fabric_random(f, seed, operations)
             : strcmp(mode, "pending") == 0 ? pending_operations(f)
             : strcmp(mode, "ahead") == 0   ? run_ahead(f)
             : strcmp(mode, "leave") == 0   ? leave(f)
             : strcmp(mode, "quit") == 0    ? quit(f)
             : strcmp(mode, "free") == 0    ? free_at_once(f)
             : strcmp(mode, "gather") == 0  ? gather(f)
             : strcmp(mode, "uneven") == 0  ? uneven(f)
             : strcmp(mode, "paced") == 0   ? paced(f)
             : strcmp(mode, "late") == 0    ? late(f)
             : strcmp(mode, "turns") == 0   ? turns(f)
             : strcmp(mode, "busy") == 0    ? steady(f)
             : strcmp(mode, "hold") == 0    ? steady(f)
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
    operations = argc > 4 ? atoi(argv[4]) : 100, again = argc > 5 ? atoi(argv[5]) : operations;
    if (n == 0)
        return rank_main(NULL);
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", n, &err);
    if (!r)
        return say_error("rendezvous");
    int start = strcmp(mode, "short") == 0 ? n - 1 : n;
    if (pipe(gone) < 0)
        return 1;
    for (int i = 0; i < start; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct tern_fabric_options o = {.wireup = TERN_WIREUP_SOCKET,
                                            .socket = tern_wire_rendezvous_address(r),
                                            .rank = i,
                                            .size = n,
                                            /* however busy the machine: deadlines are of waits */
                                            .wireup_s = start < n ? 0 : 60};
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
    bool holds = strcmp(mode, "hold") == 0;
    int waited = strcmp(mode, "stop") == 0 ? start - 1 : start;
    while (ended < waited && tern_wire_rendezvous_step(r, &err) == 0) {
        struct pollfd p = {tern_wire_rendezvous_fd(r), POLLIN, 0};
        poll(&p, 1, 10);
        while ((pid = waitpid(-1, &status, WNOHANG | (holds ? WUNTRACED : 0))) > 0) {
            if (WIFSTOPPED(status)) {
                holds = false;
                tern_clock_sleep_ns(300000000); /* the others are waiting by now */
                hold_all(pids, start);
                continue;
            }
            ended++;
            bool meant = kills() && pid == pids[victim];
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : meant ? 0 : 128 + WTERMSIG(status);
            worst = code > worst ? code : worst;
        }
    }
    if (strcmp(mode, "stop") == 0)
        kill(pids[victim], SIGKILL);
    tern_wire_rendezvous_close(r);
    return worst;
}
