/* Do ranks wait for each other in a circle, each in an operation of another communicator?
 * Operations of several communicators run at once, so a rank that has not come may only be late.
 * Only a circle proves a deadlock.  Each of its ranks is inside a call that returns when an
 * operation is over.  That operation needs the next rank of the circle, which has not called it;
 * the last rank's needs the first.  A rank inside such a call calls nothing else, so each of these
 * facts lasts as long as the next one does.  The ranks are seen one after the other, and the first
 * one in the same wait before and after.  Then all facts hold together and for ever.
 *
 * A waiting rank publishes the operation that it waits in (tern_wire_shm_wait). It looks from rank
 * to rank: by memory inside a node, by a message (TERN_WIRE_CHASE) to the next node. Every
 * operation needs every member. Only a broadcast needs just the root and the rank that is to send
 * here or to meet. */
#include "core/fabric/state.h"

#include <stdio.h>
#include <string.h>

enum { HOPS = 256 }; /* beyond, a chase ends: inside an operation it may go in circles */

static uint64_t get(const _Atomic uint64_t *v)
{
    return atomic_load_explicit(v, memory_order_relaxed);
}
static void set(_Atomic uint64_t *v, uint64_t to)
{
    atomic_store_explicit(v, to, memory_order_relaxed);
}

/* ---------------------------------------------------------------- this rank's own wait */

static struct tern_wire_shm_edge edge_of(const struct tern_comm *c)
{
    bool rooted = tern_call_kind(c->desc) == TERN_CALL_BROADCAST;
    int root = rooted ? c->world[tern_call_root(c->desc)] : -1;

    return (struct tern_wire_shm_edge){
        .mark = c->mark,
        .op = c->ops,
        .desc = c->desc,
        .comm = c->id,
        .root = root,
        .to = c->world[c->waits_for],
    };
}

void tern_fabric_deadlock_publish(struct tern_comm *c)
{
    struct tern_wire_shm_head *h = fabric_of(c)->wire.own.head;
    uint64_t serial = get(&h->wait.serial);
    struct tern_wire_shm_edge e = edge_of(c);

    for (uint64_t busy = fabric_of(c)->coll.busy; busy; busy &= busy - 1) {
        const struct tern_comm *b = fabric_of(c)->coll.comms[__builtin_ctzll(busy)];
        set(&h->calls[b->id].waits_for, (uint64_t)b->world[b->waits_for]);
    }
    if (e.root >= 0 && e.to != e.root && !tern_coll_blocked_by_call(c)) {
        tern_fabric_deadlock_withdraw(fabric_of(c));
        return;
    }
    if (serial & 1 && memcmp(&h->wait.edge, &e, sizeof e) == 0)
        return;
    serial += serial & 1;
    set(&h->wait.serial, serial);
    atomic_thread_fence(memory_order_release);
    h->wait.edge = e;
    atomic_store_explicit(&h->wait.serial, serial + 1, memory_order_release);
}

void tern_fabric_deadlock_withdraw(struct tern_fabric *f)
{
    uint64_t serial = get(&f->wire.own.head->wait.serial);

    if (serial & 1)
        atomic_store_explicit(&f->wire.own.head->wait.serial, serial + 1, memory_order_release);
}

/* ---------------------------------------------------------------- from rank to rank */

static bool known(const struct tern_wire_chase *k, int rank)
{
    for (uint32_t i = 1; i < k->n; i++)
        if (k->steps[i].rank == rank)
            return true;
    return false;
}

/* Is it proved that the needed call never comes? */
enum hop { LOST, ON, CAUGHT };

/* A rank that has called the operation may wait in it for another rank itself. */
static enum hop pass_by(const struct tern_wire_shm_call *call, struct tern_wire_shm_edge *need)
{
    int64_t to = (int64_t)get(&call->waits_for);

    if (get(&call->finished) + 1 != need->op || (need->root >= 0 && to != need->root))
        return LOST;
    need->to = (int32_t)to;
    return ON;
}

/* `need` is the wait of the last rank of the path, `h` the head of rank need->to; `need` becomes
 * the wait of that rank. */
static enum hop hop(const struct tern_wire_shm_head *h, struct tern_wire_chase *k,
                    struct tern_wire_shm_edge *need)
{
    uint64_t serial = atomic_load_explicit(&h->wait.serial, memory_order_acquire);
    struct tern_wire_shm_edge next = h->wait.edge;
    int id = 0, rank = need->to;

