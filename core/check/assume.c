/* The machines that a recipe is meant for, as a layout has them. */
#include "core/check/check.h"

#include "core/inputs/inputs.h"
#include "core/layout/layout.h"

#include <inttypes.h>

/* Bytes of a resource's nodes, or of their NeuronCores (0: they have none).  UINT64_MAX: the type
 * is not known. */
typedef uint64_t memory_of(const struct tern_layout_resource *r);

static uint64_t node_memory(const struct tern_layout_resource *r)
{
    return r->memory_mib ? (uint64_t)r->memory_mib << 20 : UINT64_MAX;
}

static uint64_t core_memory(const struct tern_layout_resource *r)
{
    const struct tern_layout_instance *t = r->type;

    if (!t)
        return UINT64_MAX;
    if (t->neuron_cores < 1)
        return 0;
    return (uint64_t)(t->chip_hbm_gib * t->chips / t->neuron_cores * (double)(1ULL << 30));
}

/* Nodes of a queue with at least so much memory. */
static int64_t count_nodes(const struct tern_layout_queue *q, memory_of *of, uint64_t least)
{
    int64_t nodes = 0;

    for (size_t i = 0; i < q->n_resources; i++)
        nodes += of(&q->resources[i]) >= least ? q->resources[i].max : 0;
    return nodes;
}

/* A job is in one queue: the most that each of `nodes` nodes of one queue has.  0: not known, or
 * none has any. */
static uint64_t most_of_each(const struct tern_layout *l, memory_of *of, int64_t nodes)
{
    uint64_t most = 0;

    for (size_t q = 0; q < l->n_queues; q++)
        for (size_t i = 0; i < l->queues[q].n_resources; i++) {
            const uint64_t has = of(&l->queues[q].resources[i]);
            if (has > most && count_nodes(&l->queues[q], of, has) >= nodes)
                most = has;
        }
    return most == UINT64_MAX ? 0 : most;
}

static void measure(const struct tern_layout *l, int64_t nodes, struct tern_check_options *known)
{
    known->here = false;
    known->cluster_nodes = 0;
    for (size_t q = 0; q < l->n_queues; q++) {
        const int64_t all = count_nodes(&l->queues[q], node_memory, 0);
        known->cluster_nodes = all > known->cluster_nodes ? all : known->cluster_nodes;
    }
    known->node_memory = most_of_each(l, node_memory, nodes);
    known->device_memory = most_of_each(l, core_memory, nodes);
    known->larger = known->node_memory < most_of_each(l, node_memory, /* nodes= */ 1);
}

/* Some queue must have `nodes` nodes whose NeuronCores divide over the workers, or that have none.
 */
static int check_workers(const struct tern_layout *l, const struct tern_recipe *r, int64_t nodes,
                         struct tern_err *err)
{
    const int workers = (int)r->workload.workers_per_node, group = (int)r->parallel.tensor;
    struct tern_layout_placement ignored;
    bool refused = false;

    for (size_t q = 0; q < l->n_queues; q++) {
        int64_t good = 0;
        for (size_t i = 0; i < l->queues[q].n_resources; i++) {
            const struct tern_layout_resource *at = &l->queues[q].resources[i];
            if (!at->type || tern_layout_place_cores(at->type, at->smt ? at->type->threads : 1,
                                                     workers, 0, group, &ignored, err) == 0)
                good += at->max;
            else
                refused = true;
        }
        if (good && good >= nodes)
            return 0;
    }
    return refused ? -1 : 0;
}

int tern_check_assume(const char *layout, const struct tern_recipe *r,
                      struct tern_check_options *known, struct tern_err *err)
{
    const int64_t nodes =
        (known->nodes ? known->nodes : tern_check_fewest_nodes(r)) + r->launch.spares;
    struct tern_layout *l = tern_layout_load(layout, err);
    int rc = -1;

    if (!l)
        goto out;
    if (l->n_errors) { /* an instance type that is not known is no error here */
        tern_layout_usable(l, err);
        goto out;
    }
    measure(l, nodes, known);
    if (known->nodes && nodes > known->cluster_nodes) {
        tern_err_set(err, TERN_USAGE,
                     "%s: its largest queue has %" PRId64 " nodes, and %" PRId64 " are asked for",
                     layout, known->cluster_nodes, nodes);
        goto out;
    }
    rc = r->workload.command && check_workers(l, r, nodes, err) < 0
             ? tern_inputs_at_line(r, "workload.workers_per_node", err)
             : 0;
out:
    tern_layout_free(l);
    return rc;
}
