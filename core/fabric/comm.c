#include "core/fabric/program.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- making and freeing */

static void *array(size_t n, size_t size)
{
    return calloc(n ? n : 1, size);
}

/* Which member is where; nodes are numbered by their lowest member.  `number`: the node of a member
 * by any numbers below `most`. */
static int place_members(struct tern_comm *c, const int *number, int most)
{
    int *seen = array((size_t)most, sizeof *seen); /* number -> node here + 1 */

    if (!seen)
        return -1;
    for (int i = 0; i < c->size; i++) {
        int *at = &seen[number[i]];
        if (!*at)
            *at = ++c->nodes;
        c->node_of[i] = *at - 1;
        c->local_of[i] = c->node_size[*at - 1]++;
    }
    free(seen);
    c->even = true;
    for (int k = 0; k < c->nodes; k++) {
        c->node_ranks[k] = array((size_t)c->node_size[k], sizeof **c->node_ranks);
        if (!c->node_ranks[k])
            return -1;
        c->mixed |= c->nodes > 1 && c->node_size[k] > 1;
        c->even &= c->node_size[k] == c->node_size[0];
    }
    for (int i = 0; i < c->size; i++)
        c->node_ranks[c->node_of[i]][c->local_of[i]] = i;
    c->node = c->node_of[c->rank];
    c->local = c->local_of[c->rank];
    c->p = c->node_size[c->node];
    c->mates = c->node_ranks[c->node];
    return 0;
}

struct tern_comm *tern_fabric_comm_shape(int size, int rank, const int *node_of,
                                         struct tern_err *err)
{
    struct tern_comm *c = tern_alloc(1, sizeof *c, "a communicator", err);
    size_t n = (size_t)size;
    int most = 0;

    if (!c)
        return NULL;
    c->size = size;
    c->rank = rank;
    c->world = array(n, sizeof *c->world);
    c->node_of = array(n, sizeof *c->node_of);
    c->local_of = array(n, sizeof *c->local_of);
    c->node_size = array(n, sizeof *c->node_size);
    c->node_ranks = array(n, sizeof *c->node_ranks);
    c->scratch = array(2 * n, sizeof *c->scratch);
    c->program = array(1, sizeof *c->program);
    bool good = c->world && c->node_of && c->local_of && c->node_size && c->node_ranks &&
                c->scratch && c->program;
    for (int i = 0; i < size; i++)
        most = node_of[i] > most ? node_of[i] : most;
    if (!good || place_members(c, node_of, most + 1) < 0) {
        tern_fabric_comm_delete(c);
        tern_err_set(err, TERN_FAILED, "out of memory for a communicator of %d ranks", size);
        return NULL;
    }
    return c;
}

struct tern_comm *tern_fabric_comm_new(struct tern_fabric *f, int id, int size, const int *world,
                                       uint64_t phase, struct tern_err *err)
{
    int *node_of = tern_alloc((size_t)size, sizeof *node_of, "a communicator", err), rank = 0;
    size_t n = (size_t)size;

    if (!node_of)
        return NULL;
    for (int i = 0; i < size; i++) {
        node_of[i] = f->peers[world[i]].node;
        if (world[i] == f->rank)
            rank = i;
    }
    struct tern_comm *c = tern_fabric_comm_shape(size, rank, node_of, err);
    free(node_of);
    if (!c)
        return NULL;
    c->f = f;
    c->id = id;
    c->phase = phase;
    memcpy(c->world, world, n * sizeof *world);
    c->views = array(n, sizeof *c->views);
    c->dst = array(n, sizeof *c->dst);
    c->src = array(n, sizeof *c->src);
    c->sent = array(n, sizeof *c->sent);
    c->received = array(n, sizeof *c->received);
    if (!c->views || !c->dst || !c->src || !c->sent || !c->received) {
        tern_fabric_comm_delete(c);
        tern_err_set(err, TERN_FAILED, "out of memory for a communicator of %d ranks", size);
        return NULL;
    }
    if (c->nodes > 1 && !(c->work = tern_fabric_alloc_sparse(f, WORK_BYTES, err))) {
        tern_fabric_comm_delete(c);
        return NULL;
    }
    if (phase > f->high_phase)
        f->high_phase = phase;
    f->comms[id] = c;
    c->serial = tern_flight_comm_begin(f->flight.recorder, id, phase, world, size, &c->mark);
    tern_fabric_cross_comm(c, false);
    return c;
}

void tern_fabric_comm_delete(struct tern_comm *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->max_slots; i++)
        if (c->slots[i])
            c->f->wire->ops->release(c->f->wire, c->slots[i]);
    if (c->f && c->f->comms[c->id] == c) {
        c->f->comms[c->id] = NULL;
        c->f->busy &= ~(1ull << c->id);
    }
    if (c->f && c->serial)
        tern_flight_comm_end(c->f->flight.recorder, c->serial);
    if (c->f && c->serial)
        tern_fabric_cross_comm(c, true);
    if (c->f)
        tern_fabric_free(c->f, c->work);
    for (int k = 0; c->node_ranks && k < c->nodes; k++)
        free(c->node_ranks[k]);
    if (c->program)
        tern_fabric_program_free(c->program);
    free(c->program);
    free(c->scratch);
    free(c->slots);
    free(c->sent);
    free(c->received);
    free(c->views);
    free(c->dst);
    free(c->src);
    free(c->node_ranks);
    free(c->world);
    free(c->node_of);
    free(c->local_of);
    free(c->node_size);
    free(c);
}

