/* The operations, as their callers see them. */
#include "core/fabric/state.h"

#include <string.h>

static int check(const struct tern_comm *c, const struct tern_coll_task *t, struct tern_err *err)
{
    bool each = t->call == TERN_CALL_ALL_GATHER || t->call == TERN_CALL_REDUCE_SCATTER;
    const size_t most = (1ull << 40) - 1; /* bytes: a call's name has 40 bits for the count */
    char call[80];

    if ((unsigned)t->type > TERN_U8 || (unsigned)t->op > TERN_MIN || t->root < 0 ||
        t->root >= c->shape.size)
        return tern_err_set(err, TERN_FAILED, "bug: %s with type %d, operation %d, root %d of %d",
                            tern_call_text(call, sizeof call, t->desc), t->type, t->op, t->root,
                            c->shape.size);
    size_t limit = most / tern_type_bytes(t->type) / (each ? (size_t)c->shape.size : 1);
    if (t->count <= limit)
        return 0;
    size_t verb = strcspn(tern_call_text(call, sizeof call, t->desc), " ");
    return tern_err_set(err, TERN_FAILED,
                        "%.*s of %zu %s%s: %zu are the most (less than 1 TiB%s): do it in parts",
                        (int)verb, call, t->count, tern_type_name(t->type), each ? " a rank" : "",
                        limit, each ? " of all ranks" : "");
}

static int begin(struct tern_comm *c, struct tern_coll_task t, struct tern_pending *p,
                 struct tern_err *err)
{
    t.desc = tern_call_pack(t.call, t.type, t.op, t.root, t.count);
    if (check(c, &t, err) < 0)
        return -1;
    if (t.count == 0) { /* still synchronises */
        t.call = TERN_CALL_BARRIER;
        t.count = 1;
    }
    if (tern_fabric_progress_begin(c, &t, err) < 0)
        return -1;
    *p = (struct tern_pending){c, c->begun};
    return 0;
}

int tern_fabric_wait(struct tern_pending *p, struct tern_err *err)
{
    struct tern_comm *c = p->comm;

    if (c && tern_fabric_progress_wait(c, p->number, err) < 0)
        return -1;
    p->comm = NULL;
    return 0;
}

int tern_fabric_test(struct tern_pending *p, bool *done, struct tern_err *err)
{
    if (p->comm && tern_fabric_progress(fabric_of(p->comm), err) < 0)
        return -1;
    *done = !p->comm || p->comm->finished >= p->number;
    return 0;
}

int tern_fabric_all_reduce_begin(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                                 enum tern_op op, struct tern_pending *p, struct tern_err *err)
{
    return begin(c,
                 (struct tern_coll_task){TERN_CALL_ALL_REDUCE, type, op, .count = count, .in = buf,
                                         .out = buf},
                 p, err);
}

int tern_fabric_reduce_scatter_begin(struct tern_comm *c, const struct tern_fabric_scatter *s,
                                     struct tern_pending *p, struct tern_err *err)
{
    return begin(c,
                 (struct tern_coll_task){TERN_CALL_REDUCE_SCATTER, s->type, s->op,
                                         .count = s->count_per_rank, .in = s->in, .out = s->out},
                 p, err);
}

int tern_fabric_all_gather_begin(struct tern_comm *c, const void *in, void *out,
                                 size_t count_per_rank, enum tern_type type, struct tern_pending *p,
                                 struct tern_err *err)
{
    return begin(c,
                 (struct tern_coll_task){TERN_CALL_ALL_GATHER, type, TERN_SUM,
                                         .count = count_per_rank, .in = in, .out = out},
                 p, err);
}

int tern_fabric_broadcast_begin(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                                int root, struct tern_pending *p, struct tern_err *err)
{
    return begin(c,
                 (struct tern_coll_task){TERN_CALL_BROADCAST, type, TERN_SUM, root, count,
                                         .in = buf, .out = buf},
                 p, err);
}

int tern_fabric_barrier_begin(struct tern_comm *c, struct tern_pending *p, struct tern_err *err)
{
    return begin(c, (struct tern_coll_task){.call = TERN_CALL_BARRIER, .type = TERN_U8}, p, err);
}

/* ---------------------------------------------------------------- begun and waited for */

int tern_fabric_all_reduce(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                           enum tern_op op, struct tern_err *err)
{
    struct tern_pending p;

    return tern_fabric_all_reduce_begin(c, buf, count, type, op, &p, err) < 0
               ? -1
               : tern_fabric_wait(&p, err);
}

int tern_fabric_reduce_scatter(struct tern_comm *c, const void *in, void *out, size_t count,
                               enum tern_type type, enum tern_op op, struct tern_err *err)
{
    struct tern_pending p;
    const struct tern_fabric_scatter s = {in, out, count, type, op};

    return tern_fabric_reduce_scatter_begin(c, &s, &p, err) < 0 ? -1 : tern_fabric_wait(&p, err);
}

int tern_fabric_all_gather(struct tern_comm *c, const void *in, void *out, size_t count,
                           enum tern_type type, struct tern_err *err)
{
    struct tern_pending p;

    return tern_fabric_all_gather_begin(c, in, out, count, type, &p, err) < 0
               ? -1
               : tern_fabric_wait(&p, err);
}

int tern_fabric_broadcast(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                          int root, struct tern_err *err)
{
    struct tern_pending p;

    return tern_fabric_broadcast_begin(c, buf, count, type, root, &p, err) < 0
               ? -1
               : tern_fabric_wait(&p, err);
}

int tern_fabric_barrier(struct tern_comm *c, struct tern_err *err)
{
    struct tern_pending p;

    return tern_fabric_barrier_begin(c, &p, err) < 0 ? -1 : tern_fabric_wait(&p, err);
}
