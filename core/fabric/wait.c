/* A rank that waits: how it idles, and when it finds the awaited rank dead, frozen or late. */
#include "core/fabric/state.h"

#include "core/base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    MS = 1000000,
    YIELD_NS = 1 * MS, /* how long a core is only lent, not slept on... */
    LONG_NS = 2 * MS,  /* ...and, for a remote rank, after a wait as long as this */
    YIELD_LONG_NS = MS / 20,
    NAP_NS = MS / 2,
    NAP_MAX_NS = 8 * MS, /* below LOOK_NS */
    SHARE_NS = 50000,    /* between two looks, for each rank of a crowded core; chosen by trying */
    LATE_NS = 1 * MS,    /* a timer on a machine that is not overloaded is later by some 0.1 ms */
    LOOK_NS = 10 * MS,   /* how often to look for dead peers */
    PING_NS = 1000 * MS, /* how often to see whether a silent peer lives and calls the same... */
    PING_FIRST_NS = 50 * MS,  /* ...and when first */
    FRESH_NS = 400 * MS,      /* a peer that looked up this recently is waiting itself */
    GRACE_NS = 500 * MS,      /* how long ranks beyond the deadline ask around whose fault it is */
    LEAVE_NS = 1000 * MS,     /* how long others that are done are waited for */
    GAP_NS = 1000 * MS,       /* between two looks: this rank did not run in between */
    LIFE_NS = 500 * MS,       /* between two questions whether a silent peer runs... */
    LIFE_FIRST_NS = 500 * MS, /* ...and before the first */
    WHOLE_NODE = 3,   /* as long as one rank's may the silence of a whole node be: the network's */
    CROWDED = 4,      /* ranks a core, beyond which lending it does not help... */
    CROWDED_FAR = 2,  /* ...where each look takes system calls */
    TURN_NS = 3000,   /* a yield that took longer was another process's turn */
    MOVE_NS = 2 * MS, /* between two sleeps of 0.06 ms for another core */
    GLANCE_POLLS = 4, /* the clock costs as much as a short poll */
    /* Deadlines for which ranks that show life are waited for: the stages of a pipeline that fills
     * come one after the other. */
    PATIENCE = 4,
};

/* With dozens of ranks to a core, as many virtual nodes have, looking alone would take all of it.
 */
static int64_t shortest_nap(const struct tern_fabric *f)
{
    double ns = f->coll.model.load * SHARE_NS;

    return ns < NAP_NS ? NAP_NS : ns < NAP_MAX_NS / 2 ? (int64_t)ns : NAP_MAX_NS / 2;
}

void tern_fabric_wait_begin(struct waiter *w, struct tern_comm *c)
{
    struct tern_fabric *f = fabric_of(c);

    /* The wait before ended while the core was only lent: that held no rank up. */
    if (f->wait.lent && f->wait.nap_ns > shortest_nap(f))
        f->wait.nap_ns -= f->wait.nap_ns / 16;
    f->wait.lent = false;
    *w = (struct waiter){
        .c = c, .op = c->ops, .desc = c->desc, .record = c->record, .before_ns = f->wait.far_ns};
}

static bool all_left(const struct tern_fabric *f)
{
    for (int r = 0; r < f->wire.size; r++)
        if (f->wire.spoke[r] && !f->wait.left[r])
            return false;
    return true;
}

void tern_fabric_wait_leave(struct tern_fabric *f)
{
    const struct tern_wire_control m = {.kind = TERN_WIRE_LEAVE, .sender = f->wire.rank};
    int64_t until = tern_clock_boot_ns() + LEAVE_NS;

    if (!f->wire.transport || f->broken || !f->wire.spoke || !f->wait.left)
        return;
    for (int r = 0; r < f->wire.size; r++)
        if (f->wire.spoke[r])
            tern_wire_send_control(&f->wire, r, &m);
    while (!all_left(f) && !f->broken && tern_clock_boot_ns() < until) {
        f->wire.transport->ops->progress(f->wire.transport);
        tern_clock_sleep_ns(MS / 10);
    }
}

