/* Rabenseifner's all-reduce and reduce-scatter, for any number of nodes with equally many members;
 * this rank's local rank is its rail.
 *
 * Nodes form blocks, one for each bit of their number, the largest first: 7 nodes are 4, 2 and 1.
 * In a block halves are exchanged with the neighbour first, then with ever farther nodes, so that
 * sums are those of the tree.  What a block has goes to the one before it, which is where the tree
 * combines them; the way back is the same.  ("Binary blocks": Rabenseifner and Traeff, More
 * Efficient Reduction Algorithms for Non-Power-of-Two Number of Processors, 2004.) */
#include "core/coll/slices.h"

struct halving {
    const struct job *j;
    int rail;
    size_t all;             /* elements: a slice a node */
    bool pow2;              /* one block */
    int first, size, index; /* this node's block, its place there */
    int before, behind;     /* sizes of the blocks around; 0: there is none */
    int bucket;             /* of `size`: what this rank has when all is reduced */
};

/* Bits of `i` from the other end: buckets in this order, those that differ from ours in the lowest
 * bits lie together. */
static int mirrored(int i, int size)
{
    int out = 0;

    for (int bit = 1; bit < size; bit *= 2)
        out = out * 2 + !!(i & bit);
    return out;
}

static struct halving blocks_of(const struct job *j)
{
    const struct tern_coll_shape *c = j->c;
    struct halving h = {.j = j, .rail = c->local, .all = (size_t)c->nodes * j->cut.len};
    int bit = 1, before = 0;

    while (bit * 2 <= c->nodes)
        bit *= 2;
    h.pow2 = bit == c->nodes;
    for (int at = 0; at < c->nodes; bit /= 2) {
        if (!(c->nodes & bit))
            continue;
        if (h.size) {
            h.behind = bit;
            break;
        }
        if (c->node < at + bit) {
            h.first = at;
            h.size = bit;
            h.before = before;
        }
        before = bit;
        at += bit;
    }
    h.index = c->node - h.first;
    h.bucket = mirrored(h.index, h.size);
    return h;
}

/* Where bucket q of `size` begins; blocks of all sizes agree.  With one block a bucket is a slice,
 * else it begins on a cache line. */
static size_t bound(const struct halving *h, int q, int size)
{
    size_t at =
        h->all / (size_t)size * (size_t)q + h->all % (size_t)size * (size_t)q / (size_t)size;

    return h->pow2 || q == size ? at : at & ~(size_t)15;
}

/* Elements [from, from + n) of the whole. */
struct range {
    size_t from, n;
};

static struct range buckets(const struct halving *h, int q, int n, int size)
{
    size_t from = bound(h, q, size);

    return (struct range){from, bound(h, q + n, size) - from};
}

/* The member on this rail that has bucket q in the block of `size` that begins at node `first`. */
static int owner(const struct halving *h, int q, int first, int size)
{
    return h->j->c->node_ranks[first + mirrored(q, size)][h->rail];
}

/* The place of node k's slice. */
static size_t place_of(const struct halving *h, int k)
{
    return (size_t)(h->pow2 ? mirrored(k, h->j->c->nodes) : k) * h->j->cut.len;
}

static struct span receive(const struct halving *h, int from, struct tern_coll_spot to,
                           struct range r, size_t es)
{
    return r.n ? tern_coll_program_recv(h->j->p, from, to, r.n * es)
               : (struct span){h->j->p->n_slots, 0};
}

static void send(const struct halving *h, int to, struct tern_coll_spot whole, struct range r,
                 size_t es)
{
    if (r.n)
        tern_coll_program_send(h->j->p, to, spot_plus(whole, r.from * es), r.n * es);
}

/* ---------------------------------------------------------------- reducing */

static void halve(const struct halving *h, struct tern_coll_spot acc, struct tern_coll_spot in)
{
    const struct job *j = h->j;
    const struct tern_coll_reduce step = {j->partial, j->partial, j->t->op, 0};
    int lo = 0, n = h->size;

    for (int d = 1; d < h->size; d *= 2) {
        int with = j->c->node_ranks[h->first + (h->index ^ d)][h->rail];
        bool upper = h->index & d;
        n /= 2;
        struct range give = buckets(h, upper ? lo : lo + n, n, h->size);
        lo = upper ? lo + n : lo;
        struct range keep = buckets(h, lo, n, h->size);
        struct span got = receive(h, with, in, keep, j->pes);
        send(h, with, acc, give, j->pes);
        tern_coll_program_wait(j->p, got);
        struct tern_coll_spot kept = spot_plus(acc, keep.from * j->pes);
        tern_coll_program_reduce(
            j->p, &step, &kept, 1,
            (const struct tern_coll_spot[]){upper ? in : kept, upper ? kept : in}, 2, keep.n);
    }
}

/* What the smaller blocks have comes in from the right, and goes on to the left. */
static void fold(const struct halving *h, struct tern_coll_spot acc, struct tern_coll_spot in)
{
    const struct job *j = h->j;
    const struct tern_coll_reduce step = {j->partial, j->partial, j->t->op, 0};
    struct range own = buckets(h, h->bucket, 1, h->size);
    struct tern_coll_spot kept = spot_plus(acc, own.from * j->pes);

    if (h->behind) {
        int from = owner(h, h->bucket / (h->size / h->behind), h->first + h->size, h->behind);
        tern_coll_program_wait(j->p, receive(h, from, in, own, j->pes));
        tern_coll_program_reduce(j->p, &step, &kept, 1, (const struct tern_coll_spot[]){kept, in},
                                 2, own.n);
    }
    int ratio = h->before / h->size;
    for (int k = 0; k < ratio; k++) {
        int q = h->bucket * ratio + k;
        send(h, owner(h, q, h->first - h->before, h->before), acc, buckets(h, q, 1, h->before),
             j->pes);
    }
}

