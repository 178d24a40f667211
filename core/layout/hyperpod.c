/* Keys and ranges: the model of CreateCluster that AWS's own tools have (botocore 1.44).
 *
 * SageMaker HyperPod's files beside each other.  They are cluster-config.json (create-cluster's
 * input, or its list of instance groups), provisioning_parameters.json (what the lifecycle scripts
 * read) and the file system (what `aws fsx describe-file-systems` prints).  AWS's own check of the
 * first two keeps only its last verdict, and always ends with 0. */
#include "core/layout/keys.h"
#include "core/layout/notes.h"
#include "core/layout/rules.h"
#include "core/layout/vars.h"

#include "core/base/json.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ keys */

enum { MOST_NODES = 6758 };

static const struct tern_layout_form
    name_form = {"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$", "trn1-workers"},
    type_form = {"^ml\\.[a-z0-9-]+\\.[a-z0-9]+$", "ml.trn1.32xlarge"},
    s3_form = {"^(https|s3)://[^/]+/?", "s3://my-bucket/lifecycle"},
    role_form = {"^arn:aws[a-z-]*:iam::[0-9]{12}:role/", "arn:aws:iam::123456789012:role/name"},
    group_form = {"^sg-[0-9a-z]+$", "sg-0123456789abcdef0"},
    subnet_form = {"^subnet-[0-9a-z]+$", "subnet-0123456789abcdef0"};

static const struct tern_layout_key vpc_keys[] = {
    {.name = "SecurityGroupIds",
     .type = TEXTS,
     .required = true,
     .lo = 1,
     .hi = 5,
     .form = &group_form},
    {.name = "Subnets", .type = TEXTS, .required = true, .lo = 1, .hi = 16, .form = &subnet_form},
    {0},
};

static const struct tern_layout_key lifecycle_keys[] = {
    {.name = "SourceS3Uri", .type = TEXT, .form = &s3_form, .lo = 0, .hi = 1024},
    {.name = "OnCreate", .type = TEXT, .lo = 1, .hi = 128},
    {.name = "OnInitComplete", .type = TEXT, .lo = 1, .hi = 128},
    {0},
};

static const struct tern_layout_key volume_keys[] = {
    {.name = "VolumeSizeInGB", .type = INT, .lo = 1, .hi = 16384},
    {.name = "VolumeKmsKeyId", .type = TEXT},
    {.name = "RootVolume", .type = BOOL},
    {0},
};

static const struct tern_layout_key storage_keys[] = {
    {.name = "EbsVolumeConfig", .type = MAP, .of = volume_keys},
    {.name = "FsxLustreConfig", .type = ANY},
    {.name = "FsxOpenZfsConfig", .type = ANY},
    {0},
};

static const struct tern_layout_key slurm_keys[] = {
    {.name = "NodeType", .type = TEXT, .required = true, .words = "Controller|Login|Compute"},
    {.name = "PartitionNames", .type = TEXTS, .lo = 0, .hi = 1},
    {0},
};

static const struct tern_layout_key interface_keys[] = {
    {.name = "InterfaceType", .type = TEXT, .words = "efa|efa-only"},
    {0},
};

static const struct tern_layout_key group_keys[] = {
    {.name = "InstanceGroupName", .type = TEXT, .required = true, .form = &name_form},
    {.name = "InstanceType", .type = TEXT, .form = &type_form},
    {.name = "InstanceRequirements", .type = ANY},
    {.name = "InstanceCount", .type = INT, .required = true, .lo = 0, .hi = MOST_NODES},
    {.name = "MinInstanceCount", .type = INT, .lo = 0, .hi = MOST_NODES},
    {.name = "LifeCycleConfig", .type = MAP, .of = lifecycle_keys},
    {.name = "ExecutionRole",
     .type = TEXT,
     .required = true,
     .form = &role_form,
     .lo = 20,
     .hi = 2048},
    {.name = "ThreadsPerCore", .type = INT, .words = "1|2"},
    {.name = "InstanceStorageConfigs", .type = LIST, .lo = 0, .hi = 4, .of = storage_keys},
    {.name = "OnStartDeepHealthChecks",
     .type = TEXTS,
     .words = "InstanceStress|InstanceConnectivity"},
    {.name = "OverrideVpcConfig", .type = MAP, .of = vpc_keys},
    {.name = "TrainingPlanArn", .type = TEXT},
    {.name = "SlurmConfig", .type = MAP, .of = slurm_keys},
    {.name = "NetworkInterface", .type = MAP, .of = interface_keys},
    {.name = "ImageId", .type = TEXT},
    {.name = "ImageReleaseVersion", .type = TEXT},
    {.name = "AutoPatchConfig", .type = ANY},
    {.name = "ScheduledUpdateConfig", .type = ANY},
    {.name = "CapacityRequirements", .type = ANY},
    {.name = "KubernetesConfig", .type = ANY},
    {0},
};