void tern_fabric_wait_control(void *fabric, const struct tern_wire_control *m)
{
    struct tern_fabric *f = fabric;
    struct tern_wire_control reply = {.kind = TERN_WIRE_WAITING, .sender = f->wire.rank};

    f->wait.heard_ns[m->sender] = tern_clock_boot_ns();
    if (m->kind == TERN_WIRE_STUCK || m->kind == TERN_WIRE_PING)
        tern_wire_send_control(&f->wire, m->sender, &reply);
    if (m->kind == TERN_WIRE_LEAVE) {
        f->wait.left[m->sender] = true;
    } else if (m->kind == TERN_WIRE_BLAME) {
        tern_fabric_blame_keep(f, m->rank, m->text, NULL);
    } else if (m->kind == TERN_WIRE_CHASE) {
        tern_fabric_deadlock_heard(f, m);
    } else {
        tern_fabric_mismatch_heard(f, m);
    }
}

bool tern_fabric_wait_patient(void *fabric, int64_t since_ns)
{
    struct tern_fabric *f = fabric;
    int64_t now = tern_clock_boot_ns();

    tern_fabric_heartbeat(f, now);
    /* Called from within progress: what makes progress itself, as tern_fabric_blame_heard() does,
     * would end the same operations here and there. */
    return !f->broken && now - since_ns < f->wait.deadline_ns;
}

/* When it last said that it waits itself. */
static int64_t seen(const struct tern_fabric *f, int r)
{
    const struct tern_wire_shm_head *h = f->wire.peers[r].shm.head;

    return h ? atomic_load_explicit(&h->heartbeat_ns, memory_order_relaxed) : f->wait.heard_ns[r];
}

static bool is_waiting(const struct tern_fabric *f, int r, int64_t now)
{
    return r == f->wire.rank ||
           now - seen(f, r) < (f->wire.peers[r].shm.head ? FRESH_NS : 2 * GRACE_NS);
}

static int64_t latest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* When rank r last showed that it runs; what was before this wait, or before this rank was stopped
 * itself, tells nothing. */
static int64_t alive(const struct waiter *w, int r)
{
    return latest(tern_fabric_liveness_heard(fabric_of(w->c)->wait.liveness, r),
                  latest(w->start, w->awake));
}

/* How long rank r may be silent: the deadline, or what its work may take while it shows life. */
static int64_t limit(const struct waiter *w, int r, int64_t now)
{
    const struct tern_fabric *f = fabric_of(w->c);
    int64_t asked = tern_fabric_liveness_patience(f->wait.liveness, r);
    bool lives = now - tern_fabric_liveness_heard(f->wait.liveness, r) < f->wait.liveness_ns;

    if (!lives || !asked || (f->wait.deadline_set && asked < f->wait.deadline_ns))
        return f->wait.deadline_ns;
    return asked;
}

/* The longest of all members', and the deadline: one of them may wait for others. */
static int64_t longest(const struct waiter *w, int64_t now)
{
    int64_t most = fabric_of(w->c)->wait.deadline_ns;

    for (int m = 0; m < w->c->shape.size; m++)
        most = latest(most, limit(w, w->c->world[m], now));
    return most;
}

/* For as long as it may be, in this wait. */
static bool is_silent(const struct waiter *w, int r, int64_t now)
{
    const struct tern_fabric *f = fabric_of(w->c);
    int64_t since = latest(seen(f, r), latest(w->start, w->awake));

    /* What it did before took its own time. */
    since = latest(since, tern_fabric_liveness_since(f->wait.liveness, r));
    return r != f->wire.rank && now - since > limit(w, r, now);
}

/* Another rank on the node of rank r, which can be asked; -1: none. */
static int neighbour(const struct tern_fabric *f, int r)
{
    for (int i = 1; i < f->wire.size; i++) {
        int other = (r + i) % f->wire.size;
        if (other != f->wire.rank && f->wire.peers[other].node == f->wire.peers[r].node)
            return other;
    }
    return -1;
}

/* A rank that answered once and does not any more is stopped, or frozen, if its node still runs.
 * The node runs when a node peer answers from there, or this rank is one.  A node that is silent as
 * a whole may be one that the network lost for a moment. */
