/* Communicators of the public face: the world, and its splits. */
#include "core/fabric/state.h"

#include <stdlib.h>
#include <string.h>

struct tern_comm *tern_fabric_world(struct tern_fabric *f)
{
    return f->coll.comms[0];
}

void tern_fabric_comm_free(struct tern_comm *c)
{
    if (c && c->id != 0)
        tern_coll_comm_delete(c);
}

int tern_fabric_comm_rank(const struct tern_comm *c)
{
    return c->shape.rank;
}
int tern_fabric_comm_size(const struct tern_comm *c)
{
    return c->shape.size;
}
int tern_fabric_comm_world_rank(const struct tern_comm *c, int rank)
{
    return c->world[rank];
}

/* ---------------------------------------------------------------- split */

/* What each member says of all the splits: this, and behind it a choice for each of them. */
struct vote {
    uint64_t free_ids, high_phase;
};
struct choice {
    int64_t color, key, member;
};

static int by_key(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->member < y->member ? -1 : 1;
}

struct split {
    const char *votes; /* of all members, `each` bytes apart */
    size_t each;
    size_t index; /* of the split, of several at once */
    int color, id;
    uint64_t phase;
};

/* The group of one colour in a split. */
static struct tern_comm *make_group(struct tern_comm *c, const struct split *s,
                                    struct tern_err *err)
{
    size_t all = (size_t)c->shape.size;
    struct choice *in = tern_alloc(all, sizeof *in + sizeof(int), "a split", err);
    struct tern_comm *made = NULL;
    int n = 0;

    if (!in)
        return NULL;
    int *world = (int *)(in + all);
    for (size_t i = 0; i < all; i++) {
        const char *vote = s->votes + i * s->each;
        const struct choice *p = (const struct choice *)(vote + sizeof(struct vote)) + s->index;
        if (p->color == s->color)
            in[n++] = *p;
    }
    qsort(in, (size_t)n, sizeof *in, by_key);
    for (int i = 0; i < n; i++)
        world[i] = c->world[in[i].member];
    made = tern_coll_comm_new(c->coll, s->id, n, world, s->phase, err);
    free(in);
    return made;
}

int tern_fabric_comm_splits(struct tern_comm *c, const struct tern_comm_part *parts, size_t n,
                            struct tern_err *err)
{
    struct tern_fabric *f = fabric_of(c);
    const size_t each = sizeof(struct vote) + n * sizeof(struct choice);
    struct tern_comm *made[TERN_WIRE_SHM_COMMS] = {NULL};
    struct tern_err why = {0};
    uint64_t ids = ~0ull, phase = 0;
    int rc = -1;

    if (n > TERN_WIRE_SHM_COMMS)
        return tern_err_set(err, TERN_USAGE, "bug: %zu splits at once", n);
    char *votes = tern_alloc((size_t)c->shape.size + 1, each, "a split", &why);
    if (!votes)
        return tern_fabric_progress_fail(f, &why, err);
    struct vote *mine = (struct vote *)(votes + (size_t)c->shape.size * each);
    struct choice *choices = (struct choice *)(mine + 1);
    *mine = (struct vote){.high_phase = f->coll.high_phase};
    for (int i = 0; i < TERN_WIRE_SHM_COMMS; i++)
        mine->free_ids |= f->coll.comms[i] ? 0 : 1ull << i;
    for (size_t w = 0; w < n; w++)
        choices[w] = (struct choice){parts[w].color, parts[w].key, c->shape.rank};
    if (tern_fabric_all_gather(c, mine, votes, each, TERN_U8, err) < 0)
        goto out;
    /* All members of c take the same number, so that no rank is in two groups of one number.  The
     * phase begins above everything any of them has shown.  An earlier user of the same number that
     * is still looking then sees a later phase, never an earlier one. */
    for (int i = 0; i < c->shape.size; i++) {
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
        made[w] =
            make_group(c, &(struct split){votes, each, w, parts[w].color, id, phase + 1}, &why);
        if (!made[w]) { /* the others have theirs, and would wait for this rank */
            tern_fabric_progress_fail(f, &why, err);
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

int tern_fabric_comm_split(struct tern_comm *c, int color, int key, struct tern_comm **out,
                           struct tern_err *err)
{
    const struct tern_comm_part part = {color, key, out};

    return tern_fabric_comm_splits(c, &part, 1, err);
}
