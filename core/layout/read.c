/* From YAML to the model: the top level, storage, CustomSlurmSettings and the sidecar.  Nothing is
 * said of what is wrong: the schema and the rules have done that. */
#include "core/layout/keys.h"
#include "core/layout/notes.h"
#include "core/layout/rules.h"
#include "core/layout/value.h"
#include "core/layout/vars.h"

#include "core/base/fs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A text of `map`, malloc'ed; NULL where there is none. */
static char *text_of(const struct tern_yaml_node *map, const char *key)
{
    const char *text = tern_layout_text(map, key);

    return text ? tern_strdup(text) : NULL;
}

static void add_setting(struct tern_layout_settings *to, const char *key, char *value)
{
    to->at = reallocarray(to->at, to->n + 1, sizeof *to->at);
    if (!to->at)
        abort();
    to->at[to->n++] = (struct tern_layout_setting){tern_strdup(key), value};
}

/* A map of a list is one line: "NodeName=extra CPUs=4". */
static void read_line(const struct tern_yaml_node *map, struct tern_layout_settings *out)
{
    struct tern_buf line = {0};

    for (size_t i = 0; i < tern_layout_count_keys(map); i++) {
        const char *value = tern_yaml_text(tern_yaml_at(map, i));
        if (value)
            tern_buf_printf(&line, i ? " %s=%s" : "%.0s%s", tern_yaml_key(map, i), value);
    }
    if (line.len)
        add_setting(out, tern_yaml_key(map, 0), tern_strdup(line.data));
    tern_buf_free(&line);
}

void tern_layout_read_settings(const struct tern_yaml_node *n, struct tern_layout_settings *out)
{
    for (size_t i = 0; i < tern_layout_count(n); i++)
        read_line(tern_yaml_at(n, i), out);
    for (size_t i = 0; i < tern_layout_count_keys(n); i++) {
        const char *value = tern_yaml_text(tern_yaml_at(n, i));
        if (value)
            add_setting(out, tern_yaml_key(n, i), tern_strdup(value));
    }
}

static void read_scheduling(struct tern_layout *l, const struct tern_yaml_node *root)
{
    const struct tern_yaml_node *s = tern_layout_map(root, "Scheduling");
    const struct tern_yaml_node *settings = tern_layout_map(s, "SlurmSettings");

    l->memory_scheduling = tern_layout_bool(settings, "EnableMemoryBasedScheduling", false);
    l->idle_minutes = (int)tern_layout_int(settings, "ScaledownIdletime", 10);
    tern_layout_read_settings(tern_layout_list(settings, "CustomSlurmSettings"), &l->custom);
    tern_layout_read_queues(l, tern_layout_list(s, "SlurmQueues"));
}

/* "fsx" and "/fsx/" are "/fsx", as ParallelCluster mounts them; malloc'ed. */
static char *mount_dir(const char *text)
{
    char *dir = tern_strf("%s%s", *text == '/' ? "" : "/", text);

    for (char *e = dir + strlen(dir); e > dir + 1 && e[-1] == '/';)
        *--e = '\0';
    return dir;
}

/* Keys of FsxLustreSettings that the model does not have, malloc'ed; NULL: none. */
static char *other_keys(const struct tern_yaml_node *fsx)
{
    static const char known[] =
        ",FileSystemId,DeploymentType,StorageCapacity,PerUnitStorageThroughput,StorageType,"
        "DataCompressionType,DeletionPolicy,";
    struct tern_buf all = {0};

    for (size_t i = 0; i < tern_layout_count_keys(fsx); i++) {
        char *word = tern_strf(",%s,", tern_yaml_key(fsx, i));
        if (!strstr(known, word))
            tern_buf_printf(&all, "%s%s", all.len ? ", " : "", tern_yaml_key(fsx, i));
        free(word);
    }
    return all.data;
}

static void read_storage(struct tern_layout *l, const struct tern_yaml_node *list)
{
    size_t n = tern_layout_count(list);

    l->storage = n ? tern_alloc(n, sizeof *l->storage, "SharedStorage", NULL) : NULL;
    for (size_t i = 0; l->storage && i < n; i++) {
        const struct tern_yaml_node *m = tern_yaml_at(list, i);
        const char *dir = tern_layout_text(m, "MountDir");
        const struct tern_yaml_node *fsx = tern_layout_map(m, "FsxLustreSettings");
        char *type = text_of(m, "StorageType"), *key = tern_strf("%sSettings", type ? type : "");
        const struct tern_yaml_node *settings = tern_layout_map(m, key);
        const char *policy = tern_layout_text(settings, "DeletionPolicy");
        l->storage[l->n_storage++] = (struct tern_layout_storage){
            .line = tern_yaml_line(m),
            .name = text_of(m, "Name"),
            .mount_dir = dir ? mount_dir(dir) : NULL,
            .type = type,
            .fsx_id = text_of(fsx, "FileSystemId"),
            .fsx_deployment = text_of(fsx, "DeploymentType"),
            .fsx_medium = text_of(fsx, "StorageType"),
            .fsx_compression = text_of(fsx, "DataCompressionType"),
            .fsx_others = other_keys(fsx),
            .fsx_capacity_gib = tern_layout_int(fsx, "StorageCapacity", 0),
            .fsx_throughput = tern_layout_int(fsx, "PerUnitStorageThroughput", 0),
            .existing = tern_layout_text(settings, "FileSystemId") ||
                        tern_layout_text(settings, "VolumeId") ||
                        tern_layout_text(settings, "FileCacheId"),
            .retained = policy && strcmp(policy, "Retain") == 0,
            .snapshot = policy && strcmp(policy, "Snapshot") == 0};
        free(key);
    }
}

