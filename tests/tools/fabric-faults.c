/* Ranks on this machine that fail in chosen ways, for tests of what is said about it.
 *
 *   fabric-faults differ RANKS op|type|count|root   the last rank calls something else as #21
 *   fabric-faults cross RANKS KIND    calls on several communicators, until an error (see cross())
 *   fabric-faults chain RANKS [MS] each rank waits for the one before it and computes for 7 s;
 *                                  the last one asks instead, and computes for MS when it asked for
 *                                  long
 *   fabric-faults tardy RANKS      rank 0 comes when rank 1 asks whose fault it is, and computes on
 *   fabric-faults late RANKS       the last never calls #21; SIGUSR2 to the parent reaches all
 *   fabric-faults rebuild RANKS    one is killed; the others close, open without it, and go on
 *   fabric-faults meet RANKS HOST  serve a rendezvous; its address on stdout
 *   fabric-faults rank             one rank, placed by the environment: all_reduce until an error
 */
#include "core/base/clock.h"
#include "core/fabric/fabric.h"
#include "core/wire/rendezvous.h"
#include "core/flight/flight.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 64, AT = 20, COUNT = 4096 };
static const char *mode, *kind = "";
static struct tern_err err;
static pid_t pids[MAX_RANKS];
static volatile sig_atomic_t passed;

static int say_error(const char *what)
{
    dprintf(2, "%s: %s\n", what, err.text);
    return 1;
}

static void dump(int sig)
{
    (void)sig;
    tern_flight_write(false);
}

static void pass(int sig)
{
    (void)sig;
    passed = 1;
}

/* ---------------------------------------------------------------- one rank */

static int different(struct tern_comm *c, float *v)
{
    if (strcmp(kind, "op") == 0)
        return tern_fabric_all_gather(c, v, v + COUNT, 64, TERN_F32, &err);
    if (strcmp(kind, "type") == 0)
        return tern_fabric_all_reduce(c, v, COUNT, TERN_I32, TERN_SUM, &err);
    if (strcmp(kind, "count") == 0)
        return tern_fabric_all_reduce(c, v, COUNT - 1, TERN_F32, TERN_SUM, &err);
    return tern_fabric_broadcast(c, v, COUNT, TERN_F32, 1, &err);
}

/* Two communicators of everybody, and those of a grid of two columns.  `two`: the last rank calls
 * on the other one first.  `broadcast`: what it calls there needs rank 0 alone.  `four`: in the
 * first four ranks of the grid each waits for the next, on columns and rows in turns. `legal`:
 * begun and waited for in any order, which is fine, also when rank 0 comes seconds later. */
static int cross(struct tern_fabric *f, float *v)
{
    struct tern_comm *world = tern_fabric_world(f), *all[2], *row, *column;
    int rank = tern_fabric_rank(f), n = tern_fabric_size(f);
    bool last = rank == n - 1;
    struct tern_pending p[2];

    if (tern_fabric_comm_split(world, 0, rank, &all[0], &err) < 0 ||
        tern_fabric_comm_split(world, 0, rank, &all[1], &err) < 0 ||
        tern_fabric_comm_split(world, rank / 2, rank, &row, &err) < 0 ||
        tern_fabric_comm_split(world, rank % 2, rank, &column, &err) < 0)
        return -1;
    if (strcmp(kind, "two") == 0)
        return tern_fabric_all_reduce(all[last], v, COUNT, TERN_F32, TERN_SUM, &err);
    if (strcmp(kind, "broadcast") == 0)
        return last ? tern_fabric_broadcast(all[1], v, COUNT, TERN_F32, 0, &err)
                    : tern_fabric_all_reduce(all[0], v, COUNT, TERN_F32, TERN_SUM, &err);
    if (strcmp(kind, "four") == 0)
        return tern_fabric_all_reduce(rank % 4 == 0 || rank % 4 == 3 ? row : column, v, COUNT,
                                      TERN_F32, TERN_SUM, &err);
    if (rank == 0)
        tern_clock_sleep_ns(2500000000ll);
    /* Rank 3 waits for rank 1, which has come but waits for rank 0, and in its column for rank 3.
     */
    if (tern_fabric_all_reduce_begin(all[0], v, 1, TERN_F32, TERN_SUM, &p[0], &err) < 0 ||
        (rank != 1 && tern_fabric_wait(&p[0], &err) < 0) ||
        tern_fabric_all_reduce(column, v + COUNT, 1, TERN_F32, TERN_SUM, &err) < 0 ||
        tern_fabric_wait(&p[0], &err) < 0)
        return -1;
    for (int k = 0; k < 100; k++)
        for (int i = 0; i < 2; i++) {
            int c = i ^ (rank & 1);
            if (tern_fabric_all_reduce_begin(all[c], v + c * COUNT, COUNT, TERN_F32, TERN_SUM,
                                             &p[c], &err) < 0)
                return -1;
            if (i && (tern_fabric_wait(&p[rank >> 1 & 1], &err) < 0 ||
                      tern_fabric_wait(&p[~rank >> 1 & 1], &err) < 0))
                return -1;
        }
    exit(0);
}

