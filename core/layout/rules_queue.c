/* Rules of queues and compute resources. */
#include "core/layout/rules.h"

#include <stdlib.h>
#include <string.h>

size_t tern_layout_subnets(const struct tern_yaml_node *queue)
{
    return tern_layout_count(tern_layout_list(tern_layout_map(queue, "Networking"), "SubnetIds"));
}

static bool capacity_is(const struct tern_yaml_node *queue, const char *word)
{
    const char *is = tern_layout_text(queue, "CapacityType");

    return strcmp(is ? is : "ONDEMAND", word) == 0;
}

bool tern_layout_is_block(const struct tern_yaml_node *queue)
{
    return capacity_is(queue, "CAPACITY_BLOCK");
}

const struct tern_yaml_node *tern_layout_placement_of(const struct tern_layout_scope *s)
{
    const struct tern_yaml_node *own =
        tern_layout_map(tern_layout_map(s->resource, "Networking"), "PlacementGroup");

    return own ? own : tern_layout_map(tern_layout_map(s->queue, "Networking"), "PlacementGroup");
}

static const char *group_name(const struct tern_yaml_node *group)
{
    const char *name = tern_layout_text(group, "Name");

    name = name && *name ? name : tern_layout_text(group, "Id");
    return name && *name ? name : NULL;
}

bool tern_layout_placement_on(const struct tern_yaml_node *group)
{
    return group_name(group) || tern_layout_bool(group, "Enabled", false);
}

static bool efa_on(const struct tern_layout_scope *s)
{
    return tern_layout_bool(tern_layout_map(s->resource, "Efa"), "Enabled", false);
}

static const struct tern_yaml_node *efa_node(const struct tern_layout_scope *s)
{
    const struct tern_yaml_node *efa = tern_layout_map(s->resource, "Efa");

    return efa ? tern_layout_at(efa, "Enabled", efa) : s->resource;
}

/* ------------------------------------------------------------------ queues */

void tern_layout_rule_subnet_twice(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *list =
        tern_layout_list(tern_layout_map(s->queue, "Networking"), "SubnetIds");

    for (size_t i = 0; i < tern_layout_count(list); i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = tern_layout_as_text(tern_yaml_at(list, i));
            const char *b = tern_layout_as_text(tern_yaml_at(list, k));
            if (a && b && strcmp(a, b) == 0)
                tern_layout_found(c, tern_yaml_at(list, i), "'%s' is given twice.", a);
        }
}

void tern_layout_rule_subnets(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (tern_layout_subnets(s->queue) > 1 && !tern_layout_list(s->resource, "Instances"))
        tern_layout_found(c, tern_layout_at(s->resource, "InstanceType", s->resource),
                          "the queue has %zu subnets, and InstanceType works in one.",
                          tern_layout_subnets(s->queue));
}

void tern_layout_rule_group_subnets(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *group = tern_layout_placement_of(s);

    if (tern_layout_subnets(s->queue) > 1 && tern_layout_placement_on(group))
        tern_layout_found(c, group, "a placement group is in one subnet, and the queue has %zu.",
                          tern_layout_subnets(s->queue));
}

void tern_layout_rule_public(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *net = tern_layout_map(s->queue, "Networking");
    const char *legacy =
        tern_layout_text(tern_layout_map(s->root, "DevSettings"), "EfaInterfaceType");

    if (!s->type || !tern_layout_bool(net, "AssignPublicIp", false))
        return;
    if (s->type->efa > 1)
        tern_layout_found(c, tern_yaml_get(net, "AssignPublicIp"),
                          "%s has %d network cards, and EC2 gives a public address to nodes with "
                          "one interface only.",
                          s->type->name, s->type->efa);
    else if (s->type->efa && efa_on(s) && !(legacy && strcmp(legacy, "efa") == 0))
        tern_layout_found(c, tern_yaml_get(net, "AssignPublicIp"),
                          "EFA on %s has an interface of its own since ParallelCluster 3.15, and "
                          "EC2 gives a public address to nodes with one interface only.",
                          s->type->name);
}

