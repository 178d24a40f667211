/* A list of steps at its hand-over to the engine: every place that a step names lies within its
 * memory, every message and member is one of this communicator's. */
#include "core/coll/program.h"

#include "core/base/assert.h"

struct checked {
    const struct tern_coll_program *p;
    const struct tern_coll_shape *c;
    size_t in, out, peer; /* bytes of the caller's buffers, and of the one that node peers offer */
};

static struct checked buffers(const struct tern_coll_program *p, const struct tern_coll_shape *c,
                              const struct tern_coll_task *t)
{
    const size_t each = t->count * tern_type_bytes(t->type), all = each * (size_t)c->size;
    const bool gathers = t->call == TERN_CALL_ALL_GATHER,
               scatters = t->call == TERN_CALL_REDUCE_SCATTER;
    struct checked k = {p, c, .in = scatters ? all : each, .out = gathers ? all : each};

    if (t->call == TERN_CALL_BARRIER)
        k.in = k.out = 0;
    k.peer = scatters || (gathers && c->nodes == 1 && !t->pushes) ? k.in : k.out;
    return k;
}

static size_t bytes_of(const struct checked *k, enum place place)
{
    const size_t of[] = {
        [PLACE_IN] = k->in,        [PLACE_OUT] = k->out,
        [PLACE_WORK] = k->p->work, [PLACE_STAGE] = TERN_WIRE_SHM_STAGE_MOST,
        [PLACE_PEER] = k->peer,    [PLACE_LINE] = TERN_WIRE_SHM_INLINE,
    };

    tern_assert((size_t)place < sizeof of / sizeof *of, "place %d", (int)place);
    return of[place];
}

/* `n` bytes at each of the spots [first, first + spots). */
static void check_spots(const struct checked *k, size_t step, uint32_t first, int spots, size_t n)
{
    tern_assert(spots >= 0 && first + (size_t)spots <= k->p->n_spots,
                "step %zu: spots %u to %u of %zu", step, first, first + (unsigned)spots,
                k->p->n_spots);
    for (int i = 0; i < spots; i++) {
        const struct tern_coll_spot *s = &k->p->spots[first + (uint32_t)i];
        const size_t room = bytes_of(k, s->place);
        tern_assert(s->at <= room && n <= room - s->at,
                    "step %zu: %zu bytes at %zu of %zu, place %d", step, n, s->at, room,
                    (int)s->place);
        tern_assert(s->place < PLACE_STAGE || (s->peer >= 0 && s->peer < k->c->p),
                    "step %zu: node peer %d of %d", step, s->peer, k->c->p);
    }
}

static void check_step(const struct checked *k, size_t i)
{
    const struct step *s = &k->p->steps[i];
    const struct tern_coll_reduce *r = &s->reduce;

    tern_assert(s->n_dst >= 0 && s->n_dst <= k->c->size && s->n_src >= 0 && s->n_src <= k->c->size,
                "step %zu: from %d to %d places", i, s->n_src, s->n_dst);
    switch (s->kind) {
    case STEP_MEET:
        tern_assert(s->n <= TERN_WIRE_SHM_INLINE, "step %zu: %zu bytes are handed over", i, s->n);
        check_spots(k, i, s->spot, s->n > 0, s->n);
        break;
    case STEP_TELL:
        break;
    case STEP_RECV:
    case STEP_SEND:
        tern_assert(s->member >= 0 && s->member < k->c->size && s->member != k->c->rank,
                    "step %zu: member %d of %d", i, s->member, k->c->size);
        tern_assert(s->n <= TERN_WIRE_CHUNK, "step %zu: a message of %zu bytes", i, s->n);
        tern_assert(s->slot < k->p->n_slots, "step %zu: slot %u of %u", i, s->slot, k->p->n_slots);
        check_spots(k, i, s->spot, 1, s->n);
        break;
    case STEP_WAIT:
        tern_assert(s->slot < k->p->n_slots, "step %zu: slot %u of %u", i, s->slot, k->p->n_slots);
        break;
    case STEP_COPY:
        check_spots(k, i, s->spot, s->n_dst + 1, s->n);
        break;
    case STEP_REDUCE:
        check_spots(k, i, s->spot, s->n_dst, s->n * tern_type_bytes(r->dst_type));
        check_spots(k, i, s->spot + (uint32_t)s->n_dst, s->n_src,
                    s->n * tern_type_bytes(r->src_type));
        break;
    }
}

void tern_coll_program_check(const struct tern_coll_program *p, const struct tern_coll_shape *c,
                             const struct tern_coll_task *t)
{
    const struct checked k = buffers(p, c, t);

    tern_assert(p->work <= (c->nodes > 1 ? TERN_COLL_WORK_BYTES : 0), "%zu bytes of work", p->work);
    for (size_t i = 0; i < p->n; i++)
        check_step(&k, i);
}