/* The pools that have nodes. */
static void read_logins(struct tern_layout *l, const struct tern_yaml_node *pools)
{
    const size_t n_pools = tern_layout_count(pools);

    l->logins = n_pools ? tern_alloc(n_pools, sizeof *l->logins, "login nodes", NULL) : NULL;
    for (size_t i = 0; l->logins && i < n_pools; i++) {
        const struct tern_yaml_node *m = tern_yaml_at(pools, i);
        const int64_t n = tern_layout_int(m, "Count", 0);
        char *type = text_of(m, "InstanceType");
        if (n <= 0 || !type) {
            free(type);
            continue;
        }
        l->logins[l->n_logins++] = (struct tern_layout_login){
            .type_name = type,
            .type = tern_layout_instance(type),
            .count = n > 1000 ? 1000 : (int)n,
        };
    }
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

static void read_root(struct tern_layout *l, const struct tern_yaml_node *root)
{
    const struct tern_yaml_node *head = tern_layout_map(root, "HeadNode");

    l->region = text_of(root, "Region");
    l->os = text_of(tern_layout_map(root, "Image"), "Os");
    l->head_type_name = text_of(head, "InstanceType");
    l->head_type = l->head_type_name ? tern_layout_instance(l->head_type_name) : NULL;
    l->head_subnet = text_of(tern_layout_map(head, "Networking"), "SubnetId");
    l->key_name = text_of(tern_layout_map(head, "Ssh"), "KeyName");
    read_scheduling(l, root);
    read_logins(l, tern_layout_list(tern_layout_map(root, "LoginNodes"), "Pools"));
    read_storage(l, tern_layout_list(root, "SharedStorage"));
}

/* What the reader met on its way and ParallelCluster's would stop at. */
static void note_remarks(struct tern_layout *l, const struct tern_yaml *doc)
{
    size_t n;
    const struct tern_yaml_remark *r = tern_yaml_remarks(doc, &n);

    for (size_t i = 0; i < n; i++) {
        static const char *const ids[] = {"yaml-tag", "yaml-twice", "yaml-merge"};
        static const char *const texts[] = {
            "tag %s: ParallelCluster takes no functions of CloudFormation and no types of other "
            "programs here. Write the value out.",
            "key %s. Keep one.",
            "merge key %s: tern and PyYAML take it, but pcluster 3.16.1 itself refuses it. "
            "Write the keys out before you create the cluster.",
        };
        struct tern_buf text = {0};
        tern_buf_printf(&text, texts[r[i].kind], r[i].text);
        tern_layout_note(l, r[i].kind != TERN_YAML_MERGE, ids[r[i].kind], l->path, r[i].line, "",
                         text.data);
        tern_buf_free(&text);
    }
}

static int fill(struct tern_layout *l, struct tern_yaml *doc, const char *vars,
                struct tern_err *err)
{
    l->vars = vars ? tern_layout_vars_load(vars, err) : NULL;
    if (vars && !l->vars)
        return -1;
    if (l->vars)
        tern_layout_vars_fill(l, l->vars, tern_yaml_root(doc));
    return 0;
}

struct tern_layout *tern_layout_load(const char *path, struct tern_err *err)
{
    return tern_layout_load_with(path, /* vars= */ NULL, err);
}

struct tern_layout *tern_layout_load_with(const char *path, const char *vars, struct tern_err *err)
{
    struct tern_yaml *doc = tern_yaml_load_1_1(path, err);

    if (!doc)
        return NULL;
    if (tern_yaml_kind(tern_yaml_root(doc)) == TERN_YAML_MAP &&
        tern_layout_count_keys(tern_yaml_root(doc)) == 0) {
        tern_err_set(err, TERN_USAGE, "%s: is empty. Write Region, Image, HeadNode and Scheduling.",
                     path);
        tern_yaml_free(doc);
        return NULL;
    }
    struct tern_layout *l = tern_alloc(1, sizeof *l, "a layout", err);
    if (!l || fill(l, doc, vars, err) < 0) {
        tern_yaml_free(doc);
        tern_layout_free(l);
        return NULL;
    }
    l->path = tern_strdup(path);
    l->name = name_of(path);
    l->gres = true;
    l->virtual_nics = 1;
    const struct tern_yaml_node *root = tern_yaml_root(doc);
    note_remarks(l, doc);
    if (tern_yaml_kind(root) != TERN_YAML_MAP) {
        tern_layout_error(l, "value-type", root,
                          "is no map. Write Region, Image, HeadNode and Scheduling.");
    } else {
        tern_layout_check_keys(l, root, tern_layout_cluster_keys);
        read_root(l, root);
        tern_layout_check_rules(l, root);
        tern_layout_sort_notes(l);
    }
    tern_yaml_free(doc);
    if (tern_layout_read_sidecar(l, err) < 0) {
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
        free(q->subnet);
        free(q->group);
        free_settings(&q->custom);
    }
    for (size_t i = 0; i < l->n_storage; i++) {
        free(l->storage[i].name);
        free(l->storage[i].mount_dir);
        free(l->storage[i].type);
        free(l->storage[i].fsx_id);
        free(l->storage[i].fsx_deployment);
        free(l->storage[i].fsx_medium);
        free(l->storage[i].fsx_compression);
        free(l->storage[i].fsx_others);
    }
    free_settings(&l->custom);
    free(l->sidecar);
    free(l->sidecar_given);
    free(l->queues);
    free(l->storage);
    tern_layout_notes_free(l);
    free(l->path);
    free(l->name);
    free(l->region);
    free(l->os);
    free(l->head_type_name);
    free(l->head_subnet);
    free(l->key_name);
    for (size_t i = 0; i < l->n_logins; i++)
        free(l->logins[i].type_name);
    free(l->logins);
    tern_layout_vars_free(l->vars);
    free(l->unknown_type);
    free(l);
}