void tern_layout_rule_priorities(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *list = tern_layout_list(s->queue, "ComputeResources");
    int64_t most = 0, least = INT64_MAX;

    for (size_t i = 0; i < tern_layout_count(list); i++) {
        const struct tern_yaml_node *m = tern_yaml_at(list, i);
        int64_t min = tern_layout_int(m, "MinCount", 0), max = tern_layout_int(m, "MaxCount", 10);
        int64_t weight = tern_layout_int(m, "StaticNodePriority", 1);
        int64_t dynamic = tern_layout_int(m, "DynamicNodePriority", 1000);
        most = min > 0 && weight > most ? weight : most;
        least = max > min && dynamic < least ? dynamic : least;
    }
    if (most >= least)
        tern_layout_found(c, list,
                          "dynamic nodes (priority %lld) would be started before idle static ones "
                          "(%lld) are used.",
                          (long long)least, (long long)most);
}

/* ------------------------------------------------------------------ sections of both */

void tern_layout_rule_placement_both(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *id = tern_layout_text(s->at, "Id"), *name = tern_layout_text(s->at, "Name");

    if (id && *id && name && *name)
        tern_layout_found(c, tern_yaml_get(s->at, "Id"), "'Id' and 'Name' exclude each other.");
}

void tern_layout_rule_placement_off(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (group_name(s->at) && !tern_layout_bool(s->at, "Enabled", true))
        tern_layout_found(c, tern_yaml_get(s->at, "Enabled"),
                          "the group has the name '%s' and is switched off.", group_name(s->at));
}

void tern_layout_rule_reservation(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *id = tern_layout_text(s->at, "CapacityReservationId");
    const char *arn = tern_layout_text(s->at, "CapacityReservationResourceGroupArn");

    if ((id && *id) == (arn && *arn))
        tern_layout_found(c, s->at,
                          id && *id ? "both an id and a resource group are given."
                                    : "neither an id nor a resource group is given.");
}

void tern_layout_rule_reservation_id(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *id = tern_layout_text(s->at, "CapacityReservationId");

    if (id && *id && !tern_layout_matches("^cr-([0-9a-z]{8}|[0-9a-z]{17})$", id))
        tern_layout_found(c, tern_yaml_get(s->at, "CapacityReservationId"),
                          "EC2 refuses '%s': it is no id of a reservation.", id);
}

void tern_layout_rule_reservation_arn(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *arn = tern_layout_text(s->at, "CapacityReservationResourceGroupArn");

    if (arn && *arn && !tern_layout_matches("^arn:[^:]+:resource-groups:[^:]+:[^:]*:group/.", arn))
        tern_layout_found(c, tern_yaml_get(s->at, "CapacityReservationResourceGroupArn"),
                          "EC2 refuses '%s': it is no ARN of a resource group.", arn);
}

/* The CapacityReservationTarget that counts for a resource, or NULL. */
static const struct tern_yaml_node *reservation_of(const struct tern_layout_scope *s)
{
    const struct tern_yaml_node *own = tern_layout_map(s->resource, "CapacityReservationTarget");

    return own ? own : tern_layout_map(s->queue, "CapacityReservationTarget");
}

static const char *reservation_id(const struct tern_yaml_node *target)
{
    const char *id = tern_layout_text(target, "CapacityReservationId");

    return id && *id ? id : NULL;
}

/* ------------------------------------------------------------------ instance types */

bool tern_layout_is_arm(const char *type)
{
    return tern_layout_matches("^([a-z]+[0-9]+g[a-z]*\\.|im4gn|is4gen|p6e-gb|a1\\.)", type) &&
           !tern_str_starts(type, "g4dn.");
}

/* Instance type `i` of a resource and where it stands; NULL after the last. */
static const char *type_at(const struct tern_layout_scope *s, size_t i,
                           const struct tern_yaml_node **ret_at)
{
    const struct tern_yaml_node *list = tern_layout_list(s->resource, "Instances");
    const struct tern_yaml_node *map = list ? NULL : i == 0 ? s->resource : NULL;

    if (i < tern_layout_count(list))
        map = tern_yaml_at(list, i);
    *ret_at = map ? tern_yaml_get(map, "InstanceType") : NULL;
    return map ? tern_layout_as_text(*ret_at) : NULL;
}

static size_t type_count(const struct tern_layout_scope *s)
{
    const struct tern_yaml_node *list = tern_layout_list(s->resource, "Instances");

    return list ? tern_yaml_count(list) : 1;
}

