/* The machines that a recipe is meant for, as a layout has them. */
#include "core/check/check.h"

#include "core/inputs/inputs.h"
#include "core/layout/layout.h"

#include <inttypes.h>

static uint64_t core_memory(const struct tern_layout_instance *t)
{
    if (!t || t->neuron_cores < 1)
        return 0;
    return (uint64_t)(t->chip_hbm_gib * t->chips / t->neuron_cores * (double)(1ULL << 30));
}

static void measure(const struct tern_layout *l, struct tern_check_options *known)
{
    known->here = false;
    known->cluster_nodes = 0;
    known->node_memory = known->device_memory = 0;
    for (size_t q = 0; q < l->n_queues; q++) {
        int64_t nodes = 0;
        for (size_t i = 0; i < l->queues[q].n_resources; i++) {
            const struct tern_layout_resource *r = &l->queues[q].resources[i];
            const uint64_t node = (uint64_t)r->memory_mib << 20, core = core_memory(r->type);
            nodes += r->max;
            known->node_memory = node > known->node_memory ? node : known->node_memory;
            known->device_memory = core > known->device_memory ? core : known->device_memory;
        }
        known->cluster_nodes = nodes > known->cluster_nodes ? nodes : known->cluster_nodes;
    }
}

/* Some resource must have NeuronCores that divide over the workers, or none at all. */
static int check_workers(const struct tern_layout *l, const struct tern_recipe *r,
                         struct tern_err *err)
{
    const int workers = (int)r->workload.workers_per_node, group = (int)r->parallel.tensor;
    struct tern_layout_placement ignored;
    bool refused = false;

    for (size_t q = 0; q < l->n_queues; q++)
        for (size_t i = 0; i < l->queues[q].n_resources; i++) {
            const struct tern_layout_resource *at = &l->queues[q].resources[i];
            if (!at->type || tern_layout_place_cores(at->type, at->smt ? at->type->threads : 1,
                                                     workers, 0, group, &ignored, err) == 0)
                return 0;
            refused = true;
        }
    return refused ? -1 : 0;
}

int tern_check_assume(const char *layout, const struct tern_recipe *r,
                      struct tern_check_options *known, struct tern_err *err)
{
    struct tern_layout *l = tern_layout_load(layout, err);
    int rc = -1;

    if (!l)
        goto out;
    if (l->n_errors) { /* an instance type that is not known is no error here */
        tern_layout_usable(l, err);
        goto out;
    }
    measure(l, known);
    if (known->nodes > known->cluster_nodes) {
        tern_err_set(err, TERN_USAGE,
                     "%s: its largest queue has %" PRId64 " nodes, and %" PRId64 " are asked for",
                     layout, known->cluster_nodes, known->nodes);
        goto out;
    }
    rc = r->workload.command && check_workers(l, r, err) < 0
             ? tern_inputs_at_line(r, "workload.workers_per_node", err)
             : 0;
out:
    tern_layout_free(l);
    return rc;
}
