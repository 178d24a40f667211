#include "core/health/link.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/fabric/fabric.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(struct tern_health_rows *rows, enum tern_health_verdict v, const char *subject,
                double value, const char *unit, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
static void say(struct tern_health_rows *rows, enum tern_health_verdict v, const char *subject,
                double value, const char *unit, const char *fmt, ...)
{
    struct tern_health_row r = {.check = "link", .verdict = v, .value = value};
    va_list ap;

    r.severity = v > TERN_HEALTH_SKIPPED ? TERN_RULES_ERROR : TERN_RULES_INFO;
    snprintf(r.subject, sizeof r.subject, "%s", subject);
    snprintf(r.unit, sizeof r.unit, "%s", unit);
    va_start(ap, fmt);
    vsnprintf(r.text, sizeof r.text, fmt, ap);
    va_end(ap);
    tern_health_rows_add(rows, &r);
}

/* Rounds of disjoint pairs that cover the ring of n: (0,1)(2,3)..., (1,2)(3,4)..., and with n odd
 * the last with the first. */
static int partner(int rank, int n, int round)
{
    int even = n - n % 2;

    if (round == 0)
        return rank < even ? rank ^ 1 : -1;
    if (round == 1) {
        if (n % 2 == 0)
            return rank % 2 ? (rank + 1) % n : (rank + n - 1) % n;
        return rank == 0 ? -1 : rank % 2 ? rank + 1 : rank - 1;
    }
    return rank == 0 ? n - 1 : rank == n - 1 ? 0 : -1;
}

struct link {
    int peer;
    double mb_s, us;
};

/* An all-gather between two moves a block each way at once.  A rank that comes late to an operation
 * measures it as short, so many in a row are timed; the best of several such rows counts. */
static int measure(struct tern_comm *c, struct tern_fabric *f, bool deep, struct link *l,
                   struct tern_err *err)
{
    const size_t bytes = (size_t)4 << 20;
    const int batches = deep ? 40 : 4, rounds = 4;
    const int rows = deep ? 100 : 40, trips = 20; /* short, so that on a busy node one is quiet */
    uint8_t *buf = tern_fabric_alloc(f, 2 * bytes, err);
    double best = INFINITY, best_trip = INFINITY;
    int rank = tern_fabric_comm_rank(c), rc = buf ? 0 : -1;

    for (int i = 0; rc == 0 && i < batches + 1; i++) { /* the first opens the connection */
        int64_t began = tern_clock_boot_ns();
        for (int k = 0; rc == 0 && k < rounds; k++)
            rc = tern_fabric_all_gather(c, buf + (size_t)rank * bytes, buf, bytes, TERN_U8, err);
        double took = (double)(tern_clock_boot_ns() - began) / rounds;
        if (i > 0 && took < best)
            best = took;
    }
    for (int i = 0; rc == 0 && i < rows; i++) {
        int64_t began = tern_clock_boot_ns();
        for (int k = 0; rc == 0 && k < trips; k++)
            rc = tern_fabric_barrier(c, err);
        best_trip = fmin(best_trip, (double)(tern_clock_boot_ns() - began) / trips);
    }
    tern_fabric_free(f, buf);
    l->mb_s = (double)bytes * 1e3 / best;
    l->us = best_trip / 1e3;
    return rc;
}

/* The i-th element of rank r: whole numbers, so that every order of summing gives the same. */
static float piece(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % 97);
}

/* Elements of the sum that are wrong; -1 with `err` when it cannot be had. */
static int64_t all_reduce(struct tern_fabric *f, bool deep, struct tern_err *err)
{
    const size_t n = (deep ? (size_t)16 : (size_t)1) << 20;
    float *v = tern_fabric_alloc(f, n * sizeof *v, err);
    int size = tern_fabric_size(f), rank = tern_fabric_rank(f);
    int64_t wrong = 0;

    if (!v)
        return -1;
    for (size_t i = 0; i < n; i++)
        v[i] = piece(rank, i);
    if (tern_fabric_all_reduce(tern_fabric_world(f), v, n, TERN_F32, TERN_SUM, err) < 0)
        wrong = -1;
    for (size_t i = 0; wrong >= 0 && i < n; i++) {
        float sum = 0;
        for (int r = 0; r < size; r++)
            sum += piece(r, i);
        wrong += v[i] != sum;
    }
    tern_fabric_free(f, v);
    return wrong;
}

enum {
    ROUNDS = 3,  /* of disjoint pairs, at most */
    AGAIN_S = 10 /* of measuring slow links again */
};

/* What this rank found in each round; peer -1: it had none. */
static int first_look(struct tern_fabric *f, bool deep, struct link found[ROUNDS],
                      struct tern_err *err)
{
    int n = tern_fabric_size(f), rank = tern_fabric_rank(f);
    int rounds = n < 2 ? 0 : n == 2 ? 1 : n % 2 ? 3 : 2;

    for (int round = 0; round < ROUNDS; round++) {
        struct link *l = &found[round];
        struct tern_comm *pair = NULL;
        l->peer = round < rounds ? partner(rank, n, round) : -1;
        if (round >= rounds)
            continue;
        int low = l->peer < 0 || rank < l->peer ? rank : l->peer;
        if (tern_fabric_comm_split(tern_fabric_world(f), l->peer < 0 ? -1 : low, rank, &pair, err) <
            0)
            return -1;
        int rc = pair ? measure(pair, f, deep, l, err) : 0;
        tern_fabric_comm_free(pair);
        if (rc < 0 || tern_fabric_barrier(tern_fabric_world(f), err) < 0)
            return -1;
    }
    return 0;
}

