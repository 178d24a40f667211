/* Vectors that are cut into one slice a member.
 *
 * Inside each node every slice has a holder: its owner if it is in the node, else the node peer
 * that speaks for that owner here.  To reduce, each holder combines its slices over the node out of
 * the node peers' memory and sends them to their owners.  Owners combine the parts that come from
 * the nodes.  To gather, owners send their slice to its holder in each other node, and node peers
 * copy from the holders.  So every link carries each byte once, all ranks work at the same time,
 * and the node peers' rings between nodes are separate ("split rail").
 *
 * Members' data is read where it lies when all node peers offer shared buffers.  Else it goes
 * through the stage, in alternating halves.  A half is written again only after a later meeting, at
 * which all are done with it.  One node may do the one and another the other, so where nodes have
 * several members all vectors are cut to fit the stage. */
#include "core/coll/slices.h"

enum {
    PIECE_BYTES = 512 << 10, /* on the wire and combined while the next ones come */
    /* A slice of a list: the wire takes as long for it (1.2 GB/s) as a round takes (30 us). */
    SLICE_BYTES = 32 << 10,
};

size_t tern_coll_stage_bytes(const struct tern_coll_shape *c)
{
    size_t want = (size_t)c->size * SLICE_BYTES;

    return want < TERN_WIRE_SHM_STAGE        ? TERN_WIRE_SHM_STAGE
           : want < TERN_WIRE_SHM_STAGE_MOST ? want
                                             : TERN_WIRE_SHM_STAGE_MOST;
}

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Slices begin on a cache line, so that two ranks never write the same one. */
static size_t round_up(size_t elements)
{
    return (elements + 15) & ~(size_t)15;
}

size_t tern_coll_slices_len(const struct job *j, int t)
{
    size_t at = (size_t)t * j->cut.stride;

    return at >= j->cut.end ? 0 : min(j->cut.end - at, j->cut.len);
}

/* Those from `from` on in a piece of `most`. */
static size_t piece(const struct job *j, int t, size_t from, size_t most)
{
    size_t n = tern_coll_slices_len(j, t);

    return from >= n ? 0 : min(n - from, most);
}

/* The place in node `node` of the member that holds slice t there. */
static int holder(const struct tern_coll_shape *c, int t, int node)
{
    return c->node_of[t] == node ? c->local_of[t] : c->local_of[t] % c->node_size[node];
}

static bool holds(const struct job *j, int t)
{
    return j->c->node_of[t] != j->c->node && holder(j->c, t, j->c->node) == j->c->local;
}

static int in_node(const struct tern_coll_shape *c, int t, int node)
{
    return c->node_ranks[node][holder(c, t, node)];
}

/* Element `i` of slice t in what node peer `m` gives. */
static struct tern_coll_spot given(const struct job *j, int m, int t, size_t i)
{
    size_t at = ((size_t)t * j->cut.stride + i) * j->es;

    if (!j->t->direct)
        return spot(PLACE_STAGE, m, at);
    if (j->c->p == 1)
        return spot(j->t->call == TERN_CALL_REDUCE_SCATTER ? PLACE_IN : PLACE_OUT, 0, j->at + at);
    return spot(PLACE_PEER, m, j->at + at);
}

struct tern_coll_spot tern_coll_slices_base(const struct job *j, int t, size_t i)
{
    size_t at = ((size_t)t * j->cut.stride + i) * j->es;

    return j->t->direct ? spot(PLACE_OUT, 0, j->at + at) : spot(PLACE_STAGE, j->c->local, at);
}

static struct job begin(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                        struct tern_coll_program *p)
{
    struct job j = {.c = c, .t = t, .p = p};
    bool partial = t->type == TERN_BF16 && (c->mixed || t->algorithm == TERN_COLL_HALVING);

    j.partial = partial ? TERN_F32 : t->type;
    j.es = tern_type_bytes(t->type);
    j.pes = tern_type_bytes(j.partial);
    j.combines = c->p > 1 || j.partial != t->type;
    return j;
}

/* The longest slice of a list: what comes and goes must fit the work space, what is staged the
 * stage. */
