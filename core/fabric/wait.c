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
    FAREWELL_NS = 100 * MS,   /* to bring the bad news out */
    GAP_NS = 1000 * MS,       /* between two looks: this rank did not run in between */
    LIFE_NS = 500 * MS,       /* between two questions whether a silent peer runs... */
    LIFE_FIRST_NS = 500 * MS, /* ...and before the first */
    WHOLE_NODE = 3,   /* as long as one rank's may the silence of a whole node be: the network's */
    CROWDED = 4,      /* ranks a core, beyond which lending it helps nobody... */
    CROWDED_FAR = 2,  /* ...where each look takes system calls */
    TURN_NS = 3000,   /* a yield that took longer was somebody else's turn */
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
    double ns = f->model.load * SHARE_NS;

    return ns < NAP_NS ? NAP_NS : ns < NAP_MAX_NS / 2 ? (int64_t)ns : NAP_MAX_NS / 2;
}

void tern_fabric_wait_begin(struct waiter *w, struct tern_comm *c)
{
    struct tern_fabric *f = c->f;

    /* The wait before ended while the core was only lent: nobody was held up by that. */
    if (f->lent && f->nap_ns > shortest_nap(f))
        f->nap_ns -= f->nap_ns / 16;
    f->lent = false;
    *w = (struct waiter){
        .c = c, .op = c->ops, .desc = c->desc, .record = c->record, .before_ns = f->far_ns};
}

static const char *name_of(const struct tern_fabric *f, int world_rank)
{
    return f->peers[world_rank].node_name;
}

static void send_all(struct tern_fabric *f, const struct tern_wire_control *m)
{
    if (!f->wire)
        return;
    for (int r = 0; r < f->size; r++)
        if (r != f->rank && !f->peers[r].shm.head)
            f->wire->ops->release(f->wire, f->wire->ops->tell(f->wire, r, m));
}

static void drain(struct tern_fabric *f, int64_t ns)
{
    int64_t until = tern_clock_boot_ns() + ns;

    while (f->wire && tern_clock_boot_ns() < until) {
        f->wire->ops->progress(f->wire);
        tern_clock_sleep_ns(MS / 2);
    }
}

static int give_up(struct tern_fabric *f, int world_rank, const char *text, struct tern_err *err)
{
    if (!f->broken) {
        f->broken = true;
        f->flight.recorder->blamed = world_rank;
        tern_err_set(&f->why, TERN_TEMPFAIL, "%s", text);
        struct tern_wire_shm_head *h = f->own.head;
        snprintf(h->why, sizeof h->why, "%s", text);
        atomic_store_explicit(&h->blamed, world_rank + 1, memory_order_release);
    }
    if (err)
        *err = f->why;
    return -1;
}

int tern_fabric_wait_blame_text(struct tern_fabric *f, int world_rank, const char *text,
                                struct tern_err *err)
{
    struct tern_wire_control m = {.kind = TERN_WIRE_BLAME, .sender = f->rank, .rank = world_rank};

    snprintf(m.text, sizeof m.text, "%s", text);
    if (!f->broken) {
        send_all(f, &m);
        give_up(f, world_rank, m.text, err);
        drain(f, FAREWELL_NS);
    }
    return give_up(f, world_rank, m.text, err);
}

int tern_fabric_wait_blame(struct tern_comm *c, int world_rank, const char *what,
                           struct tern_err *err)
{
    struct tern_fabric *f = c->f;
    char call[80], text[600];

    snprintf(text, sizeof text, "rank %d (%s) %s; rank %d (%s) was in %s #%llu of communicator %d",
             world_rank, name_of(f, world_rank), what, f->rank, name_of(f, f->rank),
             tern_call_text(call, sizeof call, c->desc), (unsigned long long)c->ops, c->id);
    return tern_fabric_wait_blame_text(f, world_rank, text, err);
}

static bool all_left(const struct tern_fabric *f)
{
    for (int r = 0; r < f->size; r++)
        if (f->spoke[r] && !f->left[r])
            return false;
    return true;
}

