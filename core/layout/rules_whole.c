/* Rules of the whole file, of settings, and of sections that are in several places. */
#include "core/layout/rules.h"

#include "core/base/json.h"

#include <stdlib.h>
#include <string.h>

static const struct tern_yaml_node *head_of(const struct tern_layout_scope *s)
{
    return tern_layout_map(s->root, "HeadNode");
}

static const struct tern_yaml_node *settings_of(const struct tern_layout_scope *s)
{
    return tern_layout_map(tern_layout_map(s->root, "Scheduling"), "SlurmSettings");
}

bool tern_layout_is_url(const char *text)
{
    return tern_layout_matches("^([hH][tT][tT][pP][sS]:|[sS]3:)", text) &&
           (!tern_layout_matches("^[sS]3:", text) || tern_layout_matches("^s3://.*/", text));
}

/* `empty`: "" is as good as no address. */
static void check_url(struct tern_rules_case *c, const struct tern_yaml_node *map, const char *key,
                      bool empty)
{
    const char *url = tern_layout_text(map, key);

    if (url && !(empty && !*url) && !tern_layout_is_url(url))
        tern_layout_found(c, tern_yaml_get(map, key), "'%s' is no address of a file.", url);
}

/* ------------------------------------------------------------------ the head node */

void tern_layout_rule_image(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *image = tern_layout_map(s->root, "Image");
    const char *os = tern_layout_text(image, "Os");

    if (os && tern_str_starts(os, "rocky") && !tern_yaml_get(image, "CustomAmi"))
        tern_layout_found(c, tern_yaml_get(image, "Os"), "there is no public image of %s.", os);
}

/* The warnings of rules_queue.c's type_unknown, for the head node. */
void tern_layout_rule_head_type(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *type = tern_layout_text(head_of(s), "InstanceType");

    if (!type || tern_layout_instance(type))
        return;
    tern_layout_found(c, tern_yaml_get(head_of(s), "InstanceType"),
                      "'%s' is not in tern's catalogue: its memory and price are not checked.",
                      type);
}

void tern_layout_rule_head_memory(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_layout_instance *t = s->l->head_type;
    double nodes = 0;

    for (size_t i = 0; i < s->l->n_queues; i++)
        for (size_t k = 0; k < s->l->queues[i].n_resources; k++)
            nodes += s->l->queues[i].resources[k].max;
    double need = nodes / 25 + 0.6 < 16 ? nodes / 25 + 0.6 : 16;
    if (t && (double)t->memory_mib / 1024 < need)
        tern_layout_found(c, tern_yaml_get(head_of(s), "InstanceType"),
                          "%.0f nodes need a head node with %.1f GiB, and %s has %.1f.", nodes,
                          need, t->name, (double)t->memory_mib / 1024);
}

void tern_layout_rule_head_efs(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *type = tern_layout_text(head_of(s), "SharedStorageType");

    if (tern_layout_map(head_of(s), "SharedStorageEfsSettings") &&
        !(type && *type == 'E' && strcmp(type, "Efs") == 0))
        tern_layout_found(c, tern_yaml_get(head_of(s), "SharedStorageEfsSettings"),
                          "SharedStorageType is not Efs.");
}

void tern_layout_rule_intel(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *m =
        tern_layout_map(tern_layout_map(s->root, "AdditionalPackages"), "IntelSoftware");

    if (tern_layout_bool(m, "IntelHpcPlatform", false))
        tern_layout_found(c, tern_yaml_get(m, "IntelHpcPlatform"),
                          "no operating system of today has it.");
}

void tern_layout_rule_resources(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *queues =
        tern_layout_list(tern_layout_map(s->root, "Scheduling"), "SlurmQueues");
    size_t n = 0;

    for (size_t i = 0; i < tern_layout_count(queues); i++)
        n += tern_layout_count(tern_layout_list(tern_yaml_at(queues, i), "ComputeResources"));
    if (n > 50)
        tern_layout_found(c, queues, "the queues have %zu compute resources together.", n);
}

