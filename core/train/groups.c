/* Who talks to whom, and the tensor ranks' operations as the model wants them. */
#include "core/train/state.h"

#include "core/base/clock.h"

static int split(struct train *t, int color, int key, struct tern_comm **out, struct tern_err *err)
{
    return tern_comm_split(t->world, color, key, out, err);
}

/* The link from `stage` to its neighbour, forward to the next or backward to the one before; the
 * sender is rank 0 of it.  Collective over the world. */
static int link_stages(struct train *t, int stage, bool backward, struct tern_err *err)
{
    const struct tern_plan_rank *me = &t->me;
    int stages = me->place.pipeline, to = (stage + (backward ? stages - 1 : 1)) % stages;
    int across = me->place.tensor * me->data; /* ranks of a stage, each with a link of its own */
    bool sends = me->place.stage == stage, receives = me->place.stage == to;
    struct tern_comm *link;

    if (split(t, sends || receives ? t->rank % across : -1, receives, &link, err) < 0)
        return -1;
    if (sends)
        t->groups.send[backward] = link;
    else if (receives)
        t->groups.receive[backward] = link;
    return 0;
}

/* A tied head that is not where the embedding is: the two add up their gradients. */
static int tie(struct train *t, const struct tern_model_config *c, struct tern_err *err)
{
    const struct tern_model_place *p = &t->me.place;
    bool either = p->stage == 0 || p->stage == p->pipeline - 1;

    if (!c->tied || p->pipeline == 1)
        return 0;
    return split(t, either ? t->rank % (p->tensor * t->me.data) : -1, p->stage, &t->groups.tied,
                 err);
}

int tern_train_group(struct train *t, const struct tern_model_config *c, struct tern_err *err)
{
    const struct tern_model_place *p = &t->me.place;
    struct train_groups *g = &t->groups;
    int sharers = c->kv_heads < p->tensor ? p->tensor / c->kv_heads : 1;
    int outside = t->me.data_rank + t->me.data * p->stage; /* which tensor group */
    bool ring = p->interleave > 1;

    if (split(t, outside, p->tensor_rank, &g->tensor, err) < 0 ||
        split(t, t->me.data_rank, t->rank, &g->gang, err) < 0)
        return -1;
    if (t->me.data == t->size)
        g->data = t->world;
    else if (split(t, p->tensor_rank + p->tensor * p->stage, t->me.data_rank, &g->data, err) < 0)
        return -1;
    if (sharers > 1 && split(t, outside * c->kv_heads + p->tensor_rank / sharers, p->tensor_rank,
                             &g->keys, err) < 0)
        return -1;
    for (int s = 0; s < p->pipeline && p->pipeline > 1; s++) {
        if ((s < p->pipeline - 1 || ring) && link_stages(t, s, false, err) < 0)
            return -1;
        if ((s > 0 || ring) && link_stages(t, s, true, err) < 0)
            return -1;
    }
    return tie(t, c, err);
}

void tern_train_ungroup(struct train *t)
{
    struct train_groups *g = &t->groups;
    struct tern_comm *all[] = {g->tensor,     g->data,       g->gang,    g->keys,   g->tied,
                               g->receive[0], g->receive[1], g->send[0], g->send[1]};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] != t->world)
            tern_comm_free(all[i]);
}

/* ---------------------------------------------------------------- of the tensor ranks */

/* The clock runs on: what is spent here is communication, and not the pass's. */
static int timed(struct train *t, int64_t from, int rc)
{
    tern_train_span(t, TRAIN_SPAN_TENSOR, from, NULL);
    t->phases.inside += (double)(tern_clock_boot_ns() - from) * 1e-9;
    return rc;
}

static int all_reduce(void *ctx, tern_real *x, size_t n, struct tern_err *err)
{
    struct train *t = ctx;
    int64_t from = tern_clock_boot_ns();

    return timed(t, from, tern_comm_all_reduce(t->groups.tensor, x, n, TRAIN_REAL, TERN_SUM, err));
}

static int all_reduce_doubles(void *ctx, double *x, size_t n, bool maximum, struct tern_err *err)
{
    struct train *t = ctx;
    int64_t from = tern_clock_boot_ns();

    return timed(
        t, from,
        tern_comm_all_reduce(t->groups.tensor, x, n, TERN_F64, maximum ? TERN_MAX : TERN_SUM, err));
}

static int reduce_scatter(void *ctx, const tern_real *in, tern_real *out, size_t n,
                          struct tern_err *err)
{
    struct train *t = ctx;
    int64_t from = tern_clock_boot_ns();

    return timed(t, from,
                 tern_comm_reduce_scatter(t->groups.tensor, in, out, n, TRAIN_REAL, TERN_SUM, err));
}

static int all_gather(void *ctx, const tern_real *in, tern_real *out, size_t n,
                      struct tern_err *err)
{
    struct train *t = ctx;
    int64_t from = tern_clock_boot_ns();

    return timed(t, from, tern_comm_all_gather(t->groups.tensor, in, out, n, TRAIN_REAL, err));
}

struct tern_llama_peers tern_train_peers(struct train *t)
{
    return (struct tern_llama_peers){t, all_reduce, all_reduce_doubles, reduce_scatter, all_gather};
}
