/* Rules of SharedStorage and of volumes. */
#include "core/layout/rules.h"

#include <stdlib.h>
#include <string.h>

/* The settings of a member of SharedStorage of the type: the map, or NULL. */
static const struct tern_yaml_node *settings(const struct tern_layout_scope *s, const char *type)
{
    const char *is = tern_layout_text(s->at, "StorageType");
    char *key = tern_strf("%sSettings", type);
    const struct tern_yaml_node *m =
        is && strcmp(is, type) == 0 ? tern_layout_map(s->at, key) : NULL;

    free(key);
    return m;
}

static bool is_type(const struct tern_yaml_node *storage, const char *type)
{
    const char *is = tern_layout_text(storage, "StorageType");

    return is && strcmp(is, type) == 0;
}

/* Is the key there with a value that counts: no empty text, no 0, not false? */
static bool said(const struct tern_yaml_node *map, const char *key)
{
    const struct tern_yaml_node *n = tern_yaml_get(map, key);
    int64_t number;
    bool yes, exact;

    if (!n)
        return false;
    if (tern_yaml_kind(n) != TERN_YAML_TEXT)
        return tern_yaml_count(n) > 0;
    if (tern_layout_kind(n) == TERN_LAYOUT_BOOL)
        return tern_layout_as_bool(n, &yes) && yes;
    if (tern_layout_kind(n) != TERN_LAYOUT_TEXT && tern_layout_as_int(n, &number, &exact))
        return number != 0;
    return *tern_yaml_text(n) != '\0';
}

/* The first of the NULL-ended keys that `map` has, or NULL. */
static const char *first_of(const struct tern_yaml_node *map, const char *const *keys)
{
    while (*keys && !tern_yaml_get(map, *keys))
        keys++;
    return *keys;
}

static void check_name(struct tern_rules_case *c, const struct tern_yaml_node *map)
{
    const char *name = tern_layout_text(map, "Name");
    bool letters = name && *name;

    for (const char *p = name; p && *p; p++)
        letters = letters && ((unsigned char)*p >= 0x80 ||
                              strchr("+-=._:@/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "abcdefghijklmnopqrstuvwxyz",
                                     *p));
    if (name && (!letters || strlen(name) > 30 || strcmp(name, "default") == 0))
        tern_layout_found(c, tern_yaml_get(map, "Name"), "'%s' is not a name for a storage.", name);
}

void tern_layout_rule_storage_name(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *links =
        tern_layout_list(settings(s, "FsxLustre"), "DataRepositoryAssociations");

    check_name(c, s->at);
    for (size_t i = 0; i < tern_layout_count(links); i++)
        check_name(c, tern_yaml_at(links, i));
}

/* How the member names a file system that exists already, or NULL. */
static const struct tern_yaml_node *existing(const struct tern_layout_scope *s)
{
    static const struct {
        const char *type, *key;
    } ids[] = {{"Efs", "FileSystemId"},  {"FsxLustre", "FileSystemId"},
               {"Ebs", "VolumeId"},      {"FsxOpenZfs", "VolumeId"},
               {"FsxOntap", "VolumeId"}, {"FileCache", "FileCacheId"}};

    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const struct tern_yaml_node *m = settings(s, ids[i].type);
        if (m && tern_yaml_get(m, ids[i].key))
            return tern_yaml_get(m, ids[i].key);
    }
    return NULL;
}

void tern_layout_rule_storage_id(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *id = existing(s);

    for (size_t i = 0; id && i < s->i; i++) {
        struct tern_layout_scope other = *s;
        other.at = tern_yaml_at(s->list, i);
        const struct tern_yaml_node *old = existing(&other);
        if (old && tern_layout_as_text(id) && tern_layout_as_text(old) &&
            strcmp(tern_yaml_text(id), tern_yaml_text(old)) == 0)
            tern_layout_found(c, id, "'%s' is mounted already (line %d).", tern_yaml_text(id),
                              tern_yaml_line(old));
    }
}