static const struct tern_layout_key strategy_keys[] = {
    {.name = "SlurmConfigStrategy", .type = TEXT, .words = "Overwrite|Managed|Merge"},
    {.name = "AccountingDatabase", .type = ANY},
    {0},
};

static const struct tern_layout_key orchestrator_keys[] = {
    {.name = "Slurm", .type = MAP, .of = strategy_keys},
    {.name = "Eks", .type = ANY},
    {0},
};

static const struct tern_layout_key cluster_keys[] = {
    {.name = "ClusterName", .type = TEXT, .required = true, .form = &name_form},
    {.name = "InstanceGroups",
     .type = LIST,
     .required = true,
     .lo = 1,
     .hi = INT64_MAX,
     .of = group_keys},
    {.name = "VpcConfig", .type = MAP, .of = vpc_keys},
    {.name = "NodeRecovery", .type = TEXT, .words = "Automatic|None"},
    {.name = "Orchestrator", .type = MAP, .of = orchestrator_keys},
    {.name = "Tags", .type = ANY},
    {.name = "ClusterRole", .type = TEXT},
    {.name = "AutoScaling", .type = ANY},
    {.name = "NodeProvisioningMode", .type = TEXT},
    {.name = "RestrictedInstanceGroups", .type = ANY},
    {.name = "RestrictedInstanceGroupsConfig", .type = ANY},
    {.name = "TieredStorageConfig", .type = ANY},
    {0},
};

static const struct tern_layout_key worker_keys[] = {
    {.name = "instance_group_name", .type = TEXT, .required = true},
    {.name = "partition_name", .type = TEXT, .required = true},
    {0},
};

static const struct tern_layout_key parameter_keys[] = {
    {.name = "version", .type = TEXT, .required = true},
    {.name = "workload_manager", .type = TEXT, .required = true, .words = "slurm"},
    {.name = "controller_group", .type = TEXT, .required = true},
    {.name = "login_group", .type = TEXT},
    {.name = "worker_groups",
     .type = LIST,
     .required = true,
     .lo = 1,
     .hi = INT64_MAX,
     .of = worker_keys},
    {.name = "fsx_dns_name", .type = TEXT},
    {.name = "fsx_mountname", .type = TEXT},
    {.name = "fsx_openzfs_dns_name", .type = TEXT},
    {.name = "slurm_configurations", .type = ANY},
    {0},
};

/* ------------------------------------------------------------------ facts */

/* NULL: that file was not given, or says nothing. */
struct pod {
    const struct tern_yaml_node *groups, *cluster; /* cluster: NULL for a bare list of groups */
    const struct tern_yaml_node *parameters;
    const struct tern_yaml_node *fsx; /* one file system */
};

/* The instance group of that name, or NULL. */
static const struct tern_yaml_node *find_group(const struct pod *p, const char *name)
{
    for (size_t i = 0; i < tern_layout_count(p->groups); i++) {
        const struct tern_yaml_node *g = tern_yaml_at(p->groups, i);
        const char *is = tern_layout_text(g, "InstanceGroupName");
        if (is && strcmp(is, name) == 0)
            return g;
    }
    return NULL;
}

struct part {
    const struct tern_yaml_node *at; /* the node that names its group */
    const char *group, *partition;   /* partition: of workers */
    const char *type;                /* Controller, Login, Compute */
};

