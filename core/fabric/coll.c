/* The algorithms.  One scheme serves every shape: memory alone (one node), wire alone (one rank a
 * node) and both.
 *
 * A vector is cut into one slice a member.  Inside each node every slice has a holder: its owner if
 * it is in the node, else the mate that speaks for that owner here.  To reduce, each holder
 * combines its slices over the node out of the mates' memory and sends them to their owners, and
 * owners combine what comes from the nodes.  To gather, owners send their slice to its holder in
 * each other node, and mates copy from the holders.  So every link carries each byte once, and all
 * ranks work at the same time.
 *
 * Members' data is read where it lies when all of them offer shared buffers, else through the
 * stage: chunk by chunk in alternating halves, so that a half is written again only after a later
 * meeting has told that everyone is done with it.  One node may do the one and another the other,
 * so where nodes have several members all chunks are cut to fit the stage. */
#include "core/fabric/reduce.h"
#include "core/fabric/state.h"

#include <string.h>

/* How a vector is cut: slice t begins at t * stride and has up to `len` elements; nothing lies
 * beyond `end`. */
struct cut {
    size_t stride, len, end;
};

static size_t cut_len(const struct cut *k, int t)
{
    size_t at = (size_t)t * k->stride;

    if (at >= k->end)
        return 0;
    return k->end - at < k->len ? k->end - at : k->len;
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

/* The place in node `node` of the member that holds slice t there. */
static int holder(const struct tern_comm *c, int t, int node)
{
    return c->node_of[t] == node ? c->local_of[t] : c->local_of[t] % c->node_size[node];
}

static enum tern_type partial_type(const struct tern_comm *c, enum tern_type type)
{
    return type == TERN_BF16 && c->mixed ? TERN_F32 : type;
}

/* The most elements a slice may have at once: what is received (one part a node) and what is sent
 * (one combined slice for every foreign owner spoken for) must fit. */
static size_t wire_elements(const struct tern_comm *c, enum tern_type type)
{
    size_t n = (size_t)c->size, es = tern_type_bytes(type),
           pes = tern_type_bytes(partial_type(c, type));

    if (c->nodes == 1)
        return SIZE_MAX / 16;
    size_t most = WIRE_BYTES / (n * (es > pes ? es : pes));
    return most > 16 ? most & ~(size_t)15 : 16;
}

/* Combine this rank's slice over everything.  `views[local]` are the mates' vectors; the result
 * arrives at all `dst`. */
static int reduce_slices(struct tern_comm *c, void *const *views, const struct cut *k,
                         enum tern_type type, enum tern_op op, void *const *dst, int n_dst,
                         struct tern_err *err)
{
    enum tern_type ptype = partial_type(c, type);
    struct tern_reduce inside = {type, ptype, op, 0}, last = {ptype, type, op, c->size};
    size_t es = tern_type_bytes(type), pes = tern_type_bytes(ptype), mine = cut_len(k, c->rank);
    char *in = c->f->wire_in, *out = c->f->wire_out;
    const void **src = c->views;
    bool combines = c->p > 1 || ptype != type;

    if (c->nodes == 1)
        last.src_type = type;
    else
        tern_fabric_wire_begin(c);
    for (int node = 0; node < c->nodes && c->nodes > 1; node++, in += mine * pes)
        if (node != c->node &&
            tern_fabric_wire_recv(c, c->node_ranks[node][holder(c, c->rank, node)], in, mine * pes,
                                  err) < 0)
            return -1;
    for (int t = 0; t < c->size; t++) {
        size_t len = cut_len(k, t);
        if (c->node_of[t] == c->node || holder(c, t, c->node) != c->local)
            continue;
        for (int m = 0; m < c->p; m++)
            src[m] = (char *)views[m] + (size_t)t * k->stride * es;
        const void *part = src[0];
        if (combines) {
            void *to = out;
            tern_reduce(&inside, &to, 1, src, c->p, len);
            part = out;
            out += len * pes;
        }
        if (tern_fabric_wire_send(c, t, part, len * pes, err) < 0)
            return -1;
    }
    for (int m = 0; m < c->p; m++)
        src[m] = (char *)views[m] + (size_t)c->rank * k->stride * es;
    if (c->nodes == 1) {
        tern_reduce(&last, dst, n_dst, src, c->p, mine);
        return 0;
    }
    const void *own = src[0];
    if (combines) {
        void *to = c->f->wire_in + (size_t)c->node * mine * pes;
        tern_reduce(&inside, &to, 1, src, c->p, mine);
        own = to;
    }
    if (tern_fabric_wire_end(c, err) < 0)
        return -1;
    for (int node = 0; node < c->nodes; node++)
        src[node] = node == c->node ? own : c->f->wire_in + (size_t)node * mine * pes;
    tern_reduce(&last, dst, n_dst, src, c->nodes, mine);
    return 0;
}

/* Bring every foreign slice that this rank holds into `base`, which has this rank's own. */
static int spread_slices(struct tern_comm *c, char *base, const struct cut *k, size_t es,
                         struct tern_err *err)
{
    if (c->nodes == 1)
        return 0;
    tern_fabric_wire_begin(c);
    for (int t = 0; t < c->size; t++)
        if (c->node_of[t] != c->node && holder(c, t, c->node) == c->local &&
            tern_fabric_wire_recv(c, t, base + (size_t)t * k->stride * es, cut_len(k, t) * es,
                                  err) < 0)
            return -1;
    const char *own = base + (size_t)c->rank * k->stride * es;
    for (int node = 0; node < c->nodes; node++)
        if (node != c->node &&
            tern_fabric_wire_send(c, c->node_ranks[node][holder(c, c->rank, node)], own,
                                  cut_len(k, c->rank) * es, err) < 0)
            return -1;
    return tern_fabric_wire_end(c, err);
}

static void views_of_stage(struct tern_comm *c, void **views)
{
    for (int m = 0; m < c->p; m++)
        views[m] = tern_fabric_stage_of(c, m);
}

/* ---------------------------------------------------------------- all-reduce */

/* Everybody combines everything: one meeting in the node and one message between nodes. */
static int small_all_reduce(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                            enum tern_op op, struct tern_err *err)
{
    enum tern_type ptype = partial_type(c, type);
    struct tern_reduce inside = {type, ptype, op, 0}, last = {ptype, type, op, c->size};
    size_t es = tern_type_bytes(type), pbytes = count * tern_type_bytes(ptype);
    const void **src = c->views;
    void *dst = buf;

    src[0] = buf;
    if (c->p > 1) {
        memcpy(tern_fabric_stage_of(c, c->local), buf, count * es);
        if (tern_fabric_meet(c, NULL, 0, err) < 0)
            return -1;
        for (int m = 0; m < c->p; m++)
            src[m] = tern_fabric_stage_of(c, m);
    }
    if (c->nodes == 1) {
        last.src_type = type;
        tern_reduce(&last, &dst, 1, src, c->p, count);
        c->half ^= 1;
        return 0;
    }
    /* Behind the vectors: the answer of the node's first member. */
    char *answer = tern_fabric_stage_of(c, 0) + SMALL_BYTES;
    tern_fabric_wire_begin(c);
    if (c->local == 0) {
        char *in = c->f->wire_in;
        const void *own = buf;
        if (c->p > 1 || ptype != type) {
            void *to = c->f->wire_out;
            tern_reduce(&inside, &to, 1, src, c->p, count);
            own = to;
        }
        for (int node = 0; node < c->nodes; node++)
            if (node != c->node &&
                (tern_fabric_wire_recv(c, c->node_ranks[node][0], in + (size_t)node * pbytes,
                                       pbytes, err) < 0 ||
                 tern_fabric_wire_send(c, c->node_ranks[node][0], own, pbytes, err) < 0))
                return -1;
        if (tern_fabric_wire_end(c, err) < 0)
            return -1;
        for (int node = 0; node < c->nodes; node++)
            src[node] = node == c->node ? own : in + (size_t)node * pbytes;
        if (c->p > 1)
            dst = answer;
        tern_reduce(&last, &dst, 1, src, c->nodes, count);
    }
    if (c->p > 1) {
        if (tern_fabric_meet(c, NULL, 0, err) < 0)
            return -1;
        memcpy(buf, answer, count * es);
    }
    c->half ^= 1;
    return 0;
}

/* `bytes` fit one meeting: also in the buffers for what other nodes send. */
static bool is_small(const struct tern_comm *c, size_t bytes)
{
    return bytes <= SMALL_BYTES && bytes * 2 * (size_t)c->nodes <= WIRE_BYTES;
}

int tern_fabric_coll_all_reduce(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                                enum tern_op op, struct tern_err *err)
{
    size_t es = tern_type_bytes(type), n = (size_t)c->size;
    void **views = c->targets, *own[1];
    bool direct = c->p == 1;

    if (is_small(c, count * es))
        return small_all_reduce(c, buf, count, type, op, err);
    if (c->p > 1 && (tern_fabric_meet(c, buf, count * es, err) < 0 ||
                     tern_fabric_meet_views(c, count * es, views, &direct, err) < 0))
        return -1;
    size_t most = min(wire_elements(c, type), round_up(count / n + 1));
    if (!direct || c->mixed)
        most = min(most, (SHM_STAGE / es / n) & ~(size_t)15);
    for (size_t at = 0, seg; at < count; at += seg) {
        seg = min(count - at, most * n);
        size_t slice = round_up((seg + n - 1) / n);
        struct cut k = {slice, slice, seg};
        char *base = direct ? (char *)buf + at * es : tern_fabric_stage_of(c, c->local);
        if (!direct) {
            memcpy(base, (char *)buf + at * es, seg * es);
            if (tern_fabric_meet(c, NULL, 0, err) < 0)
                return -1;
            views_of_stage(c, views);
        } else if (c->p == 1) {
            views[0] = base;
        }
        /* In one node the result goes to all mates while it is in the cache. */
        void **dst = own;
        int n_dst = 1;
        own[0] = base + (size_t)c->rank * k.stride * es;
        if (direct && c->nodes == 1) {
            dst = views + c->p;
            for (n_dst = 0; n_dst < c->p; n_dst++)
                dst[n_dst] = (char *)views[n_dst] + (size_t)c->rank * k.stride * es;
        }
        if (reduce_slices(c, views, &k, type, op, dst, n_dst, err) < 0 ||
            spread_slices(c, base, &k, es, err) < 0)
            return -1;
        if (direct) {
            for (int t = 0; t < c->size && c->nodes > 1 && c->p > 1; t++)
                for (int m = 0; m < c->p && holder(c, t, c->node) == c->local; m++)
                    if (m != c->local)
                        memcpy((char *)views[m] + (size_t)t * k.stride * es,
                               base + (size_t)t * k.stride * es, cut_len(&k, t) * es);
            for (int m = 0; m < c->p; m++)
                views[m] = (char *)views[m] + seg * es;
            continue;
        }
        if (tern_fabric_meet(c, NULL, 0, err) < 0)
            return -1;
        for (int t = 0; t < c->size; t++)
            memcpy((char *)buf + (at + (size_t)t * k.stride) * es,
                   (char *)views[holder(c, t, c->node)] + (size_t)t * k.stride * es,
                   cut_len(&k, t) * es);
        c->half ^= 1;
    }
    return direct ? tern_fabric_meet(c, NULL, 0, err) : 0;
}

/* ---------------------------------------------------------------- reduce-scatter */

int tern_fabric_coll_reduce_scatter(struct tern_comm *c, const void *in, void *out, size_t count,
                                    enum tern_type type, enum tern_op op, struct tern_err *err)
{
    size_t es = tern_type_bytes(type), n = (size_t)c->size;
    void **views = c->targets;
    bool direct = c->p == 1;

    views[0] = (void *)(uintptr_t)in;
    if (c->p > 1 && (tern_fabric_meet(c, in, n * count * es, err) < 0 ||
                     tern_fabric_meet_views(c, n * count * es, views, &direct, err) < 0))
        return -1;
    size_t most = wire_elements(c, type);
    if (!direct || c->mixed)
        most = min(most, SHM_STAGE / es / n);
    for (size_t at = 0, len; at < count; at += len) {
        void *to = (char *)out + at * es;
        len = min(count - at, most);
        struct cut k = {direct ? count : len, len, SIZE_MAX};
        if (!direct) {
            char *stage = tern_fabric_stage_of(c, c->local);
            for (size_t t = 0; t < n; t++)
                memcpy(stage + t * len * es, (const char *)in + (t * count + at) * es, len * es);
            if (tern_fabric_meet(c, NULL, 0, err) < 0)
                return -1;
            views_of_stage(c, views);
        }
        if (reduce_slices(c, views, &k, type, op, &to, 1, err) < 0)
            return -1;
        if (direct)
            for (int m = 0; m < c->p; m++)
                views[m] = (char *)views[m] + len * es;
        else
            c->half ^= 1;
    }
    return direct ? tern_fabric_meet(c, NULL, 0, err) : 0;
}

/* ---------------------------------------------------------------- all-gather */

static void copy_others(struct tern_comm *c, char *out, void *const *views, size_t out_stride,
                        size_t view_stride, size_t bytes, bool own_too)
{
    for (int i = 0; i < c->size; i++) {
        /* Each rank begins with the one behind it, so that not all read from the same. */
        int t = (c->rank + i) % c->size, h = holder(c, t, c->node);
        if (h != c->local || own_too)
            memcpy(out + (size_t)t * out_stride, (char *)views[h] + (size_t)t * view_stride, bytes);
    }
}

int tern_fabric_coll_all_gather(struct tern_comm *c, const void *in, void *out, size_t count,
                                enum tern_type type, struct tern_err *err)
{
    size_t es = tern_type_bytes(type), n = (size_t)c->size, block = count * es;
    void **views = c->targets;
    char *own = (char *)out + (size_t)c->rank * block;
    bool direct = c->p == 1;

    if (c->p > 1 && (tern_fabric_meet(c, out, n * block, err) < 0 ||
                     tern_fabric_meet_views(c, n * block, views, &direct, err) < 0))
        return -1;
    size_t slots = c->nodes == 1 ? 1 : n, most = wire_elements(c, type);
    if (!direct || c->mixed)
        most = min(most, SHM_STAGE / es / slots);
    if (direct) {
        if (in != own)
            memcpy(own, in, block);
        for (size_t at = 0, len; at < count && c->nodes > 1; at += len) {
            len = min(count - at, most);
            struct cut k = {count, len, SIZE_MAX};
            if (spread_slices(c, (char *)out + at * es, &k, es, err) < 0)
                return -1;
        }
        if (tern_fabric_meet(c, NULL, 0, err) < 0)
            return -1;
        if (c->p > 1)
            copy_others(c, out, views, block, block, block, false);
        return tern_fabric_meet(c, NULL, 0, err);
    }
    /* With one node the stage holds one slice, this rank's own. */
    for (size_t at = 0, len; at < count; at += len) {
        len = min(count - at, most);
        struct cut k = {c->nodes == 1 ? 0 : len, len, SIZE_MAX};
        char *stage = tern_fabric_stage_of(c, c->local);
        memcpy(stage + (size_t)c->rank * k.stride * es, (const char *)in + at * es, len * es);
        if (spread_slices(c, stage, &k, es, err) < 0 || tern_fabric_meet(c, NULL, 0, err) < 0)
            return -1;
        views_of_stage(c, views);
        copy_others(c, (char *)out + at * es, views, block, k.stride * es, len * es, true);
        c->half ^= 1;
    }
    return 0;
}

/* ---------------------------------------------------------------- broadcast, barrier */

/* A binomial tree over the nodes, the root's first; `rep` speaks for this rank's node. */
static int broadcast_nodes(struct tern_comm *c, int root, char *buf, size_t bytes,
                           struct tern_err *err)
{
    int n = c->nodes, first = c->node_of[root], me = (c->node - first + n) % n, bit = 1;

    while (bit < n && !(me & bit))
        bit *= 2;
    if (me) {
        int from = (me - bit + first) % n;
        tern_fabric_wire_begin(c);
        if (tern_fabric_wire_recv(c, from == first ? root : c->node_ranks[from][0], buf, bytes,
                                  err) < 0 ||
            tern_fabric_wire_end(c, err) < 0)
            return -1;
    } else {
        tern_fabric_wire_begin(c);
    }
    c->n_reqs = 0;
    for (bit /= 2; bit; bit /= 2)
        if (me + bit < n &&
            tern_fabric_wire_send(c, c->node_ranks[(me + bit + first) % n][0], buf, bytes, err) < 0)
            return -1;
    return tern_fabric_wire_end(c, err);
}

int tern_fabric_coll_broadcast(struct tern_comm *c, void *buf, size_t bytes, int root,
                               struct tern_err *err)
{
    int rep = c->node == c->node_of[root] ? c->local_of[root] : 0;

    for (size_t at = 0, len; at < bytes; at += len) {
        char *here = (char *)buf + at;
        len = min(bytes - at, SHM_STAGE);
        if (c->p > 1 && c->local == rep) {
            here = tern_fabric_stage_of(c, c->local);
            if (c->rank == root)
                memcpy(here, (char *)buf + at, len);
        }
        if (c->nodes > 1 && c->local != rep)
            tern_fabric_wire_begin(c);
        if (c->nodes > 1 && c->local == rep && broadcast_nodes(c, root, here, len, err) < 0)
            return -1;
        if (c->p > 1) {
            if (tern_fabric_meet(c, NULL, 0, err) < 0)
                return -1;
            if (c->rank != root)
                memcpy((char *)buf + at, tern_fabric_stage_of(c, rep), len);
            c->half ^= 1;
        }
    }
    return 0;
}

/* Dissemination between the nodes' first members: after round i each has heard of 2^(i+1). */
int tern_fabric_coll_barrier(struct tern_comm *c, struct tern_err *err)
{
    if (tern_fabric_meet(c, NULL, 0, err) < 0)
        return -1;
    for (int d = 1; d < c->nodes; d *= 2) {
        int to = (c->node + d) % c->nodes, from = (c->node - d + c->nodes) % c->nodes;
        tern_fabric_wire_begin(c);
        if (c->local == 0 && (tern_fabric_wire_recv(c, c->node_ranks[from][0], NULL, 0, err) < 0 ||
                              tern_fabric_wire_send(c, c->node_ranks[to][0], NULL, 0, err) < 0 ||
                              tern_fabric_wire_end(c, err) < 0))
            return -1;
    }
    return c->nodes > 1 ? tern_fabric_meet(c, NULL, 0, err) : 0;
}