void tern_layout_rule_type_both(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (tern_layout_text(s->resource, "InstanceType") &&
        tern_layout_count(tern_layout_list(s->resource, "Instances")))
        tern_layout_found(c, tern_yaml_get(s->resource, "Instances"),
                          "'InstanceType' and 'Instances' exclude each other.");
}

void tern_layout_rule_type_none(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *type = tern_layout_text(s->resource, "InstanceType");
    const struct tern_yaml_node *own = tern_layout_map(s->resource, "CapacityReservationTarget");

    if (!tern_yaml_get(s->resource, "Instances") && !reservation_id(own) && !(type && *type) &&
        !(tern_yaml_get(s->resource, "InstanceType") && !type))
        tern_layout_found(c, s->resource, "'InstanceType' is missing.");
    if (tern_layout_list(s->resource, "Instances") && type_count(s) == 0 && !type)
        tern_layout_found(c, tern_yaml_get(s->resource, "Instances"), "there is none.");
}

/* The catalogue's name nearest to `type` within its family ("trn1."), or NULL: of types that are
 * not in the catalogue, most exist. */
static const char *near_type(const char *type)
{
    const char *near = tern_layout_instance_near(type);
    size_t family = strcspn(type, ".");

    return near && strncmp(near, type, family + 1) == 0 ? near : NULL;
}

/* Trn1 and Trn2 have few sizes, which are all known: any other is a slip. */
static bool is_no_trainium(const char *type)
{
    return tern_layout_matches("^trn(1|1n|2|2u)(\\.|$)", type) && !tern_layout_instance(type) &&
           strcmp(type, "trn2.3xlarge") != 0 && strcmp(type, "trn2u.48xlarge") != 0;
}

void tern_layout_rule_type_trainium(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    for (size_t i = 0; i < type_count(s); i++) {
        const struct tern_yaml_node *at;
        const char *type = type_at(s, i, &at);
        if (!type || !is_no_trainium(type))
            continue;
        const char *near = near_type(type);
        tern_layout_found(c, at, "EC2 has no '%s'.%s%s%s", type, near ? " Did you mean '" : "",
                          near ? near : "", near ? "'?" : "");
    }
}

