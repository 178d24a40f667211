/* Messages over the transport for MPI, under mpirun: every rank sends to every other one in one
 * random order and receives in another, some before and some after they came.
 *
 *   mpi-messages SEED     contents, sizes 0..1 MiB, any order of tags
 *   mpi-messages wrong    another size and another call are reported, and nothing else is spoilt */
#include "core/base/clock.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/wire/mpi/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 40, CALL = 7 };
static struct tern_err err;
static struct tern_wire_transport *wire;
static int rank, size;

static void control(void *arg, const struct tern_wire_control *m)
{
    *(int *)arg += m->kind == TERN_WIRE_PING;
}

static bool patient(void *arg, int64_t since)
{
    (void)arg;
    (void)since;
    return true;
}

static int fail(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, err.text);
    return 1;
}

static size_t bytes_of(uint64_t seed, int from, int to, int k)
{
    uint64_t r = tern_rand_u64(seed, (uint64_t)(from * 1000 + to), (uint64_t)k);

    return r % 4 == 0 ? r / 4 % 64 : r % 4 == 1 ? 8190 + r / 4 % 5 : r / 4 % (TERN_WIRE_CHUNK + 1);
}

static char byte_of(int from, int to, int k, size_t i)
{
    return (char)(from * 7 + to * 3 + k * 31 + (int)(i % 251));
}