/* The i-th part of the cluster that provisioning_parameters.json names; false after the last. */
static bool get_part(const struct pod *p, size_t i, struct part *ret_part)
{
    const struct tern_yaml_node *workers = tern_layout_list(p->parameters, "worker_groups");
    static const char *const keys[] = {"controller_group", "login_group"};
    static const char *const types[] = {"Controller", "Login"};

    *ret_part = (struct part){0};
    if (i < 2) {
        ret_part->at = tern_yaml_get(p->parameters, keys[i]);
        ret_part->group = tern_layout_text(p->parameters, keys[i]);
        ret_part->type = types[i];
        return true;
    }
    if (i - 2 >= tern_layout_count(workers))
        return false;
    const struct tern_yaml_node *w = tern_yaml_at(workers, i - 2);
    ret_part->at = tern_yaml_get(w, "instance_group_name");
    ret_part->group = tern_layout_text(w, "instance_group_name");
    ret_part->partition = tern_layout_text(w, "partition_name");
    ret_part->type = "Compute";
    return true;
}

/* A text of the parameters that is not empty, or NULL. */
static const char *parameter(const struct pod *p, const char *key)
{
    const char *text = tern_layout_text(p->parameters, key);

    return text && *text ? text : NULL;
}

/* ------------------------------------------------------------------ rules */

static void rule_missing(struct tern_rules_case *c)
{
    const struct pod *p = c->facts;
    const char *names[64];
    size_t n = 0;
    struct part part;

    for (size_t i = 0; i < tern_layout_count(p->groups) && n < 63; i++) {
        const char *name = tern_layout_text(tern_yaml_at(p->groups, i), "InstanceGroupName");
        if (name)
            names[n++] = name;
    }
    names[n] = NULL;
    for (size_t i = 0; p->groups && get_part(p, i, &part); i++) {
        if (!part.group || find_group(p, part.group))
            continue;
        const char *near = tern_str_nearest(part.group, names);
        tern_layout_found(c, part.at, "cluster-config.json has no instance group '%s'%s%s%s",
                          part.group, near ? "; did you mean '" : "", near ? near : "",
                          near ? "'?" : ".");
    }
}

static void rule_twice(struct tern_rules_case *c)
{
    const struct pod *p = c->facts;
    struct part a, b;

    for (size_t i = 0; i < tern_layout_count(p->groups); i++) {
        const struct tern_yaml_node *g = tern_yaml_at(p->groups, i);
        const char *name = tern_layout_text(g, "InstanceGroupName");
        if (name && find_group(p, name) != g)
            tern_layout_found(c, tern_layout_at(g, "InstanceGroupName", g),
                              "a second instance group '%s'.", name);
    }
    for (size_t i = 0; get_part(p, i, &a); i++)
        for (size_t k = 0; k < i && a.group; k++)
            if (get_part(p, k, &b) && b.group && strcmp(a.group, b.group) == 0)
                tern_layout_found(c, a.at, "'%s' is named on line %d, too.", a.group,
                                  tern_yaml_line(b.at));
}

static void rule_unused(struct tern_rules_case *c)
{
    const struct pod *p = c->facts;
    struct part part;

    for (size_t i = 0; p->parameters && i < tern_layout_count(p->groups); i++) {
        const struct tern_yaml_node *g = tern_yaml_at(p->groups, i);
        const char *name = tern_layout_text(g, "InstanceGroupName");
        bool used = false;
        for (size_t k = 0; name && get_part(p, k, &part); k++)
            used |= part.group && strcmp(part.group, name) == 0;
        if (name && !used)
            tern_layout_found(c, tern_layout_at(g, "InstanceGroupName", g),
                              "provisioning_parameters.json does not name group '%s'.", name);
    }
}