void tern_fabric_wait_leave(struct tern_fabric *f)
{
    const struct tern_wire_control m = {.kind = TERN_WIRE_LEAVE, .sender = f->rank};
    int64_t until = tern_clock_boot_ns() + LEAVE_NS;

    if (!f->wire || f->broken || !f->spoke || !f->left)
        return;
    for (int r = 0; r < f->size; r++)
        if (f->spoke[r])
            f->wire->ops->release(f->wire, f->wire->ops->tell(f->wire, r, &m));
    while (!all_left(f) && !f->broken && tern_clock_boot_ns() < until) {
        f->wire->ops->progress(f->wire);
        tern_clock_sleep_ns(MS / 10);
    }
}

void tern_fabric_wait_control(void *fabric, const struct tern_wire_control *m)
{
    struct tern_fabric *f = fabric;
    struct tern_wire_control reply = {.kind = TERN_WIRE_WAITING, .sender = f->rank};

    f->heard_ns[m->sender] = tern_clock_boot_ns();
    if (m->kind == TERN_WIRE_STUCK || m->kind == TERN_WIRE_PING)
        f->wire->ops->release(f->wire, f->wire->ops->tell(f->wire, m->sender, &reply));
    if (m->kind == TERN_WIRE_LEAVE) {
        f->left[m->sender] = true;
    } else if (m->kind == TERN_WIRE_BLAME) {
        give_up(f, m->rank, m->text, NULL);
    } else if (m->kind == TERN_WIRE_CHASE) {
        tern_fabric_cross_heard(f, m);
    } else {
        tern_fabric_agree_heard(f, m);
    }
}

int tern_fabric_wait_heard(struct tern_fabric *f, struct tern_err *err)
{
    if (f->broken)
        return give_up(f, 0, "", err);
    for (int r = 0; r < f->size; r++) {
        struct tern_wire_shm_head *h = f->peers[r].shm.head;
        int32_t blamed = h ? atomic_load_explicit(&h->blamed, memory_order_acquire) : 0;
        if (blamed > 0) {
            /* Remote ranks must hear it from somebody; the first to know may be gone by now. */
            struct tern_wire_control m = {
                .kind = TERN_WIRE_BLAME, .sender = f->rank, .rank = blamed - 1};
            snprintf(m.text, sizeof m.text, "%.*s", (int)sizeof h->why - 1, h->why);
            give_up(f, blamed - 1, m.text, err);
            send_all(f, &m);
            drain(f, FAREWELL_NS);
            return -1;
        }
    }
    return 0;
}

int tern_fabric_wait_word(struct tern_fabric *f, struct tern_err *err)
{
    int64_t until = tern_clock_boot_ns() + FAREWELL_NS;

    do {
        if (f->wire)
            f->wire->ops->progress(f->wire);
        if (tern_fabric_wait_heard(f, err) < 0)
            return -1;
        atomic_store_explicit(&f->own.head->beat_ns, tern_clock_boot_ns(), memory_order_relaxed);
        tern_clock_sleep_ns(MS / 2);
    } while (tern_clock_boot_ns() < until);
    return 0;
}

bool tern_fabric_wait_patient(void *fabric, int64_t since_ns)
{
    struct tern_fabric *f = fabric;
    int64_t now = tern_clock_boot_ns();

    atomic_store_explicit(&f->own.head->beat_ns, now, memory_order_relaxed);
    /* Called from within progress: what makes progress itself, as tern_fabric_wait_heard() does,
     * would end the same operations here and there. */
    return !f->broken && now - since_ns < f->deadline_ns;
}

static bool ended(const struct tern_fabric *f, int world_rank, int wait_ms)
{
    const struct tern_wire_shm_peer *p = &f->peers[world_rank].shm;

    return p->head && tern_process_ended(&p->process, wait_ms);
}

int tern_fabric_wait_gone(struct tern_comm *c, int world_rank, struct tern_err *err)
{
    enum { LAST_MS = 20 }; /* a process that ends has no files a while before it has ended */

    if (tern_fabric_wait_heard(c->f, err) < 0)
        return -1;
    return ended(c->f, world_rank, LAST_MS)
               ? tern_fabric_wait_blame(c, world_rank, "has ended", err)
               : 0;
}

/* When it last said that it waits itself. */
static int64_t seen(const struct tern_fabric *f, int r)
{
    const struct tern_wire_shm_head *h = f->peers[r].shm.head;

    return h ? atomic_load_explicit(&h->beat_ns, memory_order_relaxed) : f->heard_ns[r];
}

