/* Which algorithm? The one that costs least in a model of three numbers. A round's time and the
 * wire's speed are measured when the fabric opens, unless ranks crowd the cores. The speed of
 * combining is a typical one.
 *
 * An operation takes as long as its rounds and the bytes of its busiest rank take one after the
 * other.  Where more ranks than cores want to run, it takes as long as the work of all of them.
 * Every algorithm gives the same bits, so a choice never changes a result.  But all members must
 * choose the same one, so they share the model, the load of their machines included. */
#include "core/coll/program.h"

#include "core/base/assert.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/coll/copy.h"

#include <string.h>

static const char *const names[TERN_COLL_ALGORITHMS] = {
    [TERN_COLL_NONE] = "memory",     [TERN_COLL_DOUBLING] = "doubling", [TERN_COLL_TREE] = "tree",
    [TERN_COLL_HALVING] = "halving", [TERN_COLL_DIRECT] = "direct",     [TERN_COLL_RING] = "ring",
    [TERN_COLL_BRUCK] = "bruck",
};

const char *tern_coll_algorithm_name(enum tern_coll_algorithm a)
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
static size_t whole(const struct tern_coll_shape *c, const struct tern_coll_task *t)
{
    bool each = t->call == TERN_CALL_ALL_GATHER || t->call == TERN_CALL_REDUCE_SCATTER;

    return t->count * tern_type_bytes(t->type) * (each ? (size_t)c->size : 1);
}

static bool possible(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                     enum tern_coll_algorithm a)
{
    size_t bytes = whole(c, t);
    bool reduces = t->call == TERN_CALL_ALL_REDUCE || t->call == TERN_CALL_REDUCE_SCATTER;
    bool fits = bytes <= TERN_WIRE_SHM_STAGE / 2 - 256; /* twice, on a stage */

    switch (a) {
    case TERN_COLL_DOUBLING:
    case TERN_COLL_TREE:
        return reduces && fits;
    case TERN_COLL_HALVING:
        return reduces && c->even;
    case TERN_COLL_DIRECT:
        return reduces || t->call == TERN_CALL_ALL_GATHER;
    case TERN_COLL_RING:
        return t->call == TERN_CALL_ALL_GATHER && c->even;
    case TERN_COLL_BRUCK:
        return t->call == TERN_CALL_ALL_GATHER && c->even && fits;
    default:
        return false;
    }
}

/* Seconds.  `share` of the node's bytes goes by this rank where all members work, all of them where
 * one speaks for the node. */
static double cost(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                   enum tern_coll_algorithm a, const struct tern_coll_model *m)
{
    double n = c->nodes, log = rounds_of(c->nodes), all = (double)whole(c, t);
    double p = c->size / n; /* of every member the same, however the nodes are */
    double share = all / p, rounds = 0, messages = 0, bytes = 0, combined = 0, workers = p;
    bool both = t->call == TERN_CALL_ALL_REDUCE; /* there and back */

    switch (a) {
    case TERN_COLL_DOUBLING:
        rounds = messages = log, bytes = combined = log * all, workers = 1;
        break;
    case TERN_COLL_TREE:
        rounds = 2 * log, messages = 2, bytes = 2 * log * all, combined = log * all, workers = 1;
        break;
    case TERN_COLL_HALVING:
        rounds = messages = both ? 2 * log : log;
        bytes = (both ? 2 : 1) * share * (n - 1) / n, combined = 2 * share;
        if (c->nodes & (c->nodes - 1)) /* from block to block, and back or to the owners */
            rounds += 2, messages += 4, bytes += 2 * share / n;
        break;
    case TERN_COLL_DIRECT:
        /* Messages leave at once, but each beside the first costs its handling. */
        rounds = both ? 2 : 1, messages = rounds * (n - 1);
        rounds += (messages - rounds) / 4;
        bytes = (both ? 2 : 1) * share * (n - 1) / n;
        combined = t->call == TERN_CALL_ALL_GATHER ? 0 : share;
        break;
    case TERN_COLL_RING:
        rounds = messages = n - 1, bytes = share * (n - 1) / n * 0.9; /* no rank is crowded */
        break;
    default: /* Bruck */
        rounds = messages = log, bytes = all, combined = 2 * all, workers = 1;
        break;
    }
    if (a == TERN_COLL_HALVING || a == TERN_COLL_DIRECT || a == TERN_COLL_RING) {
        struct tern_coll_task sliced = *t;
        sliced.algorithm = a;
        double lists = (double)tern_coll_slices_lists(c, &sliced);
        rounds *= lists, messages *= lists;
    }
    double path = rounds * m->round + bytes * m->wire + combined * m->combine;
    /* Over tcp, three quarters of a round of 17 us are the processor's: 9 to send, 4 to receive. */
    double work = messages * m->round * 3 / 4 + bytes * m->wire + combined * m->combine;
    double crowd = m->load * workers / p;
    return crowd > 1 ? path + (crowd - 1) * work : path;
}