static int by_speed(const void *a, const void *b)
{
    double x = ((const struct link *)a)->mb_s, y = ((const struct link *)b)->mb_s;

    return (x < y) - (x > y);
}
static int by_latency(const void *a, const void *b)
{
    double x = ((const struct link *)a)->us, y = ((const struct link *)b)->us;

    return (x > y) - (x < y);
}

/* The better quartile of both (which puts them in another order). */
static struct link usual(struct link *all, size_t n)
{
    struct link l = {0};

    qsort(all, n, sizeof *all, by_speed);
    l.mb_s = all[n / 4].mb_s;
    qsort(all, n, sizeof *all, by_latency);
    l.us = all[n / 4].us;
    return l;
}

/* One link, alone: the better of what it did then and does now. */
static int second_look(struct tern_fabric *f, struct link *mine, int round, int low, int high,
                       struct tern_err *err)
{
    int rank = tern_fabric_rank(f);
    struct tern_comm *pair = NULL;
    struct link l = {0};

    if (tern_fabric_comm_split(tern_fabric_world(f), rank == low || rank == high ? 0 : -1, rank,
                               &pair, err) < 0)
        return -1;
    int rc = pair ? measure(pair, f, false, &l, err) : 0;
    if (pair && rc == 0) {
        mine[round].mb_s = fmax(mine[round].mb_s, l.mb_s);
        mine[round].us = fmin(mine[round].us, l.us);
    }
    tern_fabric_comm_free(pair);
    return rc;
}

/* Links are measured many at once, as training uses them, on nodes that may be busy for a moment. A
 * link that came out slow is measured again while the others are idle: a slow link is slow then,
 * too.  `all`: of every rank its ROUNDS links. */
static int look_again(struct tern_fabric *f, struct link *mine, const struct link *all,
                      struct link *order, struct tern_err *err)
{
    int size = tern_fabric_size(f);
    int64_t until = tern_clock_boot_ns() + AGAIN_S * 1000000000ll;
    size_t n = 0;

    for (int i = 0; i < size * ROUNDS; i++)
        if (all[i].peer >= 0)
            order[n++] = all[i];
    const struct link good = n ? usual(order, n) : (struct link){0};
    for (int i = 0; i < size * ROUNDS; i++) {
        int rank = i / ROUNDS, peer = all[i].peer;
        uint8_t go_on = tern_clock_boot_ns() < until;
        if (peer < rank || (all[i].mb_s >= 0.8 * good.mb_s && 0.8 * all[i].us <= good.us))
            continue; /* it is seen from both ends, or is well */
        if (tern_fabric_broadcast(tern_fabric_world(f), &go_on, 1, TERN_U8, 0, err) < 0)
            return -1;
        if (!go_on)
            return 0;
        if (second_look(f, mine, i % ROUNDS, rank, peer, err) < 0)
            return -1;
    }
    return 0;
}

static int ring(struct tern_fabric *f, bool deep, struct tern_health_rows *rows,
                struct tern_err *err)
{
    struct link mine[ROUNDS] = {0};
    size_t n = (size_t)tern_fabric_size(f) * ROUNDS;
    struct link *all = tern_alloc(2 * n, sizeof *all, "links", err);
    int rc = -1;

    if (!all || first_look(f, deep, mine, err) < 0 ||
        tern_fabric_all_gather(tern_fabric_world(f), mine, all, sizeof mine, TERN_U8, err) < 0 ||
        look_again(f, mine, all, all + n, err) < 0)
        goto out;
    for (const struct link *l = mine; l < mine + ROUNDS; l++) {
        if (l->peer < 0)
            continue;
        const char *peer = tern_fabric_node_name(f, l->peer);
        say(rows, TERN_HEALTH_OK, peer, l->mb_s, "MB/s", "%.0f MB/s each way to %s", l->mb_s, peer);
        say(rows, TERN_HEALTH_OK, peer, l->us, "us", "%.0f us to %s", l->us, peer);
    }
    rc = 0;
out:
    free(all);
    return rc;
}

void tern_health_link(const char *socket, bool deep, struct tern_health_rows *rows)
{
    const struct tern_fabric_options o = {
        .wireup = socket ? TERN_WIREUP_SOCKET : TERN_WIREUP_AUTO,
        .socket = socket,
        .deadline_s = deep ? 60 : 20,
    };
    struct tern_err err = {0};
    struct tern_fabric *f = tern_fabric_open(&o, &err);
    int64_t wrong = -1;
    int size = f ? tern_fabric_size(f) : 0;

    if (f && ring(f, deep, rows, &err) == 0)
        wrong = all_reduce(f, deep, &err);
    if (wrong > 0)
        say(rows, TERN_HEALTH_FABRIC_BAD, "", (double)wrong, "elements",
            "an all-reduce over %d nodes came back with %lld wrong elements. Run `tern health "
            "fabric` on halves of the nodes to find the node that makes them.",
            size, (long long)wrong);
    else if (wrong < 0)
        say(rows, TERN_HEALTH_FABRIC_BAD, "", 0, "", "%.390s", err.text);
    else
        say(rows, size > 1 ? TERN_HEALTH_OK : TERN_HEALTH_SKIPPED, "", 0, "", "%s",
            size > 1 ? "all-reduce over all nodes: right"
                     : "one node has no neighbours: run it with --job in a job of several");
    tern_fabric_close(f);
}
