/* SlurmQueues and ComputeResources, and the rules between their keys.  The rules and their levels
 * are ParallelCluster's validators'; where those let something pass that cannot work (names with
 * -st-, Neuron devices), tern does not. */
#include "core/layout/notes.h"

#include <stdlib.h>
#include <string.h>

/* ParallelCluster's limits. */
enum { MAX_QUEUES = 50, MAX_RESOURCES = 50, MAX_NAME = 25, MAX_COUNT = 10000 };

static const char *const denied_in_queue[] = {
    "nodes", "partitionname", "resumetimeout", "state", "suspendtime", "oversubscribe", NULL};
static const char *const denied_in_resource[] = {
    "cpus", "features", "gres", "nodeaddr", "nodehostname", "nodename", "state", "weight", NULL};

/* Settings of a queue that its resources inherit. */
struct inherited {
    const struct tern_yaml_node *group;     /* its PlacementGroup, or NULL */
    const struct tern_yaml_node *public_ip; /* AssignPublicIp when it is true, or NULL */
    bool placement_group, capacity_block;
    size_t n_subnets;
};

static void check_name(struct tern_layout *l, const struct tern_yaml_node *n, const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len > MAX_NAME || name[0] < 'a' || name[0] > 'z' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
        tern_layout_error(l, n,
                          "'%s' is not a name: 1 to %d of a-z, 0-9 and '-', beginning with a "
                          "letter.",
                          name, MAX_NAME);
    else if (strcmp(name, "default") == 0)
        tern_layout_error(l, n, "'default' is taken by ParallelCluster. Use another name.");
    else if (strstr(name, "-st-") || strstr(name, "-dy-") || tern_str_ends(name, "-st") ||
             tern_str_ends(name, "-dy"))
        tern_layout_error(l, n,
                          "'%s' holds -st or -dy, which node names are split at "
                          "(queue-st-resource-1). Use another name.",
                          name);
}

static bool read_placement_group(struct tern_layout *l, const struct tern_yaml_node *networking,
                                 bool *enabled, const struct tern_yaml_node **node)
{
    const struct tern_yaml_node *g = tern_layout_map(l, networking, "PlacementGroup", false);
    char *id = NULL, *name = NULL;

    if (!g)
        return false;
    struct tern_yaml_node *said = tern_layout_bool(l, g, "Enabled", enabled);
    tern_layout_text(l, g, "Id", false, &id);
    struct tern_yaml_node *named = tern_layout_text(l, g, "Name", false, &name);
    if (id && name)
        tern_layout_error(l, named, "'Id' and 'Name' exclude each other. Keep one.");
    if (!said && (id || name))
        *enabled = true;
    bool given = said || id || name;
    free(id);
    free(name);
    if (given)
        *node = g;
    return given;
}

static void read_type(struct tern_layout *l, const struct tern_yaml_node *m,
                      struct tern_layout_resource *r)
{
    struct tern_yaml_node *one = tern_layout_text(l, m, "InstanceType", false, &r->type_name);
    struct tern_yaml_node *list = tern_layout_list(l, m, "Instances", false), *at = one;

    r->n_types = 1;
    if (one && list) {
        tern_layout_error(l, list, "'InstanceType' and 'Instances' exclude each other. Keep one.");
    } else if (list) {
        r->n_types = (int)tern_yaml_count(list);
        at = r->n_types ? tern_yaml_at(list, 0) : NULL;
        at = at ? tern_layout_text(l, at, "InstanceType", true, &r->type_name) : NULL;
        for (int i = 1; i < r->n_types; i++)
            tern_layout_accept(tern_yaml_at(list, (size_t)i),
                               (const char *const[]){"InstanceType", NULL});
    }
    if (!at) {
        if (!one)
            tern_layout_error(l, m, "'InstanceType' is missing. Add it, such as trn1.32xlarge.");
        return;
    }
    r->type = tern_layout_instance(r->type_name);
    if (!r->type) {
        const char *near = tern_layout_instance_near(r->type_name);
        tern_layout_error(l, at, "'%s' is not an instance type that tern knows.%s%s%s",
                          r->type_name, near ? " Did you mean '" : "", near ? near : "",
                          near ? "'?" : "");
    }
}

static void read_counts(struct tern_layout *l, const struct tern_yaml_node *m,
                        struct tern_layout_resource *r, bool capacity_block)
{
    int64_t min = 0, max = 10;
    struct tern_yaml_node *n_min = tern_layout_int(l, m, "MinCount", 0, MAX_COUNT, &min);
    struct tern_yaml_node *n_max = tern_layout_int(l, m, "MaxCount", 1, MAX_COUNT, &max);

    if (max < min)
        tern_layout_error(l, n_max ? n_max : n_min,
                          "MaxCount %lld%s is less than MinCount %lld. Raise it.", (long long)max,
                          n_max ? "" : " (the default)", (long long)min);
    else if (capacity_block && (min != max || min == 0))
        tern_layout_error(l, n_max ? n_max : m,
                          "a capacity block needs MinCount = MaxCount > 0 "
                          "(found %lld and %lld).",
                          (long long)min, (long long)max);
    r->min = (int)min;
    r->max = max < min ? (int)min : (int)max;
}

