#include "cmd/run/explain.h"

#include "cmd/cmd.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/place/explain.h"
#include "core/place/nodes.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/vcluster.h"

#include <stdlib.h>
#include <string.h>

/* The nodes, and how they are described. */
struct scene {
    struct tern_place place;
    struct tern_place_order order;
    const struct tern_layout_instance *type;
    int threads;
    char *about, *reserve;
};

/* ------------------------------------------------------------------ the nodes of this job */

static void type_of_job(struct scene *s)
{
    struct tern_slurm_nodes *all = NULL;
    struct tern_err err = {0};

    if (tern_slurm_nodes_load(&all, &err) < 0) {
        tern_warn("%s", err.text);
        return;
    }
    for (size_t i = 0; i < all->n && !s->type; i++) {
        if (strcmp(all->node[i].name, s->order.hosts[0]) != 0)
            continue;
        char *features = tern_strdup(all->node[i].features), *save = NULL;
        for (char *f = strtok_r(features, ",", &save); f && !s->type;
             f = strtok_r(NULL, ",", &save))
            s->type = tern_layout_instance(f);
        if (s->type)
            s->threads = (int)all->node[i].cpus < tern_layout_vcpus(s->type) ? 1 : s->type->threads;
        free(features);
    }
    tern_slurm_nodes_free(all);
}

static int in_job(const struct explain *e, struct scene *s, struct tern_err *err)
{
    const struct tern_recipe *r = e->options.recipe;
    struct tern_place_nodes nodes = {0};

    if (e->nodes || e->cluster)
        return tern_err_set(err, TERN_USAGE,
                            "this is job %u, and its nodes count: leave --nodes and --cluster out",
                            s->place.job);
    if (tern_place_nodes_read(&nodes, &s->place, err) < 0)
        return -1;
    int64_t want = s->place.nodes - r->launch.spares;
    int rc = want < 1 ? tern_recipe_fail(r, "launch.spares", err,
                                         "%lld nodes in reserve of the job's %lld: none is left.",
                                         (long long)r->launch.spares, (long long)s->place.nodes)
                      : tern_place_nodes_choose(&nodes, (size_t)want, &s->place, err);
    if (rc == 0) {
        s->reserve = tern_slurm_hosts_compress(nodes.host + want, nodes.n - (size_t)want);
        s->about = tern_strf("of job %u", s->place.job);
        rc = tern_place_order_read(&s->place, r, &s->order, err);
    }
    tern_place_nodes_free(&nodes);
    if (rc == 0)
        type_of_job(s);
    return rc;
}

/* ------------------------------------------------------------------ nodes that are assumed */

struct assumed {
    char **hosts, **where;
    size_t n;
};

static void free_assumed(struct assumed *a)
{
    for (size_t i = 0; i < a->n; i++) {
        free(a->hosts[i]);
        free(a->where[i]);
    }
    free(a->hosts);
    free(a->where);
}

static int alloc_assumed(struct assumed *a, size_t n, struct tern_err *err)
{
    a->hosts = tern_alloc(n + 1, sizeof *a->hosts, "nodes", err);
    a->where = a->hosts ? tern_alloc(n + 1, sizeof *a->where, "nodes", err) : NULL;
    return a->where ? 0 : -1;
}

/* The first nodes of the layout's first queue, all of one type. */
static int from_layout(const struct explain *e, struct scene *s, struct assumed *a,
                       struct tern_err *err)
{
    char *path = tern_vcluster_layout(e->cluster, err);
    struct tern_layout *l = path ? tern_layout_load(path, err) : NULL;
    struct tern_layout_group *groups = NULL;
    size_t n_groups = 0, most = 0;
    int rc = -1;

    if (!l)
        goto out;
    if (tern_layout_usable(l, err) < 0)
        goto out;
    groups = tern_layout_groups(l, &n_groups);
    for (size_t g = 0; g < n_groups && groups[g].resource == groups[0].resource; g++)
        most += (size_t)groups[g].count;
    const size_t want = e->nodes ? (size_t)e->nodes : most;
    if (want > most || want == 0) {
        tern_err_set(err, TERN_USAGE, "%s: its first compute resource has %zu nodes, not %zu", path,
                     most, want);
        goto out;
    }
    if (alloc_assumed(a, want, err) < 0)
        goto out;
    for (size_t g = 0; a->n < want; g++)
        for (int i = 1; i <= groups[g].count && a->n < want; i++) {
            a->hosts[a->n] = tern_layout_node_name(&groups[g], i);
            a->where[a->n++] = tern_layout_switches(l, &groups[g], i);
        }
    s->type = groups[0].resource->type;
    s->threads = groups[0].resource->smt ? s->type->threads : 1;
    s->about = tern_strf("the first %zu of %s", want, path);
    rc = 0;
out:
    free(groups);
    tern_layout_free(l);
    free(path);
    return rc;
}