void tern_layout_rule_mount_form(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *dir = tern_layout_text(s->at, "MountDir");

    if (dir && (strcmp(dir + (*dir == '/'), "NONE") == 0 || strpbrk(dir, " \t\n'\"\\$") ||
                strstr(dir, "/../") || tern_str_ends(dir, "/..")))
        tern_layout_found(c, tern_yaml_get(s->at, "MountDir"),
                          "'%s' cannot stand in /etc/fstab as one folder.", dir);
}

void tern_layout_rule_mount_reserved(struct tern_rules_case *c)
{
    static const char *const reserved[] = {
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/lib",
        "/lib64",
        "/media",
        "/mnt",
        "/opt",
        "/opt/parallelcluster",
        "/opt/parallelcluster/shared",
        "/opt/parallelcluster/shared_login_nodes",
        "/opt/slurm",
        "/opt/intel",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
        "/tmp",
        "/usr",
        "/var",
    };
    const struct tern_layout_scope *s = c->facts;
    const char *dir = s->i < s->l->n_storage ? s->l->storage[s->i].mount_dir : NULL;

    for (size_t i = 0; dir && i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(dir, reserved[i]) == 0)
            tern_layout_found(c, tern_yaml_get(s->at, "MountDir"), "'%s' belongs to the system.",
                              dir);
}

/* One is the other, or lies below it: "/fsx" and "/fsx/a", not "/fsx" and "/fsx2". */
static bool nested(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), least = n < m ? n : m;

    return strncmp(a, b, least) == 0 && (n == m || (n < m ? b : a)[least] == '/');
}

void tern_layout_rule_mount_overlap(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_layout_storage *all = s->l->storage;

    for (size_t i = 0; i < s->i && s->i < s->l->n_storage && all[s->i].mount_dir; i++)
        if (all[i].mount_dir && nested(all[i].mount_dir, all[s->i].mount_dir))
            tern_layout_found(c, tern_yaml_get(s->at, "MountDir"), "'%s' overlaps '%s' (line %d).",
                              all[s->i].mount_dir, all[i].mount_dir, all[i].line);
}

/* The folder of the instances' own disks, EphemeralVolume.MountDir below `local`, beside the mount
 * point.  The same folder is what one rule finds; one inside the other, what another does. */
static void check_local(struct tern_rules_case *c, const struct tern_yaml_node *local,
                        const struct tern_layout_instance *type, bool same)
{
    const struct tern_layout_scope *s = c->facts;
    const char *dir = tern_layout_text(tern_layout_map(local, "EphemeralVolume"), "MountDir");
    const char *mount = s->l->storage[s->i].mount_dir;

    dir = dir ? dir : "/scratch";
    if (type && type->nvme_gb && nested(dir, mount) && (strcmp(dir, mount) == 0) == same)
        tern_layout_found(c, tern_yaml_get(s->at, "MountDir"),
                          "'%s' %s '%s', where the local disks of %s are.", mount,
                          same ? "hides" : "overlaps", dir, type->name);
}

static void check_locals(struct tern_rules_case *c, bool same)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *queues =
        tern_layout_list(tern_layout_map(s->root, "Scheduling"), "SlurmQueues");

    if (s->i >= s->l->n_storage || !s->l->storage[s->i].mount_dir)
        return;
    check_local(c, tern_layout_map(tern_layout_map(s->root, "HeadNode"), "LocalStorage"),
                s->l->head_type, same);
    for (size_t i = 0; i < s->l->n_queues; i++) {
        const struct tern_layout_queue *q = &s->l->queues[i];
        const struct tern_yaml_node *local = tern_layout_map(
            tern_layout_map(tern_yaml_at(queues, i), "ComputeSettings"), "LocalStorage");
        for (size_t k = 0; k < q->n_resources; k++)
            check_local(c, local, q->resources[k].type, same);
    }
}

