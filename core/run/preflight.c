#include "core/run/preflight.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/health/health.h"
#include "core/slurm/slurm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_ROWS =
        4096, /* in the ledger, of one preflight: 64 nodes with every check, or bad rows of more */
    MAX_DRAINS = 8, /* each queries the controller twice */
};

/* ------------------------------------------------------------------ what and where */

/* The job's level (--tern-health), else the recipe's. */
static int64_t level_of(const struct tern_run_attempt *a)
{
    static const char *const words[] = {"off", "quick", "deep"};
    const char *job = tern_var("TERN_HEALTH");

    for (int i = 0; job && i < 3; i++)
        if (strcmp(job, words[i]) == 0)
            return i;
    if (job)
        tern_warn("TERN_HEALTH: '%s' is none of off, quick, deep; the recipe counts", job);
    return a->o->recipe->launch.health;
}

/* What the nodes must have: by Slurm (NULL: unknown), then by the site, which wins; malloc'ed, NULL
 * when neither says. */
static char *expected(const struct tern_run_attempt *a, const char *slurm)
{
    const char *site = a->o->site ? a->o->site->health_expect : NULL;

    if (slurm && site)
        return tern_strf("%s;%s", slurm, site);
    return slurm || site ? tern_strdup(slurm ? slurm : site) : NULL;
}

/* Folders that this run writes to, as --mount has them; owned by the caller. */
static size_t folders(const struct tern_run_attempt *a, char *to[2])
{
    const struct tern_recipe *r = a->o->recipe;
    const char *const dirs[] = {r->ledger.dir, r->checkpoint.dir};
    size_t n = 0;

    for (size_t i = 0; i < 2; i++) {
        char *real = dirs[i] ? realpath(dirs[i], NULL) : NULL;
        if (real)
            to[n++] = tern_strf("%s:0", real);
        free(real);
    }
    return n;
}

/* ------------------------------------------------------------------ recording */

static void record(struct tern_run_attempt *a, const struct tern_health_rows *rows)
{
    struct tern_err err = {0};
    size_t left = MAX_ROWS;

    /* Failed checks first; of very many nodes the rest is left out. */
    for (int well = 0; well <= 1; well++) {
        for (size_t i = 0; i < rows->n && left; i++) {
            const struct tern_health_row *r = &rows->row[i];
            bool is_well = r->severity == TERN_RULES_INFO && r->verdict <= TERN_HEALTH_SKIPPED;
            char check[96];
            if (is_well != well)
                continue;
            snprintf(check, sizeof check, "%s%s%s", r->check, *r->subject ? " " : "", r->subject);
            const struct tern_ledger_health row = {
                .check = check,
                .node = r->node,
                .verdict = tern_health_verdict_name(r->verdict),
                .severity = tern_health_severity_name(r->severity),
                .text = *r->text ? r->text : NULL,
                .value = *r->unit ? r->value : NAN,
                .unit = *r->unit ? r->unit : NULL,
                .seconds = r->seconds,
            };
            left--;
            if (tern_ledger_spool_health(a->spool, &row, &err) < 0) {
                tern_warn("%s", err.text);
                return;
            }
        }
    }
}

/* ------------------------------------------------------------------ what follows */

/* Slurm may know why a node is silent; it is queried for silent nodes alone. */
static void query_slurm(struct tern_health_judged *judged)
{
    struct tern_slurm_nodes *nodes = NULL;
    struct tern_err err = {0};
    bool silent = false;

    for (size_t i = 0; i < judged->n; i++)
        silent = silent || strcmp(judged->node[i].check, "answer") == 0;
    if (!silent)
        return;
    if (tern_slurm_nodes_load(&nodes, &err) < 0) {
        tern_warn("%s", err.text);
        return;
    }
    for (size_t i = 0; i < judged->n; i++) {
        struct tern_health_node *n = &judged->node[i];
        for (size_t k = 0; k < nodes->n && strcmp(n->check, "answer") == 0; k++) {
            if (strcmp(nodes->node[k].name, n->name) != 0 || !nodes->node[k].down)
                continue;
            n->verdict = TERN_HEALTH_NODE_BAD;
            snprintf(n->text, sizeof n->text, "Slurm says that it is %s", nodes->node[k].state);
        }
    }
    tern_slurm_nodes_free(nodes);
}

static void drain(struct tern_run_attempt *a, const struct tern_health_node *n, int *drains)
{
    enum tern_health_drained done;
    struct tern_err err = {0};
    char text[600];

    if (strcmp(n->check, "answer") == 0 || ++*drains > MAX_DRAINS)
        return;
    if (tern_health_drain(n->name, n->check, n->text, false, &done, &err) < 0)
        tern_warn("%s cannot be drained: %s", n->name, err.text);
    else if (done == TERN_HEALTH_MAY_NOT)
        tern_warn("%s", err.text);
    else if (done == TERN_HEALTH_DRAINED) {
        snprintf(text, sizeof text, "%s is drained (%s)", n->name, n->check);
        tern_run_attempt_add_event(a, "drain", "info", n->name, text);
    }
}