/* An asking that takes long is one beyond the deadline, around whose fault it is. */
static int ask(struct tern_comm *c, int64_t ms)
{
    const int64_t LONG_NS = 300000000;
    struct tern_pending p;
    bool done = false;

    if (tern_fabric_barrier_begin(c, &p, &err) < 0)
        return -1;
    while (!done) {
        int64_t start = tern_clock_boot_ns();
        if (tern_fabric_test(&p, &done, &err) < 0)
            return -1;
        tern_clock_sleep_ns((tern_clock_boot_ns() - start > LONG_NS ? ms : 1) * 1000000);
    }
    exit(0);
}

/* As the stages of a pipeline that fills. */
static int chain(struct tern_fabric *f)
{
    struct tern_comm *world = tern_fabric_world(f), *with[2];
    int rank = tern_fabric_rank(f), n = tern_fabric_size(f);

    for (int k = 0; k < 2; k++) /* those after even ranks and those after odd ones */
        if (tern_fabric_comm_split(world, (rank + k) / 2, rank, &with[k], &err) < 0)
            return -1;
    if (rank == n - 1 && kind[0])
        return ask(with[rank & 1 ? 0 : 1], atoll(kind));
    if (rank > 0 && tern_fabric_barrier(with[rank & 1 ? 0 : 1], &err) < 0)
        return -1;
    tern_clock_sleep_ns(7000000000ll);
    if (rank < n - 1 && tern_fabric_barrier(with[rank & 1 ? 1 : 0], &err) < 0)
        return -1;
    exit(0);
}

/* Rank 1 asks, and rank 0 has come: a byte each. */
static int asks[2], came[2];
static int64_t waits_since_ns; /* of rank 1 */

/* As ranks sleep; the first sleep of an asking lasts until rank 0 has come. */
int nanosleep(const struct timespec *t, struct timespec *left)
{
    enum { ASKS_NS = 2000000 }; /* no other sleep after the deadline is as long */
    const char *deadline = getenv("TERN_DEADLINE");
    char byte = 0;

    if (waits_since_ns && gettid() == getpid() && t->tv_sec == 0 && t->tv_nsec == ASKS_NS &&
        tern_clock_boot_ns() - waits_since_ns >= (int64_t)(atof(deadline) * 1e9)) {
        waits_since_ns = 0;
        if (write(asks[1], &byte, 1) != 1 || read(came[0], &byte, 1) != 1)
            abort();
    }
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, t, left);
    return errno ? -1 : 0;
}

static int tardy(struct tern_comm *c)
{
    char byte;

    if (tern_fabric_comm_rank(c) != 0) {
        waits_since_ns = tern_clock_boot_ns();
        if (tern_fabric_barrier(c, &err) < 0)
            return -1;
        exit(waits_since_ns ? 4 : 0); /* 4: it did not ask */
    }
    if (read(asks[0], &byte, 1) != 1 || tern_fabric_barrier(c, &err) < 0)
        return -1;
    if (write(came[1], &byte, 1) != 1)
        return -1;
    tern_clock_sleep_ns(1000000000);
    exit(0);
}

static int step(struct tern_fabric *f, struct tern_comm *c, float *v, int i)
{
    bool last = tern_fabric_rank(f) == tern_fabric_size(f) - 1;

    if (i == AT && last && strcmp(mode, "late") == 0)
        for (;;)
            pause();
    if (i == AT && last && strcmp(mode, "rebuild") == 0)
        raise(SIGKILL);
    if (i == AT && last && strcmp(mode, "differ") == 0)
        return different(c, v);
    if (i == AT && strcmp(mode, "chain") == 0)
        return chain(f);
    if (i == AT && strcmp(mode, "tardy") == 0)
        return tardy(c);
    if (i == AT && strcmp(mode, "cross") == 0)
        return cross(f, v);
    if (i == AT && strcmp(kind, "root") == 0)
        return tern_fabric_broadcast(c, v, COUNT, TERN_F32, 0, &err);
    if (strcmp(mode, "rank") == 0)
        tern_clock_sleep_ns(5000000);
    return tern_fabric_all_reduce(c, v, COUNT, TERN_F32, TERN_SUM, &err);
}

