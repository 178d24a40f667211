#include "core/fabric/state.h"

#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [TERN_F32] = {"f32", 4}, [TERN_F64] = {"f64", 8}, [TERN_BF16] = {"bf16", 2},
    [TERN_I32] = {"i32", 4}, [TERN_I64] = {"i64", 8}, [TERN_U8] = {"u8", 1},
};
static const char *const ops[] = {"sum", "avg", "max", "min"};
static const char *const calls[] = {"nothing",    "all_reduce", "reduce_scatter",
                                    "all_gather", "broadcast",  "barrier"};

size_t tern_type_bytes(enum tern_type type)
{
    return types[type].bytes;
}
const char *tern_type_name(enum tern_type type)
{
    return types[type].name;
}
const char *tern_op_name(enum tern_op op)
{
    return ops[op];
}

/* call:3 type:3 op:2 root:16 count:40 */
uint64_t tern_fabric_call_pack(enum call call, enum tern_type type, enum tern_op op, int root,
                               size_t count)
{
    return (uint64_t)call << 61 | (uint64_t)type << 58 | (uint64_t)op << 56 |
           (uint64_t)(root & 0xffff) << 40 | (count & 0xffffffffff);
}

char *tern_fabric_call_text(char *to, size_t n, uint64_t d)
{
    unsigned call = d >> 61, type = d >> 58 & 7, op = d >> 56 & 3;
    unsigned long long count = d & 0xffffffffff;
    const char *name = call < sizeof calls / sizeof *calls ? calls[call] : "?";
    const char *tname = type < sizeof types / sizeof *types ? types[type].name : "?";

    if (call == CALL_BARRIER || call == CALL_NONE)
        snprintf(to, n, "%s", name);
    else if (call == CALL_ALL_GATHER)
        snprintf(to, n, "%s %s %llu", name, tname, count);
    else if (call == CALL_BROADCAST)
        snprintf(to, n, "%s %s %llu from %u", name, tname, count, (unsigned)(d >> 40 & 0xffff));
    else
        snprintf(to, n, "%s %s %s %llu", name, tname, ops[op], count);
    return to;
}

/* ---------------------------------------------------------------- making and freeing */

static void *array(size_t n, size_t size)
{
    return calloc(n ? n : 1, size);
}

/* Which member is where.  Nodes are numbered by their lowest member. */
static int place_members(struct tern_comm *c)
{
    const struct tern_fabric *f = c->f;
    int *seen = array((size_t)f->nodes, sizeof *seen); /* fabric node -> node here + 1 */

    if (!seen)
        return -1;
    for (int i = 0; i < c->size; i++) {
        int *at = &seen[f->peers[c->world[i]].node];
        if (!*at)
            *at = ++c->nodes;
        c->node_of[i] = *at - 1;
        c->local_of[i] = c->node_size[*at - 1]++;
    }
    free(seen);
    for (int k = 0; k < c->nodes; k++) {
        c->node_ranks[k] = array((size_t)c->node_size[k], sizeof **c->node_ranks);
        if (!c->node_ranks[k])
            return -1;
        c->mixed |= c->nodes > 1 && c->node_size[k] > 1;
    }
    for (int i = 0; i < c->size; i++)
        c->node_ranks[c->node_of[i]][c->local_of[i]] = i;
    c->node = c->node_of[c->rank];
    c->local = c->local_of[c->rank];
    c->p = c->node_size[c->node];
    c->mates = c->node_ranks[c->node];
    return 0;
}

struct tern_comm *tern_fabric_comm_new(struct tern_fabric *f, int id, int size, const int *world,
                                       uint64_t phase, struct tern_err *err)
{
    struct tern_comm *c = tern_alloc(1, sizeof *c, "a communicator", err);
    size_t n = (size_t)size, most = f->ofi ? tern_fabric_ofi_max_message(f->ofi) : WIRE_BYTES;

    if (!c)
        return NULL;
    c->f = f;
    c->id = id;
    c->size = size;
    c->phase = phase;
    /* A stage sends and receives WIRE_BYTES at most each, in at least a message a member. */
    c->max_reqs = 4 * n + 2 * WIRE_BYTES / (most < 65536 ? most : 65536) + 64;
    c->world = array(n, sizeof *c->world);
    c->node_of = array(n, sizeof *c->node_of);
    c->local_of = array(n, sizeof *c->local_of);
    c->node_size = array(n, sizeof *c->node_size);
    c->node_ranks = array(n, sizeof *c->node_ranks);
    c->views = array(n, sizeof *c->views);
    c->targets = array(2 * n, sizeof *c->targets);
    c->reqs = array(c->max_reqs, sizeof *c->reqs);
    bool good = c->world && c->node_of && c->local_of && c->node_size && c->node_ranks &&
                c->views && c->targets && c->reqs;
    for (int i = 0; good && i < size; i++) {
        c->world[i] = world[i];
        if (world[i] == f->rank)
            c->rank = i;
    }
    if (!good || place_members(c) < 0) {
        tern_fabric_comm_delete(c);
        tern_err_set(err, TERN_FAILED, "out of memory for a communicator of %d ranks", size);
        return NULL;
    }
    if (phase > f->high_phase)
        f->high_phase = phase;
    f->comms[id] = c;
    return c;
}

