#include "core/fabric/state.h"

#include "core/base/clock.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    MS = 1000000,
    YIELD_NS = 1 * MS,      /* how long a core is only lent, not slept on */
    LOOK_NS = 10 * MS,      /* how often to look for dead peers */
    PING_NS = 1000 * MS,    /* how often to see whether a silent remote peer still answers */
    FRESH_NS = 400 * MS,    /* a peer that looked up this recently is waiting itself */
    GRACE_NS = 500 * MS,    /* how long ranks beyond the deadline ask around whose fault it is */
    FAREWELL_NS = 100 * MS, /* to bring the bad news out */
};

void tern_fabric_wait_begin(struct waiter *w, struct tern_comm *c)
{
    *w = (struct waiter){.c = c};
}

static const char *name_of(const struct tern_fabric *f, int world_rank)
{
    return f->peers[world_rank].node_name;
}

static void send_all(struct tern_fabric *f, const struct ofi_control *m)
{
    if (!f->ofi)
        return;
    for (int r = 0; r < f->size; r++)
        if (r != f->rank && !f->peers[r].shm.head)
            tern_fabric_ofi_release(f->ofi, tern_fabric_ofi_control_send(f->ofi, r, m));
}

static void drain(struct tern_fabric *f, int64_t ns)
{
    int64_t until = tern_clock_boot_ns() + ns;

    while (f->ofi && tern_clock_boot_ns() < until) {
        tern_fabric_ofi_progress(f->ofi);
        tern_clock_sleep_ns(MS / 2);
    }
}

static int give_up(struct tern_fabric *f, int world_rank, const char *text, struct tern_err *err)
{
    if (!f->broken) {
        f->broken = true;
        tern_err_set(&f->why, TERN_TEMPFAIL, "%s", text);
        struct shm_head *h = f->own.head;
        snprintf(h->why, sizeof h->why, "%s", text);
        atomic_store_explicit(&h->blamed, world_rank + 1, memory_order_release);
    }
    if (err)
        *err = f->why;
    return -1;
}

int tern_fabric_wait_blame(struct tern_comm *c, int world_rank, const char *what,
                           struct tern_err *err)
{
    struct tern_fabric *f = c->f;
    char call[80];
    struct ofi_control m = {.kind = OFI_BLAME, .sender = f->rank, .rank = world_rank};

    snprintf(m.text, sizeof m.text,
             "rank %d (%s) %s; rank %d (%s) was in %s #%llu of communicator %d", world_rank,
             name_of(f, world_rank), what, f->rank, name_of(f, f->rank),
             tern_fabric_call_text(call, sizeof call, c->desc), (unsigned long long)c->ops, c->id);
    if (!f->broken) {
        send_all(f, &m);
        give_up(f, world_rank, m.text, err);
        drain(f, FAREWELL_NS);
    }
    return give_up(f, world_rank, m.text, err);
}

void tern_fabric_wait_control(void *fabric, const struct ofi_control *m)
{
    struct tern_fabric *f = fabric;

    f->heard_ns[m->sender] = tern_clock_boot_ns();
    if (m->kind == OFI_BLAME) {
        give_up(f, m->rank, m->text, NULL);
    } else if (m->kind == OFI_STUCK) {
        struct ofi_control reply = {.kind = OFI_WAITING, .sender = f->rank};
        tern_fabric_ofi_release(f->ofi, tern_fabric_ofi_control_send(f->ofi, m->sender, &reply));
    }
}

/* Bad news from a rank of this node. */
static int heard(struct tern_fabric *f, struct tern_err *err)
{
    if (f->broken)
        return give_up(f, 0, "", err);
    for (int r = 0; r < f->size; r++) {
        struct shm_head *h = f->peers[r].shm.head;
        int32_t blamed = h ? atomic_load_explicit(&h->blamed, memory_order_acquire) : 0;
        if (blamed > 0) {
            /* Remote ranks must hear it from somebody; the first to know may be gone by now. */
            struct ofi_control m = {.kind = OFI_BLAME, .sender = f->rank, .rank = blamed - 1};
            snprintf(m.text, sizeof m.text, "%.*s", (int)sizeof h->why - 1, h->why);
            give_up(f, blamed - 1, m.text, err);
            send_all(f, &m);
            drain(f, FAREWELL_NS);
            return -1;
        }
    }
    return 0;
}

static bool ended(const struct tern_fabric *f, int world_rank)
{
    struct pollfd p = {f->peers[world_rank].shm.pidfd, POLLIN, 0};

    return f->peers[world_rank].shm.head && p.fd >= 0 && poll(&p, 1, 0) == 1;
}

