/* From YAML to the model: the top level, storage, CustomSlurmSettings and the sidecar. */
#include "core/layout/notes.h"

#include "core/base/fs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Settings of slurm.conf that only ParallelCluster may set (its validators' deny-list). */
static const char *const denied_in_slurm_conf[] = {
    "epilog",
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
    NULL,
};

static bool listed(const char *key, const char *const *lower_case)
{
    for (; *lower_case; lower_case++)
        if (strcasecmp(key, *lower_case) == 0)
            return true;
    return false;
}

static void read_setting(struct tern_layout *l, const struct tern_yaml_node *map,
                         const char *const *denied, struct tern_layout_settings *out)
{
    for (size_t i = 0; i < tern_yaml_count(map); i++) {
        const struct tern_yaml_node *v = tern_yaml_at(map, i);
        const char *key = tern_yaml_key(map, i), *value = tern_yaml_text(v);
        if (!value || tern_yaml_is_null(v) || strpbrk(value, "\n\r")) {
            tern_layout_error(l, v, "is not a single value. Write 'Key: value'.");
        } else if (listed(key, denied)) {
            tern_layout_error(l, v,
                              "ParallelCluster sets '%s' itself and refuses it here. "
                              "Remove it.",
                              key);
        } else if (strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") !=
                   strlen(key)) {
            tern_layout_error(l, v, "'%s' is not the name of a Slurm setting.", key);
        } else {
            out->at = reallocarray(out->at, out->n + 1, sizeof *out->at);
            if (!out->at)
                abort();
            out->at[out->n++] = (struct tern_layout_setting){tern_strdup(key), tern_strdup(value)};
        }
    }
}

void tern_layout_read_settings(struct tern_layout *l, const struct tern_yaml_node *n,
                               const char *const *denied, struct tern_layout_settings *out)
{
    if (!n)
        return;
    if (tern_yaml_kind(n) == TERN_YAML_MAP) { /* of a queue or compute resource */
        read_setting(l, n, denied, out);
        return;
    }
    for (size_t i = 0; i < tern_yaml_count(n); i++) { /* of SlurmSettings: a list of maps */
        const struct tern_yaml_node *m = tern_yaml_at(n, i);
        if (tern_yaml_kind(m) == TERN_YAML_MAP)
            read_setting(l, m, denied, out);
        else
            tern_layout_error(l, m, "is not 'Key: value'.");
    }
}