static size_t longest(const struct job *j)
{
    const struct tern_coll_shape *c = j->c;
    size_t n = (size_t)c->size, nodes = (size_t)c->nodes, most = SIZE_MAX / 64;

    if (nodes > 1)
        most = (TERN_COLL_WORK_BYTES / 2) / ((nodes + (c->even ? nodes : n)) * (j->pes + j->es));
    if (nodes > 1 && c->mixed)
        most = min(most, tern_coll_stage_bytes(c) / j->es / n);
    else if (!j->t->direct)
        most = min(most, STAGE_CACHED / j->es / n);
    most = most > 16 ? most & ~(size_t)15 : most;
    return most ? most : 1;
}

size_t tern_coll_slices_lists(const struct tern_coll_shape *c, const struct tern_coll_task *t)
{
    struct tern_coll_task copy = *t;
    size_t n = (size_t)c->size;

    copy.direct = c->p == 1;
    struct job j = begin(c, &copy, NULL);
    size_t slice = t->call == TERN_CALL_ALL_REDUCE ? (t->count + n - 1) / n : t->count;
    size_t most = longest(&j);
    return (slice + most - 1) / most;
}

/* ---------------------------------------------------------------- reducing */

struct tern_coll_spot tern_coll_slices_combine(const struct job *j, int t, size_t i, size_t n,
                                               struct tern_coll_spot to)
{
    const struct tern_coll_reduce inside = {j->t->type, j->partial, j->t->op, 0};
    struct tern_coll_spot *src = j->c->scratch;

    if (!j->combines)
        return given(j, 0, t, i);
    for (int m = 0; m < j->c->p; m++)
        src[m] = given(j, m, t, i);
    tern_coll_program_reduce(j->p, &inside, &to, 1, src, j->c->p, n);
    return to;
}

int tern_coll_slices_destinations(const struct job *j, size_t i, struct tern_coll_spot *dst)
{
    const struct tern_coll_shape *c = j->c;

    if (j->t->call == TERN_CALL_REDUCE_SCATTER) {
        dst[0] = spot(PLACE_OUT, 0, j->at + i * j->es);
        return 1;
    }
    if (c->nodes > 1 || !j->t->direct || c->p == 1) {
        dst[0] = tern_coll_slices_base(j, c->rank, i);
        return 1;
    }
    /* In one node it goes to all node peers while it is in the cache. */
    for (int m = 0; m < c->p; m++)
        dst[m] = given(j, m, c->rank, i);
    return c->p;
}

static void reduce_in_node(const struct job *j)
{
    const struct tern_coll_shape *c = j->c;
    const struct tern_coll_reduce last = {j->t->type, j->t->type, j->t->op, c->size};
    struct tern_coll_spot *src = c->scratch, *dst = c->scratch + c->size;

    for (int m = 0; m < c->p; m++)
        src[m] = given(j, m, c->rank, 0);
    int n = tern_coll_slices_destinations(j, 0, dst);
    tern_coll_program_reduce(j->p, &last, dst, n, src, c->p, tern_coll_slices_len(j, c->rank));
}

/* Post the receives of the other nodes' parts of this rank's slice, piece by piece. */
static uint32_t expect_parts(const struct job *j, struct tern_coll_spot parts, size_t most)
{
    const struct tern_coll_shape *c = j->c;
    size_t mine = tern_coll_slices_len(j, c->rank), n;
    uint32_t first = j->p->n_slots;

    for (size_t i = 0; (n = piece(j, c->rank, i, most)); i += most)
        for (int node = 0; node < c->nodes; node++)
            if (node != c->node)
                tern_coll_program_recv(j->p, in_node(c, c->rank, node),
                                       spot_plus(parts, ((size_t)node * mine + i) * j->pes),
                                       n * j->pes);
    return first;
}

/* Combine and send the parts of others' slices that this rank holds. */
static uint32_t send_parts(const struct job *j, size_t most)
{
    uint32_t first = j->p->n_slots;
    struct tern_coll_spot out = {0};

    for (size_t i = 0; i < j->cut.len; i += most)
        for (int t = 0; t < j->c->size; t++) {
            size_t n = holds(j, t) ? piece(j, t, i, most) : 0;
            if (!n)
                continue;
            if (j->combines)
                out = tern_coll_program_work(j->p, n * j->pes);
            tern_coll_program_send(j->p, t, tern_coll_slices_combine(j, t, i, n, out), n * j->pes);
        }
    return first;
}

/* The own slice, piece by piece as the other nodes' parts come. With `spread` every piece is sent
 * on at once. The holders' receives of other slices are posted as soon as the data that they
 * overwrite is gone. */
