#include "core/place/order.h"

#include "core/base/log.h"
#include "core/slurm/slurm.h"

#include <stdlib.h>
#include <string.h>

int tern_place_order_make(char *const *hosts, char *const *where, size_t n,
                          const struct tern_recipe *r, int64_t per_node, struct tern_place_order *o,
                          struct tern_err *err)
{
    struct tern_place_order made = {
        .n = n,
        .hosts = tern_alloc(n + 1, sizeof *made.hosts, "nodes", err),
        .where = tern_alloc(n + 1, sizeof *made.where, "nodes", err),
        .nodes = tern_alloc(n + 1, sizeof *made.nodes, "nodes", err),
    };

    for (size_t i = 0; made.hosts && made.where && made.nodes && i < n; i++) {
        made.hosts[i] = tern_strdup(hosts[i]);
        made.where[i] = tern_strdup(where ? where[i] : "");
        made.nodes[i] = (struct tern_place_node){made.hosts[i], made.where[i]};
    }
    const struct tern_place_shape shape = {
        .n_nodes = n,
        .nodes = made.nodes,
        .per_node = per_node,
        .tensor = r->parallel.tensor,
        .pipeline = r->parallel.pipeline,
        .keep = r->launch.mapping == TERN_MAPPING_BLOCK || !where,
    };
    struct tern_err why = {0};
    int rc = made.hosts && made.where && made.nodes ? 0 : -1;
    if (rc == 0 && tern_place_map_make(&shape, &made.map, &why) < 0)
        rc = why.code == TERN_USAGE ? tern_recipe_fail(r, "parallel", err, "%s", why.text)
                                    : tern_err_set(err, why.code, "%s", why.text);
    if (rc < 0) {
        tern_place_order_free(&made);
        return -1;
    }
    *o = made;
    return 0;
}

int tern_place_order_read(const struct tern_place *p, const struct tern_recipe *r,
                          struct tern_place_order *o, struct tern_err *err)
{
    char **hosts = NULL, **where = NULL, *alone[] = {(char *)(uintptr_t)p->host, NULL};
    struct tern_err why = {0};
    size_t n = 0;

    if (!p->slurm)
        return tern_place_order_make(alone, NULL, 1, r, tern_place_ranks_on_node(p, r), o, err);
    if (tern_slurm_hosts_expand(p->node_list, &hosts, &n, err) < 0)
        return -1;
    if (n > 1 && p->groups == 1 && r->launch.mapping != TERN_MAPPING_BLOCK &&
        tern_slurm_topology_load(hosts, n, &where, &why) < 0)
        tern_warn("%s; ranks follow the job's order of nodes", why.text);
    int rc = tern_place_order_make(hosts, where, n, r, tern_place_ranks_on_node(p, r), o, err);
    tern_slurm_topology_free(where, n);
    tern_slurm_hosts_free(hosts);
    return rc;
}

void tern_place_order_free(struct tern_place_order *o)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->hosts)
            free(o->hosts[i]);
        if (o->where)
            free(o->where[i]);
    }
    free(o->hosts);
    free(o->where);
    free(o->nodes);
    tern_place_map_free(&o->map);
    *o = (struct tern_place_order){0};
}

void tern_place_order_list(const struct tern_place_order *o, int64_t per_node, struct tern_buf *to)
{
    for (size_t k = 0; k < o->n; k++)
        for (int64_t i = 0; i < per_node; i++)
            tern_buf_printf(to, "%s\n", o->hosts[o->map.order[k]]);
}
