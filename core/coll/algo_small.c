/* Whole vectors between nodes: few bytes, so the number of rounds counts.  One rank speaks for each
 * node.
 *
 * Every way of combining gives the tree over the nodes that fabric.h promises, so they agree to the
 * last bit. A round combines blocks of 1, 2, 4, ... nodes with their right neighbours. */
#include "core/coll/program.h"

static int speaker(const struct tern_coll_shape *c, int node)
{
    return c->node_ranks[node][0];
}

/* Recursive doubling.  After round d every node of a block of 2d has the block's vector.  Where the
 * right half is not full its nodes serve several of the left. */
static void doubling(const struct tern_coll_shape *c, const struct tern_coll_reduce *step,
                     const struct tern_coll_reduce *last, struct tern_coll_spot own,
                     struct tern_coll_spot to, size_t count, struct tern_coll_program *p)
{
    size_t bytes = count * tern_type_bytes(step->src_type);
    struct tern_coll_spot acc = own, in = tern_coll_program_work(p, bytes);
    struct tern_coll_spot next[2] = {tern_coll_program_work(p, bytes),
                                     tern_coll_program_work(p, bytes)};
    struct span sent = {0}; /* in the round before */
    int turn = 0;

    for (int d = 1; d < c->nodes; d *= 2) {
        int base = c->node & ~(2 * d - 1), right = c->nodes - base - d;
        if (right <= 0)
            continue;
        if (right > d)
            right = d;
        int me = c->node - base;
        bool left = me < d;
        int from = left ? base + d + me % right : base + me - d;
        struct span got = tern_coll_program_recv(p, speaker(c, from), in, bytes);
        struct span out = {p->n_slots, 0};
        if (left && me < right)
            out.n += tern_coll_program_send(p, speaker(c, base + d + me), acc, bytes).n;
        for (int i = left ? d : me - d; i < d; i += right)
            out.n += tern_coll_program_send(p, speaker(c, base + i), acc, bytes).n;
        bool final = 2 * d >= c->nodes;
        tern_coll_program_wait(p, sent); /* of what is overwritten now */
        sent = out;
        tern_coll_program_wait(p, got);
        struct tern_coll_spot dst = final ? to : next[turn];
        struct tern_coll_spot src[2] = {left ? acc : in, left ? in : acc};
        if (final) /* the result may lie where the vector that is being sent lies */
            tern_coll_program_wait(p, out);
        tern_coll_program_reduce(p, final ? last : step, &dst, 1, src, 2, count);
        acc = dst;
        turn ^= 1;
    }
}

/* Up a binomial tree over the nodes and down again: fewer messages in all. */
static void tree(const struct tern_coll_shape *c, const struct tern_coll_reduce *step,
                 const struct tern_coll_reduce *last, struct tern_coll_spot own,
                 struct tern_coll_spot to, size_t count, struct tern_coll_program *p)
{
    size_t bytes = count * tern_type_bytes(step->src_type);
    struct tern_coll_spot acc = tern_coll_program_work(p, bytes);
    struct tern_coll_spot first = own, in[32];
    struct span got[32];
    int n = 0, bit;

    for (bit = 1; bit < c->nodes && !(c->node & bit); bit *= 2)
        if (c->node + bit < c->nodes) {
            in[n] = tern_coll_program_work(p, bytes);
            got[n] = tern_coll_program_recv(p, speaker(c, c->node + bit), in[n], bytes);
            n++;
        }
    for (int i = 0; i < n; i++) {
        tern_coll_program_wait(p, got[i]);
        tern_coll_program_reduce(p, step, &acc, 1, (const struct tern_coll_spot[]){first, in[i]}, 2,
                                 count);
        first = acc;
    }
    if (n == 0)
        tern_coll_program_copy(p, acc, own, bytes);
    if (c->node)
        tern_coll_program_wait(p, tern_coll_program_send(p, speaker(c, c->node - bit), acc, bytes));
    tern_coll_algo_broadcast_nodes(c, speaker(c, 0), acc, bytes, p);
    tern_coll_program_reduce(p, last, &to, 1, &acc, 1, count);
}