void tern_layout_rule_encryption(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *queues =
        tern_layout_list(tern_layout_map(s->root, "Scheduling"), "SlurmQueues");
    bool first = true;

    for (size_t i = 0; i < tern_layout_count(queues); i++) {
        const struct tern_yaml_node *local = tern_layout_map(
            tern_layout_map(tern_yaml_at(queues, i), "ComputeSettings"), "LocalStorage");
        bool is = tern_layout_bool(tern_layout_map(local, "RootVolume"), "Encrypted", true);
        if (i == 0)
            first = is;
        if (is != first)
            tern_layout_found(c, tern_yaml_at(queues, i),
                              "its root volume is %s, unlike the first queue's.",
                              is ? "encrypted" : "not encrypted");
    }
}

/* ------------------------------------------------------------------ SlurmSettings */

void tern_layout_rule_custom_both(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings_of(c->facts);

    if (tern_layout_count(tern_layout_list(m, "CustomSlurmSettings")) &&
        tern_layout_text(m, "CustomSlurmSettingsIncludeFile"))
        tern_layout_found(c, tern_yaml_get(m, "CustomSlurmSettingsIncludeFile"),
                          "CustomSlurmSettings are given, too.");
}

void tern_layout_rule_custom_url(struct tern_rules_case *c)
{
    check_url(c, settings_of(c->facts), "CustomSlurmSettingsIncludeFile", /* empty= */ true);
}

void tern_layout_rule_database_both(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings_of(c->facts);

    if (tern_layout_map(m, "Database") && tern_layout_map(m, "ExternalSlurmdbd"))
        tern_layout_found(c, tern_yaml_get(m, "ExternalSlurmdbd"), "a Database is given, too.");
}

void tern_layout_rule_munge(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings_of(c->facts);

    if (tern_layout_map(m, "ExternalSlurmdbd") && !tern_yaml_get(m, "MungeKeySecretArn"))
        tern_layout_found(c, tern_yaml_get(m, "ExternalSlurmdbd"), "MungeKeySecretArn is missing.");
}

void tern_layout_rule_slurmdbd(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings_of(c->facts);

    if (tern_layout_map(m, "ExternalSlurmdbd"))
        tern_layout_found(c, tern_yaml_get(m, "ExternalSlurmdbd"),
                          "the traffic to it is not encrypted.");
}

/* The key's value is the ARN of a secret, and of no other service's. */
static void check_secret(struct tern_rules_case *c, const struct tern_yaml_node *map,
                         const char *key)
{
    const struct tern_layout_scope *s = c->facts;
    const char *arn = tern_layout_text(map, key);
    const char *region = tern_layout_text(s->root, "Region");
    bool ssm = region && strcmp(region, "us-isob-east-1") == 0;

    if (arn && *arn &&
        !tern_layout_matches("^[^:]*:[^:]*:secretsmanager:[^:]*:[^:]*:secret(:|$)", arn) &&
        !(ssm && tern_layout_matches(":ssm:[^:]*:[^:]*:parameter/", arn)))
        tern_layout_found(c, tern_yaml_get(map, key), "'%s' is no ARN of a secret.", arn);
}

void tern_layout_rule_secret(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    check_secret(c, settings_of(s), "MungeKeySecretArn");
    check_secret(c, tern_layout_map(settings_of(s), "Database"), "PasswordSecretArn");
    check_secret(c, tern_layout_map(s->root, "DirectoryService"), "PasswordSecretArn");
}

void tern_layout_rule_database_uri(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = tern_layout_map(settings_of(c->facts), "Database");
    const char *uri = tern_layout_text(m, "Uri"), *colon = uri ? strrchr(uri, ':') : NULL;
    int64_t port;

    if (uri && *uri &&
        (*uri == '/' || strstr(uri, "://") ||
         (colon && !strchr(colon, ']') && tern_str_int(colon + 1, 0, 65535, &port) < 0)))
        tern_layout_found(c, tern_yaml_get(m, "Uri"), "'%s' is not HOST or HOST:PORT.", uri);
}

/* Each CustomSlurmSettings: of slurm.conf (a list), of a queue or of a resource. */
static const struct tern_yaml_node *custom_of(const struct tern_layout_scope *s)
{
    const struct tern_yaml_node *map = s->resource ? s->resource
                                       : s->queue  ? s->queue
                                                   : settings_of(s);

    return tern_yaml_get(map, "CustomSlurmSettings");
}