static bool is_waiting(const struct tern_fabric *f, int r, int64_t now)
{
    const struct shm_head *h = f->peers[r].shm.head;
    int64_t seen = h ? atomic_load_explicit(&h->beat_ns, memory_order_relaxed) : f->heard_ns[r];

    return r == f->rank || now - seen < (h ? FRESH_NS : 2 * GRACE_NS);
}

/* The deadline is over.  The rank waited for may itself be waiting for somebody: those who answer
 * are, and whoever does not is at fault. */
static int overdue(struct waiter *w, int member, struct tern_err *err)
{
    struct tern_comm *c = w->c;
    struct tern_fabric *f = c->f;
    struct ofi_control ask = {.kind = OFI_STUCK, .sender = f->rank};
    int64_t end = tern_clock_boot_ns() + GRACE_NS;
    char what[120];

    send_all(f, &ask);
    while (tern_clock_boot_ns() < end) {
        if (f->ofi)
            tern_fabric_ofi_progress(f->ofi);
        if (heard(f, err) < 0)
            return -1;
        atomic_store_explicit(&f->own.head->beat_ns, tern_clock_boot_ns(), memory_order_relaxed);
        tern_clock_sleep_ns(2 * MS);
    }
    int64_t now = tern_clock_boot_ns();
    int culprit = c->world[member];
    for (int m = 0; m < c->size && is_waiting(f, culprit, now); m++)
        if (!is_waiting(f, c->world[m], now))
            culprit = c->world[m];
    bool all = is_waiting(f, culprit, now);
    snprintf(what, sizeof what,
             all ? "waits for something else after %.3g s (do all ranks call the same operations?)"
                 : "has not come within the deadline of %.3g s",
             (double)f->deadline_ns / 1e9);
    return tern_fabric_wait_blame(c, culprit, what, err);
}

/* A message to a silent remote peer fails when its process is gone for good, long before the
 * deadline. */
static int ping(struct waiter *w, int world_rank, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = w->c->f;
    struct ofi_control m = {.kind = OFI_PING, .sender = f->rank};
    char what[160];

    if (f->ping && tern_fabric_ofi_req_state(f->ping) == OFI_FAILED &&
        tern_fabric_ofi_req_rank(f->ping) == world_rank) {
        snprintf(what, sizeof what, "cannot be reached (%s)", tern_fabric_ofi_req_error(f->ping));
        return tern_fabric_wait_blame(w->c, world_rank, what, err);
    }
    if (now - (w->pinged ? w->pinged : w->start) > PING_NS) {
        w->pinged = now;
        tern_fabric_ofi_release(f->ofi, f->ping);
        f->ping = tern_fabric_ofi_control_send(f->ofi, world_rank, &m);
    }
    return 0;
}

static int look(struct waiter *w, int member, int64_t now, struct tern_err *err)
{
    struct tern_fabric *f = w->c->f;
    int peer = w->c->world[member];

    w->looked = now;
    atomic_store_explicit(&f->own.head->beat_ns, now, memory_order_relaxed);
    if (heard(f, err) < 0)
        return -1;
    if (ended(f, peer)) {
        /* It may have come and then ended; so the caller looks once more before we say so. */
        if (w->seen_dead == peer + 1)
            return tern_fabric_wait_blame(w->c, peer, "has ended", err);
        w->seen_dead = peer + 1;
        return 0;
    }
    if (f->ofi && !f->peers[peer].shm.head && ping(w, peer, now, err) < 0)
        return -1;
    if (now - w->start > f->deadline_ns)
        return overdue(w, member, err);
    return 0;
}

int tern_fabric_wait_idle(struct waiter *w, int member, struct tern_err *err)
{
    struct tern_fabric *f = w->c->f;

    w->polls++;
    if (f->ofi && (!f->peers[w->c->world[member]].shm.head || w->polls % 64 == 0))
        tern_fabric_ofi_progress(f->ofi);
    if (f->broken)
        return give_up(f, 0, "", err);
    if (w->polls < f->spins) {
        __builtin_ia32_pause();
        return 0;
    }
    int64_t now = tern_clock_boot_ns();
    if (!w->start)
        w->start = w->looked = now;
    if (now - w->looked > LOOK_NS && look(w, member, now, err) < 0)
        return -1;
    int64_t waited = now - w->start;
    if (waited < YIELD_NS)
        sched_yield();
    else /* the longer it took so far, the less a late look costs: at most 5 %, or 0.5 ms */
        tern_clock_sleep_ns(waited / 20 < MS / 2 ? waited / 20 : MS / 2);
    return 0;
}