/* Log and record every failed node; drain bad ones and add them to *bad. */
static int conclude(struct tern_run_attempt *a, struct tern_health_judged *judged, const char *said,
                    char ***bad, size_t *n_bad, struct tern_err *err)
{
    char **list = tern_alloc(judged->n + 1, sizeof *list, "bad nodes", err), text[600];
    size_t n = 0, warned = 0;
    int drains = 0;

    if (!list)
        return -1;
    for (size_t i = 0; i < judged->n; i++) {
        const struct tern_health_node *node = &judged->node[i];
        if (node->verdict == TERN_HEALTH_OK)
            continue;
        snprintf(text, sizeof text, "node %s: %s: %s: %s", node->name,
                 tern_health_verdict_name(node->verdict), node->check, node->text);
        if (node->verdict == TERN_HEALTH_NODE_BAD && a->place.slurm) {
            tern_run_attempt_add_event(a, "health", "error", node->name, text);
            /* With two nodes and a folder that only one has, either may be at fault: the folder may
             * be on the other's own disk. */
            if (judged->n > 2 || strcmp(node->check, "mount") != 0)
                drain(a, node, &drains);
            list[n++] = tern_strdup(node->name);
        } else if (warned++ < 3) { /* shared trouble is the same on all nodes */
            tern_run_attempt_add_event(a, "health", "warn", node->name, text);
        }
    }
    if (warned > 3)
        tern_warn("the same on %zu further nodes; the ledger has each", warned - 3);
    if (warned && *said)
        tern_warn("%s", said);
    *bad = list;
    *n_bad = n;
    return 0;
}

/* ------------------------------------------------------------------ looking */

static int look(struct tern_run_attempt *a, struct tern_health_sweep *s, char ***bad, size_t *n_bad,
                struct tern_err *err)
{
    struct tern_health_rows rows = {0};
    struct tern_health_judged judged = {0};
    char said[400] = "";
    int rc = -1;

    if (a->place.slurm) {
        rc = tern_health_sweep(s, &rows, said, sizeof said, err);
    } else {
        struct tern_health_options o = {
            .stage = s->stage, .expect = s->expect, .skip = s->skip, .n_mounts = s->n_mounts};
        memcpy(o.mount, s->mount, sizeof o.mount);
        o.node = a->place.host;
        rc = tern_health_check_local(&o, &rows, err);
    }
    if (rc == 0)
        rc = tern_health_judge(&rows, s->nodes, s->n_nodes, &judged, err);
    if (rc == 0) {
        record(a, &rows);
        if (a->place.slurm && judged.worst >= TERN_HEALTH_UNKNOWN)
            query_slurm(&judged);
        rc = conclude(a, &judged, said, bad, n_bad, err);
    }
    tern_health_judged_free(&judged);
    tern_health_rows_free(&rows);
    return rc;
}

/* Stage after stage until one finds a bad node. */
static int look_all(struct tern_run_attempt *a, struct tern_health_sweep *s, int64_t level,
                    char ***bad, size_t *n_bad, struct tern_err *err)
{
    static const enum tern_health_stage stages[] = {TERN_HEALTH_STAGE_QUICK, TERN_HEALTH_STAGE_SPOT,
                                                    TERN_HEALTH_STAGE_FABRIC};
    size_t n = level == TERN_RECIPE_HEALTH_QUICK ? 1 : s->n_nodes > 1 ? 3 : 2;
    int rc = 0;

    for (size_t i = 0; rc == 0 && *n_bad == 0 && i < n; i++) {
        free(*bad);
        *bad = NULL;
        s->stage = stages[i];
        rc = look(a, s, bad, n_bad, err);
    }
    return rc;
}

int tern_run_preflight(struct tern_run_attempt *a, char ***bad, size_t *n_bad, struct tern_err *err)
{
    struct tern_health_sweep s = {0};
    char *mounts[2] = {NULL, NULL}, *host[] = {a->place.host, NULL}, **nodes = NULL;
    char *program = tern_fs_beside("tern-health"), *known = NULL, *expect = NULL;
    int64_t level = level_of(a);
    int rc = 0;

    *bad = NULL;
    *n_bad = 0;
    if (level == TERN_RECIPE_HEALTH_OFF)
        goto out;
    s.n_mounts = folders(a, mounts);
    for (size_t i = 0; i < s.n_mounts; i++)
        s.mount[i] = mounts[i];
    s.program = program;
    s.nodes = host;
    s.n_nodes = 1;
    if (a->place.slurm) {
        rc = tern_slurm_hosts_expand(a->place.node_list, &nodes, &s.n_nodes, err);
        s.nodes = nodes;
        s.groups = a->place.groups;
        if (rc == 0 && !(known = tern_health_expect_of(nodes, s.n_nodes, err)))
            rc = -1;
    }
    s.expect = expect = expected(a, known);
    s.skip = a->o->site ? a->o->site->health_skip : NULL;
    if (rc == 0)
        rc = look_all(a, &s, level, bad, n_bad, err);
    /* A failure of the checks themselves does not stop the launch. */
    if (rc < 0) {
        tern_warn("the nodes are not checked: %s", err->text);
        *n_bad = 0;
        rc = 0;
    }
out:
    tern_slurm_hosts_free(nodes);
    free(mounts[0]);
    free(mounts[1]);
    free(program);
    free(known);
    free(expect);
    return rc;
}