    while (id < TERN_WIRE_SHM_COMMS && get(&h->calls[id].mark) != need->mark)
        id++;
    if (id == TERN_WIRE_SHM_COMMS)
        return LOST;
    if (get(&h->calls[id].begun) >= need->op)
        return pass_by(&h->calls[id], need);
    atomic_thread_fence(memory_order_acquire);
    if (!(serial & 1) || get(&h->wait.serial) != serial)
        return LOST;
    if (rank == k->steps[0].rank)
        return serial == k->serial ? CAUGHT : LOST;
    if (k->n == TERN_WIRE_CHASE_STEPS || known(k, rank))
        return LOST;
    k->steps[k->n++] = (struct tern_wire_chase_step){rank, next.comm, next.op, next.desc};
    *need = next;
    return ON;
}

static void chase(struct tern_fabric *f, struct tern_wire_chase *k, struct tern_wire_shm_edge need)
{
    while (k->hops++ < HOPS && need.to >= 0 && need.to < f->wire.size) {
        const struct tern_wire_shm_head *h = tern_wire_head(&f->wire, need.to);
        if (!h) {
            struct tern_wire_control m = {.kind = TERN_WIRE_CHASE,
                                          .sender = f->wire.rank,
                                          .rank = k->steps[0].rank,
                                          .op = need.op,
                                          .desc = need.desc,
                                          .chase = *k};
            m.comm = (int32_t)need.mark;
            m.chase.root = need.root;
            tern_wire_send_control(&f->wire, need.to, &m);
            return;
        }
        enum hop to = hop(h, k, &need);
        if (to == CAUGHT)
            f->deadlock = *k;
        if (to != ON)
            return;
    }
}

void tern_fabric_deadlock_heard(struct tern_fabric *f, const struct tern_wire_control *m)
{
    struct tern_wire_chase k = m->chase;

    if (k.n < 1 || k.n > TERN_WIRE_CHASE_STEPS || k.steps[0].rank != m->rank || k.root < -1 ||
        k.root >= f->wire.size || f->deadlock.n)
        return;
    for (uint32_t i = 0; i < k.n; i++)
        if (k.steps[i].rank < 0 || k.steps[i].rank >= f->wire.size)
            return;
    chase(f, &k,
          (struct tern_wire_shm_edge){.mark = (uint32_t)m->comm,
                                      .op = m->op,
                                      .desc = m->desc,
                                      .root = k.root,
                                      .to = f->wire.rank});
}

void tern_fabric_deadlock_look(struct tern_fabric *f)
{
    const struct tern_wire_shm_head *h = f->wire.own.head;
    struct tern_wire_chase k = {.serial = get(&h->wait.serial), .n = 1};
    struct tern_wire_shm_edge e = h->wait.edge;

    if (!(k.serial & 1) || f->deadlock.n)
        return;
    k.steps[0] = (struct tern_wire_chase_step){f->wire.rank, e.comm, e.op, e.desc};
    chase(f, &k, e);
}

/* ---------------------------------------------------------------- words */

/* Every rank that finds it says the same: the lowest rank first. */
int tern_fabric_deadlock_blame(struct tern_fabric *f, struct tern_err *err)
{
    const struct tern_wire_chase *k = &f->deadlock;
    char text[600], call[80];
    uint32_t first = 0, i;
    size_t at = 0;

    if (!k->n)
        return 0;
    for (i = 1; i < k->n; i++)
        if (k->steps[i].rank < k->steps[first].rank)
            first = i;
    for (i = 0; i < k->n && at < sizeof text - 220; i++) {
        const struct tern_wire_chase_step *s = &k->steps[(first + i) % k->n];
        at += (size_t)snprintf(
            text + at, sizeof text - at, "%srank %d (%.63s)%s called %s #%llu on communicator %d",
            i ? " and waits for " : "", s->rank, f->wire.peers[s->rank].node_name,
            i ? ", which" : "", tern_call_text(call, sizeof call, s->desc),
            (unsigned long long)s->op, s->comm);
    }
    snprintf(text + at, sizeof text - at, " and waits for %s%d",
             i < k->n ? "others, up to rank " : "rank ", k->steps[first].rank);
    return tern_fabric_blame_text(f, k->steps[first].rank, text, err);
}