static void shuffle(int *order, uint64_t seed)
{
    for (int i = 0; i < MESSAGES; i++)
        order[i] = i;
    for (int i = MESSAGES - 1; i > 0; i--) {
        int j = (int)tern_rand_below((uint64_t)seed, 5, (uint64_t)i, (uint64_t)i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static int wait_for(struct tern_wire_message *m)
{
    int64_t end = tern_clock_boot_ns() + 20000000000;

    while (m->state == TERN_WIRE_PENDING && tern_clock_boot_ns() < end)
        wire->ops->progress(wire);
    return m->state == TERN_WIRE_PENDING ? fail("a message is not over after 20 s") : 0;
}

static void linger(int ms)
{
    for (int i = 0; i < ms; i++) {
        wire->ops->progress(wire);
        tern_clock_sleep_ns(1000000);
    }
}

static int exchange(uint64_t seed)
{
    struct tern_wire_message *m[2][64][MESSAGES] = {{{NULL}}};
    static char *buf[2][64][MESSAGES];
    int order[2][MESSAGES];

    shuffle(order[0], seed + (uint64_t)rank);
    shuffle(order[1], seed + 100 + (uint64_t)rank);
    for (int i = 0; i < 2 * MESSAGES; i++) { /* half of the receives before anything was sent */
        bool sends = i >= MESSAGES / 2 && i < MESSAGES / 2 + MESSAGES;
        int k = sends              ? order[0][i - MESSAGES / 2]
                : i < MESSAGES / 2 ? order[1][i]
                                   : order[1][i - MESSAGES];
        if (i == MESSAGES / 2 + MESSAGES)
            linger(50); /* now what comes comes early */
        for (int p = 0; p < size; p++) {
            if (p == rank)
                continue;
            int from = sends ? rank : p, to = sends ? p : rank;
            size_t n = bytes_of(seed, from, to, k);
            char *b = buf[sends][p][k] = malloc(n + 1);
            for (size_t j = 0; j < n; j++)
                b[j] = sends ? byte_of(from, to, k, j) : 0;
            uint64_t tag = tern_wire_tag(1, from, (uint32_t)k / 3, (uint32_t)k % 3);
            m[sends][p][k] =
                sends
                    ? wire->ops->send(wire, &(struct tern_wire_transfer){p, b, n, tag, CALL, NULL},
                                      &err)
                    : wire->ops->recv(wire, &(struct tern_wire_transfer){p, b, n, tag, CALL, NULL},
                                      &err);
            if (!m[sends][p][k])
                return fail("post");
        }
    }
    for (int s = 0; s < 2; s++) {
        for (int p = 0; p < size; p++) {
            for (int k = 0; k < MESSAGES && p != rank; k++) {
                if (wait_for(m[s][p][k]))
                    return 1;
                if (m[s][p][k]->state != TERN_WIRE_DONE)
                    return fail(m[s][p][k]->error);
                size_t n = bytes_of(seed, p, rank, k);
                for (size_t j = 0; s == 0 && j < n; j++)
                    if (buf[0][p][k][j] != byte_of(p, rank, k, j))
                        return fail("a wrong byte");
                wire->ops->release(wire, m[s][p][k]);
                free(buf[s][p][k]);
            }
        }
    }
    return 0;
}

/* Rank 0 to 1: one byte too many, long and short; another call; one that is not waited for. */
static int wrong(void)
{
    static char big[100000], in[100000];
    static const struct {
        size_t sent, due;
        uint32_t call, expected;
    } cases[] = {{10, 9, 1, 1},
                 {90000, 89999, 1, 1},
                 {10, 10, 1, 2},
                 {90000, 90000, 1, 2},
                 {90000, 90000, 1, 1}};
    enum { CASES = sizeof cases / sizeof *cases };
    struct tern_wire_message *m[CASES], *idle;

    idle = wire->ops->recv(
        wire, &(struct tern_wire_transfer){1 - rank, in, 5, tern_wire_tag(3, 0, 0, 0), 1, NULL},
        &err);
    wire->ops->release(wire, idle); /* before it came */
    for (int i = 0; i < CASES; i++) {
        uint64_t tag = tern_wire_tag(2, 0, (uint32_t)i, 0);
        m[i] = rank == 0 ? wire->ops->send(wire,
                                           &(struct tern_wire_transfer){1, big, cases[i].sent, tag,
                                                                        cases[i].call, NULL},
                                           &err)
                         : wire->ops->recv(wire,
                                           &(struct tern_wire_transfer){0, in, cases[i].due, tag,
                                                                        cases[i].expected, NULL},
                                           &err);
        if (!m[i])
            return fail("post");
    }
    for (int i = 0; i < CASES && rank == 1; i++) {
        if (wait_for(m[i]))
            return 1;
        bool size_wrong = cases[i].sent != cases[i].due,
             call_wrong = cases[i].call != cases[i].expected;
        if ((m[i]->state == TERN_WIRE_FAILED) != (size_wrong || call_wrong) ||
            m[i]->wrong_size != size_wrong || m[i]->wrong_call != call_wrong ||
            m[i]->their_call != cases[i].call)
            return fail("a wrong message is not reported as such");
    }
    linger(rank == 0 ? 100 : 0);
    return 0;
}

int main(int argc, char **argv)
{
    int pings = 0, rc;
    const struct tern_mpi *mpi = argc == 2 ? tern_wire_mpi_start(30000000000, &err) : NULL;
    uint8_t mine[TERN_WIRE_ADDRESS], *all;

    if (!mpi)
        return fail("start");
    rank = mpi->rank();
    size = mpi->size();
    const struct tern_wire_options o = {
        .rank = rank, .size = size, .owner = {&pings, control, patient}};
    wire = tern_wire_mpi_open(&o, &err);
    all = calloc((size_t)size, sizeof mine);
    if (!wire || !all || !wire->ops->address(wire, mine) ||
        mpi->gather(mine, sizeof mine, all, 5000000000) ||
        wire->ops->connect(wire, all, sizeof mine, &err) < 0)
        return fail("open");
    if (strcmp(argv[1], "wrong") == 0)
        rc = wrong();
    else
        rc = exchange(strtoull(argv[1], NULL, 10));
    const struct tern_wire_control hello = {.kind = TERN_WIRE_PING, .sender = rank};
    for (int p = 0; p < size && rc == 0; p++)
        if (p != rank)
            wire->ops->release(wire, wire->ops->tell(wire, p, &hello));
    for (int i = 0; i < 5000 && pings < size - 1 && rc == 0; i++)
        linger(1);
    if (rc == 0 && pings != size - 1)
        rc = fail("control messages are missing");
    wire->ops->close(wire);
    tern_wire_mpi_stop(rc != 0);
    free(all);
    return rc;
}