static int until_error(struct tern_fabric *f)
{
    float *v = tern_fabric_alloc(f, 1 << 20, &err);

    if (!v)
        return say_error("memory");
    for (int i = 0;; i++) {
        int64_t start = tern_clock_boot_ns();
        if (step(f, tern_fabric_world(f), v, i) < 0) {
            dprintf(2, "after %.1f s: code %d: %s\n", (double)(tern_clock_boot_ns() - start) / 1e9,
                    (int)err.code, err.text);
            return 3;
        }
        if (i == 0 && strcmp(mode, "rank") == 0)
            dprintf(2, "at work\n");
    }
}

static int count_in(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static int count_maps(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    int n = 0;

    for (int c; maps && (c = fgetc(maps)) != EOF;)
        n += c == '\n';
    if (maps)
        fclose(maps);
    return n;
}

/* Open, fail, close; then again without the last rank, and what that took and left. */
static int rebuild(struct tern_fabric_options o, const char *second)
{
    struct tern_fabric *f = tern_fabric_open(&o, &err);
    int fds = 0, maps = 0;

    if (!f)
        return say_error("open");
    if (until_error(f) != 3)
        return 1;
    for (int again = 0; again < 3; again++) {
        int64_t start = tern_clock_boot_ns();
        float v = 1;
        tern_fabric_close(f);
        if (again) { /* what the first one left is libfabric's own, kept for the next */
            dprintf(2, "left: %d descriptors, %d maps\n", count_in("/proc/self/fd") - fds,
                    count_maps() - maps);
        }
        fds = count_in("/proc/self/fd");
        maps = count_maps();
        o.socket = second;
        o.size -= !again;
        f = tern_fabric_open(&o, &err);
        if (!f || tern_fabric_all_reduce(tern_fabric_world(f), &v, 1, TERN_F32, TERN_SUM, &err) < 0)
            return say_error("rebuild");
        dprintf(2, "rebuilt: %.0f ms, %d ranks, sum %g\n",
                (double)(tern_clock_boot_ns() - start) / 1e6, tern_fabric_size(f), (double)v);
    }
    tern_fabric_close(f);
    return 0;
}

static int rank_main(const struct tern_fabric_options *o, const char *second)
{
    signal(SIGUSR2, dump);
    if (strcmp(mode, "rebuild") == 0)
        return rebuild(*o, second);
    struct tern_fabric *f = tern_fabric_open(o, &err);
    if (!f)
        return say_error("open");
    int rc = until_error(f);
    tern_fabric_close(f);
    return rc;
}

/* ---------------------------------------------------------------- all of them */

static int serve(struct tern_wire_rendezvous *r[2], int n)
{
    int worst = 0, status, ended = 0;
    pid_t pid;

    while (ended < n) {
        struct pollfd p[2] = {{tern_wire_rendezvous_fd(r[0]), POLLIN, 0},
                              {r[1] ? tern_wire_rendezvous_fd(r[1]) : -1, POLLIN, 0}};
        poll(p, 2, 10);
        for (int i = 0; i < 2; i++)
            if (r[i] && tern_wire_rendezvous_step(r[i], &err) < 0)
                return say_error("rendezvous");
        for (int i = 0; passed && i < n; i++)
            kill(pids[i], SIGUSR2);
        passed = 0;
        while (n < MAX_RANKS && (pid = waitpid(-1, &status, WNOHANG)) > 0) {
            ended++;
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
            worst = code > worst ? code : worst;
        }
    }
    return worst;
}

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[2]) : 0;
    struct tern_wire_rendezvous *r[2] = {NULL, NULL};

    if (argc < 2 || n >= MAX_RANKS)
        return 2;
    mode = argv[1];
    kind = argc > 3 ? argv[3] : "";
    if (strcmp(mode, "rank") == 0)
        return rank_main(NULL, NULL);
    bool meet = strcmp(mode, "meet") == 0;
    r[0] = tern_wire_rendezvous_open(meet ? kind : "127.0.0.1", n, &err);
    r[1] =
        strcmp(mode, "rebuild") == 0 ? tern_wire_rendezvous_open("127.0.0.1", n - 1, &err) : NULL;
    if (!r[0])
        return say_error("rendezvous");
    if (pipe(asks) < 0 || pipe(came) < 0)
        return 1;
    signal(SIGUSR2, pass);
    if (meet) {
        puts(tern_wire_rendezvous_address(r[0]));
        fflush(stdout);
        return serve(r, MAX_RANKS);
    }
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct tern_fabric_options o = {.wireup = TERN_WIREUP_SOCKET,
                                            .socket = tern_wire_rendezvous_address(r[0]),
                                            .rank = i,
                                            .size = n,
                                            /* however busy the machine: deadlines are of waits */
                                            .wireup_s = 60};
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            exit(rank_main(&o, r[1] ? tern_wire_rendezvous_address(r[1]) : NULL));
        }
    }
    int worst = serve(r, n);
    tern_wire_rendezvous_close(r[0]);
    tern_wire_rendezvous_close(r[1]);
    return worst;
}
