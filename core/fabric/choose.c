/* Which algorithm: by what each costs in a model of three numbers: a round's time and the wire's
 * bytes, measured when the fabric opens unless ranks crowd the cores, and a typical speed of
 * combining.
 *
 * An operation takes as long as its rounds and the bytes of its busiest rank take one after the
 * other, or, where more ranks than cores want to run, as long as the work of all of them.  Every
 * algorithm gives the same bits, so a choice can never change a result; but all members must make
 * the same, and so they share the model, the load of their machines included. */
#include "core/fabric/program.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/fabric/copy.h"

#include <string.h>

static const char *const names[ALGO_COUNT] = {
    [ALGO_NONE] = "memory",     [ALGO_DOUBLING] = "doubling", [ALGO_TREE] = "tree",
    [ALGO_HALVING] = "halving", [ALGO_DIRECT] = "direct",     [ALGO_RING] = "ring",
    [ALGO_BRUCK] = "bruck",
};

const char *tern_fabric_algorithm_name(enum algorithm a)
{
    return names[a];
}

static int rounds_of(int nodes)
{
    int n = 0;

    while (1 << n < nodes)
        n++;
    return n;
}

/* All bytes that a member holds before or after. */
static size_t whole(const struct tern_comm *c, const struct task *t)
{
    bool each = t->call == TERN_CALL_ALL_GATHER || t->call == TERN_CALL_REDUCE_SCATTER;

    return t->count * tern_type_bytes(t->type) * (each ? (size_t)c->size : 1);
}

static bool possible(const struct tern_comm *c, const struct task *t, enum algorithm a)
{
    size_t bytes = whole(c, t);
    bool reduces = t->call == TERN_CALL_ALL_REDUCE || t->call == TERN_CALL_REDUCE_SCATTER;
    bool fits = bytes <= TERN_WIRE_SHM_STAGE / 2 - 256; /* twice, on a stage */

    switch (a) {
    case ALGO_DOUBLING:
    case ALGO_TREE:
        return reduces && fits;
    case ALGO_HALVING:
        return reduces && c->even;
    case ALGO_DIRECT:
        return reduces || t->call == TERN_CALL_ALL_GATHER;
    case ALGO_RING:
        return t->call == TERN_CALL_ALL_GATHER && c->even;
    case ALGO_BRUCK:
        return t->call == TERN_CALL_ALL_GATHER && c->even && fits;
    default:
        return false;
    }
}

/* Seconds.  `share` of the node's bytes goes by this rank where all members work, all of them where
 * one speaks for the node. */
static double cost(const struct tern_comm *c, const struct task *t, enum algorithm a,
                   const struct model *m)
{
    double n = c->nodes, log = rounds_of(c->nodes), all = (double)whole(c, t);
    double p = c->size / n; /* of every member the same, however the nodes are */
    double share = all / p, rounds = 0, messages = 0, bytes = 0, combined = 0, workers = p;
    bool both = t->call == TERN_CALL_ALL_REDUCE; /* there and back */

    switch (a) {
    case ALGO_DOUBLING:
        rounds = messages = log, bytes = combined = log * all, workers = 1;
        break;
    case ALGO_TREE:
        rounds = 2 * log, messages = 2, bytes = 2 * log * all, combined = log * all, workers = 1;
        break;
    case ALGO_HALVING:
        rounds = messages = both ? 2 * log : log;
        bytes = (both ? 2 : 1) * share * (n - 1) / n, combined = 2 * share;
        if (c->nodes & (c->nodes - 1)) /* from block to block, and back or to the owners */
            rounds += 2, messages += 4, bytes += 2 * share / n;
        break;
    case ALGO_DIRECT:
        /* Messages leave at once, but each beside the first costs its handling. */
        rounds = both ? 2 : 1, messages = rounds * (n - 1);
        rounds += (messages - rounds) / 4;
        bytes = (both ? 2 : 1) * share * (n - 1) / n;
        combined = t->call == TERN_CALL_ALL_GATHER ? 0 : share;
        break;
    case ALGO_RING:
        rounds = messages = n - 1, bytes = share * (n - 1) / n * 0.9; /* nobody is crowded */
        break;
    default: /* Bruck */
        rounds = messages = log, bytes = all, combined = 2 * all, workers = 1;
        break;
    }
    if (a == ALGO_HALVING || a == ALGO_DIRECT || a == ALGO_RING) {
        struct task sliced = *t;
        sliced.algorithm = a;
        double lists = (double)tern_fabric_slices_lists(c, &sliced);
        rounds *= lists, messages *= lists;
    }
    double path = rounds * m->round + bytes * m->wire + combined * m->combine;
    /* Over tcp, three quarters of a round of 17 us are the processor's: 9 to send, 4 to receive. */
    double work = messages * m->round * 3 / 4 + bytes * m->wire + combined * m->combine;
    double crowd = m->load * workers / p;
    return crowd > 1 ? path + (crowd - 1) * work : path;
}