static void check_efa(struct tern_layout *l, const struct tern_yaml_node *m,
                      const struct tern_yaml_node *efa, const struct tern_layout_resource *r,
                      const struct inherited *q, const struct tern_yaml_node *group)
{
    if (!r->type)
        return;
    if (!r->efa) {
        if (r->type->efa)
            tern_layout_warn(l, efa ? efa : m,
                             "%s has %d EFA devices and Efa.Enabled is not true: "
                             "its nodes would talk TCP. Set it.",
                             r->type_name, r->type->efa);
        return;
    }
    if (!r->type->efa) {
        tern_layout_error(l, efa, "%s has no EFA. Set Enabled: false%s.", r->type_name,
                          r->type->chips ? ", or use trn1.32xlarge" : "");
        return;
    }
    if (q->public_ip && r->type->efa > 1)
        tern_layout_error(l, q->public_ip,
                          "%s has %d network cards, and EC2 gives a public address to nodes with "
                          "one only. Set false.",
                          r->type_name, r->type->efa);
    if (q->n_subnets > 1)
        tern_layout_error(l, efa, "EFA works inside one subnet and the queue has %zu. Keep one.",
                          q->n_subnets);
    if (!group && !q->capacity_block)
        tern_layout_error(l, efa,
                          "EFA needs an explicit Networking.PlacementGroup. Add "
                          "'PlacementGroup: {Enabled: true}' to the queue's Networking.");
    else if (group && !r->placement_group)
        tern_layout_warn(l, group,
                         "EFA without a placement group: nodes may lie far apart. Set "
                         "Enabled: true.");
}

static void check_neuron(struct tern_layout *l, const struct tern_yaml_node *m,
                         const struct tern_layout_resource *r)
{
    if (r->type && r->type->chips && !r->type->efa && r->max > 1)
        tern_layout_warn(l, m,
                         "%s has no EFA: NeuronCores of several nodes cannot work on one "
                         "job. Use trn1.32xlarge for multi-node training.",
                         r->type_name);
}

static void read_memory(struct tern_layout *l, const struct tern_yaml_node *m,
                        struct tern_layout_resource *r)
{
    int64_t mib = 0;
    struct tern_yaml_node *n = tern_layout_int(l, m, "SchedulableMemory", 1, INT32_MAX, &mib);

    if (!r->type)
        return;
    if (mib > r->type->memory_mib)
        tern_layout_error(l, n, "%lld MiB are more than the %ld of %s. Lower it.", (long long)mib,
                          r->type->memory_mib, r->type_name);
    r->memory_mib = mib ? mib : r->type->memory_mib * 95 / 100;
}

static void read_resource(struct tern_layout *l, const struct tern_yaml_node *m,
                          const struct inherited *q, struct tern_layout_resource *r)
{
    static const char *const unused[] = {"SpotPrice", "CapacityReservationTarget", "HealthChecks",
                                         "Tags",      "LaunchTemplateOverrides",   NULL};
    const struct tern_yaml_node *group = q->group;
    int64_t weight = 1, dynamic_weight = 1000;
    bool no_smt = false;

    read_type(l, m, r);
    read_counts(l, m, r, q->capacity_block);
    read_memory(l, m, r);
    tern_layout_bool(l, m, "DisableSimultaneousMultithreading", &no_smt);
    r->smt = !no_smt;
    r->placement_group = q->placement_group;
    read_placement_group(l, tern_layout_map(l, m, "Networking", false), &r->placement_group,
                         &group);
    const struct tern_yaml_node *efa = tern_layout_map(l, m, "Efa", false);
    tern_layout_bool(l, efa, "Enabled", &r->efa);
    struct tern_yaml_node *gdr = tern_layout_bool(l, efa, "GdrSupport", &r->gdr);
    if (r->gdr && !r->efa)
        tern_layout_error(l, gdr, "GdrSupport needs Efa.Enabled: true.");
    check_efa(l, m, efa, r, q, group);
    check_neuron(l, m, r);
    tern_layout_int(l, m, "StaticNodePriority", 1, UINT32_MAX, &weight);
    struct tern_yaml_node *dy =
        tern_layout_int(l, m, "DynamicNodePriority", 1, UINT32_MAX, &dynamic_weight);
    if (weight >= dynamic_weight)
        tern_layout_warn(l, dy ? dy : m,
                         "dynamic nodes (priority %lld) would be started before "
                         "idle static ones (%lld) are used.",
                         (long long)dynamic_weight, (long long)weight);
    r->static_weight = weight;
    r->dynamic_weight = dynamic_weight;
    tern_layout_read_settings(l, tern_layout_map(l, m, "CustomSlurmSettings", false),
                              denied_in_resource, &r->custom);
    tern_layout_accept(m, unused);
    tern_layout_no_others(l, m);
}