static void rule_count(struct tern_rules_case *c)
{
    const struct pod *p = c->facts;
    const char *name = parameter(p, "controller_group");
    const struct tern_yaml_node *g = name ? find_group(p, name) : NULL;
    const int64_t n = tern_layout_int(g, "InstanceCount", 1);

    if (n != 1 && !tern_yaml_get(p->parameters, "slurm_configurations"))
        tern_layout_found(c, tern_layout_at(g, "InstanceCount", g),
                          "group '%s' is the controller's and has InstanceCount %lld.", name,
                          (long long)n);
    for (size_t i = 0; i < tern_layout_count(p->groups); i++) {
        g = tern_yaml_at(p->groups, i);
        const int64_t least = tern_layout_int(g, "MinInstanceCount", 0);
        const int64_t most = tern_layout_int(g, "InstanceCount", INT64_MAX);
        if (least > most)
            tern_layout_found(c, tern_layout_at(g, "MinInstanceCount", g),
                              "MinInstanceCount %lld is more than InstanceCount %lld.",
                              (long long)least, (long long)most);
    }
}

static void rule_lifecycle(struct tern_rules_case *c)
{
    static const char *const keys[] = {"SourceS3Uri", "OnCreate"};
    const struct pod *p = c->facts;
    const struct tern_yaml_node *first = NULL;

    for (size_t i = 0; i < tern_layout_count(p->groups); i++) {
        const struct tern_yaml_node *m =
            tern_layout_map(tern_yaml_at(p->groups, i), "LifeCycleConfig");
        first = first ? first : m;
        for (size_t k = 0; k < 2; k++) {
            const char *a = tern_layout_text(first, keys[k]), *b = tern_layout_text(m, keys[k]);
            if (a && b && strcmp(a, b) != 0)
                tern_layout_found(c, tern_layout_at(m, keys[k], m),
                                  "%s is '%s', but '%s' on line %d.", keys[k], b, a,
                                  tern_yaml_line(tern_layout_at(first, keys[k], first)));
        }
    }
}

/* What the API says of a group, and what the scripts say. */
static void rule_slurm(struct tern_rules_case *c)
{
    const struct pod *p = c->facts;
    struct part part;

    for (size_t i = 0; get_part(p, i, &part); i++) {
        const struct tern_yaml_node *g = part.group ? find_group(p, part.group) : NULL;
        const struct tern_yaml_node *slurm = tern_layout_map(g, "SlurmConfig");
        const struct tern_yaml_node *names = tern_layout_list(slurm, "PartitionNames");
        const char *type = tern_layout_text(slurm, "NodeType");
        const char *partition =
            tern_layout_count(names) ? tern_layout_as_text(tern_yaml_at(names, 0)) : NULL;
        if (type && strcmp(type, part.type) != 0)
            tern_layout_found(c, tern_yaml_get(slurm, "NodeType"),
                              "group '%s' is %s here, and %s in provisioning_parameters.json.",
                              part.group, type, part.type);
        if (partition && part.partition && strcmp(partition, part.partition) != 0)
            tern_layout_found(c, names,
                              "the partition of group '%s' is '%s' here, and '%s' in "
                              "provisioning_parameters.json.",
                              part.group, partition, part.partition);
    }
}

static void rule_fsx_pair(struct tern_rules_case *c)
{
    static const char *const keys[] = {"fsx_dns_name", "fsx_mountname"};
    const struct pod *p = c->facts;
    const char *name = parameter(p, keys[0]);

    for (size_t i = 0; i < 2; i++)
        if (parameter(p, keys[i]) && !parameter(p, keys[!i]))
            tern_layout_found(c, tern_yaml_get(p->parameters, keys[i]), "%s without %s.", keys[i],
                              keys[!i]);
    if (name && !strstr(name, "${") &&
        !tern_layout_matches("^fs-[0-9a-f]{8,17}\\.fsx\\.[a-z0-9-]+\\.amazonaws\\.com(\\.cn)?$",
                             name))
        tern_layout_found(c, tern_yaml_get(p->parameters, keys[0]),
                          "'%s' is no host of a file system.", name);
}

