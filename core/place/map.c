#include "core/place/map.h"

#include "core/base/str.h"
#include "core/place/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int tern_place_switches(const char *a, const char *b)
{
    const char *p = a, *q = b;
    int up = 0, down = 0;

    if (!*a && !*b)
        return 1;
    for (;;) { /* over the switches that both have above them */
        size_t n = strcspn(p, "."), m = strcspn(q, ".");
        if (!*p || !*q || n != m || strncmp(p, q, n) != 0)
            break;
        p += n + (p[n] == '.');
        q += m + (q[m] == '.');
    }
    for (; *p; p += strcspn(p, "."), p += *p == '.')
        up++;
    for (; *q; q += strcspn(q, "."), q += *q == '.')
        down++;
    return up + 1 + down;
}

int tern_place_cost_compare(const struct tern_place_cost *a, const struct tern_place_cost *b)
{
    if (a->tensor != b->tensor)
        return a->tensor < b->tensor ? -1 : 1;
    if (a->pipeline != b->pipeline)
        return a->pipeline < b->pipeline ? -1 : 1;
    return a->data == b->data ? 0 : a->data < b->data ? -1 : 1;
}

static int divide(const struct tern_place_shape *s, struct tern_place_degrees *d,
                  struct tern_err *err)
{
    int64_t model = s->tensor * s->pipeline;

    *d = (struct tern_place_degrees){.world = (int64_t)s->n_nodes * s->per_node,
                                     .per_node = s->per_node,
                                     .tensor = s->tensor,
                                     .pipeline = s->pipeline};
    if (s->n_nodes == 0 || s->per_node < 1 || s->tensor < 1 || s->pipeline < 1)
        return tern_err_set(err, TERN_USAGE, "no nodes, or no ranks on them");
    if (d->world % model)
        return tern_err_set(err, TERN_USAGE,
                            "%zu node%s x %" PRId64 " ranks are %" PRId64
                            ", no multiple of parallel.tensor x parallel.pipeline (%" PRId64
                            " x %" PRId64 " = %" PRId64 "). Change the number of nodes, or a "
                            "degree.",
                            s->n_nodes, s->n_nodes == 1 ? "" : "s", s->per_node, d->world,
                            s->tensor, s->pipeline, model);
    int64_t over = s->tensor > s->per_node ? s->tensor % s->per_node : s->per_node % s->tensor;
    if (over)
        return tern_err_set(err, TERN_USAGE,
                            "parallel.tensor %" PRId64 " and %" PRId64
                            " ranks a node: a tensor group would share a node with a part of "
                            "another. One must divide the other.",
                            s->tensor, s->per_node);
    d->data = d->world / model;
    return 0;
}

int tern_place_map_check(size_t n_nodes, int64_t per_node, int64_t tensor, int64_t pipeline,
                         struct tern_err *err)
{
    const struct tern_place_shape s = {
        .n_nodes = n_nodes, .per_node = per_node, .tensor = tensor, .pipeline = pipeline};
    struct tern_place_degrees d;

    return divide(&s, &d, err);
}

int tern_place_map_make(const struct tern_place_shape *shape, struct tern_place_map *m,
                        struct tern_err *err)
{
    struct tern_place_degrees d;

    *m = (struct tern_place_map){0};
    if (divide(shape, &d, err) < 0)
        return -1;
    struct tern_place_map made = {
        .n_nodes = shape->n_nodes,
        .world = d.world,
        .per_node = d.per_node,
        .tensor = d.tensor,
        .pipeline = d.pipeline,
        .data = d.data,
        .order = tern_alloc(shape->n_nodes, sizeof *made.order, "nodes", err),
    };
    if (!made.order)
        return -1;
    for (size_t k = 0; k < made.n_nodes; k++)
        made.order[k] = k;
    if (tern_place_search_order(shape, &d, &made, err) < 0) {
        free(made.order);
        return -1;
    }
    for (size_t k = 0; k < made.n_nodes; k++)
        made.moved = made.moved || made.order[k] != k;
    *m = made;
    return 0;
}

void tern_place_map_free(struct tern_place_map *m)
{
    free(m->order);
    m->order = NULL;
}

int tern_place_map_cost(const struct tern_place_shape *shape, const size_t *order,
                        struct tern_place_cost *cost, struct tern_err *err)
{
    struct tern_place_degrees d;

    if (divide(shape, &d, err) < 0)
        return -1;
    return tern_place_search_cost(shape, &d, order, cost, err);
}

struct tern_place_rank tern_place_map_rank(const struct tern_place_map *m, int64_t rank)
{
    return (struct tern_place_rank){
        .node = m->order[rank / m->per_node],
        .local = rank % m->per_node,
        .tensor = rank % m->tensor,
        .data = rank / m->tensor % m->data,
        .pipeline = rank / (m->tensor * m->data),
    };
}

int64_t tern_place_map_number(const struct tern_place_map *m, int64_t tensor, int64_t data,
                              int64_t pipeline)
{
    return (pipeline * m->data + data) * m->tensor + tensor;
}