static int flat(const struct explain *e, struct scene *s, struct assumed *a, struct tern_err *err)
{
    if (alloc_assumed(a, (size_t)e->nodes, err) < 0)
        return -1;
    for (; a->n < (size_t)e->nodes; a->n++) {
        a->hosts[a->n] = tern_strf("node-%zu", a->n + 1);
        a->where[a->n] = tern_strdup("");
    }
    s->about = tern_strf("%zu, assumed", a->n);
    return 0;
}

static int assume(const struct explain *e, struct scene *s, struct tern_err *err)
{
    enum { MOST = 65536 };
    struct assumed a = {0};
    int rc;

    if (e->nodes > MOST)
        return tern_err_set(err, TERN_USAGE, "--nodes: at most %d", (int)MOST);
    rc = e->cluster ? from_layout(e, s, &a, err) : flat(e, s, &a, err);
    const size_t spares = (size_t)e->options.recipe->launch.spares;
    if (rc == 0 && spares >= a.n)
        rc = tern_recipe_fail(e->options.recipe, "launch.spares", err,
                              "%zu nodes in reserve of %zu: none is left to work.", spares, a.n);
    if (rc == 0) {
        s->place.slurm = true;
        s->place.nodes = (int64_t)(a.n - spares);
        s->reserve = tern_slurm_hosts_compress(a.hosts + a.n - spares, spares);
        rc = tern_place_order_make(a.hosts, a.where, a.n - spares, e->options.recipe,
                                   tern_place_ranks_on_node(&s->place, e->options.recipe),
                                   &s->order, err);
    }
    free_assumed(&a);
    return rc;
}

/* ------------------------------------------------------------------ printing */

static int print(const struct explain *e, const struct scene *s, struct tern_err *err)
{
    char **command = tern_run_predict_command(&e->options, &s->place, &s->order, err);
    struct tern_buf text = {0};
    int rc = -1;

    if (!command)
        return -1;
    const struct tern_place_explain x = {
        .recipe = e->options.recipe,
        .place = &s->place,
        .order = &s->order,
        .about = s->about,
        .type = s->type,
        .threads = s->threads,
        .reserve = s->reserve ? s->reserve : "",
        .command = command,
        .columns = tern_cmd_columns(),
    };
    if (e->json) {
        json_t *j = tern_place_explain_json(&x);
        rc = j ? tern_json_print(stdout, j, err)
               : tern_err_set(err, TERN_FAILED, "no memory for the answer");
        json_decref(j);
    } else {
        tern_place_explain_text(&x, &text);
        rc = tern_buf_check(&text, "the answer", err);
        if (rc == 0)
            fputs(text.data, stdout);
    }
    tern_buf_free(&text);
    tern_recipe_words_free(command);
    return rc;
}

int explain(const struct explain *e, struct tern_err *err)
{
    const struct tern_recipe *r = e->options.recipe;
    struct scene s = {0};
    int rc;

    if ((e->nodes || e->cluster) && !getenv("SLURM_JOB_ID")) {
        s.place = (struct tern_place){
            .groups = 1,
            .ranks_per_node =
                r->workload.command ? r->workload.tasks_per_node : r->launch.ranks_per_node,
        };
        rc = assume(e, &s, err);
    } else {
        rc = tern_place_read(&s.place, r, e->options.ranks, err);
        if (rc == 0 && s.place.slurm) {
            rc = in_job(e, &s, err);
        } else if (rc == 0) {
            s.about = tern_strdup("this machine");
            rc = tern_place_order_read(&s.place, r, &s.order, err);
        }
    }
    if (rc == 0)
        rc = print(e, &s, err);
    tern_place_order_free(&s.order);
    free(s.about);
    free(s.reserve);
    return rc;
}
