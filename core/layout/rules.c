/* The rows of the rules between keys, and the sections that each is applied to. */
#include "core/layout/rules.h"

#include "core/layout/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR TERN_RULES_ERROR
#define WARN TERN_RULES_WARN
#define WHOLE TERN_LAYOUT_WHOLE
#define QUEUE TERN_LAYOUT_QUEUE
#define RESOURCE TERN_LAYOUT_RESOURCE
#define STORAGE TERN_LAYOUT_STORAGE
#define POOL TERN_LAYOUT_POOL
#define VOLUME (TERN_LAYOUT_ROOT | TERN_LAYOUT_EBS)
#define rule(name) tern_layout_rule_##name

static const struct tern_rule rules[] = {
    /* the head node and the whole cluster */
    {"image-ami", ERROR, WHOLE, rule(image), "rocky8 and rocky9 have a CustomAmi",
     "Build one (pcluster build-image) and give its CustomAmi, or take another Os."},
    {"head-unknown", WARN, WHOLE, rule(head_type), "the head node's type is in the catalogue",
     "Check them by hand."},
    {"head-memory", ERROR, WHOLE, rule(head_memory), "the head node has memory for all nodes",
     "Take a larger InstanceType, or lower the MaxCounts."},
    {"head-efs", ERROR, WHOLE, rule(head_efs), "SharedStorageEfsSettings have an EFS",
     "Set SharedStorageType: Efs, or remove them."},
    {"intel-hpc", ERROR, WHOLE, rule(intel), "IntelHpcPlatform is off", "Remove it."},
    {"resource-count", ERROR, WHOLE, rule(resources), "a cluster has at most 50 compute resources",
     "Remove some: 50 are allowed."},
    {"root-encryption", WARN, WHOLE, rule(encryption), "root volumes are encrypted alike",
     "Set RootVolume.Encrypted to the same everywhere."},
    {"logs-lost", WARN, WHOLE, rule(logs), "rotated logs are kept in CloudWatch",
     "Set Rotation.Enabled: false, or CloudWatch.Enabled: true."},

    /* Slurm's settings */
    {"custom-both", ERROR, WHOLE, rule(custom_both), "settings are in the layout or in a file",
     "Keep one of the two."},
    {"custom-url", ERROR, WHOLE, rule(custom_url), "the file of settings has an address",
     "Write https://... or s3://BUCKET/KEY."},
    {"setting-denied", ERROR, WHOLE | QUEUE | RESOURCE, rule(setting_denied),
     "no setting is one that ParallelCluster writes", "Remove it."},
    {"setting-value", ERROR, WHOLE | QUEUE | RESOURCE, rule(setting_value),
     "a setting is a line of slurm.conf", "Write 'Key: value'."},
    {"setting-nodes", ERROR, WHOLE, rule(setting_nodes), "nodes of one's own have other names",
     "Rename them."},
    {"database-both", ERROR, WHOLE, rule(database_both), "there is one accounting database",
     "Keep Database or ExternalSlurmdbd."},
    {"database-uri", ERROR, WHOLE, rule(database_uri), "the database has an address",
     "Write it without mysql:// and without a slash before it."},
    {"munge-key", ERROR, WHOLE, rule(munge), "an external slurmdbd shares the munge key",
     "Add the ARN of the secret that holds its key."},
    {"slurmdbd-open", WARN, WHOLE, rule(slurmdbd), "the slurmdbd is the cluster's own",
     "Keep both in a network that you trust."},
    {"secret-arn", ERROR, WHOLE, rule(secret), "secrets are in the Secrets Manager",
     "Write arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME."},

    /* other services */
    {"domain-name", ERROR, WHOLE, rule(domain), "the directory has a domain",
     "Write corp.example.com or dc=corp,dc=example,dc=com."},
    {"domain-sssd", ERROR, WHOLE, rule(sssd), "sssd asks LDAP", "Write ldap, or remove the key."},
    {"iam-prefix", ERROR, WHOLE, rule(prefix), "ResourcePrefix is a path or name of IAM",
     "Write /PATH/NAME with a NAME of at most 30 letters, digits or _.,+@=-."},
    {"dev-url", ERROR, WHOLE, rule(dev_url), "DevSettings name addresses",
     "Write https://... or s3://BUCKET/KEY."},
    {"dev-chef", ERROR, WHOLE, rule(chef), "ExtraChefAttributes are JSON", "Mend it."},

    /* sections that are in several places */
    {"name-form", ERROR, QUEUE | RESOURCE | POOL, rule(name), "names are short and plain",
     "Write 1 to 25 of a-z, 0-9 and '-', and begin with a letter."},
    {"name-taken", ERROR, QUEUE | RESOURCE | POOL, rule(name_taken), "no name is 'default'",
     "Use another name."},
    {"name-nodes", ERROR, QUEUE | RESOURCE, rule(name_nodes), "node names can be split",
     "Use another name."},
    {"name-twice", ERROR, QUEUE | RESOURCE | POOL | STORAGE, rule(name_twice), "names are unique",
     "Use another."},
    {"pool-unknown", WARN, POOL, rule(pool_type), "a login node's type is in the catalogue",
     "Check it by hand."},
    {"groups-both", ERROR, TERN_LAYOUT_GROUPS, rule(groups),
     "security groups replace ParallelCluster's or join them", "Keep one of the two."},
    {"iam-both", ERROR, TERN_LAYOUT_IAM, rule(iam_both), "rights come from one source",
     "Keep one of them."},
    {"iam-s3", ERROR, TERN_LAYOUT_IAM, rule(iam_s3), "S3Access has no role of one's own beside it",
     "Remove S3Access, and give the role these rights."},
    {"tag-reserved", ERROR, TERN_LAYOUT_TAGS, rule(tag_reserved), "tags are the user's own",
     "Use another Key."},
    {"tag-twice", ERROR, TERN_LAYOUT_TAGS, rule(tag_twice), "tags are unique", "Remove one."},
    {"tag-count", ERROR, RESOURCE, rule(tag_count), "a node has at most 40 tags", "Remove some."},
    {"script-url", ERROR, TERN_LAYOUT_ACTION, rule(script), "scripts have an address",
     "Write https://... or s3://BUCKET/KEY."},

    /* queues */
    {"subnet-twice", ERROR, QUEUE, rule(subnet_twice), "a queue's subnets are unique",
     "Remove one."},
    {"subnet-type", ERROR, RESOURCE, rule(subnets), "InstanceType has one subnet",
     "Keep one subnet, or use Instances."},
    {"public-address", ERROR, RESOURCE, rule(public), "nodes of several interfaces are private",
     "Set AssignPublicIp: false, and use a private subnet with a NAT gateway."},
    {"priorities", WARN, QUEUE, rule(priorities), "static nodes come before dynamic ones",
     "Set DynamicNodePriority above every StaticNodePriority."},
    {"group-both", ERROR, TERN_LAYOUT_PLACEMENT, rule(placement_both),
     "a placement group has one name", "Keep one."},
    {"group-off", ERROR, TERN_LAYOUT_PLACEMENT, rule(placement_off),
     "a named placement group is switched on", "Set Enabled: true, or remove the name."},
    {"group-subnets", ERROR, RESOURCE, rule(group_subnets), "a placement group has one subnet",
     "Keep one subnet, or remove the group."},
    {"reservation-both", ERROR, TERN_LAYOUT_RESERVATION, rule(reservation),
     "a reservation has one name",
     "Give CapacityReservationId or CapacityReservationResourceGroupArn."},
    {"reservation-id", ERROR, TERN_LAYOUT_RESERVATION, rule(reservation_id),
     "a reservation's id is one", "Write one such as cr-0123456789abcdef0."},
    {"reservation-arn", ERROR, TERN_LAYOUT_RESERVATION, rule(reservation_arn),
     "a group of reservations has an ARN",
     "Write arn:aws:resource-groups:REGION:ACCOUNT:group/NAME."},

    /* compute resources: instance types */
    {"type-both", ERROR, RESOURCE, rule(type_both), "types are given in one way", "Keep one."},
    {"type-missing", ERROR, RESOURCE, rule(type_none), "a resource has an instance type",
     "Add it, such as trn1.32xlarge."},
    {"type-trainium", ERROR, RESOURCE, rule(type_trainium), "Trainium has this size",
     "Take trn1.2xlarge, trn1.32xlarge, trn1n.32xlarge or trn2.48xlarge."},
    {"type-unknown", WARN, RESOURCE, rule(type_unknown), "instance types are in the catalogue",
     "Check them by hand."},
    {"type-reserved", WARN, RESOURCE, rule(type_reserved), "the instance type is in the layout",
     "Write the reservation's InstanceType."},
    {"type-twice", ERROR, RESOURCE, rule(type_twice), "Instances are unique", "Remove one."},
    {"type-os", ERROR, RESOURCE, rule(type_os), "the type runs the operating system",
     "Take alinux2023, ubuntu2204, ubuntu2404 or rocky9."},
    {"type-arm", ERROR, RESOURCE, rule(type_arm), "all nodes have processors of one kind",
     "Take types of one kind."},
    {"type-group", ERROR, RESOURCE, rule(type_group), "the type can be in a placement group",
     "Set PlacementGroup.Enabled: false, or take another type."},
    {"type-mixed", ERROR, RESOURCE, rule(type_mixed), "Instances have as many CPUs each",
     "Make a compute resource of each."},
    {"type-reservation", ERROR, RESOURCE, rule(flexible), "a reservation has no Instances",
     "Write its InstanceType."},
    {"strategy", ERROR, RESOURCE, rule(strategy), "the AllocationStrategy is the CapacityType's",
     "ONDEMAND has lowest-price and prioritized, SPOT has all but prioritized, CAPACITY_BLOCK "
     "none."},

    /* compute resources: counts, memory and network */
    {"count-order", ERROR, RESOURCE, rule(counts), "MaxCount is MinCount or more", "Raise it."},
    {"block-counts", ERROR, RESOURCE, rule(block_counts), "a capacity block is all static nodes",
     "Set both to the nodes of the block."},
    {"block-id", ERROR, RESOURCE, rule(block_id), "a capacity block is named",
     "Add CapacityReservationTarget."},
    {"block-group", WARN, RESOURCE, rule(block_group), "a capacity block has no placement group",
     "Remove the placement group."},
    {"memory", ERROR, RESOURCE, rule(memory), "the type has the SchedulableMemory",
     "Write at least 1 and at most what the type has."},
    {"efa-type", ERROR, RESOURCE, rule(efa_type), "EFA is on where the type has it",
     "Set Enabled: false, or use a type with EFA, such as trn1.32xlarge."},
    {"efa-off", WARN, RESOURCE, rule(efa_off), "EFA is used where the type has it",
     "Set Efa.Enabled: true."},
    {"efa-gdr", ERROR, RESOURCE, rule(efa_gdr), "GdrSupport has EFA", "Set Efa.Enabled: true."},
    {"efa-subnets", ERROR, RESOURCE, rule(efa_subnets), "EFA has one subnet", "Keep one subnet."},
    {"efa-group", ERROR, RESOURCE, rule(efa_group), "EFA and its placement group are explicit",
     "Add 'PlacementGroup: {Enabled: true}' to the queue's Networking."},
    {"efa-group-off", WARN, RESOURCE, rule(efa_group_off), "EFA has a placement group",
     "Set Enabled: true, unless the reservation has a placement group."},
    {"neuron-nodes", WARN, RESOURCE, rule(neuron_nodes), "several Neuron nodes have EFA",
     "Use trn1.32xlarge for training on several nodes."},

    /* storage */
    {"storage-name", ERROR, STORAGE, rule(storage_name), "storage names are short and plain",
     "Write at most 30 letters, digits or +-=._:@/, and not 'default'."},
    {"storage-twice", ERROR, STORAGE, rule(storage_id), "a file system is mounted once",
     "Remove one."},
    {"storage-count", ERROR, STORAGE, rule(storage_count), "there are not too many storages",
     "Remove it."},
    {"storage-subnets", ERROR, STORAGE, rule(storage_subnets), "a new FSx has one subnet",
     "Give the FileSystemId of one that all reach, or keep one subnet."},
    {"mount-form", ERROR, STORAGE, rule(mount_form), "a mount point is one plain path",
     "Write one folder, such as /fsx."},
    {"mount-reserved", ERROR, STORAGE, rule(mount_reserved), "no mount hides a system folder",
     "Use another, such as /fsx."},
    {"mount-overlap", ERROR, STORAGE, rule(mount_overlap), "no mount is inside another",
     "Use separate folders."},
    {"mount-local", WARN, STORAGE, rule(mount_local), "no mount hides the local disks",
     "Use another folder, or set EphemeralVolume.MountDir."},
    {"mount-inside", ERROR, STORAGE, rule(mount_inside),
     "no mount is inside the local disks' folder",
     "Use another folder, or set EphemeralVolume.MountDir."},
    {"mount-cache", ERROR, STORAGE, rule(mount_cache), "/home is no FileCache",
     "Use another folder."},
    {"settings-type", ERROR, STORAGE, rule(settings_type), "settings are the StorageType's",
     "Remove these settings, or change the StorageType."},
    {"settings-none", ERROR, STORAGE, rule(settings_none), "existing file systems are named",
     "Add them with the id."},
    {"fsx-existing", ERROR, STORAGE, rule(fsx_existing), "an existing FSx has its own settings",
     "Remove this key, or the FileSystemId."},
    {"fsx-backup", ERROR, STORAGE, rule(fsx_backup), "a backup has its own settings",
     "Remove this key, or the BackupId."},
    {"fsx-links", ERROR, STORAGE, rule(fsx_links), "an FSx has at most 8 links to S3",
     "Keep one way, and 8 DataRepositoryAssociations at most."},
    {"fsx-import", ERROR, STORAGE, rule(fsx_import), "imports of FSx have a path",
     "Add ImportPath: s3://BUCKET/PREFIX, or remove this key."},
    {"fsx-url", ERROR, STORAGE, rule(fsx_url), "FSx is linked to S3", "Write s3://BUCKET/PREFIX."},
    {"fsx-persistent", ERROR, STORAGE, rule(fsx_persistent),
     "throughput and keys are of persistent FSx",
     "Give PERSISTENT_2 its throughput (125, 250, 500 or 1000), or remove the key."},
    {"fsx-backups", ERROR, STORAGE, rule(fsx_backups), "FSx can make the backups",
     "Remove it, or make a PERSISTENT file system without links to S3 that keeps backups."},
    {"fsx-hdd", ERROR, STORAGE, rule(fsx_hdd), "HDD is of PERSISTENT_1",
     "Set DeploymentType: PERSISTENT_1 and StorageType: HDD, or remove the key."},
    {"fsx-throughput", ERROR, STORAGE, rule(fsx_throughput), "FSx has this throughput",
     "PERSISTENT_1 has 50, 100 and 200 (HDD: 12 and 40), PERSISTENT_2 has 125, 250, 500, 1000."},
    {"fsx-capacity", ERROR, STORAGE, rule(fsx_capacity), "FSx has this capacity",
     "1200 is the least, and 2400, 4800, 7200... are the next."},
    {"efs-existing", ERROR, STORAGE, rule(efs_existing), "an existing EFS has its own settings",
     "Remove this key, or the FileSystemId."},
    {"efs-throughput", ERROR, STORAGE, rule(efs_throughput), "EFS's throughput has its mode",
     "Give both: ThroughputMode: provisioned and ProvisionedThroughput (MiB/s)."},
    {"efs-access", ERROR, STORAGE, rule(efs_access), "EFS's rights are encrypted",
     "Add it, or remove this key."},
    {"encrypted", ERROR, STORAGE, rule(encrypted), "a key encrypts", "Set Encrypted: true."},
    {"volume-size", ERROR, VOLUME, rule(volume_size), "EBS has volumes of this size",
     "Change Size or VolumeType."},
    {"volume-throughput", ERROR, VOLUME, rule(volume_throughput), "gp3 has this throughput",
     "Change Throughput, or raise Iops."},
    {"volume-iops", ERROR, VOLUME, rule(volume_iops), "EBS has these Iops",
     "Change Iops, Size or VolumeType."},
};