void tern_layout_rule_type_unknown(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    for (size_t i = 0; i < type_count(s); i++) {
        const struct tern_yaml_node *at;
        const char *type = type_at(s, i, &at);
        if (!type || tern_layout_instance(type) || is_no_trainium(type))
            continue;
        const char *near = near_type(type);
        tern_layout_found(c, at,
                          "'%s' is not in tern's catalogue: its EFA, network cards, memory and "
                          "price are not checked, and its nodes cannot be rendered.%s%s%s",
                          type, near ? " Did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
}

void tern_layout_rule_type_reserved(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *own = tern_layout_map(s->resource, "CapacityReservationTarget");

    if (!tern_yaml_get(s->resource, "InstanceType") && !tern_yaml_get(s->resource, "Instances") &&
        reservation_id(own))
        tern_layout_found(
            c, own,
            "the instance type is that of the reservation, which only EC2 knows. Its EFA, network "
            "cards and memory are not checked, and its nodes cannot be rendered.");
}

void tern_layout_rule_type_twice(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    for (size_t i = 0; i < type_count(s); i++)
        for (size_t k = 0; k < i; k++) {
            const struct tern_yaml_node *at, *old;
            const char *a = type_at(s, i, &at), *b = type_at(s, k, &old);
            if (a && b && strcmp(a, b) == 0)
                tern_layout_found(c, at, "'%s' is given twice (line %d).", a, tern_yaml_line(old));
        }
}

void tern_layout_rule_type_os(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *os = tern_layout_text(tern_layout_map(s->root, "Image"), "Os");

    for (size_t i = 0; os && i < type_count(s); i++) {
        const struct tern_yaml_node *at;
        const char *type = type_at(s, i, &at);
        if (type && tern_str_starts(type, "p6e-gb200") &&
            tern_layout_matches("^(rhel8|rocky8|rhel9)$", os))
            tern_layout_found(c, at, "%s does not run %s.", type, os);
    }
}

void tern_layout_rule_type_arm(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *head = tern_layout_text(tern_layout_map(s->root, "HeadNode"), "InstanceType");

    for (size_t i = 0; head && i < type_count(s); i++) {
        const struct tern_yaml_node *at;
        const char *type = type_at(s, i, &at);
        if (type && tern_layout_is_arm(type) != tern_layout_is_arm(head))
            tern_layout_found(c, at, "%s has %s processors, and the head node (%s) has %s ones.",
                              type, tern_layout_is_arm(type) ? "ARM" : "x86", head,
                              tern_layout_is_arm(head) ? "ARM" : "x86");
    }
}

void tern_layout_rule_type_group(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    for (size_t i = 0; i < type_count(s); i++) {
        const struct tern_yaml_node *at;
        const char *type = type_at(s, i, &at);
        if (type && tern_layout_placement_on(tern_layout_placement_of(s)) &&
            tern_layout_matches("^(t[0-9]|mac)", type))
            tern_layout_found(c, at, "EC2 puts no %s into a placement group.", type);
    }
}

void tern_layout_rule_type_mixed(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    bool smt = !tern_layout_bool(s->resource, "DisableSimultaneousMultithreading", false);

    for (size_t i = 1; i < type_count(s); i++) {
        const struct tern_yaml_node *at, *first;
        const char *a = type_at(s, 0, &first), *b = type_at(s, i, &at);
        const struct tern_layout_instance *x = a ? tern_layout_instance(a) : NULL;
        const struct tern_layout_instance *y = b ? tern_layout_instance(b) : NULL;
        if (x && y &&
            tern_layout_vcpus(x) / (smt ? 1 : x->threads) !=
                tern_layout_vcpus(y) / (smt ? 1 : y->threads))
            tern_layout_found(c, at, "%s has %d CPUs and %s has %d.", y->name,
                              tern_layout_vcpus(y) / (smt ? 1 : y->threads), x->name,
                              tern_layout_vcpus(x) / (smt ? 1 : x->threads));
    }
}

void tern_layout_rule_flexible(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (tern_layout_list(s->resource, "Instances") && reservation_id(reservation_of(s)))
        tern_layout_found(c, tern_yaml_get(s->resource, "Instances"),
                          "a reservation is of one type.");
}

void tern_layout_rule_strategy(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *is = tern_layout_text(s->queue, "AllocationStrategy");
    bool wrong = false;

    if (!is || !tern_layout_list(s->resource, "Instances"))
        return;
    if (capacity_is(s->queue, "ONDEMAND"))
        wrong = strcmp(is, "lowest-price") != 0 && strcmp(is, "prioritized") != 0;
    else
        wrong = tern_layout_is_block(s->queue) || strcmp(is, "prioritized") == 0;
    if (wrong)
        tern_layout_found(c, tern_yaml_get(s->queue, "AllocationStrategy"),
                          "'%s' is not a strategy for this CapacityType.", is);
}

/* ------------------------------------------------------------------ counts, memory, network */

void tern_layout_rule_counts(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *at = tern_yaml_get(s->resource, "MaxCount");
    int64_t min = tern_layout_int(s->resource, "MinCount", 0);
    int64_t max = tern_layout_int(s->resource, "MaxCount", 10);

    if (max < min)
        tern_layout_found(c, at ? at : tern_yaml_get(s->resource, "MinCount"),
                          "MaxCount %lld%s is less than MinCount %lld.", (long long)max,
                          at ? "" : " (the default)", (long long)min);
}

void tern_layout_rule_block_counts(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    int64_t min = tern_layout_int(s->resource, "MinCount", 0);
    int64_t max = tern_layout_int(s->resource, "MaxCount", 10);

    if (tern_layout_is_block(s->queue) && (min != max || min <= 0))
        tern_layout_found(c, tern_layout_at(s->resource, "MaxCount", s->resource),
                          "a capacity block needs MinCount = MaxCount > 0, and these are %lld and "
                          "%lld.",
                          (long long)min, (long long)max);
}

void tern_layout_rule_block_id(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (tern_layout_is_block(s->queue) && !reservation_id(reservation_of(s)))
        tern_layout_found(c, s->resource, "a capacity block needs its CapacityReservationId.");
}

void tern_layout_rule_block_group(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *group = tern_layout_placement_of(s);

    if (tern_layout_is_block(s->queue) && tern_layout_placement_on(group))
        tern_layout_found(c, group, "a capacity block has a place of its own.");
}

void tern_layout_rule_memory(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *at = tern_yaml_get(s->resource, "SchedulableMemory");
    int64_t mib = tern_layout_int(s->resource, "SchedulableMemory", 1);
    long least = 0;

    for (size_t i = 0; i < type_count(s); i++) {
        const struct tern_yaml_node *where;
        const char *type = type_at(s, i, &where);
        const struct tern_layout_instance *t = type ? tern_layout_instance(type) : NULL;
        least = t && (!least || t->memory_mib < least) ? t->memory_mib : least;
    }
    if (mib < 1)
        tern_layout_found(c, at, "%lld MiB are none.", (long long)mib);
    else if (least && mib > least)
        tern_layout_found(c, at, "%lld MiB are more than the %ld of the instance type.",
                          (long long)mib, least);
}

void tern_layout_rule_efa_type(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    for (size_t i = 0; efa_on(s) && i < type_count(s); i++) {
        const struct tern_yaml_node *at;
        const char *type = type_at(s, i, &at);
        const struct tern_layout_instance *t = type ? tern_layout_instance(type) : NULL;
        if (t && !t->efa)
            tern_layout_found(c, efa_node(s), "%s has no EFA.", type);
    }
}

void tern_layout_rule_efa_off(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (!efa_on(s) && s->type && s->type->efa && tern_layout_subnets(s->queue) < 2)
        tern_layout_found(c, efa_node(s),
                          "%s has %d EFA devices and Efa.Enabled is not true: its nodes would talk "
                          "TCP.",
                          s->type->name, s->type->efa);
}

void tern_layout_rule_efa_gdr(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *efa = tern_layout_map(s->resource, "Efa");

    if (tern_layout_bool(efa, "GdrSupport", false) && !efa_on(s))
        tern_layout_found(c, tern_yaml_get(efa, "GdrSupport"), "GdrSupport needs EFA.");
}

void tern_layout_rule_efa_subnets(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (efa_on(s) && tern_layout_subnets(s->queue) > 1)
        tern_layout_found(c, efa_node(s), "EFA works inside one subnet, and the queue has %zu.",
                          tern_layout_subnets(s->queue));
}

/* Is anything said of a placement group, so that the choice is explicit? */
static bool group_said(const struct tern_yaml_node *group)
{
    return group_name(group) || tern_yaml_get(group, "Enabled");
}

void tern_layout_rule_efa_group(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (efa_on(s) && !tern_layout_is_block(s->queue) && tern_layout_subnets(s->queue) < 2 &&
        !group_said(tern_layout_placement_of(s)))
        tern_layout_found(c, efa_node(s), "EFA needs an explicit Networking.PlacementGroup.");
}

void tern_layout_rule_efa_group_off(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *group = tern_layout_placement_of(s);

    if (efa_on(s) && !tern_layout_is_block(s->queue) && group_said(group) &&
        !tern_layout_placement_on(group))
        tern_layout_found(c, group, "EFA without a placement group: nodes may lie far apart.");
}

void tern_layout_rule_neuron_nodes(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (s->type && s->type->chips && !s->type->efa &&
        tern_layout_int(s->resource, "MaxCount", 10) > 1)
        tern_layout_found(c, tern_layout_at(s->resource, "MaxCount", s->resource),
                          "%s has no EFA: NeuronCores of several nodes cannot work on one job.",
                          s->type->name);
}

void tern_layout_rule_tag_count(struct tern_rules_case *c)
{
    enum { MOST = 40 };
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *lists[] = {tern_layout_list(s->root, "Tags"),
                                            tern_layout_list(s->queue, "Tags"),
                                            tern_layout_list(s->resource, "Tags")};
    const char *seen[MOST + 1];
    size_t n = 0;

    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < tern_layout_count(lists[k]) && n <= MOST; i++) {
            const char *key = tern_layout_text(tern_yaml_at(lists[k], i), "Key");
            size_t old = 0;
            while (key && old < n && strcmp(seen[old], key) != 0)
                old++;
            if (key && old == n)
                seen[n++] = key;
        }
    if (n > MOST)
        tern_layout_found(c, s->resource, "its nodes would have more than %d tags.", MOST);
}
