/* The rules between the keys of a layout, as rows of core/rules: tern_layout_check_rules applies
 * each to the sections that it is for.  Functions are in the files rules_*.c. */
#ifndef TERN_LAYOUT_RULES_H
#define TERN_LAYOUT_RULES_H

#include "core/layout/layout.h"
#include "core/layout/value.h"
#include "core/rules/rules.h"

/* What a rule is for: bits of tern_rule.where. */
enum {
    TERN_LAYOUT_WHOLE = 1,
    TERN_LAYOUT_QUEUE = 2,
    TERN_LAYOUT_RESOURCE = 4,
    TERN_LAYOUT_STORAGE = 8,
    TERN_LAYOUT_POOL = 16,
    TERN_LAYOUT_GROUPS = 32,       /* a Networking */
    TERN_LAYOUT_PLACEMENT = 64,    /* a PlacementGroup */
    TERN_LAYOUT_RESERVATION = 128, /* a CapacityReservationTarget */
    TERN_LAYOUT_IAM = 256,         /* an Iam of nodes */
    TERN_LAYOUT_TAGS = 512,        /* a list Tags */
    TERN_LAYOUT_ROOT = 1024,       /* a RootVolume */
    TERN_LAYOUT_EBS = 2048,        /* EbsSettings */
    TERN_LAYOUT_ACTION = 4096      /* a map with a Script */
};

/* The facts of a rule. */
struct tern_layout_scope {
    struct tern_layout *l;
    const struct tern_yaml_node *root;
    const struct tern_yaml_node *queue, *resource; /* NULL outside of them */
    const struct tern_yaml_node *at;               /* the section of the bit */
    const struct tern_yaml_node *list;             /* that `at` is a member of, or NULL */
    const struct tern_layout_instance *type;       /* the resource's; NULL: not known */
    size_t i;                                      /* its place in `list` */
};

/* Note a finding of c->rule at `n`: the mistake; the row's remedy follows it. */
void tern_layout_found(struct tern_rules_case *c, const struct tern_yaml_node *n, const char *fmt,
                       ...) __attribute__((format(printf, 3, 4)));

/* Apply all to a file whose keys have been checked and whose model has been read. */
void tern_layout_check_rules(struct tern_layout *l, const struct tern_yaml_node *root);

/* "https://..." or "s3://bucket/key". */
bool tern_layout_is_url(const char *text);
/* The subnets of a queue, and whether its nodes are of a capacity block. */
size_t tern_layout_subnets(const struct tern_yaml_node *queue);
bool tern_layout_is_block(const struct tern_yaml_node *queue);
/* The PlacementGroup that counts for a resource (its own, else its queue's), or NULL; and whether
 * it is on, by Enabled or by a name. */
const struct tern_yaml_node *tern_layout_placement_of(const struct tern_layout_scope *s);
bool tern_layout_placement_on(const struct tern_yaml_node *group);
/* Where there is a key to point at, that; else `other`. */
const struct tern_yaml_node *tern_layout_at(const struct tern_yaml_node *map, const char *key,
                                            const struct tern_yaml_node *other);
/* A type with this family of processors: c7g, hpc7g, t4g, p6e-gb200. */
bool tern_layout_is_arm(const char *type);

typedef void tern_layout_rule(struct tern_rules_case *c);

/* rules_whole.c */
tern_layout_rule tern_layout_rule_image, tern_layout_rule_head_memory, tern_layout_rule_head_efs,
    tern_layout_rule_intel, tern_layout_rule_resources, tern_layout_rule_custom_both,
    tern_layout_rule_custom_url, tern_layout_rule_database_both, tern_layout_rule_munge,
    tern_layout_rule_secret, tern_layout_rule_database_uri, tern_layout_rule_slurmdbd,
    tern_layout_rule_domain, tern_layout_rule_sssd, tern_layout_rule_prefix,
    tern_layout_rule_dev_url, tern_layout_rule_chef, tern_layout_rule_encryption,
    tern_layout_rule_setting_value, tern_layout_rule_setting_denied, tern_layout_rule_setting_nodes,
    tern_layout_rule_head_type, tern_layout_rule_tag_reserved, tern_layout_rule_tag_twice,
    tern_layout_rule_iam_both, tern_layout_rule_iam_s3, tern_layout_rule_groups,
    tern_layout_rule_script, tern_layout_rule_logs, tern_layout_rule_name,
    tern_layout_rule_name_taken, tern_layout_rule_name_nodes, tern_layout_rule_name_twice,
    tern_layout_rule_pool_type;

/* rules_queue.c */
tern_layout_rule tern_layout_rule_subnet_twice, tern_layout_rule_subnets, tern_layout_rule_public,
    tern_layout_rule_priorities, tern_layout_rule_placement_both, tern_layout_rule_placement_off,
    tern_layout_rule_reservation, tern_layout_rule_reservation_id, tern_layout_rule_reservation_arn,
    tern_layout_rule_type_both, tern_layout_rule_type_none, tern_layout_rule_type_unknown,
    tern_layout_rule_type_trainium, tern_layout_rule_type_reserved, tern_layout_rule_type_twice,
    tern_layout_rule_type_os, tern_layout_rule_type_arm, tern_layout_rule_type_group,
    tern_layout_rule_type_mixed, tern_layout_rule_flexible, tern_layout_rule_strategy,
    tern_layout_rule_counts, tern_layout_rule_block_counts, tern_layout_rule_block_id,
    tern_layout_rule_block_group, tern_layout_rule_memory, tern_layout_rule_efa_type,
    tern_layout_rule_efa_off, tern_layout_rule_efa_gdr, tern_layout_rule_efa_subnets,
    tern_layout_rule_efa_group, tern_layout_rule_efa_group_off, tern_layout_rule_neuron_nodes,
    tern_layout_rule_tag_count, tern_layout_rule_group_subnets;

/* rules_storage.c */
tern_layout_rule tern_layout_rule_storage_name, tern_layout_rule_storage_id,
    tern_layout_rule_mount_form, tern_layout_rule_mount_reserved, tern_layout_rule_mount_overlap,
    tern_layout_rule_mount_local, tern_layout_rule_mount_inside, tern_layout_rule_mount_cache,
    tern_layout_rule_settings_type, tern_layout_rule_settings_none, tern_layout_rule_storage_count,
    tern_layout_rule_storage_subnets, tern_layout_rule_fsx_existing, tern_layout_rule_fsx_backup,
    tern_layout_rule_fsx_links, tern_layout_rule_fsx_import, tern_layout_rule_fsx_url,
    tern_layout_rule_fsx_persistent, tern_layout_rule_fsx_backups, tern_layout_rule_fsx_hdd,
    tern_layout_rule_fsx_throughput, tern_layout_rule_fsx_capacity, tern_layout_rule_efs_existing,
    tern_layout_rule_efs_throughput, tern_layout_rule_efs_access, tern_layout_rule_encrypted,
    tern_layout_rule_volume_size, tern_layout_rule_volume_throughput, tern_layout_rule_volume_iops;

#endif