/* Settings that ParallelCluster writes itself (its deny-lists). */
static bool denied(const struct tern_layout_scope *s, const char *key)
{
    static const char *const conf[] = {"epilog",
                                       "grestypes",
                                       "launchparameters",
                                       "prolog",
                                       "reconfigflags",
                                       "resumefailprogram",
                                       "resumeprogram",
                                       "resumetimeout",
                                       "slurmctldhost",
                                       "slurmctldlogfile",
                                       "slurmctldparameters",
                                       "slurmdlogfile",
                                       "slurmuser",
                                       "suspendexcnodes",
                                       "suspendprogram",
                                       "suspendtime",
                                       "taskplugin",
                                       "treewidth",
                                       NULL};
    static const char *const accounting[] = {"accountingstoragetype", "accountingstoragehost",
                                             "accountingstorageport", "accountingstorageuser",
                                             "jobacctgathertype",     NULL};
    static const char *const queue[] = {
        "nodes", "partitionname", "resumetimeout", "state", "suspendtime", "oversubscribe", NULL};
    static const char *const resource[] = {"cpus",         "gres",     "nodeaddr",
                                           "nodehostname", "nodename", "state",
                                           "weight",       "features", NULL};
    const char *const *list = s->resource ? resource : s->queue ? queue : conf;

    for (; *list; list++)
        if (strcasecmp(key, *list) == 0)
            return true;
    for (list = accounting; !s->queue && tern_layout_map(settings_of(s), "Database") && *list;
         list++)
        if (strcasecmp(key, *list) == 0)
            return true;
    return false;
}

static void check_denied(struct tern_rules_case *c, const struct tern_yaml_node *map)
{
    for (size_t i = 0; i < tern_layout_count_keys(map); i++)
        if (denied(c->facts, tern_yaml_key(map, i)))
            tern_layout_found(c, tern_yaml_at(map, i),
                              "ParallelCluster sets '%s' itself and refuses it here.",
                              tern_yaml_key(map, i));
}

void tern_layout_rule_setting_denied(struct tern_rules_case *c)
{
    const struct tern_yaml_node *n = custom_of(c->facts);

    for (size_t i = 0; i < tern_layout_count(n); i++)
        if (tern_layout_count_keys(tern_yaml_at(n, i)) == 1) /* several are a node of one's own */
            check_denied(c, tern_yaml_at(n, i));
    check_denied(c, n);
}

static void check_setting(struct tern_rules_case *c, const struct tern_yaml_node *map)
{
    for (size_t i = 0; i < tern_layout_count_keys(map); i++) {
        const struct tern_yaml_node *v = tern_yaml_at(map, i);
        const char *key = tern_yaml_key(map, i), *text = tern_yaml_text(v);
        if (!tern_layout_matches("^[A-Za-z][A-Za-z0-9_]*$", key))
            tern_layout_found(c, v, "'%s' is not the name of a Slurm setting.", key);
        else if (!text || tern_layout_kind(v) == TERN_LAYOUT_NULL || strpbrk(text, "\n\r"))
            tern_layout_found(c, v, "is not a single value.");
    }
}

void tern_layout_rule_setting_value(struct tern_rules_case *c)
{
    const struct tern_yaml_node *n = custom_of(c->facts);

    for (size_t i = 0; i < tern_layout_count(n); i++)
        check_setting(c, tern_yaml_at(n, i));
    check_setting(c, n);
}

void tern_layout_rule_setting_nodes(struct tern_rules_case *c)
{
    const struct tern_yaml_node *list = custom_of(c->facts);

    for (size_t i = 0; i < tern_layout_count(list); i++) {
        const struct tern_yaml_node *m = tern_yaml_at(list, i);
        for (size_t k = 0; k < tern_layout_count_keys(m); k++) {
            const char *name = tern_yaml_text(tern_yaml_at(m, k));
            if (name && strcasecmp(tern_yaml_key(m, k), "NodeName") == 0 &&
                (strstr(name, "-st-") || strstr(name, "-dy-")))
                tern_layout_found(c, tern_yaml_at(m, k),
                                  "'%s': names with -st- and -dy- are ParallelCluster's.", name);
        }
    }
}

