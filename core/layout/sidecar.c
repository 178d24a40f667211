/* tern's own settings of a layout: cluster.tern.yaml beside cluster.yaml. */
#include "core/layout/keys.h"
#include "core/layout/notes.h"
#include "core/layout/value.h"

#include "core/base/fs.h"
#include "core/base/page.h"

#include <stdlib.h>
#include <string.h>

static const struct tern_layout_key gres[] = {
    {.name = "neuron",
     .type = BOOL,
     .help = "false leaves the Neuron devices out of Slurm",
     .def = "true"},
    {0},
};

static const struct tern_layout_key virtual_nodes[] = {
    {.name = "dynamic",
     .type = INT,
     .lo = 0,
     .hi = 1024,
     .help = "dynamic nodes of each compute resource that `tern cluster up` starts at once",
     .def = "0"},
    {.name = "idle_s",
     .type = INT,
     .lo = 1,
     .hi = 1 << 20,
     .help = "a dynamic node is switched off after so many idle seconds",
     .def = "ScaledownIdletime"},
    {.name = "nics",
     .type = INT,
     .lo = 1,
     .hi = TERN_LAYOUT_NICS,
     .help = "network interfaces of a virtual node, each on a network of its own",
     .def = "1"},
    {.name = "tmp_mib",
     .type = INT,
     .lo = 1,
     .hi = 1 << 20,
     .help = "MiB that a virtual node's /tmp holds",
     .def = "as this machine's disk"},
    {0},
};

static const struct tern_layout_key topology[] = {
    {.name = "leaf",
     .type = INT,
     .lo = 0,
     .hi = 65536,
     .help = "nodes of a compute resource under one switch",
     .def = "0: all of a resource"},
    {0},
};

static const struct tern_layout_key sidecar[] = {
    {.name = "gres", .type = MAP, .of = gres},
    {.name = "virtual", .type = MAP, .of = virtual_nodes},
    {.name = "topology", .type = MAP, .of = topology},
    {0},
};

void tern_layout_describe_sidecar(struct tern_page *page)
{
    for (const struct tern_layout_key *k = sidecar; k->name; k++)
        for (const struct tern_layout_key *in = k->of; in->name; in++) {
            char *name = tern_strf("%s.%s", k->name, in->name);
            char *help = in->type == BOOL
                             ? tern_strf("%s (true | false) [%s]", in->help, in->def)
                             : tern_strf("%s (%lld to %lld) [%s]", in->help, (long long)in->lo,
                                         (long long)in->hi, in->def);
            tern_page_item(page, name, help);
            free(name);
            free(help);
        }
}

/* cluster.yaml -> cluster.tern.yaml, malloc'ed. */
static char *sidecar_path(const char *path)
{
    const char *dot = strrchr(path, '.');
    size_t stem = dot && !strchr(dot, '/') ? (size_t)(dot - path) : strlen(path);

    return tern_strf("%.*s.tern.yaml", (int)stem, path);
}

/* malloc'ed: the keys of its sections. */
static char *given(const struct tern_yaml_node *root)
{
    struct tern_buf b = {0};

    for (const struct tern_layout_key *k = sidecar; k->name; k++) {
        const struct tern_yaml_node *section = tern_layout_map(root, k->name);
        for (const struct tern_layout_key *in = k->of; section && in->name; in++)
            if (tern_yaml_get(section, in->name))
                tern_buf_printf(&b, "%s%s.%s", b.len ? ", " : "", k->name, in->name);
    }
    return b.data;
}

int tern_layout_read_sidecar(struct tern_layout *l, struct tern_err *err)
{
    char *path = sidecar_path(l->path);

    if (!tern_fs_exists(path)) {
        free(path);
        return 0;
    }
    struct tern_yaml *doc = tern_yaml_load(path, err);
    l->sidecar = tern_strdup(tern_fs_basename(path));
    free(path);
    if (!doc)
        return -1;
    const struct tern_yaml_node *root = tern_yaml_root(doc);
    if (tern_yaml_kind(root) == TERN_YAML_MAP)
        tern_layout_check_keys(l, root, sidecar);
    else
        tern_layout_error(l, "value-type", root, "is no map. Write gres, virtual or topology.");
    l->gres = tern_layout_bool(tern_layout_map(root, "gres"), "neuron", true);
    l->virtual_dynamic = (int)tern_layout_int(tern_layout_map(root, "virtual"), "dynamic", 0);
    l->virtual_idle_s = (int)tern_layout_int(tern_layout_map(root, "virtual"), "idle_s", 0);
    l->virtual_nics = (int)tern_layout_int(tern_layout_map(root, "virtual"), "nics", 1);
    l->virtual_tmp_mib = (int)tern_layout_int(tern_layout_map(root, "virtual"), "tmp_mib", 0);
    l->topology_leaf = (int)tern_layout_int(tern_layout_map(root, "topology"), "leaf", 0);
    l->sidecar_given = given(root);
    tern_yaml_free(doc);
    return 0;
}