enum { N_RULES = sizeof rules / sizeof *rules };

const struct tern_rule *tern_layout_rule_row(size_t i)
{
    return i < N_RULES ? &rules[i] : NULL;
}

void tern_layout_found(struct tern_rules_case *c, const struct tern_yaml_node *n, const char *fmt,
                       ...)
{
    char text[900];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (c->rule->severity == TERN_RULES_ERROR)
        tern_layout_error(c->to, c->rule->id, n, "%s %s", text, c->rule->remedy);
    else
        tern_layout_warn(c->to, c->rule->id, n, "%s %s", text, c->rule->remedy);
}

const struct tern_yaml_node *tern_layout_at(const struct tern_yaml_node *map, const char *key,
                                            const struct tern_yaml_node *other)
{
    const struct tern_yaml_node *n = tern_yaml_get(map, key);

    return n ? n : other;
}

static void apply(struct tern_layout_scope s, unsigned where, const struct tern_yaml_node *at)
{
    struct tern_rules_case c = {.facts = &s, .to = s.l};

    s.at = at;
    if (at)
        tern_rules_apply(rules, N_RULES, where, &c);
}

/* Script, or each member of Sequence, of every action. */
static void apply_actions(struct tern_layout_scope s, const struct tern_yaml_node *actions)
{
    for (size_t i = 0; i < tern_layout_count_keys(actions); i++) {
        const struct tern_yaml_node *action = tern_yaml_at(actions, i);
        const struct tern_yaml_node *list = tern_layout_list(action, "Sequence");
        if (tern_yaml_kind(action) != TERN_YAML_MAP)
            continue;
        apply(s, TERN_LAYOUT_ACTION, action);
        for (size_t k = 0; k < tern_layout_count(list); k++)
            apply(s, TERN_LAYOUT_ACTION, tern_yaml_at(list, k));
    }
}

