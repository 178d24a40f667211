/* SlurmQueues and ComputeResources: from YAML to the model. */
#include "core/layout/notes.h"
#include "core/layout/value.h"

#include <stdlib.h>
#include <string.h>

/* Settings of a queue that its resources inherit. */
struct inherited {
    bool placement_group;
};

/* Is the group switched on, by Enabled or by a name?  `other` where nothing is said. */
static bool placement_group(const struct tern_yaml_node *networking, bool other)
{
    const struct tern_yaml_node *g = tern_layout_map(networking, "PlacementGroup");

    if (!g)
        return other;
    bool named = tern_layout_text(g, "Id") || tern_layout_text(g, "Name");
    return tern_layout_bool(g, "Enabled", named);
}

static void read_type(struct tern_layout *l, const struct tern_yaml_node *m,
                      struct tern_layout_resource *r)
{
    const struct tern_yaml_node *list = tern_layout_list(m, "Instances");
    const char *name = tern_layout_text(m, "InstanceType");

    r->n_types = list ? (int)tern_yaml_count(list) : 1;
    if (list && r->n_types)
        name = tern_layout_text(tern_yaml_at(list, 0), "InstanceType");
    r->type_name = name ? tern_strdup(name) : NULL;
    r->type = name ? tern_layout_instance(name) : NULL;
    if (!r->type && !l->unknown_type)
        l->unknown_type = tern_strdup(name ? name : "");
}

static int count_of(const struct tern_yaml_node *m, const char *key, int other)
{
    int64_t n = tern_layout_int(m, key, other);

    return n < 0 ? 0 : n > TERN_LAYOUT_MAX_COUNT ? TERN_LAYOUT_MAX_COUNT : (int)n;
}

static void read_resource(struct tern_layout *l, const struct tern_yaml_node *m,
                          const struct inherited *q, struct tern_layout_resource *r)
{
    const struct tern_yaml_node *efa = tern_layout_map(m, "Efa");
    const char *name = tern_layout_text(m, "Name");

    r->line = tern_yaml_line(m);
    r->name = name ? tern_strdup(name) : NULL;
    read_type(l, m, r);
    r->min = count_of(m, "MinCount", 0);
    r->max = count_of(m, "MaxCount", 10);
    if (r->max < r->min)
        r->max = r->min;
    r->memory_mib = tern_layout_int(m, "SchedulableMemory", 0);
    if (r->type && !r->memory_mib)
        r->memory_mib = r->type->memory_mib * 95 / 100;
    r->smt = !tern_layout_bool(m, "DisableSimultaneousMultithreading", false);
    r->placement_group = placement_group(tern_layout_map(m, "Networking"), q->placement_group);
    r->efa = tern_layout_bool(efa, "Enabled", false);
    r->gdr = tern_layout_bool(efa, "GdrSupport", false);
    r->static_weight = tern_layout_int(m, "StaticNodePriority", 1);
    r->dynamic_weight = tern_layout_int(m, "DynamicNodePriority", 1000);
    tern_layout_read_settings(tern_layout_map(m, "CustomSlurmSettings"), &r->custom);
}

/* The first of the list `key` of `map`, malloc'ed, or NULL. */
static char *first_of(const struct tern_yaml_node *map, const char *key)
{
    const struct tern_yaml_node *list = tern_layout_list(map, key);
    const char *text = tern_layout_count(list) ? tern_layout_as_text(tern_yaml_at(list, 0)) : NULL;

    return text ? tern_strdup(text) : NULL;
}

static void read_queue(struct tern_layout *l, const struct tern_yaml_node *m,
                       struct tern_layout_queue *q)
{
    const struct tern_yaml_node *resources = tern_layout_list(m, "ComputeResources");
    const char *capacity = tern_layout_text(m, "CapacityType"), *name = tern_layout_text(m, "Name");
    const struct tern_yaml_node *networking = tern_layout_map(m, "Networking");
    struct inherited in = {.placement_group = placement_group(networking, false)};
    size_t n = tern_layout_count(resources);

    q->line = tern_yaml_line(m);
    q->name = name ? tern_strdup(name) : NULL;
    q->capacity = !capacity                                 ? TERN_ONDEMAND
                  : strcmp(capacity, "SPOT") == 0           ? TERN_SPOT
                  : strcmp(capacity, "CAPACITY_BLOCK") == 0 ? TERN_CAPACITY_BLOCK
                                                            : TERN_ONDEMAND;
    q->subnet = first_of(networking, "SubnetIds");
    q->group = first_of(networking, "SecurityGroups");
    if (!q->group)
        q->group = first_of(networking, "AdditionalSecurityGroups");
    q->exclusive = tern_layout_bool(m, "JobExclusiveAllocation", false);
    tern_layout_read_settings(tern_layout_map(m, "CustomSlurmSettings"), &q->custom);
    q->resources = n ? tern_alloc(n, sizeof *q->resources, "ComputeResources", NULL) : NULL;
    for (size_t i = 0; q->resources && i < n; i++)
        read_resource(l, tern_yaml_at(resources, i), &in, &q->resources[q->n_resources++]);
}

void tern_layout_read_queues(struct tern_layout *l, const struct tern_yaml_node *queues)
{
    size_t n = tern_layout_count(queues);

    l->queues = n ? tern_alloc(n, sizeof *l->queues, "SlurmQueues", NULL) : NULL;
    for (size_t i = 0; l->queues && i < n; i++)
        read_queue(l, tern_yaml_at(queues, i), &l->queues[l->n_queues++]);
}