/* TERN_FABRIC_ALGORITHM, to compare algorithms. */
static enum tern_coll_algorithm wanted(void)
{
    const char *name = tern_var("TERN_FABRIC_ALGORITHM");

    for (int a = TERN_COLL_DOUBLING; name && a < TERN_COLL_ALGORITHMS; a++)
        if (strcmp(name, names[a]) == 0)
            return (enum tern_coll_algorithm)a;
    return TERN_COLL_NONE;
}

int tern_coll_algorithm_check(struct tern_err *err)
{
    const char *name = tern_var("TERN_FABRIC_ALGORITHM");

    if (!name || wanted() != TERN_COLL_NONE)
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "TERN_FABRIC_ALGORITHM: '%s' is none of doubling, tree, halving, direct, "
                        "ring, bruck",
                        name);
}

enum tern_coll_algorithm tern_coll_choose(const struct tern_coll_shape *c,
                                          const struct tern_coll_task *t,
                                          const struct tern_coll_model *m)
{
    enum tern_coll_algorithm best = TERN_COLL_NONE, want;
    double least = 0;

    if (c->nodes == 1)
        return TERN_COLL_NONE;
    want = wanted();
    if (possible(c, t, want))
        return want;
    for (int a = TERN_COLL_DOUBLING; a < TERN_COLL_ALGORITHMS; a++) {
        if (!possible(c, t, (enum tern_coll_algorithm)a))
            continue;
        double seconds = cost(c, t, (enum tern_coll_algorithm)a, m);
        if (best == TERN_COLL_NONE || seconds < least)
            best = (enum tern_coll_algorithm)a, least = seconds;
    }
    return best;
}

double tern_coll_cost(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                      const struct tern_coll_model *m)
{
    enum tern_coll_algorithm a = tern_coll_choose(c, t, m);

    return a == TERN_COLL_NONE ? 0 : cost(c, t, a, m);
}

struct tern_coll_model tern_coll_model_typical(void)
{
    return (struct tern_coll_model){
        .round = 30e-6, .wire = 1 / 1.2e9, .combine = 1 / 6e9, .load = 1, .measured = false};
}

/* ---------------------------------------------------------------- tasks */

bool tern_coll_task_past(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                         size_t cache)
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

int tern_coll_cache_bytes(size_t *ret_bytes, struct tern_err *err)
{
    const char *s = tern_var("TERN_FABRIC_CACHE");
    uint64_t v = tern_coll_copy_cache();

    if (s && tern_str_size(s, &v) < 0)
        return tern_err_set(err, TERN_USAGE,
                            "TERN_FABRIC_CACHE: '%s' is not a number of bytes, as in 32M", s);
    *ret_bytes = v;
    return 0;
}

int tern_coll_task_offers(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                          struct offer offers[TERN_WIRE_SHM_OFFERS])
{
    struct offer unused[TERN_WIRE_SHM_OFFERS], *o = offers ? offers : unused;
    bool slices = t->algorithm == TERN_COLL_DIRECT || t->algorithm == TERN_COLL_RING ||
                  t->algorithm == TERN_COLL_HALVING;
    size_t all = whole(c, t);

    if (c->p == 1 || t->call == TERN_CALL_BARRIER)
        return 0;
    if (c->nodes > 1 ? !slices : all <= SMALL_BYTES)
        return 0;
    if (t->call == TERN_CALL_ALL_GATHER && c->nodes == 1) {
        o[0] = (struct offer){t->in, all / (size_t)c->size};
        o[1] = (struct offer){t->out, all};
        /* Past the caches each input is read once if every rank writes it to all the results. */
        return t->past ? 2 : 1;
    }
    o[0] = (struct offer){t->call == TERN_CALL_REDUCE_SCATTER ? t->in : t->out, all};
    return 1;
}

static size_t make_program(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                           size_t at, struct tern_coll_program *p)
{
    switch (t->call) {
    case TERN_CALL_ALL_REDUCE:
        return tern_coll_algo_all_reduce(c, t, at, p);
    case TERN_CALL_REDUCE_SCATTER:
        return tern_coll_algo_reduce_scatter(c, t, at, p);
    case TERN_CALL_ALL_GATHER:
        return tern_coll_algo_all_gather(c, t, at, p);
    case TERN_CALL_BROADCAST:
        return tern_coll_algo_broadcast(c, t, at, p);
    default:
        return tern_coll_algo_barrier(c, t, at, p);
    }
}

size_t tern_coll_task_program(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                              size_t at, struct tern_coll_program *p)
{
    const size_t did = make_program(c, t, at, p);

    /* A list that did nothing would be made again for ever. */
    tern_assert(at < t->count && did > 0 && did <= t->count - at, "%zu of %zu elements from %zu on",
                did, t->count, at);
    return did;
}
