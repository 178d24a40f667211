/* The ring of operations in a rank's shared segment. */
#include "core/flight/flight.h"

#include "core/base/clock.h"

#include <stdio.h>

static uint32_t mix(uint32_t h, uint64_t v)
{
    v = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(v >> 32) ^ (uint32_t)v;
}

static void add_members(struct tern_flight_comm *e, const int *world, int size)
{
    for (int i = 0; i < size;) {
        struct tern_flight_run run = {world[i], 1, 1};
        if (e->n_runs == TERN_FLIGHT_RUNS) {
            e->cut = 1;
            return;
        }
        if (i + 1 < size)
            run.stride = world[i + 1] - world[i];
        while (i + run.count < size &&
               world[i + run.count] == world[i + run.count - 1] + run.stride)
            run.count++;
        e->runs[e->n_runs++] = run;
        i += run.count;
    }
}

/* A free entry, else the one that ended and began first; live ones never fill the table. */
static struct tern_flight_comm *entry(struct tern_flight_recorder *r)
{
    struct tern_flight_comm *e = NULL;

    for (int i = 0; i < TERN_FLIGHT_COMMS; i++) {
        struct tern_flight_comm *x = &r->comms[i];
        if (!x->serial)
            return x;
        if (x->ended && (!e || x->serial < e->serial))
            e = x;
    }
    return e;
}

uint32_t tern_flight_comm_begin(struct tern_flight_recorder *r, int id, uint64_t phase,
                                const int *world, int size, uint32_t *ret_mark)
{
    struct tern_flight_comm *e = entry(r);
    uint32_t mark = mix(mix(0, (uint64_t)id), phase), serial = ++r->serial;

    for (int i = 0; i < size; i++)
        mark = mix(mark, (uint64_t)world[i]);
    mark = mark ? mark : 1;
    *e = (struct tern_flight_comm){
        .serial = 0, .id = id, .phase = phase, .mark = mark, .size = size};
    add_members(e, world, size);
    atomic_signal_fence(memory_order_release);
    e->serial = serial;
    *ret_mark = mark;
    return serial;
}

void tern_flight_comm_end(struct tern_flight_recorder *r, uint32_t serial)
{
    for (int i = 0; serial && i < TERN_FLIGHT_COMMS; i++)
        if (r->comms[i].serial == serial)
            r->comms[i].ended = 1;
}

uint64_t tern_flight_begin(struct tern_flight_recorder *r, uint32_t serial, uint64_t op,
                           uint64_t desc, enum tern_flight_state state)
{
    uint64_t seq = atomic_load_explicit(&r->begun, memory_order_relaxed) + 1;
    struct tern_flight_record *e = &r->ring[seq % TERN_FLIGHT_RING];

    atomic_store_explicit(&e->seq, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    e->op = op;
    e->desc = desc;
    e->begin_ns = tern_clock_boot_ns();
    e->end_ns = 0;
    e->wire_bytes = 0;
    e->comm = serial;
    e->waits_for = -1;
    e->state = state;
    atomic_store_explicit(&e->seq, seq, memory_order_release);
    atomic_store_explicit(&r->begun, seq, memory_order_release);
    return seq;
}

/* NULL when it was overwritten meanwhile. */
static struct tern_flight_record *record_of(struct tern_flight_recorder *r, uint64_t seq)
{
    struct tern_flight_record *e = &r->ring[seq % TERN_FLIGHT_RING];

    return seq && atomic_load_explicit(&e->seq, memory_order_relaxed) == seq ? e : NULL;
}

void tern_flight_set_state(struct tern_flight_recorder *r, uint64_t record,
                           enum tern_flight_state state, int waits_for)
{
    struct tern_flight_record *e = record_of(r, record);

    if (!e)
        return;
    e->waits_for = waits_for;
    e->state = state;
}

void tern_flight_add_wire(struct tern_flight_recorder *r, uint64_t record, size_t bytes)
{
    struct tern_flight_record *e = record_of(r, record);

    if (e)
        e->wire_bytes += bytes;
}

/* The rank that a failed operation waited for stays in the record. */
void tern_flight_end(struct tern_flight_recorder *r, uint64_t record, bool good)
{
    struct tern_flight_record *e = record_of(r, record);

    if (!e)
        return;
    e->end_ns = tern_clock_boot_ns();
    e->state = good ? TERN_FLIGHT_DONE : TERN_FLIGHT_FAILED;
    if (good)
        e->waits_for = -1;
}

uint64_t tern_flight_find_call(const struct tern_flight_recorder *r, uint32_t mark, uint64_t op)
{
    uint64_t begun = atomic_load_explicit(&r->begun, memory_order_acquire);
    uint32_t serial = 0;

    for (int i = 0; i < TERN_FLIGHT_COMMS; i++)
        if (r->comms[i].mark == mark && r->comms[i].serial)
            serial = r->comms[i].serial;
    for (uint64_t seq = begun; serial && seq > 0 && begun - seq < TERN_FLIGHT_RING; seq--) {
        const struct tern_flight_record *e = &r->ring[seq % TERN_FLIGHT_RING];
        if (atomic_load_explicit(&e->seq, memory_order_acquire) != seq)
            continue;
        bool same = e->comm == serial && e->op == op, past = e->comm == serial && e->op < op;
        uint64_t desc = e->desc;
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&e->seq, memory_order_relaxed) != seq)
            continue;
        if (same)
            return desc;
        if (past) /* a communicator's numbers only rise */
            return 0;
    }
    return 0;
}

char *tern_flight_ranks_text(char *to, size_t n, const int *ranks, int count)
{
    size_t at = 0;

    to[0] = '\0';
    for (int i = 0, j; i < count; i = j) {
        for (j = i + 1; j < count && ranks[j] == ranks[j - 1] + 1;)
            j++;
        if (n - at < 32) {
            snprintf(to + at, n - at, ",...");
            break;
        }
        at += (size_t)snprintf(to + at, n - at, j - i > 1 ? "%s%d-%d" : "%s%d", i ? "," : "",
                               ranks[i], ranks[j - 1]);
    }
    return to;
}