/* ---------------------------------------------------------------- the result */

/* The part of node k's slice that is in `r`. */
static struct range part(const struct halving *h, int k, struct range r)
{
    size_t from = place_of(h, k);
    size_t end = from + tern_coll_slices_len(h->j, h->j->c->node_ranks[k][h->rail]);

    from = from > r.from ? from : r.from;
    end = end < r.from + r.n ? end : r.from + r.n;
    return (struct range){from, end > from ? end - from : 0};
}

/* The first block has the result in buckets: to the owners of the slices. */
static void deliver(const struct halving *h, int block, struct tern_coll_spot all)
{
    const struct job *j = h->j;
    const struct tern_coll_shape *c = j->c;
    size_t mine = place_of(h, c->node);
    struct tern_coll_spot *dst = c->scratch;

    for (int q = 0; q < block; q++) {
        struct range r = part(h, c->node, buckets(h, q, 1, block));
        int from = owner(h, q, 0, block);
        tern_coll_slices_destinations(j, r.from - mine, dst);
        if (r.n && from == c->rank)
            tern_coll_program_copy(j->p, dst[0], spot_plus(all, r.from * j->es), r.n * j->es);
        else if (r.n)
            receive(h, from, dst[0], r, j->es);
    }
    for (int k = 0; k < c->nodes && h->first == 0; k++)
        if (k != c->node)
            send(h, c->node_ranks[k][h->rail], all, part(h, k, buckets(h, h->bucket, 1, h->size)),
                 j->es);
}

/* Every block's buckets from the one before it, then doubled inside. */
static void unfold(const struct halving *h, struct tern_coll_spot all)
{
    const struct job *j = h->j;
    int ratio = h->before / h->size, lo = h->bucket, n = 1;
    uint32_t first = j->p->n_slots;

    for (int k = 0; k < ratio; k++) {
        struct range r = buckets(h, h->bucket * ratio + k, 1, h->before);
        receive(h, owner(h, h->bucket * ratio + k, h->first - h->before, h->before),
                spot_plus(all, r.from * j->es), r, j->es);
    }
    tern_coll_program_wait(j->p, (struct span){first, j->p->n_slots - first});
    if (h->behind)
        send(h, owner(h, h->bucket / (h->size / h->behind), h->first + h->size, h->behind), all,
             buckets(h, h->bucket, 1, h->size), j->es);
    for (int d = h->size / 2; d; d /= 2) {
        int with = j->c->node_ranks[h->first + (h->index ^ d)][h->rail];
        struct range theirs = buckets(h, lo ^ n, n, h->size);
        struct span got = receive(h, with, spot_plus(all, theirs.from * j->es), theirs, j->es);
        send(h, with, all, buckets(h, lo, n, h->size), j->es);
        tern_coll_program_wait(j->p, got);
        lo &= ~n;
        n *= 2;
    }
    for (int k = 0; k < j->c->nodes; k++) {
        int t = j->c->node_ranks[k][h->rail];
        tern_coll_program_copy(j->p, tern_coll_slices_base(j, t, 0),
                               spot_plus(all, place_of(h, k) * j->es),
                               tern_coll_slices_len(j, t) * j->es);
    }
}

void tern_coll_algo_halving(const struct job *j, bool spread)
{
    const struct tern_coll_shape *c = j->c;
    const struct tern_coll_reduce last = {j->partial, j->t->type, j->t->op, c->size};
    const struct halving h = blocks_of(j);
    struct tern_coll_spot acc = tern_coll_program_work(j->p, h.all * j->pes);
    struct tern_coll_spot in = tern_coll_program_work(j->p, (h.all / 2 + 16) * j->pes);
    struct range own = buckets(&h, h.bucket, 1, h.size);
    struct tern_coll_spot sum = spot_plus(acc, own.from * j->pes), *dst = c->scratch;

    for (int k = 0; k < c->nodes; k++) {
        int t = c->node_ranks[k][h.rail];
        struct tern_coll_spot to = spot_plus(acc, place_of(&h, k) * j->pes);
        struct tern_coll_spot have =
            tern_coll_slices_combine(j, t, 0, tern_coll_slices_len(j, t), to);
        if (!j->combines)
            tern_coll_program_copy(j->p, to, have, tern_coll_slices_len(j, t) * j->pes);
    }
    halve(&h, acc, in);
    fold(&h, acc, in);
    if (h.pow2 && !spread) {
        int places = tern_coll_slices_destinations(j, 0, dst);
        tern_coll_program_reduce(j->p, &last, dst, places, &sum, 1,
                                 tern_coll_slices_len(j, c->rank));
        tern_coll_slices_wait_all(j);
        return;
    }
    struct tern_coll_spot all = tern_coll_program_work(j->p, h.all * j->es);
    dst[0] = spot_plus(all, own.from * j->es);
    if (h.first == 0)
        tern_coll_program_reduce(j->p, &last, dst, 1, &sum, 1, own.n);
    int block = 1;
    while (block * 2 <= c->nodes)
        block *= 2;
    if (spread)
        unfold(&h, all);
    else
        deliver(&h, block, all);
    tern_coll_slices_wait_all(j);
}