static void finish_own(const struct job *j, struct tern_coll_spot parts, size_t most, uint32_t part,
                       uint32_t sent, bool spread)
{
    const struct tern_coll_shape *c = j->c;
    const struct tern_coll_reduce last = {j->partial, j->t->type, j->t->op, c->size};
    struct tern_coll_spot *src = c->scratch, *dst = c->scratch + c->size;
    size_t mine = tern_coll_slices_len(j, c->rank);

    for (size_t i = 0; i < j->cut.len; i += most) {
        size_t n = piece(j, c->rank, i, most);
        if (n) {
            struct tern_coll_spot own = spot_plus(parts, ((size_t)c->node * mine + i) * j->pes);
            own = tern_coll_slices_combine(j, c->rank, i, n, own);
            tern_coll_program_wait(j->p, (struct span){part, (uint32_t)c->nodes - 1});
            part += (uint32_t)c->nodes - 1;
            for (int node = 0; node < c->nodes; node++)
                src[node] =
                    node == c->node ? own : spot_plus(parts, ((size_t)node * mine + i) * j->pes);
            int places = tern_coll_slices_destinations(j, i, dst);
            tern_coll_program_reduce(j->p, &last, dst, places, src, c->nodes, n);
        }
        for (int t = 0; t < c->size && spread; t++) {
            size_t held = holds(j, t) ? piece(j, t, i, most) : 0;
            if (!held)
                continue;
            tern_coll_program_wait(j->p, (struct span){sent++, 1});
            tern_coll_program_recv(j->p, t, tern_coll_slices_base(j, t, i), held * j->es);
        }
        for (int node = 0; node < c->nodes && spread && n; node++)
            if (node != c->node)
                tern_coll_program_send(j->p, in_node(c, c->rank, node),
                                       tern_coll_slices_base(j, c->rank, i), n * j->es);
    }
}

void tern_coll_slices_wait_all(const struct job *j)
{
    tern_coll_program_wait(j->p, (struct span){0, j->p->n_slots});
}

static void reduce_direct(const struct job *j, bool spread)
{
    size_t most = PIECE_BYTES / j->pes;
    struct tern_coll_spot parts = tern_coll_program_work(
        j->p, (size_t)j->c->nodes * tern_coll_slices_len(j, j->c->rank) * j->pes);
    uint32_t part = expect_parts(j, parts, most), sent = send_parts(j, most);

    finish_own(j, parts, most, part, sent, spread);
    tern_coll_slices_wait_all(j);
}

static void reduce_slices(const struct job *j, bool spread)
{
    if (j->c->nodes == 1)
        reduce_in_node(j);
    else if (j->t->algorithm == TERN_COLL_HALVING)
        tern_coll_algo_halving(j, spread);
    else
        reduce_direct(j, spread);
}

/* ---------------------------------------------------------------- all-reduce */

/* A vector of `count` elements at `from`, of whose combination this rank keeps `keep` elements from
 * `keep_at` on, at `to`. */
struct whole {
    size_t count;
    struct tern_coll_spot from, to;
    size_t keep, keep_at;
};

/* Every rank has all: one meeting in the node, few messages between nodes. */
static void small(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                  const struct whole *v, struct tern_coll_program *p)
{
    enum tern_type partial = t->type == TERN_BF16 && c->nodes > 1 ? TERN_F32 : t->type;
    const struct tern_coll_reduce inside = {t->type, partial, t->op, 0},
                                  last = {t->type, t->type, t->op, c->size};
    size_t es = tern_type_bytes(t->type), count = v->count, keep = v->keep;
    struct tern_coll_spot *src = c->scratch, own = v->from, to = v->to, answer = {0};
    bool tiny = c->p > 1 && count * es <= TERN_WIRE_SHM_INLINE;

    src[0] = v->from;
    for (int m = 0; m < c->p && c->p > 1; m++)
        src[m] = spot(tiny ? PLACE_LINE : PLACE_STAGE, m, 0);
    if (tiny) {
        tern_coll_program_hand(p, v->from, count * es);
    } else if (c->p > 1) {
        tern_coll_program_copy(p, spot(PLACE_STAGE, c->local, 0), v->from, count * es);
        tern_coll_program_meet(p);
    }
    if (c->nodes == 1) {
        for (int m = 0; m < c->p; m++)
            src[m] = spot_plus(src[m], v->keep_at * es);
        tern_coll_program_reduce(p, &last, &to, 1, src, c->p, keep);
        return;
    }
    if (c->p > 1 && !tiny) /* behind the vectors */
        answer = spot(PLACE_STAGE, 0, round_up(count) * es);
    else
        answer = c->p == 1 && keep == count ? to : tern_coll_program_work(p, count * es);
    if (c->local == 0) {
        if (c->p > 1 || partial != t->type) {
            own = tern_coll_program_work(p, count * tern_type_bytes(partial));
            tern_coll_program_reduce(p, &inside, &own, 1, src, c->p, count);
        }
        tern_coll_algo_combine_nodes(c, t, own, answer, count, p);
    }
    if (tiny) {
        tern_coll_program_hand(p, answer, c->local == 0 ? count * es : 0);
        answer = spot(PLACE_LINE, 0, 0);
    } else if (c->p > 1) {
        tern_coll_program_meet(p);
    }
    if (c->p > 1 || keep != count)
        tern_coll_program_copy(p, to, spot_plus(answer, v->keep_at * es), keep * es);
}

