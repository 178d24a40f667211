/* Measuring what core/coll chooses algorithms by: a round's time, and the wire's speed. */
#include "core/fabric/state.h"

#include "core/base/clock.h"

enum { TRIES = 4, PROBE_BYTES = 256 << 10 };

/* The shortest of some calls, in seconds. */
static double shortest(struct tern_comm *c, void *buf, size_t bytes, struct tern_err *err)
{
    double least = -1;

    for (int i = 0; i < TRIES; i++) {
        int64_t start = tern_clock_boot_ns();
        if ((bytes ? tern_fabric_broadcast(c, buf, bytes, TERN_U8, 0, err)
                   : tern_fabric_barrier(c, err)) < 0)
            return -1;
        double seconds = (double)(tern_clock_boot_ns() - start) / 1e9;
        if (least < 0 || seconds < least)
            least = seconds;
    }
    return least;
}

static int probe(struct tern_comm *c, struct tern_coll_model *m, struct tern_err *err)
{
    int log = 0;
    while (1 << log < c->shape.nodes)
        log++;
    double barrier = shortest(c, NULL, /* bytes= */ 0, err);
    double moved = barrier < 0 ? -1 : shortest(c, c->work, PROBE_BYTES, err);

    if (moved < 0)
        return -1;
    double got[2] = {barrier / log, (moved - barrier) / log / PROBE_BYTES};
    if (tern_fabric_all_reduce(c, got, 2, TERN_F64, TERN_MAX, err) < 0)
        return -1;
    m->round = got[0] > 1e-6 ? got[0] : 1e-6;
    m->wire = got[1] > 1e-11 ? got[1] : 1e-11;
    m->measured = true;
    return 0;
}

int tern_fabric_measure(struct tern_fabric *f, struct tern_err *err)
{
    enum { CROWDED = 4 }; /* a machine so full has better to do, and would measure its scheduler */
    struct tern_comm *world = tern_fabric_world(f);
    double load = f->coll.model.load;
    f->coll.model = tern_coll_model_typical();
    f->coll.model.load = load;
    if (world->shape.nodes == 1 || f->coll.model.load > CROWDED)
        return 0;
    /* In a communicator of its own, so that the world's first operation is number 1. */
    struct tern_comm *c =
        tern_coll_comm_new(&f->coll, 1, f->wire.size, world->world, f->coll.high_phase + 1, err);
    int rc = c ? probe(c, &f->coll.model, err) : -1;
    tern_coll_comm_delete(c);
    return rc;
}