static bool is_waiting(const struct tern_fabric *f, int r, int64_t now)
{
    return r == f->rank || now - seen(f, r) < (f->peers[r].shm.head ? FRESH_NS : 2 * GRACE_NS);
}

static int64_t latest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* When rank r last showed that it runs; what was before this wait, or before this rank was stopped
 * itself, tells nothing. */
static int64_t alive(const struct waiter *w, int r)
{
    return latest(tern_fabric_liveness_heard(w->c->f->liveness, r), latest(w->start, w->awake));
}

/* How long rank r may be silent: the deadline, or what it asked for while it shows life. */
static int64_t limit(const struct waiter *w, int r, int64_t now)
{
    const struct tern_fabric *f = w->c->f;
    int64_t asked = tern_fabric_liveness_patience(f->liveness, r);
    bool lives = now - tern_fabric_liveness_heard(f->liveness, r) < f->liveness_ns;

    return lives && asked > f->deadline_ns ? asked : f->deadline_ns;
}

/* The longest of all members'. */
static int64_t longest(const struct waiter *w, int64_t now)
{
    int64_t most = w->c->f->deadline_ns;

    for (int m = 0; m < w->c->size; m++)
        most = latest(most, limit(w, w->c->world[m], now));
    return most;
}

/* For as long as it may be, in this wait. */
static bool is_silent(const struct waiter *w, int r, int64_t now)
{
    const struct tern_fabric *f = w->c->f;
    int64_t since = latest(seen(f, r), latest(w->start, w->awake));

    return r != f->rank && now - since > limit(w, r, now);
}

/* Of the node where rank r is, another rank that can be asked; -1: none. */
static int neighbour(const struct tern_fabric *f, int r)
{
    for (int i = 1; i < f->size; i++) {
        int other = (r + i) % f->size;
        if (other != f->rank && f->peers[other].node == f->peers[r].node)
            return other;
    }
    return -1;
}

/* A rank that answered once and does not any more is stopped, or frozen, if its node still runs: a
 * mate answers from there, or this rank is one.  A node that is silent as a whole may be one that
 * the network lost for a moment. */
static int look_for_life(struct waiter *w, int r, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = w->c->f;
    int64_t since = alive(w, r);
    char what[160];

    if (!f->liveness || now - since < LIFE_FIRST_NS)
        return 0;
    const int other = f->peers[r].node == f->node ? f->rank : neighbour(f, r);
    if (now - w->life_asked >= LIFE_NS) {
        w->life_asked = now;
        tern_fabric_liveness_ask(f->liveness, r);
        if (other >= 0)
            tern_fabric_liveness_ask(f->liveness, other);
        return 0;
    }
    if (!tern_fabric_liveness_heard(f->liveness, r))
        return 0;
    bool witness = other == f->rank || (other >= 0 && now - alive(w, other) < 2 * LIFE_NS &&
                                        tern_fabric_liveness_heard(f->liveness, other) > since);
    if (now - since < (witness ? 1 : WHOLE_NODE) * f->liveness_ns)
        return 0;
    snprintf(what, sizeof what,
             witness
                 ? "has shown no sign of life for %.3g s, and its node has: it is stopped or frozen"
                 : "has shown no sign of life for %.3g s: it is stopped, or its node is frozen or "
                   "cut off",
             (double)(now - since) / 1e9);
    return tern_fabric_wait_blame(w->c, r, what, err);
}

/* Whoever waits answers while this listens. */
static int ask_around(struct tern_comm *c, struct tern_err *err)
{
    struct tern_fabric *f = c->f;
    struct tern_wire_control ask = {.kind = TERN_WIRE_STUCK, .sender = f->rank};
    int64_t end = tern_clock_boot_ns() + GRACE_NS;

    send_all(f, &ask);
    for (int m = 0; m < c->size; m++)
        tern_fabric_liveness_ask(f->liveness, c->world[m]);
    while (tern_clock_boot_ns() < end) {
        if (f->wire)
            f->wire->ops->progress(f->wire);
        if (tern_fabric_wait_heard(f, err) < 0)
            return -1;
        atomic_store_explicit(&f->own.head->beat_ns, tern_clock_boot_ns(), memory_order_relaxed);
        tern_clock_sleep_ns(2 * MS);
    }
    return 0;
}