void tern_layout_rule_mount_local(struct tern_rules_case *c)
{
    check_locals(c, /* same= */ true);
}

void tern_layout_rule_mount_inside(struct tern_rules_case *c)
{
    check_locals(c, /* same= */ false);
}

void tern_layout_rule_mount_cache(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const char *dir = s->i < s->l->n_storage ? s->l->storage[s->i].mount_dir : NULL;

    if (dir && is_type(s->at, "FileCache") && strcmp(dir, "/home") == 0)
        tern_layout_found(c, tern_yaml_get(s->at, "MountDir"), "a FileCache cannot be /home.");
}

static const char *const storage_types[] = {"Ebs",      "Efs",       "FsxLustre", "FsxOpenZfs",
                                            "FsxOntap", "FileCache", NULL};

void tern_layout_rule_settings_type(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;

    for (size_t i = 0; storage_types[i]; i++) {
        char *key = tern_strf("%sSettings", storage_types[i]);
        if (tern_layout_text(s->at, "StorageType") && !is_type(s->at, storage_types[i]) &&
            tern_layout_count_keys(tern_yaml_get(s->at, key)))
            tern_layout_found(c, tern_yaml_get(s->at, key), "the StorageType is %s.",
                              tern_layout_text(s->at, "StorageType"));
        free(key);
    }
}

void tern_layout_rule_settings_none(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    static const char *const need[] = {"FsxOpenZfs", "FsxOntap", "FileCache", NULL};

    for (size_t i = 0; need[i]; i++)
        if (is_type(s->at, need[i]) && !tern_layout_count_keys(settings(s, need[i])))
            tern_layout_found(c, s->at, "'%sSettings' is missing.", need[i]);
}

void tern_layout_rule_storage_count(struct tern_rules_case *c)
{
    static const struct {
        const char *type, *name;
        int kind, most;
    } limits[] = {
        {"Efs", "new EFS file systems", 0, 1}, {"Efs", "existing EFS file systems", 1, 20},
        {"Fsx", "new FSx file systems", 0, 1}, {"Fsx", "existing FSx file systems", 1, 20},
        {"Ebs", "EBS volumes", 2, 5},          {"Ebs", "RAID arrays", 3, 1}};
    const struct tern_layout_scope *s = c->facts;
    int n[sizeof limits / sizeof *limits] = {0};

    for (size_t i = 0; i <= s->i; i++) {
        struct tern_layout_scope m = *s;
        m.at = tern_yaml_at(s->list, i);
        const char *type = tern_layout_text(m.at, "StorageType");
        bool raid = tern_layout_map(settings(&m, "Ebs"), "Raid");
        bool fsx = type && (tern_str_starts(type, "Fsx") || strcmp(type, "FileCache") == 0);
        for (size_t k = 0; type && k < sizeof limits / sizeof *limits; k++) {
            bool of = fsx ? strcmp(limits[k].type, "Fsx") == 0 : strcmp(limits[k].type, type) == 0;
            int kind = limits[k].kind < 2 ? existing(&m) != NULL : raid ? 3 : 2;
            if (of && kind == limits[k].kind && ++n[k] > limits[k].most && i == s->i)
                tern_layout_found(c, s->at, "too many %s: the limit is %d.", limits[k].name,
                                  limits[k].most);
        }
    }
}

void tern_layout_rule_storage_subnets(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *queues =
        tern_layout_list(tern_layout_map(s->root, "Scheduling"), "SlurmQueues");
    const char *first = NULL;

    if (!is_type(s->at, "FsxLustre") || existing(s))
        return;
    for (size_t i = 0; i < tern_layout_count(queues); i++) {
        const struct tern_yaml_node *subnets =
            tern_layout_list(tern_layout_map(tern_yaml_at(queues, i), "Networking"), "SubnetIds");
        for (size_t k = 0; k < tern_layout_count(subnets); k++) {
            const char *subnet = tern_layout_as_text(tern_yaml_at(subnets, k));
            if (subnet && first && strcmp(first, subnet) != 0) {
                tern_layout_found(c, s->at,
                                  "a new FSx file system is in one subnet, and queues are in %s "
                                  "and %s.",
                                  first, subnet);
                return;
            }
            first = first ? first : subnet;
        }
    }
}