/* TERN_FABRIC_ALGORITHM: for those who compare. */
static enum algorithm wanted(void)
{
    const char *name = tern_var("TERN_FABRIC_ALGORITHM");

    for (int a = ALGO_DOUBLING; name && a < ALGO_COUNT; a++)
        if (strcmp(name, names[a]) == 0)
            return (enum algorithm)a;
    return ALGO_NONE;
}

int tern_fabric_algorithm_check(struct tern_err *err)
{
    const char *name = tern_var("TERN_FABRIC_ALGORITHM");

    if (!name || wanted() != ALGO_NONE)
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "TERN_FABRIC_ALGORITHM: '%s' is none of doubling, tree, halving, direct, "
                        "ring, bruck",
                        name);
}

enum algorithm tern_fabric_choose(const struct tern_comm *c, const struct task *t,
                                  const struct model *m)
{
    enum algorithm best = ALGO_NONE, want;
    double least = 0;

    if (c->nodes == 1)
        return ALGO_NONE;
    want = wanted();
    if (possible(c, t, want))
        return want;
    for (int a = ALGO_DOUBLING; a < ALGO_COUNT; a++) {
        if (!possible(c, t, (enum algorithm)a))
            continue;
        double seconds = cost(c, t, (enum algorithm)a, m);
        if (best == ALGO_NONE || seconds < least)
            best = (enum algorithm)a, least = seconds;
    }
    return best;
}

double tern_fabric_cost(const struct tern_comm *c, const struct task *t, const struct model *m)
{
    enum algorithm a = tern_fabric_choose(c, t, m);

    return a == ALGO_NONE ? 0 : cost(c, t, a, m);
}

/* ---------------------------------------------------------------- the model */

enum { TRIES = 4, PROBE_BYTES = 256 << 10 };

/* The shortest of some calls, in seconds. */
static double shortest(struct tern_comm *c, void *buf, size_t bytes, struct tern_err *err)
{
    double least = -1;

    for (int i = 0; i < TRIES; i++) {
        int64_t start = tern_clock_boot_ns();
        if ((bytes ? tern_comm_broadcast(c, buf, bytes, TERN_U8, 0, err)
                   : tern_comm_barrier(c, err)) < 0)
            return -1;
        double seconds = (double)(tern_clock_boot_ns() - start) / 1e9;
        if (least < 0 || seconds < least)
            least = seconds;
    }
    return least;
}

static int probe(struct tern_comm *c, struct model *m, struct tern_err *err)
{
    int log = rounds_of(c->nodes);
    double barrier = shortest(c, NULL, 0, err);
    double moved = barrier < 0 ? -1 : shortest(c, c->work, PROBE_BYTES, err);

    if (moved < 0)
        return -1;
    double got[2] = {barrier / log, (moved - barrier) / log / PROBE_BYTES};
    if (tern_comm_all_reduce(c, got, 2, TERN_F64, TERN_MAX, err) < 0)
        return -1;
    m->round = got[0] > 1e-6 ? got[0] : 1e-6;
    m->wire = got[1] > 1e-11 ? got[1] : 1e-11;
    m->measured = true;
    return 0;
}