static int look_for_life(struct waiter *w, int r, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(w->c);
    int64_t since = alive(w, r);
    char what[160];

    if (!f->wait.liveness || now - since < LIFE_FIRST_NS)
        return 0;
    const int other = f->wire.peers[r].node == f->wire.node ? f->wire.rank : neighbour(f, r);
    if (w->life_of != r + 1) {
        w->life_of = r + 1;
        w->life_since = now;
        w->life_asked = now - LIFE_NS;
    }
    if (now - w->life_asked >= LIFE_NS) {
        w->life_asked = now;
        tern_fabric_liveness_probe(f->wait.liveness, r);
        if (other >= 0)
            tern_fabric_liveness_probe(f->wait.liveness, other);
        return 0;
    }
    if (!tern_fabric_liveness_heard(f->wait.liveness, r))
        return 0;
    bool witness =
        other == f->wire.rank || (other >= 0 && now - alive(w, other) < 2 * LIFE_NS &&
                                  tern_fabric_liveness_heard(f->wait.liveness, other) > since);
    const int64_t most = (witness ? 1 : WHOLE_NODE) * f->wait.liveness_ns;
    /* It may be awaited only now, after others that were late: its silence before tells nothing. */
    if (now - since < most || now - w->life_since < most - LIFE_FIRST_NS)
        return 0;
    snprintf(what, sizeof what,
             witness
                 ? "has shown no sign of life for %.3g s, but its node is alive: the process is "
                   "stopped or frozen"
                 : "has shown no sign of life for %.3g s: it is stopped, or its node is frozen or "
                   "cut off",
             (double)(now - since) / 1e9);
    return tern_fabric_blame(w->c, r, what, err);
}

/* Ranks that wait answer while this one listens. */
static int ask_around(struct tern_comm *c, struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(c);
    struct tern_wire_control ask = {.kind = TERN_WIRE_STUCK, .sender = f->wire.rank};
    int64_t end = tern_clock_boot_ns() + GRACE_NS;

    tern_fabric_blame_send_all(f, &ask);
    for (int m = 0; m < c->shape.size; m++)
        tern_fabric_liveness_probe(f->wait.liveness, c->world[m]);
    while (tern_clock_boot_ns() < end) {
        if (f->wire.transport)
            f->wire.transport->ops->progress(f->wire.transport);
        if (tern_fabric_blame_heard(f, err) < 0)
            return -1;
        tern_fabric_heartbeat(f, tern_clock_boot_ns());
        tern_clock_sleep_ns(2 * MS);
    }
    return 0;
}

/* The deadline is over.  The awaited rank may itself wait for another: ranks that answer do, and a
 * rank that has not answered for a deadline is at fault.  It may also have come while this asked,
 * and have gone on at once, without a word.  So the caller looks once more before we say so. */
static int overdue(struct waiter *w, int member, struct tern_err *err)
{
    struct tern_comm *c = w->c;
    struct tern_fabric *f = fabric_of(c);
    static const char *const words[TERN_FABRIC_DOINGS] = {
        [TERN_FABRIC_COMPUTES] = "computes",         [TERN_FABRIC_STARTS] = "is still starting",
        [TERN_FABRIC_READS] = "waits for its data",  [TERN_FABRIC_EVALUATES] = "evaluates",
        [TERN_FABRIC_SAVES] = "writes a checkpoint", [TERN_FABRIC_RECORDS] = "writes its records",
    };
    char what[160];

    w->asking = !w->asking;
    if (w->asking) {
        int rc = ask_around(c, err);
        w->looked = tern_clock_boot_ns();
        return rc;
    }
    int64_t now = tern_clock_boot_ns();
    int culprit = c->world[member];
    for (int m = 0; m < c->shape.size && !is_silent(w, culprit, now); m++)
        if (is_silent(w, c->world[m], now))
            culprit = c->world[m];
    if (!is_silent(w, culprit, now) && now - w->start < PATIENCE * longest(w, now)) {
        w->asked = now;
        return 0;
    }
    for (int m = 0; m < c->shape.size && is_waiting(f, culprit, now); m++)
        if (!is_waiting(f, c->world[m], now))
            culprit = c->world[m];
    bool all = is_waiting(f, culprit, now);
    bool lives = now - tern_fabric_liveness_heard(f->wait.liveness, culprit) < f->wait.liveness_ns;
    snprintf(what, sizeof what,
             all ? "waits for something else after %.3g s (do all ranks call the same operations?)"
                 : "has not come within the deadline of %.3g s%s%s",
             (double)(all ? now - w->start : limit(w, culprit, now)) / 1e9,
             lives ? ": it runs, and " : "",
             lives ? words[tern_fabric_liveness_doing(f->wait.liveness, culprit)] : "");
    return tern_fabric_blame(c, culprit, what, err);
}