/* ------------------------------------------------------------------ FSx for Lustre */

void tern_layout_rule_fsx_existing(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings(c->facts, "FsxLustre");

    for (size_t i = 0; tern_yaml_get(m, "FileSystemId") && i < tern_yaml_count(m); i++)
        if (strcmp(tern_yaml_key(m, i), "FileSystemId") != 0)
            tern_layout_found(c, tern_yaml_at(m, i),
                              "FileSystemId names a file system that has its settings already.");
}

void tern_layout_rule_fsx_backup(struct tern_rules_case *c)
{
    static const char *const keys[] = {
        "DeploymentType", "PerUnitStorageThroughput", "StorageCapacity", "ImportPath",
        "ExportPath",     "ImportedFileChunkSize",    "KmsKeyId",        NULL};
    const struct tern_yaml_node *m = settings(c->facts, "FsxLustre");
    const char *key = tern_yaml_get(m, "BackupId") ? first_of(m, keys) : NULL;

    if (key)
        tern_layout_found(c, tern_yaml_get(m, key), "BackupId brings its own %s.", key);
}

void tern_layout_rule_fsx_links(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings(c->facts, "FsxLustre");
    const struct tern_yaml_node *links = tern_layout_list(m, "DataRepositoryAssociations");

    if (tern_layout_count(links) && (said(m, "ImportPath") || said(m, "ExportPath")))
        tern_layout_found(c, links, "ImportPath and ExportPath are the older way.");
    if (tern_layout_count(links) > 8)
        tern_layout_found(c, links, "%zu links are more than 8.", tern_layout_count(links));
}

void tern_layout_rule_fsx_import(struct tern_rules_case *c)
{
    static const char *const keys[] = {"ImportedFileChunkSize", "ExportPath", "AutoImportPolicy"};
    const struct tern_yaml_node *m = settings(c->facts, "FsxLustre");

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (said(m, keys[i]) && !said(m, "ImportPath"))
            tern_layout_found(c, tern_yaml_get(m, keys[i]), "there is no ImportPath.");
}

static void check_s3(struct tern_rules_case *c, const struct tern_yaml_node *map, const char *key)
{
    const char *text = tern_layout_text(map, key);

    if (text && !tern_layout_matches("^[sS]3://[^/]", text))
        tern_layout_found(c, tern_yaml_get(map, key), "'%s' is not in a bucket of S3.", text);
}

void tern_layout_rule_fsx_url(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings(c->facts, "FsxLustre");
    const struct tern_yaml_node *links = tern_layout_list(m, "DataRepositoryAssociations");

    if (said(m, "ImportPath"))
        check_s3(c, m, "ImportPath");
    if (said(m, "ExportPath"))
        check_s3(c, m, "ExportPath");
    for (size_t i = 0; i < tern_layout_count(links); i++)
        check_s3(c, tern_yaml_at(links, i), "DataRepositoryPath");
}

/* DeploymentType, with its default; "" for a file system or backup that has its own. */
static const char *deployment(const struct tern_yaml_node *m)
{
    const char *type = tern_layout_text(m, "DeploymentType");

    return type                                                               ? type
           : tern_yaml_get(m, "FileSystemId") || tern_yaml_get(m, "BackupId") ? ""
                                                                              : "SCRATCH_2";
}