struct model tern_fabric_model(void)
{
    return (struct model){30e-6, 1 / 1.2e9, 1 / 6e9, 1, false};
}

int tern_fabric_measure(struct tern_fabric *f, struct tern_err *err)
{
    enum { CROWDED = 4 }; /* a machine so full has better to do, and would measure its scheduler */
    struct tern_comm *world = tern_fabric_world(f);

    double load = f->model.load;

    f->model = tern_fabric_model();
    f->model.load = load;
    if (world->nodes == 1 || f->model.load > CROWDED)
        return 0;
    /* In a communicator of its own, so that the world's first operation is number 1. */
    struct tern_comm *c = tern_fabric_comm_new(f, 1, f->size, world->world, f->high_phase + 1, err);
    int rc = c ? probe(c, &f->model, err) : -1;
    tern_fabric_comm_delete(c);
    return rc;
}

/* ---------------------------------------------------------------- tasks */

bool tern_fabric_task_past(const struct tern_comm *c, const struct task *t, size_t cache)
{
    size_t all = whole(c, t), block = t->count * tern_type_bytes(t->type);

    if (c->p == 1)
        return false;
    switch (t->call) {
    case TERN_CALL_REDUCE_SCATTER:
    case TERN_CALL_ALL_GATHER: /* what each of them gives and gets */
        return all + block >= cache / (size_t)c->p;
    case TERN_CALL_BROADCAST: /* the root gives, each of the others gets */
        return block >= cache / (size_t)c->p;
    default: /* what is written was read there and is in a cache */
        return false;
    }
}

int tern_fabric_cache_bytes(size_t *bytes, struct tern_err *err)
{
    const char *s = tern_var("TERN_FABRIC_CACHE");
    uint64_t v = tern_copy_cache();

    if (s && tern_str_size(s, &v) < 0)
        return tern_err_set(err, TERN_USAGE,
                            "TERN_FABRIC_CACHE: '%s' is not a number of bytes, as in 32M", s);
    *bytes = v;
    return 0;
}

int tern_fabric_task_offers(const struct tern_comm *c, const struct task *t,
                            struct offer offers[TERN_WIRE_SHM_OFFERS])
{
    struct offer unused[TERN_WIRE_SHM_OFFERS], *o = offers ? offers : unused;
    bool slices =
        t->algorithm == ALGO_DIRECT || t->algorithm == ALGO_RING || t->algorithm == ALGO_HALVING;
    size_t all = whole(c, t);

    if (c->p == 1 || t->call == TERN_CALL_BARRIER)
        return 0;
    if (c->nodes > 1 ? !slices : all <= SMALL_BYTES)
        return 0;
    if (t->call == TERN_CALL_ALL_GATHER && c->nodes == 1) {
        o[0] = (struct offer){t->in, all / (size_t)c->size};
        o[1] = (struct offer){t->out, all};
        /* Past the caches each input is read once if everybody writes it to all the results. */
        return t->past ? 2 : 1;
    }
    o[0] = (struct offer){t->call == TERN_CALL_REDUCE_SCATTER ? t->in : t->out, all};
    return 1;
}

size_t tern_fabric_task_program(const struct tern_comm *c, const struct task *t, size_t at,
                                struct program *p)
{
    switch (t->call) {
    case TERN_CALL_ALL_REDUCE:
        return tern_fabric_algo_all_reduce(c, t, at, p);
    case TERN_CALL_REDUCE_SCATTER:
        return tern_fabric_algo_reduce_scatter(c, t, at, p);
    case TERN_CALL_ALL_GATHER:
        return tern_fabric_algo_all_gather(c, t, at, p);
    case TERN_CALL_BROADCAST:
        return tern_fabric_algo_broadcast(c, t, at, p);
    default:
        return tern_fabric_algo_barrier(c, t, at, p);
    }
}