/* A message to a silent remote peer says what waits here, for the peer to compare.  With a provider
 * that notices, it fails when the peer's process is gone.  A node peer's call can be read. */
static int ping(struct waiter *w, int world_rank, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(w->c);
    struct tern_wire_shm_head *head = f->wire.peers[world_rank].shm.head;
    struct tern_wire_control m = {.kind = TERN_WIRE_PING,
                                  .sender = f->wire.rank,
                                  .comm = (int32_t)w->c->mark,
                                  .op = w->op,
                                  .desc = w->desc};
    char what[160];

    if (f->wait.ping && f->wait.ping->state == TERN_WIRE_FAILED &&
        f->wait.ping->rank == world_rank) {
        snprintf(what, sizeof what, "cannot be reached (%s)", f->wait.ping->error);
        return tern_fabric_blame_listen(f, err) < 0
                   ? -1
                   : tern_fabric_blame(w->c, world_rank, what, err);
    }
    if (now - (w->pinged ? w->pinged : w->start) < (w->pinged ? PING_NS : PING_FIRST_NS))
        return 0;
    w->pinged = now;
    if (head) {
        uint64_t theirs = tern_flight_find_call(tern_wire_shm_recorder(head), w->c->mark, w->op);
        if (theirs && theirs != w->desc)
            return tern_fabric_mismatch_blame(w->c, w->op, err);
    } else {
        f->wire.transport->ops->release(f->wire.transport, f->wait.ping);
        f->wait.ping = f->wire.transport->ops->tell(f->wire.transport, world_rank, &m);
    }
    tern_fabric_deadlock_look(f);
    return tern_fabric_deadlock_blame(f, err);
}

static int notice(struct waiter *w, int member, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(w->c);
    int peer = w->c->world[member];

    if (now - w->looked > GAP_NS) { /* this rank did not run, and neither did the others, perhaps */
        w->start += now - w->looked;
        w->awake = now;
        w->asking = false;
    }
    w->looked = now;
    tern_fabric_heartbeat(f, now);
    /* A remote rank may ask something, also while this one waits for a node peer. */
    if (f->wire.transport)
        f->wire.transport->ops->progress(f->wire.transport);
    if (tern_fabric_blame_heard(f, err) < 0 || tern_fabric_mismatch_check(f, err) < 0 ||
        tern_fabric_deadlock_blame(f, err) < 0)
        return -1;
    if (tern_fabric_blame_ended(f, peer, 0)) {
        /* It may have come and then ended; so the caller looks once more before we say so. */
        if (w->seen_dead == peer + 1)
            return tern_fabric_blame(w->c, peer, "has ended", err);
        w->seen_dead = peer + 1;
        return 0;
    }
    if (ping(w, peer, now, err) < 0 || look_for_life(w, peer, now, err) < 0)
        return -1;
    if (now - w->start > limit(w, peer, now) &&
        (w->asking || is_silent(w, peer, now) ||
         now - latest(w->asked, w->start) > f->wait.deadline_ns))
        return overdue(w, member, err);
    return 0;
}

static int look(struct waiter *w, int member, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(w->c);

    tern_flight_set_state(f->flight.recorder, w->record, TERN_FLIGHT_WAITING, w->c->world[member]);
    tern_flight_write_waiting(&f->flight, now - w->start);
    tern_fabric_deadlock_publish(w->c);
    return notice(w, member, now, err);
}