void tern_layout_rule_fsx_persistent(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings(c->facts, "FsxLustre");
    const char *type = deployment(m);

    if (!m || tern_yaml_get(m, "FileSystemId"))
        return;
    if (tern_str_starts(type, "PERSISTENT")) {
        if (!said(m, "PerUnitStorageThroughput"))
            tern_layout_found(c, m, "%s needs PerUnitStorageThroughput.", type);
        return;
    }
    if (said(m, "KmsKeyId"))
        tern_layout_found(c, tern_yaml_get(m, "KmsKeyId"), "%s has no KmsKeyId.",
                          *type ? type : "a backup");
    if (said(m, "PerUnitStorageThroughput"))
        tern_layout_found(c, tern_yaml_get(m, "PerUnitStorageThroughput"),
                          "%s has no PerUnitStorageThroughput.", *type ? type : "a backup");
}

void tern_layout_rule_fsx_backups(struct tern_rules_case *c)
{
    static const char *const linked[] = {"ImportedFileChunkSize", "ImportPath", "ExportPath",
                                         "AutoImportPolicy", NULL};
    const struct tern_yaml_node *m = settings(c->facts, "FsxLustre");
    const struct tern_yaml_node *days = tern_yaml_get(m, "AutomaticBackupRetentionDays");
    bool on = said(m, "AutomaticBackupRetentionDays");

    if (!m || tern_yaml_get(m, "FileSystemId"))
        return;
    if (!on && said(m, "DailyAutomaticBackupStartTime"))
        tern_layout_found(c, tern_yaml_get(m, "DailyAutomaticBackupStartTime"),
                          "no AutomaticBackupRetentionDays are given.");
    if (!on && tern_yaml_get(m, "CopyTagsToBackups"))
        tern_layout_found(c, tern_yaml_get(m, "CopyTagsToBackups"),
                          "no AutomaticBackupRetentionDays are given.");
    if (on && !tern_str_starts(deployment(m), "PERSISTENT"))
        tern_layout_found(c, days, "only PERSISTENT file systems have backups.");
    for (size_t i = 0; on && linked[i]; i++)
        if (said(m, linked[i]))
            tern_layout_found(c, days, "a file system with %s has no backups.", linked[i]);
}

void tern_layout_rule_fsx_hdd(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings(c->facts, "FsxLustre");
    const char *disk = tern_layout_text(m, "StorageType");
    bool hdd = disk && strcmp(disk, "HDD") == 0;

    if (hdd && strcmp(deployment(m), "PERSISTENT_1") != 0)
        tern_layout_found(c, tern_yaml_get(m, "StorageType"), "HDD needs PERSISTENT_1.");
    if (m && !hdd && !tern_yaml_get(m, "FileSystemId") && said(m, "DriveCacheType"))
        tern_layout_found(c, tern_yaml_get(m, "DriveCacheType"), "only HDD has a drive cache.");
}

void tern_layout_rule_fsx_throughput(struct tern_rules_case *c)
{
    static const struct {
        const char *type;
        bool hdd;
        int64_t rates[5];
    } rows[] = {{"PERSISTENT_1", false, {50, 100, 200}},
                {"PERSISTENT_2", false, {125, 250, 500, 1000}},
                {"PERSISTENT_1", true, {12, 40}}};
    const struct tern_yaml_node *m = settings(c->facts, "FsxLustre");
    const char *disk = tern_layout_text(m, "StorageType");
    int64_t rate = tern_layout_int(m, "PerUnitStorageThroughput", 0);

    for (size_t i = 0; rate && i < sizeof rows / sizeof *rows; i++) {
        bool found = false;
        if (strcmp(rows[i].type, deployment(m)) != 0 ||
            rows[i].hdd != (disk && strcmp(disk, "HDD") == 0))
            continue;
        for (const int64_t *r = rows[i].rates; *r; r++)
            found = found || *r == rate;
        if (!found)
            tern_layout_found(c, tern_yaml_get(m, "PerUnitStorageThroughput"),
                              "%lld is no rate of %s%s.", (long long)rate, rows[i].type,
                              rows[i].hdd ? " on HDD" : "");
    }
}