/* ------------------------------------------------------------------ other services */

void tern_layout_rule_domain(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *m = tern_layout_map(s->root, "DirectoryService");
    const char *name = tern_layout_text(m, "DomainName");

    if (name && *name &&
        !tern_layout_matches("^[a-zA-Z0-9_-]+(\\.[a-zA-Z0-9_-]+)*$|"
                             "^(DC|dc)=[a-zA-Z0-9_-]+(,(DC|dc)=[a-zA-Z0-9_-]+)*$",
                             name))
        tern_layout_found(c, tern_yaml_get(m, "DomainName"), "'%s' is no domain.", name);
}

void tern_layout_rule_sssd(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *m = tern_layout_map(s->root, "DirectoryService");
    const struct tern_yaml_node *own = tern_layout_map(m, "AdditionalSssdConfigs");
    const struct tern_yaml_node *id = tern_yaml_get(own, "id_provider");
    const struct tern_yaml_node *access = tern_yaml_get(own, "access_provider");
    const char *a = id ? tern_layout_as_text(id) : "ldap";
    const char *b = access ? tern_layout_as_text(access) : "ldap";

    if (!a || strcmp(a, "ldap") != 0)
        tern_layout_found(c, id, "id_provider is ldap.");
    if (tern_yaml_get(m, "LdapAccessFilter") && (!b || strcmp(b, "ldap") != 0))
        tern_layout_found(c, access, "LdapAccessFilter needs the access_provider ldap.");
}

void tern_layout_rule_prefix(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *m = tern_layout_map(s->root, "Iam");
    const char *prefix = tern_layout_text(m, "ResourcePrefix");
    const char *name = prefix ? strrchr(prefix, '/') : NULL;

    if (!prefix || !*prefix)
        return;
    name = name ? name + 1 : prefix;
    if (!tern_layout_matches("^(/[a-zA-Z0-9_.,+@=-]+)+/|^[a-zA-Z0-9_.,+@=-]+$", prefix) ||
        strlen(name) > 30 || name - prefix > 512)
        tern_layout_found(c, tern_yaml_get(m, "ResourcePrefix"),
                          "'%s' is no prefix of names in IAM.", prefix);
}

void tern_layout_rule_dev_url(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *m = tern_layout_map(s->root, "DevSettings");

    check_url(c, m, "NodePackage", /* empty= */ true);
    check_url(c, m, "ClusterTemplate", /* empty= */ true);
    check_url(c, tern_layout_map(m, "Cookbook"), "ChefCookbook", /* empty= */ false);
}

void tern_layout_rule_chef(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *m =
        tern_layout_map(tern_layout_map(s->root, "DevSettings"), "Cookbook");
    const char *text = tern_layout_text(m, "ExtraChefAttributes");
    json_error_t error;

    if (!text || !*text)
        return;
    json_t *all = json_loads(text, JSON_DECODE_ANY, &error);
    json_t *cluster = json_object_get(all, "cluster");
    json_t *timeout = json_object_get(json_object_get(cluster, "slurm"), "reconfigure_timeout");
    if (!all)
        tern_layout_found(c, tern_yaml_get(m, "ExtraChefAttributes"), "is no JSON: %s.",
                          error.text);
    else if (timeout && (!json_is_integer(timeout) || json_integer_value(timeout) <= 300))
        tern_layout_found(c, tern_yaml_get(m, "ExtraChefAttributes"),
                          "cluster.slurm.reconfigure_timeout is a number above 300.");
    json_decref(all);
}

void tern_layout_rule_logs(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *m =
        tern_layout_map(tern_layout_map(s->root, "Monitoring"), "Logs");

    if (!tern_layout_bool(tern_layout_map(m, "CloudWatch"), "Enabled", true) &&
        tern_layout_bool(tern_layout_map(m, "Rotation"), "Enabled", true))
        tern_layout_found(c, m, "logs are rotated away and go to no CloudWatch.");
}

/* ------------------------------------------------------------------ sections of several places */