/* The deadline is over.  The rank waited for may itself be waiting for somebody: those who answer
 * are, and whoever has not for a deadline is at fault.  It may also have come while this asked, and
 * have gone on at once, without a word: so the caller looks once more before we say so. */
static int overdue(struct waiter *w, int member, struct tern_err *err)
{
    struct tern_comm *c = w->c;
    struct tern_fabric *f = c->f;
    static const char *const words[TERN_FABRIC_DOINGS] = {
        [TERN_FABRIC_COMPUTES] = "computes",         [TERN_FABRIC_STARTS] = "is still starting",
        [TERN_FABRIC_READS] = "waits for its data",  [TERN_FABRIC_EVALUATES] = "evaluates",
        [TERN_FABRIC_SAVES] = "writes a checkpoint",
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
    for (int m = 0; m < c->size && !is_silent(w, culprit, now); m++)
        if (is_silent(w, c->world[m], now))
            culprit = c->world[m];
    if (!is_silent(w, culprit, now) && now - w->start < PATIENCE * longest(w, now)) {
        w->asked = now;
        return 0;
    }
    for (int m = 0; m < c->size && is_waiting(f, culprit, now); m++)
        if (!is_waiting(f, c->world[m], now))
            culprit = c->world[m];
    bool all = is_waiting(f, culprit, now);
    bool lives = now - tern_fabric_liveness_heard(f->liveness, culprit) < f->liveness_ns;
    snprintf(what, sizeof what,
             all ? "waits for something else after %.3g s (do all ranks call the same operations?)"
                 : "has not come within the deadline of %.3g s%s%s",
             (double)(all ? now - w->start : limit(w, culprit, now)) / 1e9,
             lives ? ": it runs, and " : "",
             lives ? words[tern_fabric_liveness_doing(f->liveness, culprit)] : "");
    return tern_fabric_wait_blame(c, culprit, what, err);
}

/* A message to a silent remote peer says what waits here, for the peer to compare; with a provider
 * that notices, it fails when the peer's process is gone.  A mate's call can be read. */
static int ping(struct waiter *w, int world_rank, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = w->c->f;
    struct tern_wire_shm_head *mate = f->peers[world_rank].shm.head;
    struct tern_wire_control m = {.kind = TERN_WIRE_PING,
                                  .sender = f->rank,
                                  .comm = (int32_t)w->c->mark,
                                  .op = w->op,
                                  .desc = w->desc};
    char what[160];

    if (f->ping && f->ping->state == TERN_WIRE_FAILED && f->ping->rank == world_rank) {
        snprintf(what, sizeof what, "cannot be reached (%s)", f->ping->error);
        return tern_fabric_wait_word(f, err) < 0
                   ? -1
                   : tern_fabric_wait_blame(w->c, world_rank, what, err);
    }
    if (now - (w->pinged ? w->pinged : w->start) < (w->pinged ? PING_NS : PING_FIRST_NS))
        return 0;
    w->pinged = now;
    if (mate) {
        uint64_t theirs = tern_flight_find_call(tern_wire_shm_recorder(mate), w->c->mark, w->op);
        if (theirs && theirs != w->desc)
            return tern_fabric_agree_blame(w->c, w->op, err);
    } else {
        f->wire->ops->release(f->wire, f->ping);
        f->ping = f->wire->ops->tell(f->wire, world_rank, &m);
    }
    tern_fabric_cross_begin(f);
    return tern_fabric_cross_blame(f, err);
}

static int notice(struct waiter *w, int member, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = w->c->f;
    int peer = w->c->world[member];

    if (now - w->looked > GAP_NS) { /* this rank did not run, and neither did the others, perhaps */
        w->start += now - w->looked;
        w->awake = now;
        w->asking = false;
    }
    w->looked = now;
    atomic_store_explicit(&f->own.head->beat_ns, now, memory_order_relaxed);
    if (f->wire) /* somebody elsewhere may ask something, also while a mate is waited for */
        f->wire->ops->progress(f->wire);
    if (tern_fabric_wait_heard(f, err) < 0 || tern_fabric_agree_suspect(f, err) < 0 ||
        tern_fabric_cross_blame(f, err) < 0)
        return -1;
    if (ended(f, peer, 0)) {
        /* It may have come and then ended; so the caller looks once more before we say so. */
        if (w->seen_dead == peer + 1)
            return tern_fabric_wait_blame(w->c, peer, "has ended", err);
        w->seen_dead = peer + 1;
        return 0;
    }
    if (ping(w, peer, now, err) < 0 || look_for_life(w, peer, now, err) < 0)
        return -1;
    if (now - w->start > limit(w, peer, now) &&
        (w->asking || is_silent(w, peer, now) || now - w->asked > f->deadline_ns))
        return overdue(w, member, err);
    return 0;
}

static int look(struct waiter *w, int member, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = w->c->f;

    tern_flight_set_state(f->flight.recorder, w->record, TERN_FLIGHT_WAITING, w->c->world[member]);
    tern_flight_write_waiting(&f->flight, now - w->start);
    tern_fabric_cross_wait(w->c);
    return notice(w, member, now, err);
}

/* Time in which nobody asked does not count: what was missing may have waited for this rank. */
int tern_fabric_wait_glance(struct tern_fabric *f, struct tern_err *err)
{
    struct tern_comm *c = f->comms[__builtin_ctzll(f->busy)];
    uint64_t at = (uint64_t)c->part << 32 ^ (c->pc + c->slot + (size_t)c->met);
    struct waiter *w = &f->asks;

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
 * the nodes of a virtual cluster; then it is the looking that holds up those waited for, and
 * everybody looks less often until sleeps end in time. */
static void nap(struct tern_fabric *f, int64_t waited, int64_t now)
{
    const int64_t shortest = shortest_nap(f);

    f->lent = false;
    if (f->nap_ns < shortest)
        f->nap_ns = shortest;
    int64_t ns = waited / 20 < f->nap_ns ? waited / 20 : f->nap_ns;
    if (f->nap_ns > NAP_NS && ns < shortest)
        ns = shortest;
    tern_clock_sleep_ns(ns);
    int64_t late = tern_clock_boot_ns() - now - ns;
    if (late > LATE_NS && f->nap_ns < NAP_MAX_NS)
        f->nap_ns *= 2;
    else if (late < LATE_NS / 2 && f->nap_ns > shortest)
        f->nap_ns -= f->nap_ns / 16;
}

/* Give the core to whoever wants it.  Where there is one for every rank but two take turns on this
 * one, they would for seconds: only who wakes up is given another core. */
static void lend(struct tern_fabric *f, int64_t now)
{
    f->lent = true;
    sched_yield();
    if (f->model.load > 1 || now - f->moved_ns < MOVE_NS)
        return;
    if (tern_clock_boot_ns() - now > TURN_NS) {
        f->moved_ns = now;
        tern_clock_sleep_ns(1);
    }
}

/* How long a core is only lent: not at all where sleeps end late, unless its ranks are few.  Those
 * would else meet each other asleep in call after call, once one of them computed for a while: the
 * core is lent for longer than the shortest sleep takes, so that all are awake when the last one
 * has come.  Each look for a remote rank takes system calls: where the link is what takes long, the
 * pieces of a large operation come milliseconds apart, and to look all the time for the first one
 * would take more of the processor than to move the bytes. */
static int64_t lending(const struct waiter *w, bool mate)
{
    const struct tern_fabric *f = w->c->f;

    if (f->nap_ns > NAP_NS && f->model.load > (mate ? CROWDED : CROWDED_FAR))
        return 0;
    return mate || w->before_ns < LONG_NS ? YIELD_NS : YIELD_LONG_NS;
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
    struct tern_fabric *f = w->c->f;
    bool mate = f->peers[w->c->world[member]].shm.head;

    w->polls++;
    if (f->wire && (!mate || w->polls % 64 == 0))
        f->wire->ops->progress(f->wire);
    if (f->broken)
        return give_up(f, 0, "", err);
    if (w->polls < f->spins) {
        pause_core();
        return 0;
    }
    int64_t now = tern_clock_boot_ns();
    if (!w->start)
        w->start = w->looked = now;
    if (now - w->looked > LOOK_NS && look(w, member, now, err) < 0)
        return -1;
    int64_t waited = now - w->start;
    if (!mate)
        f->far_ns = waited;
    if (waited < lending(w, mate))
        lend(f, now);
    else
        nap(f, mate || waited > w->before_ns ? waited : w->before_ns, now);
    return 0;
}