static bool whole_vectors(const struct tern_coll_shape *c, const struct tern_coll_task *t)
{
    return t->algorithm == TERN_COLL_DOUBLING || t->algorithm == TERN_COLL_TREE ||
           (c->nodes == 1 && !tern_coll_task_offers(c, t, NULL));
}

size_t tern_coll_algo_all_reduce(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                                 size_t at, struct tern_coll_program *p)
{
    struct job j = begin(c, t, p);
    size_t n = (size_t)c->size;
    struct tern_coll_spot out = spot(PLACE_OUT, 0, 0);

    if (whole_vectors(c, t)) {
        small(c, t, &(struct whole){t->count, out, out, .keep = t->count}, p);
        return t->count;
    }
    size_t most = longest(&j), part = min(t->count - at, most * n);
    size_t stride = min(round_up((part + n - 1) / n), most);
    j.cut = (struct cut){stride, stride, part};
    j.at = at * j.es;
    if (!t->direct) {
        tern_coll_program_copy(p, tern_coll_slices_base(&j, 0, 0), spot(PLACE_OUT, 0, j.at),
                               part * j.es);
        tern_coll_program_meet(p);
    }
    reduce_slices(&j, true);
    for (int i = 0; i < c->size && c->p > 1 && (c->nodes > 1 || !t->direct); i++) {
        int s = (c->rank + i) % c->size, h = holder(c, s, c->node);
        if (t->direct) { /* mine to hand on */
            int dsts = 0;
            for (int m = 0; m < c->p && h == c->local; m++)
                if (m != c->local)
                    c->scratch[dsts++] = given(&j, m, s, 0);
            tern_coll_program_spread(p, c->scratch, dsts, tern_coll_slices_base(&j, s, 0),
                                     tern_coll_slices_len(&j, s) * j.es);
        }
        if (!t->direct && i == 0)
            tern_coll_program_meet(p);
        if (!t->direct)
            tern_coll_program_copy(p, spot(PLACE_OUT, 0, j.at + (size_t)s * stride * j.es),
                                   given(&j, h, s, 0), tern_coll_slices_len(&j, s) * j.es);
    }
    if (t->direct && c->p > 1 && at + part == t->count)
        tern_coll_program_meet(p);
    return part;
}

/* ---------------------------------------------------------------- reduce-scatter */

size_t tern_coll_algo_reduce_scatter(const struct tern_coll_shape *c,
                                     const struct tern_coll_task *t, size_t at,
                                     struct tern_coll_program *p)
{
    struct job j = begin(c, t, p);
    size_t n = (size_t)c->size;

    if (whole_vectors(c, t)) {
        const struct whole v = {.count = n * t->count,
                                .from = spot(PLACE_IN, 0, 0),
                                .to = spot(PLACE_OUT, 0, 0),
                                .keep = t->count,
                                .keep_at = (size_t)c->rank * t->count};
        small(c, t, &v, p);
        return t->count;
    }
    size_t len = min(t->count - at, longest(&j));
    j.cut = (struct cut){t->direct ? t->count : len, len, SIZE_MAX};
    j.at = at * j.es;
    if (!t->direct) {
        for (size_t s = 0; s < n; s++)
            tern_coll_program_copy(p, spot(PLACE_STAGE, c->local, s * len * j.es),
                                   spot(PLACE_IN, 0, (s * t->count + at) * j.es), len * j.es);
        tern_coll_program_meet(p);
    }
    reduce_slices(&j, false);
    if (t->direct && c->p > 1 && at + len == t->count)
        tern_coll_program_meet(p);
    return len;
}