/* The sections that the head node, queues and login nodes have. */
static void apply_nodes(struct tern_layout_scope s, const struct tern_yaml_node *m)
{
    const struct tern_yaml_node *local = tern_layout_map(m, "LocalStorage");

    if (!local)
        local = tern_layout_map(tern_layout_map(m, "ComputeSettings"), "LocalStorage");
    s.list = NULL;
    apply(s, TERN_LAYOUT_GROUPS, tern_layout_map(m, "Networking"));
    apply(s, TERN_LAYOUT_IAM, tern_layout_map(m, "Iam"));
    apply(s, TERN_LAYOUT_ROOT, tern_layout_map(local, "RootVolume"));
    apply_actions(s, tern_layout_map(m, "CustomActions"));
}

/* The sections that queues and compute resources have. */
static void apply_both(struct tern_layout_scope s, const struct tern_yaml_node *m)
{
    apply(s, TERN_LAYOUT_PLACEMENT,
          tern_layout_map(tern_layout_map(m, "Networking"), "PlacementGroup"));
    apply(s, TERN_LAYOUT_RESERVATION, tern_layout_map(m, "CapacityReservationTarget"));
    apply(s, TERN_LAYOUT_TAGS, tern_layout_list(m, "Tags"));
}

static void apply_queue(struct tern_layout_scope s, const struct tern_layout_queue *q)
{
    const struct tern_yaml_node *list = tern_layout_list(s.queue, "ComputeResources");

    apply(s, TERN_LAYOUT_QUEUE, s.queue);
    apply_nodes(s, s.queue);
    apply_both(s, s.queue);
    s.list = list;
    for (s.i = 0; s.i < tern_layout_count(list); s.i++) {
        s.resource = tern_yaml_at(list, s.i);
        if (tern_yaml_kind(s.resource) != TERN_YAML_MAP)
            continue;
        s.type = s.i < q->n_resources ? q->resources[s.i].type : NULL;
        apply(s, TERN_LAYOUT_RESOURCE, s.resource);
        apply_both(s, s.resource);
    }
}