void tern_layout_rule_fsx_capacity(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *m = settings(s, "FsxLustre");
    const char *type = deployment(m), *disk = tern_layout_text(m, "StorageType");
    int64_t gib = tern_layout_int(m, "StorageCapacity", 0), step = 2400;
    int64_t rate = tern_layout_int(m, "PerUnitStorageThroughput", 0);
    bool first = gib == 1200;

    if (!is_type(s->at, "FsxLustre") || tern_yaml_get(m, "FileSystemId") ||
        tern_yaml_get(m, "BackupId"))
        return;
    if (gib == 0) {
        tern_layout_found(c, m ? tern_layout_at(m, "StorageCapacity", m) : s->at,
                          "a new file system needs a StorageCapacity.");
        return;
    }
    if (strcmp(type, "SCRATCH_1") == 0) {
        step = 3600;
        first = first || gib == 2400;
    } else if (strcmp(type, "PERSISTENT_1") == 0 && disk && strcmp(disk, "HDD") == 0) {
        step = rate == 12 ? 6000 : rate == 40 ? 1800 : 1;
        first = false;
    }
    if (!first && gib % step != 0)
        tern_layout_found(c, tern_yaml_get(m, "StorageCapacity"),
                          "%lld GiB are no capacity of %s: it grows in steps of %lld.",
                          (long long)gib, type, (long long)step);
}

/* ------------------------------------------------------------------ EFS */

void tern_layout_rule_efs_existing(struct tern_rules_case *c)
{
    static const char *const may[] = {"FileSystemId", "EncryptionInTransit", "IamAuthorization",
                                      "AccessPointId", NULL};
    const struct tern_yaml_node *m = settings(c->facts, "Efs");

    for (size_t i = 0; tern_yaml_get(m, "FileSystemId") && i < tern_yaml_count(m); i++) {
        bool ok = false;
        for (size_t k = 0; may[k]; k++)
            ok = ok || strcmp(may[k], tern_yaml_key(m, i)) == 0;
        if (!ok)
            tern_layout_found(c, tern_yaml_at(m, i),
                              "FileSystemId names a file system that has its settings already.");
    }
}

void tern_layout_rule_efs_throughput(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings(c->facts, "Efs");
    const char *mode = tern_layout_text(m, "ThroughputMode");
    bool provisioned = mode && strcmp(mode, "provisioned") == 0;

    if (provisioned && !said(m, "ProvisionedThroughput"))
        tern_layout_found(c, tern_yaml_get(m, "ThroughputMode"),
                          "provisioned needs ProvisionedThroughput.");
    if (!provisioned && said(m, "ProvisionedThroughput"))
        tern_layout_found(c, tern_yaml_get(m, "ProvisionedThroughput"),
                          "the ThroughputMode is not provisioned.");
}

void tern_layout_rule_efs_access(struct tern_rules_case *c)
{
    const struct tern_yaml_node *m = settings(c->facts, "Efs");
    bool transit = tern_layout_bool(m, "EncryptionInTransit", false);

    if (tern_layout_bool(m, "IamAuthorization", false) && !transit)
        tern_layout_found(c, tern_yaml_get(m, "IamAuthorization"),
                          "IamAuthorization needs EncryptionInTransit: true.");
    if (said(m, "AccessPointId") && (!transit || !said(m, "FileSystemId")))
        tern_layout_found(c, tern_yaml_get(m, "AccessPointId"), "an access point needs %s.",
                          transit ? "the FileSystemId that it is of" : "EncryptionInTransit: true");
}

void tern_layout_rule_encrypted(struct tern_rules_case *c)
{
    const struct tern_yaml_node *efs = settings(c->facts, "Efs"), *ebs = settings(c->facts, "Ebs");

    if ((said(efs, "KmsKeyId") && !tern_layout_bool(efs, "Encrypted", false)) ||
        (said(ebs, "KmsKeyId") && !tern_layout_bool(ebs, "Encrypted", true)))
        tern_layout_found(c, tern_yaml_get(efs ? efs : ebs, "KmsKeyId"),
                          "KmsKeyId is of no use while Encrypted is false.");
}