void tern_fabric_comm_delete(struct tern_comm *c)
{
    if (!c)
        return;
    if (c->f->comms[c->id] == c)
        c->f->comms[c->id] = NULL;
    for (int k = 0; c->node_ranks && k < c->nodes; k++)
        free(c->node_ranks[k]);
    free(c->node_ranks);
    free(c->world);
    free(c->node_of);
    free(c->local_of);
    free(c->node_size);
    free(c->views);
    free(c->targets);
    free(c->reqs);
    free(c);
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

struct vote {
    int64_t color, key, member;
    uint64_t free_ids, high_phase;
};

static int by_key(const void *a, const void *b)
{
    const struct vote *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->member < y->member ? -1 : 1;
}

int tern_comm_split(struct tern_comm *c, int color, int key, struct tern_comm **out,
                    struct tern_err *err)
{
    struct tern_fabric *f = c->f;
    struct vote mine = {color, key, c->rank, 0, f->high_phase}, *all;
    uint64_t ids = ~0ull, phase = 0;
    struct tern_comm *made = NULL;
    int n = 0, rc = -1;

    for (int i = 0; i < SHM_COMMS; i++)
        mine.free_ids |= f->comms[i] ? 0 : 1ull << i;
    all = tern_alloc((size_t)c->size, sizeof *all + sizeof(int), "a split", err);
    if (!all)
        return -1;
    int *world = (int *)(all + c->size);
    if (tern_comm_all_gather(c, &mine, all, sizeof mine, TERN_U8, err) < 0)
        goto out;
    /* All members of c take the same number, so that no rank is in two groups of one number.  The
     * phase begins above everything any of them has shown: an earlier user of the same number that
     * is still looking then sees a later phase, never an earlier one. */
    for (int i = 0; i < c->size; i++) {
        ids &= all[i].free_ids;
        phase = all[i].high_phase > phase ? all[i].high_phase : phase;
    }
    if (!ids) {
        tern_err_set(err, TERN_FAILED, "%d communicators are alive, which is the most: free some",
                     SHM_COMMS);
        goto out;
    }
    if (color >= 0) {
        for (int i = 0; i < c->size; i++)
            if (all[i].color == color)
                all[n++] = all[i];
        qsort(all, (size_t)n, sizeof *all, by_key);
        for (int i = 0; i < n; i++)
            world[i] = c->world[all[i].member];
        made = tern_fabric_comm_new(f, __builtin_ctzll(ids), n, world, phase + 1, err);
        if (!made)
            goto out;
    }
    *out = made;
    rc = 0;
out:
    free(all);
    return rc;
}

/* ---------------------------------------------------------------- operations */

static int begin(struct tern_comm *c, enum call call, enum tern_type type, enum tern_op op,
                 int root, size_t count, struct tern_err *err)
{
    if (c->f->broken) {
        if (err)
            *err = c->f->why;
        return -1;
    }
    if ((unsigned)type > TERN_U8 || (unsigned)op > TERN_MIN || root < 0 || root >= c->size ||
        count > (1ull << 40) / tern_type_bytes(type) / (size_t)c->size)
        return tern_err_set(err, TERN_FAILED,
                            "bug: %s with type %d, operation %d, root %d of %d, count %zu",
                            calls[call], type, op, root, c->size, count);
    c->ops++;
    c->desc = tern_fabric_call_pack(call, type, op, root, count);
    return 0;
}

/* Whatever failed inside, ranks no longer agree on where they are. */
static int finish(struct tern_comm *c, int rc, const struct tern_err *why, struct tern_err *err)
{
    if (rc == 0)
        return 0;
    if (!c->f->broken) {
        c->f->broken = true;
        c->f->why = *why;
    }
    if (err)
        *err = c->f->why;
    return -1;
}

int tern_comm_all_reduce(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                         enum tern_op op, struct tern_err *err)
{
    struct tern_err why = {0};

    if (begin(c, CALL_ALL_REDUCE, type, op, 0, count, err) < 0)
        return -1;
    return finish(c,
                  count ? tern_fabric_coll_all_reduce(c, buf, count, type, op, &why)
                        : tern_fabric_coll_barrier(c, &why),
                  &why, err);
}

int tern_comm_reduce_scatter(struct tern_comm *c, const void *in, void *out, size_t count,
                             enum tern_type type, enum tern_op op, struct tern_err *err)
{
    struct tern_err why = {0};

    if (begin(c, CALL_REDUCE_SCATTER, type, op, 0, count, err) < 0)
        return -1;
    return finish(c,
                  count ? tern_fabric_coll_reduce_scatter(c, in, out, count, type, op, &why)
                        : tern_fabric_coll_barrier(c, &why),
                  &why, err);
}

int tern_comm_all_gather(struct tern_comm *c, const void *in, void *out, size_t count,
                         enum tern_type type, struct tern_err *err)
{
    struct tern_err why = {0};

    if (begin(c, CALL_ALL_GATHER, type, TERN_SUM, 0, count, err) < 0)
        return -1;
    return finish(c,
                  count ? tern_fabric_coll_all_gather(c, in, out, count, type, &why)
                        : tern_fabric_coll_barrier(c, &why),
                  &why, err);
}

int tern_comm_broadcast(struct tern_comm *c, void *buf, size_t count, enum tern_type type, int root,
                        struct tern_err *err)
{
    struct tern_err why = {0};

    if (begin(c, CALL_BROADCAST, type, TERN_SUM, root, count, err) < 0)
        return -1;
    return finish(
        c,
        count ? tern_fabric_coll_broadcast(c, buf, count * tern_type_bytes(type), root, &why)
              : tern_fabric_coll_barrier(c, &why),
        &why, err);
}

int tern_comm_barrier(struct tern_comm *c, struct tern_err *err)
{
    struct tern_err why = {0};

    if (begin(c, CALL_BARRIER, TERN_U8, TERN_SUM, 0, 0, err) < 0)
        return -1;
    return finish(c, tern_fabric_coll_barrier(c, &why), &why, err);
}
