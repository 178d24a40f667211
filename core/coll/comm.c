/* Communicators as the engine knows them: members, shape, queue. */
#include "core/coll/program.h"

#include "core/base/assert.h"

#include <stdlib.h>
#include <string.h>

static void *array(size_t n, size_t size)
{
    return calloc(n ? n : 1, size);
}

/* How far this rank is, for ranks that look for a deadlock; `ended`: the communicator goes. */
static void publish(struct tern_comm *c, bool ended)
{
    struct tern_wire_shm_call *call = &c->coll->wire->own.head->calls[c->id];

    atomic_store_explicit(&call->begun, c->begun, memory_order_relaxed);
    atomic_store_explicit(&call->finished, c->finished, memory_order_relaxed);
    atomic_store_explicit(&call->mark, ended ? 0 : c->mark, memory_order_relaxed);
}

/* NULL: without memory. */
static struct tern_comm *allocate(struct tern_coll *e, int id, int size, const int *world,
                                  uint64_t phase)
{
    struct tern_comm *c = array(1, sizeof *c);
    size_t n = (size_t)size;
    int *node_of = array(n, sizeof *node_of), rank = 0;

    for (int i = 0; node_of && i < size; i++) {
        tern_assert(world[i] >= 0 && world[i] < e->wire->size, "rank %d of %d", world[i],
                    e->wire->size);
        node_of[i] = e->wire->peers[world[i]].node;
        if (world[i] == e->wire->rank)
            rank = i;
    }
    bool good = c && node_of && tern_coll_shape_make(&c->shape, size, rank, node_of, NULL) == 0;
    free(node_of);
    if (good) {
        c->id = id;
        c->phase = phase;
        c->world = array(n, sizeof *c->world);
        c->program = array(1, sizeof *c->program);
        c->views = array(n, sizeof *c->views);
        c->dst = array(n, sizeof *c->dst);
        c->src = array(n, sizeof *c->src);
        c->sent = array(n, sizeof *c->sent);
        c->received = array(n, sizeof *c->received);
        good = c->world && c->program && c->views && c->dst && c->src && c->sent && c->received;
    }
    if (!good) {
        tern_coll_comm_delete(c);
        return NULL;
    }
    memcpy(c->world, world, n * sizeof *world);
    tern_assert(world[rank] == e->wire->rank, "rank %d is no member", e->wire->rank);
    return c;
}

struct tern_comm *tern_coll_comm_new(struct tern_coll *e, int id, int size, const int *world,
                                     uint64_t phase, struct tern_err *err)
{
    tern_assert(id >= 0 && id < TERN_WIRE_SHM_COMMS && !e->comms[id], "communicator %d", id);
    tern_assert(size > 0 && size <= e->wire->size, "%d of %d ranks", size, e->wire->size);

    struct tern_comm *c = allocate(e, id, size, world, phase);
    if (!c) {
        tern_err_set(err, TERN_FAILED, "out of memory for a communicator of %d ranks", size);
        return NULL;
    }
    c->coll = e;
    if (c->shape.nodes > 1 &&
        !(c->work = tern_wire_alloc(e->wire, TERN_COLL_WORK_BYTES, /* huge= */ false, err))) {
        tern_coll_comm_delete(c);
        return NULL;
    }
    if (phase > e->high_phase)
        e->high_phase = phase;
    e->comms[id] = c;
    c->serial = tern_flight_comm_begin(e->recorder, id, phase, world, size, &c->mark);
    publish(c, /* ended= */ false);
    return c;
}

/* Takes back everything that others know of it. */
static void withdraw(struct tern_comm *c)
{
    struct tern_coll *e = c->coll;

    for (size_t i = 0; i < c->max_slots; i++)
        if (c->slots[i])
            e->wire->transport->ops->release(e->wire->transport, c->slots[i]);
    if (e->comms[c->id] == c) {
        e->comms[c->id] = NULL;
        e->busy &= ~(1ull << c->id);
    }
    if (c->serial) {
        tern_flight_comm_end(e->recorder, c->serial);
        publish(c, /* ended= */ true);
    }
    tern_wire_free(e->wire, c->work);
}

void tern_coll_comm_delete(struct tern_comm *c)
{
    if (!c)
        return;
    if (c->coll)
        withdraw(c);
    if (c->program)
        tern_coll_program_free(c->program);
    tern_coll_shape_free(&c->shape);
    free(c->program);
    free(c->slots);
    free(c->sent);
    free(c->received);
    free(c->views);
    free(c->dst);
    free(c->src);
    free(c->world);
    free(c);
}

int tern_coll_comm_member(const struct tern_comm *c, int world_rank)
{
    int m = 0;

    while (c->world[m] != world_rank)
        m++;
    return m;
}