static void read_head(struct tern_layout *l, const struct tern_yaml_node *root)
{
    static const char *const unused[] = {
        "DisableSimultaneousMultithreading",
        "Ssh",
        "LocalStorage",
        "SharedStorageType",
        "Dcv",
        "CustomActions",
        "Iam",
        "Imds",
        "Image",
        NULL,
    };
    static const char *const net[] = {
        "SubnetId", "ElasticIp", "SecurityGroups", "AdditionalSecurityGroups", "Proxy", NULL};
    struct tern_yaml_node *head = tern_layout_map(l, root, "HeadNode", true);
    struct tern_yaml_node *type =
        tern_layout_text(l, head, "InstanceType", true, &l->head_type_name);

    if (type) {
        l->head_type = tern_layout_instance(l->head_type_name);
        const char *near = tern_layout_instance_near(l->head_type_name);
        if (!l->head_type)
            tern_layout_warn(l, type, "'%s' is not in tern's catalogue.%s%s%s", l->head_type_name,
                             near ? " Did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    const struct tern_yaml_node *n = tern_layout_map(l, head, "Networking", true);
    tern_layout_get(l, n, "SubnetId", true);
    tern_layout_accept(n, net);
    tern_layout_accept(head, unused);
}

static void read_image(struct tern_layout *l, const struct tern_yaml_node *root)
{
    static const char *const systems[] = {"alinux2",    "alinux2023", "ubuntu2004", "ubuntu2204",
                                          "ubuntu2404", "rhel8",      "rocky8",     "rhel9",
                                          "rocky9",     NULL};
    struct tern_yaml_node *image = tern_layout_map(l, root, "Image", true);
    struct tern_yaml_node *os = tern_layout_text(l, image, "Os", true, &l->os);
    struct tern_err err;
    int word;

    if (os && tern_yaml_read_word(os, systems, &word, &err) < 0)
        tern_layout_note(l, &err);
    tern_layout_accept(image, (const char *const[]){"CustomAmi", NULL});
}

static void read_scheduling(struct tern_layout *l, const struct tern_yaml_node *root)
{
    static const char *const unused[] = {"ScaledownIdletime",
                                         "QueueUpdateStrategy",
                                         "Database",
                                         "ExternalSlurmdbd",
                                         "Dns",
                                         "MungeKeySecretArn",
                                         "CustomSlurmSettingsIncludeFile",
                                         NULL};
    struct tern_yaml_node *s = tern_layout_map(l, root, "Scheduling", true);
    char *scheduler = NULL;
    struct tern_yaml_node *n = tern_layout_text(l, s, "Scheduler", true, &scheduler);

    if (n && strcmp(scheduler, "slurm") != 0)
        tern_layout_error(l, n, "'%s' is not supported. Write slurm.", scheduler);
    free(scheduler);
    struct tern_yaml_node *settings = tern_layout_map(l, s, "SlurmSettings", false);
    tern_layout_bool(l, settings, "EnableMemoryBasedScheduling", &l->memory_scheduling);
    tern_layout_read_settings(l, tern_layout_list(l, settings, "CustomSlurmSettings", false),
                              denied_in_slurm_conf, &l->custom);
    tern_layout_accept(settings, unused);
    tern_layout_accept(s, (const char *const[]){"ScalingStrategy", NULL});
    tern_layout_read_queues(l, tern_layout_list(l, s, "SlurmQueues", true));
}

/* One is the other, or lies below it: "/fsx" and "/fsx/a", not "/fsx" and "/fsx2". */
static bool nested(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), least = n < m ? n : m;

    return strncmp(a, b, least) == 0 && (n == m || (n < m ? b : a)[least] == '/');
}

static void check_mount_dir(struct tern_layout *l, const struct tern_yaml_node *n,
                            const struct tern_layout_storage *s)
{
    static const char *const reserved[] = {
        "/bin",  "/boot", "/dev",  "/etc", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc",
        "/root", "/run",  "/sbin", "/srv", "/sys", "/tmp",   "/usr",   "/var", "/",    NULL,
    };

    if (s->mount_dir[0] != '/' || strstr(s->mount_dir, "..") || strstr(s->mount_dir, "//") ||
        strpbrk(s->mount_dir, " \t\n'\"\\$")) {
        tern_layout_error(l, n, "'%s' is not an absolute path. Write one such as /fsx.",
                          s->mount_dir);
        return;
    }
    if (listed(s->mount_dir, reserved))
        tern_layout_error(l, n, "'%s' belongs to the system. Use another, such as /fsx.",
                          s->mount_dir);
    for (size_t i = 0; i + 1 < l->n_storage; i++)
        if (l->storage[i].mount_dir && nested(l->storage[i].mount_dir, s->mount_dir))
            tern_layout_error(l, n, "'%s' overlaps '%s' (line %d). Use separate folders.",
                              s->mount_dir, l->storage[i].mount_dir, l->storage[i].line);
}

static void read_storage(struct tern_layout *l, const struct tern_yaml_node *list)
{
    static const char *const types[] = {"Ebs",      "Efs",       "FsxLustre", "FsxOpenZfs",
                                        "FsxOntap", "FileCache", NULL};
    size_t n = list ? tern_yaml_count(list) : 0;

    l->storage = n ? tern_alloc(n, sizeof *l->storage, "SharedStorage", NULL) : NULL;
    for (size_t i = 0; l->storage && i < n; i++) {
        const struct tern_yaml_node *m = tern_yaml_at(list, i);
        struct tern_layout_storage *s = &l->storage[l->n_storage++];
        struct tern_err err;
        int word;
        s->line = tern_yaml_line(m);
        if (tern_yaml_want(m, TERN_YAML_MAP, &err) < 0) {
            tern_layout_note(l, &err);
            continue;
        }
        struct tern_yaml_node *name = tern_layout_text(l, m, "Name", true, &s->name);
        for (size_t k = 0; name && k < i; k++)
            if (l->storage[k].name && strcmp(l->storage[k].name, s->name) == 0)
                tern_layout_error(l, name, "'%s' is also the name in line %d. Use another.",
                                  s->name, l->storage[k].line);
        struct tern_yaml_node *dir = tern_layout_text(l, m, "MountDir", true, &s->mount_dir);
        for (char *e = dir ? s->mount_dir + strlen(s->mount_dir) : NULL;
             e && e > s->mount_dir + 1 && e[-1] == '/';)
            *--e = '\0';
        if (dir)
            check_mount_dir(l, dir, s);
        struct tern_yaml_node *type = tern_layout_text(l, m, "StorageType", true, &s->type);
        if (type && tern_yaml_read_word(type, types, &word, &err) < 0) {
            tern_layout_note(l, &err);
        } else if (type) {
            char *settings = tern_strf("%sSettings", s->type);
            tern_layout_accept(m, (const char *const[]){settings, NULL});
            tern_layout_no_others(l, m);
            free(settings);
        }
    }
}

/* cluster.yaml -> cluster.tern.yaml, malloc'ed. */
static char *sidecar_path(const char *path)
{
    const char *dot = strrchr(path, '.');
    size_t stem = dot && !strchr(dot, '/') ? (size_t)(dot - path) : strlen(path);

    return tern_strf("%.*s.tern.yaml", (int)stem, path);
}

static int read_sidecar(struct tern_layout *l, struct tern_err *err)
{
    char *path = sidecar_path(l->path);
    int64_t dynamic = 0, leaf = 0;

    if (!tern_fs_exists(path)) {
        free(path);
        return 0;
    }
    struct tern_yaml *doc = tern_yaml_load(path, err);
    free(path);
    if (!doc)
        return -1;
    const struct tern_yaml_node *root = tern_yaml_root(doc);
    tern_layout_bool(l, tern_layout_map(l, root, "gres", false), "neuron", &l->gres);
    const struct tern_yaml_node *v = tern_layout_map(l, root, "virtual", false);
    tern_layout_int(l, v, "dynamic", 0, 1024, &dynamic);
    l->virtual_dynamic = (int)dynamic;
    tern_layout_int(l, tern_layout_map(l, root, "topology", false), "leaf", 0, 65536, &leaf);
    l->topology_leaf = (int)leaf;
    tern_layout_no_others(l, root);
    tern_yaml_free(doc);
    return 0;
}

/* A name that a user would give it: the folder of .../trn1-4/cluster.yaml, or the file's. */
static char *name_of(const char *path)
{
    const char *file = tern_fs_basename(path), *dot = strchr(file, '.');
    char *real = strcmp(file, "cluster.yaml") == 0 ? realpath(path, NULL) : NULL;
    char *name;

    if (real) {
        *strrchr(real, '/') = '\0';
        name = tern_strdup(tern_fs_basename(real));
        free(real);
    } else {
        name = tern_strf("%.*s", (int)(dot ? dot - file : (long)strlen(file)), file);
    }
    return name;
}

struct tern_layout *tern_layout_load(const char *path, struct tern_err *err)
{
    static const char *const unused[] = {
        "LoginNodes",
        "Monitoring",
        "Tags",
        "Iam",
        "DirectoryService",
        "AdditionalPackages",
        "CustomS3Bucket",
        "AdditionalResources",
        "DeploymentSettings",
        "Imds",
        "DevSettings",
        NULL,
    };
    struct tern_yaml *doc = tern_yaml_load(path, err);

    if (!doc)
        return NULL;
    struct tern_layout *l = tern_alloc(1, sizeof *l, "a layout", err);
    if (!l) {
        tern_yaml_free(doc);
        return NULL;
    }
    l->path = tern_strdup(path);
    l->name = name_of(path);
    l->gres = true;
    const struct tern_yaml_node *root = tern_yaml_root(doc);
    if (tern_yaml_kind(root) != TERN_YAML_MAP) {
        tern_layout_error(l, root, "is not a map of Region, Image, HeadNode, Scheduling.");
    } else {
        tern_layout_text(l, root, "Region", false, &l->region);
        read_image(l, root);
        read_head(l, root);
        read_scheduling(l, root);
        read_storage(l, tern_layout_list(l, root, "SharedStorage", false));
        tern_layout_accept(root, unused);
        tern_layout_no_others(l, root);
    }
    tern_yaml_free(doc);
    if (read_sidecar(l, err) < 0) {
        tern_layout_free(l);
        return NULL;
    }
    return l;
}

static void free_settings(struct tern_layout_settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->at[i].key);
        free(s->at[i].value);
    }
    free(s->at);
}

void tern_layout_free(struct tern_layout *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_queues; i++) {
        struct tern_layout_queue *q = &l->queues[i];
        for (size_t k = 0; k < q->n_resources; k++) {
            free(q->resources[k].name);
            free(q->resources[k].type_name);
            free_settings(&q->resources[k].custom);
        }
        free(q->resources);
        free(q->name);
        free_settings(&q->custom);
    }
    for (size_t i = 0; i < l->n_storage; i++) {
        free(l->storage[i].name);
        free(l->storage[i].mount_dir);
        free(l->storage[i].type);
    }
    for (size_t i = 0; i < l->n_notes; i++)
        free(l->notes[i].text);
    free_settings(&l->custom);
    free(l->queues);
    free(l->storage);
    free(l->notes);
    free(l->path);
    free(l->name);
    free(l->region);
    free(l->os);
    free(l->head_type_name);
    free(l);
}