void tern_layout_check_rules(struct tern_layout *l, const struct tern_yaml_node *root)
{
    struct tern_layout_scope s = {.l = l, .root = root};
    const struct tern_yaml_node *queues =
        tern_layout_list(tern_layout_map(root, "Scheduling"), "SlurmQueues");
    const struct tern_yaml_node *pools =
        tern_layout_list(tern_layout_map(root, "LoginNodes"), "Pools");
    const struct tern_yaml_node *storage = tern_layout_list(root, "SharedStorage");

    apply(s, WHOLE, root);
    apply(s, TERN_LAYOUT_TAGS, tern_layout_list(root, "Tags"));
    apply_nodes(s, tern_layout_map(root, "HeadNode"));
    s.list = queues;
    for (s.i = 0; s.i < l->n_queues; s.i++) {
        s.queue = tern_yaml_at(queues, s.i);
        if (tern_yaml_kind(s.queue) == TERN_YAML_MAP)
            apply_queue(s, &l->queues[s.i]);
    }
    s.queue = NULL;
    s.list = pools;
    for (s.i = 0; s.i < tern_layout_count(pools); s.i++) {
        apply(s, POOL, tern_yaml_at(pools, s.i));
        apply_nodes(s, tern_yaml_at(pools, s.i));
    }
    s.list = storage;
    for (s.i = 0; s.i < tern_layout_count(storage); s.i++) {
        apply(s, STORAGE, tern_yaml_at(storage, s.i));
        apply(s, TERN_LAYOUT_EBS, tern_layout_map(tern_yaml_at(storage, s.i), "EbsSettings"));
    }
}
