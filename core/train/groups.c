/* The communicators of a layout, and the tensor ranks' operations as core/llama calls them. */
#include "core/train/state.h"

#include "core/base/clock.h"

/* A stage has one link to the next one and one from the last one, in each direction.  Links are
 * made by turns, so that no rank is in two of a turn.  In a ring of an odd number of stages the one
 * that closes it meets both the first turn's and the second's. */
enum { TURNS = 3, PARTS = 5 + 2 * TURNS };

struct splits {
    struct tern_comm_part part[PARTS];
    size_t n;
};

static void add(struct splits *s, int color, int key, struct tern_comm **ret_comm)
{
    s->part[s->n++] = (struct tern_comm_part){color, key, ret_comm};
}

static int turn_of(const struct tern_model_place *p, int from)
{
    return from == p->pipeline - 1 && p->pipeline % 2 ? 2 : from % 2;
}

/* Does stage `from` send to its neighbour? */
static bool is_link(const struct tern_model_place *p, int from, bool backward)
{
    return p->interleave > 1 || from != (backward ? 0 : p->pipeline - 1);
}

/* The links from each stage to its neighbour, forward to the next or backward to the one before;
 * the sender is rank 0 of it. */
static void add_links(struct splits *s, const struct train *t, bool backward,
                      struct tern_comm *link[TURNS])
{
    const struct tern_model_place *p = &t->me.place;
    int across = p->tensor * t->me.data; /* ranks of a stage, each with links of its own */
    int before = (p->stage + (backward ? 1 : p->pipeline - 1)) % p->pipeline;

    for (int turn = 0; turn < TURNS; turn++) {
        int from = -1;
        if (turn_of(p, p->stage) == turn && is_link(p, p->stage, backward))
            from = p->stage;
        else if (turn_of(p, before) == turn && is_link(p, before, backward))
            from = before;
        add(s, from < 0 ? -1 : from * across + t->rank % across, from != p->stage, &link[turn]);
    }
}

/* Tensor ranks that hold one key head; 1: each has its own. */
static int sharers_of(const struct train *t, const struct tern_model_config *c)
{
    return c->kv_heads < t->me.place.tensor ? t->me.place.tensor / c->kv_heads : 1;
}

static bool is_end(const struct tern_model_place *p)
{
    return p->stage == 0 || p->stage == p->pipeline - 1;
}

static bool is_node_peer(const struct train *t, int tensor_rank, int data_rank, int stage)
{
    int r = tensor_rank + t->me.place.tensor * (data_rank + t->me.data * stage);

    return r != t->rank && tern_fabric_is_peer(t->options->fabric, r);
}

struct train_node_peers tern_train_find_node_peers(const struct train *t,
                                                   const struct tern_model_config *c)
{
    const struct tern_model_place *p = &t->me.place;
    const int data = t->me.data_rank, sharers = sharers_of(t, c), stages = p->pipeline;
    struct train_node_peers found = {0};

    for (int i = 0; i < p->tensor; i++)
        if (is_node_peer(t, i, data, p->stage)) {
            found.tensor = true;
            found.kv_heads |= i / sharers == p->tensor_rank / sharers;
        }
    for (int i = 0; i < t->me.data; i++)
        found.data |= is_node_peer(t, p->tensor_rank, i, p->stage);
    found.neighbours = is_node_peer(t, p->tensor_rank, data, (p->stage + 1) % stages) ||
                       is_node_peer(t, p->tensor_rank, data, (p->stage + stages - 1) % stages);
    found.tied =
        c->tied && is_end(p) && is_node_peer(t, p->tensor_rank, data, stages - 1 - p->stage);
    return found;
}

int tern_train_groups_open(struct train *t, const struct tern_model_config *c, struct tern_err *err)
{
    const struct tern_model_place *p = &t->me.place;
    struct train_groups *g = &t->groups;
    struct tern_comm *link[2][TURNS] = {{NULL}};
    struct splits s = {.n = 0};
    int sharers = sharers_of(t, c);
    int tensor_group = t->me.data_rank + t->me.data * p->stage;

    add(&s, tensor_group, p->tensor_rank, &g->tensor);
    add(&s, t->me.data_rank, t->rank, &g->model);
    if (t->me.data < t->size)
        add(&s, p->tensor_rank + p->tensor * p->stage, t->me.data_rank, &g->data);
    if (sharers > 1)
        add(&s, tensor_group * c->kv_heads + p->tensor_rank / sharers, p->tensor_rank,
            &g->kv_heads);
    if (p->pipeline > 1) {
        add_links(&s, t, false, link[0]);
        add_links(&s, t, true, link[1]);
        /* A tied head that is not where the embedding is: the two add up their gradients. */
        if (c->tied)
            add(&s, is_end(p) ? t->rank % (p->tensor * t->me.data) : -1, p->stage, &g->tied);
    }
    if (tern_fabric_comm_splits(t->world, s.part, s.n, err) < 0)
        return -1;
    if (t->me.data == t->size)
        g->data = t->world;
    for (int way = 0; way < 2; way++)
        for (int turn = 0; turn < TURNS; turn++) {
            struct tern_comm *l = link[way][turn];
            if (l && tern_fabric_comm_rank(l) == 0)
                g->send[way] = l;
            else if (l)
                g->receive[way] = l;
        }
    return 0;
}

void tern_train_groups_close(struct train *t)
{
    struct train_groups *g = &t->groups;
    struct tern_comm *all[] = {g->tensor,     g->data,       g->model,   g->kv_heads, g->tied,
                               g->receive[0], g->receive[1], g->send[0], g->send[1]};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] != t->world)
            tern_fabric_comm_free(all[i]);
}

/* ---------------------------------------------------------------- of the tensor ranks */

/* Count the time since `from` as communication, not as the pass's. */
static int count_time(struct train *t, int64_t from, int rc)
{
    tern_train_add_span(t->profile, TRAIN_SPAN_TENSOR, from, NULL);
    t->meter.phases.inside += (double)(tern_clock_boot_ns() - from) * 1e-9;
    return rc;
}

static int all_reduce(void *ctx, tern_real *x, size_t n, struct tern_err *err)
{
    struct train *t = ctx;
    int64_t from = tern_clock_boot_ns();

    return count_time(t, from,
                      tern_fabric_all_reduce(t->groups.tensor, x, n, TRAIN_REAL, TERN_SUM, err));
}

static int all_reduce_doubles(void *ctx, double *x, size_t n, bool maximum, struct tern_err *err)
{
    struct train *t = ctx;
    int64_t from = tern_clock_boot_ns();

    return count_time(t, from,
                      tern_fabric_all_reduce(t->groups.tensor, x, n, TERN_F64,
                                             maximum ? TERN_MAX : TERN_SUM, err));
}

static int reduce_scatter(void *ctx, const tern_real *in, tern_real *out, size_t n,
                          struct tern_err *err)
{
    struct train *t = ctx;
    int64_t from = tern_clock_boot_ns();

    return count_time(
        t, from,
        tern_fabric_reduce_scatter(t->groups.tensor, in, out, n, TRAIN_REAL, TERN_SUM, err));
}

static int all_gather(void *ctx, const tern_real *in, tern_real *out, size_t n,
                      struct tern_err *err)
{
    struct train *t = ctx;
    int64_t from = tern_clock_boot_ns();

    return count_time(t, from,
                      tern_fabric_all_gather(t->groups.tensor, in, out, n, TRAIN_REAL, err));
}

struct tern_llama_peers tern_train_make_peers(struct train *t)
{
    return (struct tern_llama_peers){t, all_reduce, all_reduce_doubles, reduce_scatter, all_gather};
}