int tern_fabric_comm_member(const struct tern_comm *c, int world_rank)
{
    int m = 0;

    while (c->world[m] != world_rank)
        m++;
    return m;
}

struct tern_comm *tern_fabric_world(struct tern_fabric *f)
{
    return f->comms[0];
}

void tern_comm_free(struct tern_comm *c)
{
    if (c && c->id != 0)
        tern_fabric_comm_delete(c);
}

int tern_comm_rank(const struct tern_comm *c)
{
    return c->rank;
}
int tern_comm_size(const struct tern_comm *c)
{
    return c->size;
}
int tern_comm_world_rank(const struct tern_comm *c, int rank)
{
    return c->world[rank];
}

/* ---------------------------------------------------------------- split */

/* What each member says of all the splits: this, and behind it a wish for each of them. */
struct vote {
    uint64_t free_ids, high_phase;
};
struct wish {
    int64_t color, key, member;
};

static int by_key(const void *a, const void *b)
{
    const struct wish *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->member < y->member ? -1 : 1;
}

/* The group of colour `color` in the w-th split, as `id`; `votes` lie `each` bytes apart. */
static struct tern_comm *make_group(struct tern_comm *c, const char *votes, size_t each, size_t w,
                                    int color, int id, uint64_t phase, struct tern_err *err)
{
    size_t all = (size_t)c->size;
    struct wish *in = tern_alloc(all, sizeof *in + sizeof(int), "a split", err);
    struct tern_comm *made = NULL;
    int n = 0;

    if (!in)
        return NULL;
    int *world = (int *)(in + all);
    for (size_t i = 0; i < all; i++) {
        const struct wish *p = (const struct wish *)(votes + i * each + sizeof(struct vote)) + w;
        if (p->color == color)
            in[n++] = *p;
    }
    qsort(in, (size_t)n, sizeof *in, by_key);
    for (int i = 0; i < n; i++)
        world[i] = c->world[in[i].member];
    made = tern_fabric_comm_new(c->f, id, n, world, phase, err);
    free(in);
    return made;
}

int tern_comm_splits(struct tern_comm *c, const struct tern_comm_part *parts, size_t n,
                     struct tern_err *err)
{
    struct tern_fabric *f = c->f;
    const size_t each = sizeof(struct vote) + n * sizeof(struct wish);
    struct tern_comm *made[TERN_WIRE_SHM_COMMS] = {NULL};
    struct tern_err why = {0};
    uint64_t ids = ~0ull, phase = 0;
    int rc = -1;

    if (n > TERN_WIRE_SHM_COMMS)
        return tern_err_set(err, TERN_USAGE, "bug: %zu splits at once", n);
    char *votes = tern_alloc((size_t)c->size + 1, each, "a split", &why);
    if (!votes)
        return tern_fabric_engine_fail(f, &why, err);
    struct vote *mine = (struct vote *)(votes + (size_t)c->size * each);
    struct wish *wishes = (struct wish *)(mine + 1);
    *mine = (struct vote){.high_phase = f->high_phase};
    for (int i = 0; i < TERN_WIRE_SHM_COMMS; i++)
        mine->free_ids |= f->comms[i] ? 0 : 1ull << i;
    for (size_t w = 0; w < n; w++)
        wishes[w] = (struct wish){parts[w].color, parts[w].key, c->rank};
    if (tern_comm_all_gather(c, mine, votes, each, TERN_U8, err) < 0)
        goto out;
    /* All members of c take the same number, so that no rank is in two groups of one number.  The
     * phase begins above everything any of them has shown: an earlier user of the same number that
     * is still looking then sees a later phase, never an earlier one. */
    for (int i = 0; i < c->size; i++) {
        const struct vote *v = (const struct vote *)(votes + (size_t)i * each);
        ids &= v->free_ids;
        phase = v->high_phase > phase ? v->high_phase : phase;
    }
    if ((size_t)__builtin_popcountll(ids) < n) {
        tern_err_set(err, TERN_FAILED, "%d communicators are alive, which is the most: free some",
                     TERN_WIRE_SHM_COMMS);
        goto out;
    }
    for (size_t w = 0; w < n; w++) {
        int id = __builtin_ctzll(ids);
        ids &= ids - 1;
        if (parts[w].color < 0)
            continue;
        made[w] = make_group(c, votes, each, w, parts[w].color, id, phase + 1, &why);
        if (!made[w]) { /* the others have theirs, and would wait for this rank */
            tern_fabric_engine_fail(f, &why, err);
            goto out;
        }
    }
    for (size_t w = 0; w < n; w++)
        *parts[w].out = made[w];
    rc = 0;
out:
    free(votes);
    return rc;
}

int tern_comm_split(struct tern_comm *c, int color, int key, struct tern_comm **out,
                    struct tern_err *err)
{
    const struct tern_comm_part part = {color, key, out};

    return tern_comm_splits(c, &part, 1, err);
}