/* ---------------------------------------------------------------- all-gather */

/* Bring every foreign slice that this rank holds to its base, where its own is. */
static void spread_direct(const struct job *j)
{
    const struct tern_coll_shape *c = j->c;

    for (int t = 0; t < c->size; t++)
        if (holds(j, t))
            tern_coll_program_recv(j->p, t, tern_coll_slices_base(j, t, 0),
                                   tern_coll_slices_len(j, t) * j->es);
    for (int k = 1; k < c->nodes; k++) { /* not all to the same first */
        int node = (c->node + k) % c->nodes;
        tern_coll_program_send(j->p, in_node(c, c->rank, node),
                               tern_coll_slices_base(j, c->rank, 0),
                               tern_coll_slices_len(j, c->rank) * j->es);
    }
    tern_coll_slices_wait_all(j);
}

/* The same by neighbours: the data that came last goes on to the next node. */
static void spread_ring(const struct job *j)
{
    const struct tern_coll_shape *c = j->c;
    int n = c->nodes, next = c->node_ranks[(c->node + 1) % n][c->local],
        last = c->node_ranks[(c->node + n - 1) % n][c->local];
    size_t bytes = j->cut.len * j->es;
    struct span got = {0};

    for (int k = 0; k + 1 < n; k++) {
        int theirs = c->node_ranks[(c->node + n - k - 1) % n][c->local],
            mine = c->node_ranks[(c->node + n - k) % n][c->local];
        struct span coming =
            tern_coll_program_recv(j->p, last, tern_coll_slices_base(j, theirs, 0), bytes);
        tern_coll_program_wait(j->p, got);
        tern_coll_program_send(j->p, next, tern_coll_slices_base(j, mine, 0), bytes);
        got = coming;
    }
    tern_coll_slices_wait_all(j);
}

/* The same in ever larger blocks, of one rank a node, for blocks that fit the work space. Block i
 * of `all` becomes that of the i-th node after this one. */
static void gather_bruck(const struct tern_coll_shape *c, struct tern_coll_spot all, size_t bytes,
                         struct tern_coll_program *p)
{
    int n = c->nodes;

    for (int d = 1; d < n; d *= 2) {
        size_t k = (size_t)(n - d < d ? n - d : d);
        struct span got = tern_coll_program_recv(p, c->node_ranks[(c->node + d) % n][c->local],
                                                 spot_plus(all, (size_t)d * bytes), k * bytes);
        tern_coll_program_send(p, c->node_ranks[(c->node + n - d) % n][c->local], all, k * bytes);
        tern_coll_program_wait(p, got);
    }
}

/* Members put their blocks on the first one's stage, which gathers for all. */
static size_t small_gather(const struct job *j, size_t count)
{
    const struct tern_coll_shape *c = j->c;
    struct tern_coll_program *p = j->p;
    size_t block = count * j->es, mine = (size_t)c->p * block;
    struct tern_coll_spot in = spot(PLACE_IN, 0, 0), out = spot(PLACE_OUT, 0, 0);

    if (c->p > 1) {
        tern_coll_program_copy(p, spot(PLACE_STAGE, 0, (size_t)c->rank * block), in, block);
        tern_coll_program_meet(p);
    }
    if (c->local == 0) {
        struct tern_coll_spot all = tern_coll_program_work(p, (size_t)c->nodes * mine);
        for (int m = 0; m < c->p; m++)
            tern_coll_program_copy(
                p, spot_plus(all, (size_t)m * block),
                c->p > 1 ? spot(PLACE_STAGE, 0, (size_t)c->peers[m] * block) : in, block);
        gather_bruck(c, all, mine, p);
        for (int k = 0; k < c->nodes; k++)
            for (int m = 0; m < c->p; m++) {
                size_t at = (size_t)c->node_ranks[(c->node + k) % c->nodes][m] * block;
                tern_coll_program_copy(
                    p, c->p > 1 ? spot(PLACE_STAGE, 0, at) : spot_plus(out, at),
                    spot_plus(all, ((size_t)k * (size_t)c->p + (size_t)m) * block), block);
            }
    }
    if (c->p > 1) {
        tern_coll_program_meet(p);
        tern_coll_program_copy(p, out, spot(PLACE_STAGE, 0, 0), (size_t)c->size * block);
    }
    return count;
}

