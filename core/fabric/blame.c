/* Telling all ranks which one is at fault.  wait.c, progress.c, mismatch.c and deadlock.c find it.
 * The first rank to find it breaks its fabric. It tells the ranks elsewhere by message and those of
 * its node by shared memory; they pass it on. */
#include "core/fabric/state.h"

#include "core/base/clock.h"

#include <stdio.h>

enum { MS = 1000000, FAREWELL_NS = 100 * MS /* to bring the bad news out */ };

static const char *name_of(const struct tern_fabric *f, int world_rank)
{
    return f->wire.peers[world_rank].node_name;
}

void tern_fabric_blame_send_all(struct tern_fabric *f, const struct tern_wire_control *m)
{
    if (!f->wire.transport)
        return;
    for (int r = 0; r < f->wire.size; r++)
        if (r != f->wire.rank && !f->wire.peers[r].shm.head)
            tern_wire_send_control(&f->wire, r, m);
}

static void drain(struct tern_fabric *f, int64_t ns)
{
    int64_t until = tern_clock_boot_ns() + ns;

    while (f->wire.transport && tern_clock_boot_ns() < until) {
        f->wire.transport->ops->progress(f->wire.transport);
        tern_clock_sleep_ns(MS / 2);
    }
}

int tern_fabric_blame_keep(struct tern_fabric *f, int world_rank, const char *text,
                           struct tern_err *err)
{
    if (!f->broken) {
        f->broken = true;
        f->flight.recorder->blamed = world_rank;
        tern_err_set(&f->why, TERN_TEMPFAIL, "%s", text);
        struct tern_wire_shm_head *h = f->wire.own.head;
        snprintf(h->why, sizeof h->why, "%s", text);
        atomic_store_explicit(&h->blamed, world_rank + 1, memory_order_release);
    }
    if (err)
        *err = f->why;
    return -1;
}

int tern_fabric_blame_text(struct tern_fabric *f, int world_rank, const char *text,
                           struct tern_err *err)
{
    struct tern_wire_control m = {
        .kind = TERN_WIRE_BLAME, .sender = f->wire.rank, .rank = world_rank};

    snprintf(m.text, sizeof m.text, "%s", text);
    if (!f->broken) {
        tern_fabric_blame_send_all(f, &m);
        tern_fabric_blame_keep(f, world_rank, m.text, err);
        drain(f, FAREWELL_NS);
    }
    return tern_fabric_blame_keep(f, world_rank, m.text, err);
}

int tern_fabric_blame(struct tern_comm *c, int world_rank, const char *what, struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(c);
    char call[80], text[600];

    snprintf(text, sizeof text, "rank %d (%s) %s; rank %d (%s) was in %s #%llu of communicator %d",
             world_rank, name_of(f, world_rank), what, f->wire.rank, name_of(f, f->wire.rank),
             tern_call_text(call, sizeof call, c->desc), (unsigned long long)c->ops, c->id);
    return tern_fabric_blame_text(f, world_rank, text, err);
}

int tern_fabric_blame_heard(struct tern_fabric *f, struct tern_err *err)
{
    if (f->broken)
        return tern_fabric_blame_keep(f, 0, "", err);
    for (int r = 0; r < f->wire.size; r++) {
        struct tern_wire_shm_head *h = f->wire.peers[r].shm.head;
        int32_t blamed = h ? atomic_load_explicit(&h->blamed, memory_order_acquire) : 0;
        if (blamed > 0) {
            /* Remote ranks must hear it from a rank that still runs: the first to know may be gone
             * by now. */
            struct tern_wire_control m = {
                .kind = TERN_WIRE_BLAME, .sender = f->wire.rank, .rank = blamed - 1};
            snprintf(m.text, sizeof m.text, "%.*s", (int)sizeof h->why - 1, h->why);
            tern_fabric_blame_keep(f, blamed - 1, m.text, err);
            tern_fabric_blame_send_all(f, &m);
            drain(f, FAREWELL_NS);
            return -1;
        }
    }
    return 0;
}

int tern_fabric_blame_listen(struct tern_fabric *f, struct tern_err *err)
{
    int64_t until = tern_clock_boot_ns() + FAREWELL_NS;

    do {
        if (f->wire.transport)
            f->wire.transport->ops->progress(f->wire.transport);
        if (tern_fabric_blame_heard(f, err) < 0)
            return -1;
        tern_fabric_heartbeat(f, tern_clock_boot_ns());
        tern_clock_sleep_ns(MS / 2);
    } while (tern_clock_boot_ns() < until);
    return 0;
}

bool tern_fabric_blame_ended(const struct tern_fabric *f, int world_rank, int wait_ms)
{
    const struct tern_wire_shm_peer *p = &f->wire.peers[world_rank].shm;

    return p->head && tern_process_ended(&p->process, wait_ms);
}

int tern_fabric_blame_peer(struct tern_comm *c, int world_rank, struct tern_err *err)
{
    enum { LAST_MS = 20 }; /* a process that ends has no files a while before it has ended */

    if (tern_fabric_blame_heard(fabric_of(c), err) < 0)
        return -1;
    return tern_fabric_blame_ended(fabric_of(c), world_rank, LAST_MS)
               ? tern_fabric_blame(c, world_rank, "has ended", err)
               : 0;
}