void tern_layout_rule_tag_reserved(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    for (size_t i = 0; i < tern_layout_count(s->at); i++) {
        const struct tern_yaml_node *m = tern_yaml_at(s->at, i);
        const char *key = tern_layout_text(m, "Key");
        if (key && ((tern_str_starts(key, "parallelcluster:") &&
                     strcmp(key, "parallelcluster:custom_resource") != 0) ||
                    tern_layout_matches("^[aA][wW][sS]:", key)))
            tern_layout_found(c, tern_yaml_get(m, "Key"), "names with '%.*s' are %s.",
                              (int)strcspn(key, ":") + 1, key,
                              *key == 'p' ? "ParallelCluster's" : "Amazon's");
    }
}

void tern_layout_rule_tag_twice(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    for (size_t i = 0; i < tern_layout_count(s->at); i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = tern_layout_text(tern_yaml_at(s->at, i), "Key");
            const char *b = tern_layout_text(tern_yaml_at(s->at, k), "Key");
            if (a && b && strcmp(a, b) == 0)
                tern_layout_found(c, tern_yaml_get(tern_yaml_at(s->at, i), "Key"),
                                  "the tag '%s' is given twice (line %d).", a,
                                  tern_yaml_line(tern_yaml_at(s->at, k)));
        }
}

static bool has(const struct tern_yaml_node *map, const char *key)
{
    const struct tern_yaml_node *n = tern_yaml_get(map, key);

    return n && (tern_yaml_kind(n) == TERN_YAML_TEXT ? *tern_yaml_text(n) != '\0'
                                                     : tern_yaml_count(n) > 0);
}

void tern_layout_rule_iam_both(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    int n = has(s->at, "InstanceRole") + has(s->at, "InstanceProfile") +
            has(s->at, "AdditionalIamPolicies");

    if (n > 1)
        tern_layout_found(c, s->at,
                          "InstanceRole, InstanceProfile and AdditionalIamPolicies exclude each "
                          "other.");
}

void tern_layout_rule_iam_s3(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (has(s->at, "S3Access") && (has(s->at, "InstanceRole") || has(s->at, "InstanceProfile")))
        tern_layout_found(c, tern_yaml_get(s->at, "S3Access"),
                          "a role or profile of your own has its own rights.");
}

void tern_layout_rule_groups(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    if (has(s->at, "SecurityGroups") && has(s->at, "AdditionalSecurityGroups"))
        tern_layout_found(c, tern_yaml_get(s->at, "AdditionalSecurityGroups"),
                          "SecurityGroups are given, too.");
}

void tern_layout_rule_script(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    check_url(c, s->at, "Script", /* empty= */ false);
}

void tern_layout_rule_name(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *name = tern_layout_text(s->at, "Name");

    if (name && (strlen(name) > 25 || !tern_layout_matches("^[a-z][a-z0-9-]*$", name)))
        tern_layout_found(c, tern_yaml_get(s->at, "Name"), "'%s' is not a name.", name);
}

void tern_layout_rule_name_taken(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *name = tern_layout_text(s->at, "Name");

    if (name && strcmp(name, "default") == 0)
        tern_layout_found(c, tern_yaml_get(s->at, "Name"), "'default' is ParallelCluster's.");
}

void tern_layout_rule_name_nodes(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *name = tern_layout_text(s->at, "Name");

    if (name && tern_layout_matches("-(st|dy)(-|$)", name))
        tern_layout_found(c, tern_yaml_get(s->at, "Name"),
                          "'%s' holds -st or -dy, which node names are split at "
                          "(queue-st-resource-1).",
                          name);
}

void tern_layout_rule_name_twice(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *name = tern_layout_text(s->at, "Name");

    for (size_t i = 0; name && i < s->i; i++) {
        const char *old = tern_layout_text(tern_yaml_at(s->list, i), "Name");
        if (old && strcmp(old, name) == 0) {
            tern_layout_found(c, tern_yaml_get(s->at, "Name"), "'%s' is also the name in line %d.",
                              name, tern_yaml_line(tern_yaml_at(s->list, i)));
            return;
        }
    }
}

void tern_layout_rule_pool_type(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *type = tern_layout_text(s->at, "InstanceType");

    if (type && !tern_layout_instance(type))
        tern_layout_found(c, tern_yaml_get(s->at, "InstanceType"),
                          "'%s' is not in tern's catalogue: its price is not checked.", type);
}