static void rule_fsx_other(struct tern_rules_case *c)
{
    const struct pod *p = c->facts;
    const struct tern_yaml_node *lustre = tern_layout_map(p->fsx, "LustreConfiguration");
    const char *id = tern_layout_text(p->fsx, "FileSystemId");
    const char *dns = parameter(p, "fsx_dns_name"), *mount = parameter(p, "fsx_mountname");
    const char *is_mount = tern_layout_text(lustre, "MountName");

    if (id && dns && (strncmp(dns, id, strlen(id)) != 0 || dns[strlen(id)] != '.'))
        tern_layout_found(c, tern_yaml_get(p->parameters, "fsx_dns_name"),
                          "'%s' is not of file system %s (%s, line %d).", dns, id,
                          tern_yaml_file(p->fsx), tern_yaml_line(p->fsx));
    if (mount && is_mount && strcmp(mount, is_mount) != 0)
        tern_layout_found(c, tern_yaml_get(p->parameters, "fsx_mountname"),
                          "'%s' is not its mount name, which is '%s' (%s).", mount, is_mount,
                          tern_yaml_file(p->fsx));
}

static bool in_list(const struct tern_yaml_node *list, const char *text)
{
    bool found = false;

    for (size_t i = 0; i < tern_layout_count(list); i++) {
        const char *is = tern_layout_as_text(tern_yaml_at(list, i));
        found |= is && strcmp(is, text) == 0;
    }
    return found;
}

static void rule_fsx_network(struct tern_rules_case *c)
{
    const struct pod *p = c->facts;
    const struct tern_yaml_node *vpc = tern_layout_map(p->cluster, "VpcConfig");
    const struct tern_yaml_node *subnets = tern_layout_list(vpc, "Subnets");
    const struct tern_yaml_node *theirs = tern_layout_list(p->fsx, "SubnetIds");
    const char *subnet =
        tern_layout_count(theirs) ? tern_layout_as_text(tern_yaml_at(theirs, 0)) : NULL;

    if (p->cluster && !vpc && parameter(p, "fsx_dns_name"))
        tern_layout_found(c, p->cluster, "no VpcConfig, so that nodes do not reach %s.",
                          parameter(p, "fsx_dns_name"));
    if (vpc && subnet && !in_list(subnets, subnet))
        tern_layout_found(c, tern_layout_at(vpc, "Subnets", vpc),
                          "the file system is in %s, which is not one of the nodes' (%s).", subnet,
                          tern_yaml_file(p->fsx));
}

static const struct tern_rule rules[] = {
    {"pod-group-missing", TERN_RULES_ERROR, 1, rule_missing,
     "each group of provisioning_parameters.json is an instance group", "Give both the same name."},
    {"pod-group-twice", TERN_RULES_ERROR, 1, rule_twice, "a group has one name and one part",
     "Keep one."},
    {"pod-group-unused", TERN_RULES_WARN, 1, rule_unused,
     "each instance group is the controller, a login or a worker group",
     "Add it to worker_groups, or remove it."},
    {"pod-count", TERN_RULES_ERROR, 1, rule_count, "HyperPod has one controller",
     "Set InstanceCount: 1 for the controller, or lower MinInstanceCount."},
    {"pod-lifecycle", TERN_RULES_WARN, 1, rule_lifecycle,
     "all groups run the same lifecycle script", "Write the same for all groups."},
    {"pod-slurm", TERN_RULES_ERROR, 1, rule_slurm,
     "SlurmConfig says of a group what the scripts say", "Write the same in both."},
    {"pod-fsx-pair", TERN_RULES_ERROR, 1, rule_fsx_pair,
     "the file system has a host and a mount name",
     "Write DNSName and MountName of `aws fsx describe-file-systems`."},
    {"pod-fsx-other", TERN_RULES_ERROR, 1, rule_fsx_other,
     "the file system is the one that was described", "Write the one that is mounted."},
    {"pod-fsx-network", TERN_RULES_WARN, 1, rule_fsx_network,
     "nodes are in the file system's network", "Put both into one subnet."},
};
enum { N_RULES = sizeof rules / sizeof *rules };

const struct tern_rule *tern_layout_hyperpod_rule(size_t i)
{
    return i < N_RULES ? &rules[i] : NULL;
}

/* ------------------------------------------------------------------ files */

static bool has(const struct tern_yaml_node *map, const char *key)
{
    return tern_yaml_kind(map) == TERN_YAML_MAP && tern_yaml_get(map, key);
}