/* Time between two tests does not count: the missing rank may have waited for this one. */
int tern_fabric_wait_glance(struct tern_fabric *f, struct tern_err *err)
{
    struct tern_comm *c = f->coll.comms[__builtin_ctzll(f->coll.busy)];
    uint64_t at = (uint64_t)c->part << 32 ^ (c->pc + c->slot + (size_t)c->met);
    struct waiter *w = &f->wait.glance;

    if (++w->polls % GLANCE_POLLS)
        return 0;
    int64_t now = tern_clock_boot_ns();
    if (w->c != c || w->op != c->ops || w->at != at) {
        tern_fabric_wait_begin(w, c);
        w->at = at;
        w->start = w->looked = now;
    }
    if (now - w->looked > GRACE_NS) { /* answers of before tell nothing either */
        w->start += now - w->looked;
        w->asking = false;
    }
    if (now - w->looked <= LOOK_NS || notice(w, c->waits_for, now, err) == 0)
        return 0;
    tern_flight_set_state(f->flight.recorder, w->record, TERN_FLIGHT_WAITING,
                          c->world[c->waits_for]);
    return -1;
}

/* The longer it takes, or the wait before took, the less a late look costs: at most 5 % of either,
 * or half a millisecond.  Where a sleep ends late, more processes than cores want to run, such as
 * the nodes of a virtual cluster.  Then looking itself holds up the awaited ranks.  So every rank
 * looks less often until sleeps end in time. */
static void nap(struct tern_fabric *f, int64_t waited, int64_t now)
{
    const int64_t shortest = shortest_nap(f);

    f->wait.lent = false;
    if (f->wait.nap_ns < shortest)
        f->wait.nap_ns = shortest;
    int64_t ns = waited / 20 < f->wait.nap_ns ? waited / 20 : f->wait.nap_ns;
    if (f->wait.nap_ns > NAP_NS && ns < shortest)
        ns = shortest;
    tern_clock_sleep_ns(ns);
    const int64_t slept = tern_clock_boot_ns() - now, late = slept - ns;
    f->wait.slept_ns += slept;
    if (late > LATE_NS && f->wait.nap_ns < NAP_MAX_NS)
        f->wait.nap_ns *= 2;
    else if (late < LATE_NS / 2 && f->wait.nap_ns > shortest)
        f->wait.nap_ns -= f->wait.nap_ns / 16;
}

/* Give the core to any process that wants it. There may be a core for every rank, while two ranks
 * take turns on this one. They would do so for seconds: the kernel moves only a process that wakes
 * up. */
static void lend(struct tern_fabric *f, int64_t now)
{
    f->wait.lent = true;
    sched_yield();
    if (f->coll.model.load > 1 || now - f->wait.moved_ns < MOVE_NS)
        return;
    if (tern_clock_boot_ns() - now > TURN_NS) {
        f->wait.moved_ns = now;
        tern_clock_sleep_ns(1);
    }
}

/* How long a core is only lent: not at all where sleeps end late, unless its ranks are few.  Once
 * one of those computed for a while, they would find each other asleep in call after call.  So the
 * core is lent for longer than the shortest sleep takes, and all are awake when the last one has
 * come.  Each look for a remote rank takes system calls.  Where the link is slow, the pieces of a
 * large operation come milliseconds apart.  Looking for the first one all the time would take more
 * of the processor than moving the bytes. */
static int64_t lending(const struct waiter *w, bool local)
{
    const struct tern_fabric *f = fabric_of(w->c);

    if (f->wait.nap_ns > NAP_NS && f->coll.model.load > (local ? CROWDED : CROWDED_FAR))
        return 0;
    return local || w->before_ns < LONG_NS ? YIELD_NS : YIELD_LONG_NS;
}

/* Leaves the core's units to its other thread for some cycles. */
static inline void pause_core(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb");
#endif
}

int tern_fabric_wait_idle(struct waiter *w, int member, struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(w->c);
    bool local = f->wire.peers[w->c->world[member]].shm.head;

    w->polls++;
    if (f->wire.transport && (!local || w->polls % 64 == 0))
        f->wire.transport->ops->progress(f->wire.transport);
    if (f->broken)
        return tern_fabric_blame_keep(f, 0, "", err);
    if (w->polls < f->wait.spins) {
        pause_core();
        return 0;
    }
    int64_t now = tern_clock_boot_ns();
    if (!w->start)
        w->start = w->looked = now;
    if (now - w->looked > LOOK_NS && look(w, member, now, err) < 0)
        return -1;
    int64_t waited = now - w->start;
    if (!local)
        f->wait.far_ns = waited;
    if (waited < lending(w, local))
        lend(f, now);
    else
        nap(f, local || waited > w->before_ns ? waited : w->before_ns, now);
    return 0;
}