static void read_resources(struct tern_layout *l, const struct tern_yaml_node *list,
                           const struct inherited *in, struct tern_layout_queue *q)
{
    size_t n = list ? tern_yaml_count(list) : 0;

    if (list && (n == 0 || n > MAX_RESOURCES)) {
        tern_layout_error(l, list, "has %zu entries; 1 to %d are allowed.", n, MAX_RESOURCES);
        return;
    }
    q->resources = n ? tern_alloc(n, sizeof *q->resources, "ComputeResources", NULL) : NULL;
    for (size_t i = 0; q->resources && i < n; i++) {
        const struct tern_yaml_node *m = tern_yaml_at(list, i);
        struct tern_layout_resource *r = &q->resources[q->n_resources++];
        struct tern_err err;
        r->line = tern_yaml_line(m);
        if (tern_yaml_want(m, TERN_YAML_MAP, &err) < 0) {
            tern_layout_note(l, &err);
            continue;
        }
        struct tern_yaml_node *name = tern_layout_text(l, m, "Name", true, &r->name);
        if (name)
            check_name(l, name, r->name);
        for (size_t k = 0; name && k < i; k++)
            if (q->resources[k].name && strcmp(q->resources[k].name, r->name) == 0)
                tern_layout_error(l, name, "'%s' is also the name in line %d. Use another.",
                                  r->name, q->resources[k].line);
        read_resource(l, m, in, r);
    }
}

static void read_queue(struct tern_layout *l, const struct tern_yaml_node *m,
                       struct tern_layout_queue *q)
{
    static const char *const capacities[] = {"ONDEMAND", "SPOT", "CAPACITY_BLOCK", NULL};
    static const char *const unused[] = {"AllocationStrategy",
                                         "CapacityReservationTarget",
                                         "ComputeSettings",
                                         "HealthChecks",
                                         "CustomActions",
                                         "Tags",
                                         "Iam",
                                         "Image",
                                         NULL};
    static const char *const net[] = {"SecurityGroups", "AdditionalSecurityGroups", "Proxy", NULL};
    struct inherited in = {0};
    struct tern_yaml_node *c = tern_yaml_get(m, "CapacityType");
    struct tern_err err;
    int word = TERN_ONDEMAND;
    bool public_ip = false;

    if (tern_yaml_read_word(c, capacities, &word, &err) < 0)
        tern_layout_note(l, &err);
    q->capacity = (enum tern_layout_capacity)word;
    in.capacity_block = q->capacity == TERN_CAPACITY_BLOCK;
    const struct tern_yaml_node *n = tern_layout_map(l, m, "Networking", true);
    struct tern_yaml_node *subnets = tern_layout_list(l, n, "SubnetIds", true);
    in.n_subnets = subnets ? tern_yaml_count(subnets) : 0;
    if (subnets && in.n_subnets == 0)
        tern_layout_error(l, subnets, "is empty. Name a subnet.");
    read_placement_group(l, n, &in.placement_group, &in.group);
    struct tern_yaml_node *ip = tern_layout_bool(l, n, "AssignPublicIp", &public_ip);
    in.public_ip = public_ip ? ip : NULL;
    tern_layout_accept(n, net);
    tern_layout_bool(l, m, "JobExclusiveAllocation", &q->exclusive);
    tern_layout_read_settings(l, tern_layout_map(l, m, "CustomSlurmSettings", false),
                              denied_in_queue, &q->custom);
    read_resources(l, tern_layout_list(l, m, "ComputeResources", true), &in, q);
    tern_layout_accept(m, unused);
    tern_layout_no_others(l, m);
}

void tern_layout_read_queues(struct tern_layout *l, const struct tern_yaml_node *queues)
{
    size_t n = queues ? tern_yaml_count(queues) : 0;

    if (queues && (n == 0 || n > MAX_QUEUES)) {
        tern_layout_error(l, queues, "has %zu entries; 1 to %d are allowed.", n, MAX_QUEUES);
        return;
    }
    l->queues = n ? tern_alloc(n, sizeof *l->queues, "SlurmQueues", NULL) : NULL;
    for (size_t i = 0; l->queues && i < n; i++) {
        const struct tern_yaml_node *m = tern_yaml_at(queues, i);
        struct tern_layout_queue *q = &l->queues[l->n_queues++];
        struct tern_err err;
        q->line = tern_yaml_line(m);
        if (tern_yaml_want(m, TERN_YAML_MAP, &err) < 0) {
            tern_layout_note(l, &err);
            continue;
        }
        struct tern_yaml_node *name = tern_layout_text(l, m, "Name", true, &q->name);
        if (name)
            check_name(l, name, q->name);
        for (size_t k = 0; name && k < i; k++)
            if (l->queues[k].name && strcmp(l->queues[k].name, q->name) == 0)
                tern_layout_error(l, name, "'%s' is also the name in line %d. Use another.",
                                  q->name, l->queues[k].line);
        read_queue(l, m, q);
    }
}