/* YAML takes "4" for a number, AWS's tools do not. */
static void check_group(struct tern_layout *l, const struct tern_yaml_node *g)
{
    static const char *const numbers[] = {"InstanceCount", "MinInstanceCount", "ThreadsPerCore"};

    if (!tern_yaml_get(g, "InstanceType") && !tern_yaml_get(g, "InstanceRequirements"))
        tern_layout_error(l, "key-missing", g, "'InstanceType' is missing. Add it.");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct tern_yaml_node *n = tern_yaml_get(g, numbers[i]);
        if (n && tern_yaml_kind(n) == TERN_YAML_TEXT && !tern_yaml_is_plain(n))
            tern_layout_error(l, "value-type", n, "\"%s\" is a text. Write it without quotes.",
                              tern_yaml_text(n));
    }
}

/* Which of the files is it?  Its keys are checked. */
static void take(struct tern_layout *l, struct pod *p, const struct tern_yaml_node *root)
{
    const struct tern_yaml_node *systems = tern_layout_list(root, "FileSystems");

    if (tern_yaml_kind(root) == TERN_YAML_LIST) {
        p->groups = root;
        for (size_t i = 0; i < tern_yaml_count(root); i++)
            if (tern_yaml_kind(tern_yaml_at(root, i)) == TERN_YAML_MAP)
                tern_layout_check_keys(l, tern_yaml_at(root, i), group_keys);
    } else if (has(root, "InstanceGroups")) {
        p->cluster = root;
        p->groups = tern_layout_list(root, "InstanceGroups");
        tern_layout_check_keys(l, root, cluster_keys);
    } else if (has(root, "worker_groups") || has(root, "controller_group")) {
        p->parameters = root;
        tern_layout_check_keys(l, root, parameter_keys);
    } else if (tern_layout_count(systems) == 1) {
        p->fsx = tern_yaml_at(systems, 0);
    } else if (has(root, "FileSystemId")) {
        p->fsx = root;
    } else {
        tern_layout_error(l, "pod-file", root,
                          "is neither cluster-config.json (InstanceGroups) nor "
                          "provisioning_parameters.json (worker_groups), nor one file system of "
                          "`aws fsx describe-file-systems`. Name one of these.");
    }
}

struct tern_layout *tern_layout_check_hyperpod(char *const *paths, size_t n, const char *vars,
                                               struct tern_err *err)
{
    enum { MAX_BYTES = 1 << 20, MAX_FILES = 8 };
    struct tern_layout *l = tern_alloc(1, sizeof *l, "findings", err);
    struct tern_yaml *docs[MAX_FILES] = {NULL};
    struct pod p = {0};
    struct tern_rules_case c = {.facts = &p, .to = l};
    int rc = l ? 0 : -1;

    if (rc == 0 && n > MAX_FILES)
        rc = tern_err_set(err, TERN_USAGE, "%zu files of JSON; HyperPod has three.", n);
    if (rc == 0 && vars && !(l->vars = tern_layout_vars_load(vars, err)))
        rc = -1;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        json_t *strict = tern_json_load(paths[i], MAX_BYTES, err); /* what YAML would let pass */
        docs[i] = strict ? tern_yaml_load_1_1(paths[i], err) : NULL;
        json_decref(strict);
        if (docs[i] && l->vars)
            tern_layout_vars_fill(l, l->vars, tern_yaml_root(docs[i]));
        if (docs[i])
            take(l, &p, tern_yaml_root(docs[i]));
        else
            rc = -1;
    }
    if (rc == 0) {
        l->path = tern_strdup(paths[0]);
        for (size_t i = 0; i < tern_layout_count(p.groups); i++)
            if (tern_yaml_kind(tern_yaml_at(p.groups, i)) == TERN_YAML_MAP)
                check_group(l, tern_yaml_at(p.groups, i));
        tern_rules_apply(rules, N_RULES, 1, &c);
    }
    for (size_t i = 0; i < MAX_FILES; i++)
        tern_yaml_free(docs[i]);
    if (rc < 0) {
        tern_layout_free(l);
        return NULL;
    }
    return l;
}