/* Everything that the node peers have and this rank has not, and its own block too with `own`. */
static void copy_others(const struct job *j, size_t count, bool own)
{
    const struct tern_coll_shape *c = j->c;

    for (int i = 0; i < c->size; i++) {
        /* Each rank begins with the one behind it, so that not all read from the same. */
        int t = (c->rank + i) % c->size, h = holder(c, t, c->node);
        if (h != c->local || own)
            tern_coll_program_copy(j->p, spot(PLACE_OUT, 0, j->at + (size_t)t * count * j->es),
                                   given(j, h, t, 0), j->cut.len * j->es);
    }
}

/* In one node: every rank takes everything from where it was given, by `from`. */
static size_t gather_in_node(const struct job *j, enum place from)
{
    const struct tern_coll_shape *c = j->c;
    size_t bytes = j->t->count * j->es;
    bool there = j->t->in == (const char *)j->t->out + (size_t)c->rank * bytes;

    if (from == PLACE_LINE)
        tern_coll_program_hand(j->p, spot(PLACE_IN, 0, 0), bytes);
    for (int i = 0; i < c->size; i++) {
        /* Each rank begins with the one behind it, so that not all read from the same. */
        int t = (c->rank + 1 + i) % c->size;
        if (t != c->rank || !there)
            tern_coll_program_copy(
                j->p, spot(PLACE_OUT, 0, (size_t)t * bytes),
                t == c->rank ? spot(PLACE_IN, 0, 0) : spot(from, c->local_of[t], 0), bytes);
    }
    if (from == PLACE_PEER)
        tern_coll_program_meet(j->p);
    return j->t->count;
}

/* The same, but every rank puts its own where it was offered. */
static size_t spread_in_node(const struct job *j)
{
    const struct tern_coll_shape *c = j->c;
    struct tern_coll_spot *dst = c->scratch;
    size_t bytes = j->t->count * j->es, mine = (size_t)c->rank * bytes;
    bool there = j->t->in == (const char *)j->t->out + mine;
    int n = 0;

    for (int i = there; i < c->p; i++)
        dst[n++] = spot(PLACE_PEER, (c->local + i) % c->p, mine);
    tern_coll_program_spread(j->p, dst, n, spot(PLACE_IN, 0, 0), bytes);
    tern_coll_program_meet(j->p);
    return j->t->count;
}

size_t tern_coll_algo_all_gather(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                                 size_t at, struct tern_coll_program *p)
{
    struct job j = begin(c, t, p);
    struct tern_coll_spot own = spot(PLACE_OUT, 0, (size_t)c->rank * t->count * j.es);

    if (t->direct && t->pushes)
        return spread_in_node(&j);
    if (c->nodes == 1 && c->p > 1 && (t->direct || t->count * j.es <= TERN_WIRE_SHM_INLINE))
        return gather_in_node(&j, t->direct ? PLACE_PEER : PLACE_LINE);
    if (t->algorithm == TERN_COLL_BRUCK)
        return small_gather(&j, t->count);
    if (t->direct) {
        if (at == 0 && t->in != (const char *)t->out + own.at)
            tern_coll_program_copy(p, own, spot(PLACE_IN, 0, 0), t->count * j.es);
        size_t len = min(t->count - at, longest(&j));
        bool end = at + len == t->count;
        j.cut = (struct cut){t->count, len, SIZE_MAX};
        j.at = at * j.es;
        if (c->nodes > 1)
            (t->algorithm == TERN_COLL_RING ? spread_ring : spread_direct)(&j);
        if (!end || c->p == 1)
            return len;
        j.cut.len = t->count;
        j.at = 0;
        tern_coll_program_meet(p);
        copy_others(&j, t->count, false);
        tern_coll_program_meet(p);
        return len;
    }
    /* With one node the stage holds one slice, this rank's own. */
    size_t len = min(t->count - at, c->nodes == 1 ? STAGE_CACHED / j.es : longest(&j));
    j.cut = (struct cut){c->nodes == 1 ? 0 : len, len, SIZE_MAX};
    j.at = at * j.es;
    tern_coll_program_copy(p, tern_coll_slices_base(&j, c->rank, 0), spot(PLACE_IN, 0, j.at),
                           len * j.es);
    if (c->nodes > 1)
        (t->algorithm == TERN_COLL_RING ? spread_ring : spread_direct)(&j);
    tern_coll_program_meet(p);
    copy_others(&j, t->count, true);
    return len;
}