void tern_coll_algo_combine_nodes(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                                  struct tern_coll_spot own, struct tern_coll_spot to, size_t count,
                                  struct tern_coll_program *p)
{
    enum tern_type partial = t->type == TERN_BF16 ? TERN_F32 : t->type;
    const struct tern_coll_reduce step = {partial, partial, t->op, 0},
                                  last = {partial, t->type, t->op, c->size};

    (t->algorithm == TERN_COLL_TREE ? tree : doubling)(c, &step, &last, own, to, count, p);
}

void tern_coll_algo_broadcast_nodes(const struct tern_coll_shape *c, int root,
                                    struct tern_coll_spot buf, size_t bytes,
                                    struct tern_coll_program *p)
{
    enum { PIECE = 256 << 10 }; /* passed on while the next ones come */
    int n = c->nodes, first = c->node_of[root], me = (c->node - first + n) % n, bit = 1;
    uint32_t got = p->n_slots;

    while (bit < n && !(me & bit))
        bit *= 2;
    int from = (me - bit + n + first) % n;
    for (size_t at = 0; me && (at < bytes || at == 0); at += PIECE)
        tern_coll_program_recv(p, from == first ? root : speaker(c, from), spot_plus(buf, at),
                               bytes - at < PIECE ? bytes - at : PIECE);
    for (size_t at = 0; at < bytes || at == 0; at += PIECE) {
        if (me)
            tern_coll_program_wait(p, (struct span){got++, 1});
        for (int b = bit / 2; b; b /= 2)
            if (me + b < n)
                tern_coll_program_send(p, speaker(c, (me + b + first) % n), spot_plus(buf, at),
                                       bytes - at < PIECE ? bytes - at : PIECE);
    }
}

size_t tern_coll_algo_broadcast(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                                size_t at, struct tern_coll_program *p)
{
    size_t es = tern_type_bytes(t->type);
    size_t most = (c->nodes == 1 ? STAGE_CACHED
                   : c->mixed    ? TERN_WIRE_SHM_STAGE
                                 : TERN_COLL_WORK_BYTES) /
                  es;
    size_t n = t->count - at < most ? t->count - at : most, bytes = n * es;
    int rep = c->node == c->node_of[t->root] ? c->local_of[t->root] : 0;
    struct tern_coll_spot here = spot(PLACE_OUT, 0, at * es), stage = spot(PLACE_STAGE, rep, 0);

    if (c->nodes == 1 && c->p > 1 && bytes <= TERN_WIRE_SHM_INLINE) {
        tern_coll_program_hand(p, here, c->rank == t->root ? bytes : 0);
        if (c->rank != t->root)
            tern_coll_program_copy(p, here, spot(PLACE_LINE, rep, 0), bytes);
        return n;
    }
    if (c->nodes == 1 && c->p > 1 && t->direct) { /* a root that computes does nothing for it */
        if (c->rank == t->root) {
            tern_coll_program_meet(p);
        } else {
            tern_coll_program_copy(p, here, spot(PLACE_PEER, rep, at * es), (t->count - at) * es);
            tern_coll_program_tell(p);
        }
        return t->count - at;
    }
    if (c->p > 1 && c->rank == t->root)
        tern_coll_program_copy(p, stage, here, bytes);
    if (c->nodes > 1 && c->local == rep)
        tern_coll_algo_broadcast_nodes(c, t->root, c->p > 1 ? stage : here, bytes, p);
    if (c->p > 1) {
        tern_coll_program_meet(p);
        if (c->rank != t->root)
            tern_coll_program_copy(p, here, stage, bytes);
    }
    return n;
}

/* Dissemination: after round i each node has heard of 2^(i+1). */
size_t tern_coll_algo_barrier(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                              size_t at, struct tern_coll_program *p)
{
    const struct tern_coll_spot nothing = spot(PLACE_WORK, 0, 0);

    (void)t, (void)at;
    tern_coll_program_meet(p);
    for (int d = 1; d < c->nodes && c->local == 0; d *= 2) {
        int to = (c->node + d) % c->nodes, from = (c->node - d + c->nodes) % c->nodes;
        struct span got = tern_coll_program_recv(p, speaker(c, from), nothing, 0);
        tern_coll_program_send(p, speaker(c, to), nothing, 0);
        tern_coll_program_wait(p, got);
    }
    if (c->nodes > 1)
        tern_coll_program_meet(p);
    return 1;
}
