#include "core/run/environ.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/env/env.h"
#include "core/place/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* The node of rank 0 by the order of ranks; torchrun's own ranks follow it. */
static int find_master(const struct tern_run_attempt *a, struct tern_env_facts *f,
                       struct tern_err *err)
{
    const struct tern_place *p = &a->place;
    struct tern_place_order order;

    if (!p->slurm)
        return 0;
    /* The trainer needs no master, and groups of a heterogeneous job keep their order. */
    if (tern_run_attempt_is_trainer(a) || p->groups > 1 || p->nodes == 1) {
        if (p->groups <= 1)
            tern_env_first_host(p->node_list, f->master, sizeof f->master);
        return 0;
    }
    if (tern_place_order_read(p, a->o->recipe, &order, err) < 0)
        return -1;
    tern_env_first_host(order.hosts[order.map.order ? order.map.order[0] : 0], f->master,
                        sizeof f->master);
    tern_place_order_free(&order);
    return 0;
}

static int64_t workers(const struct tern_run_attempt *a)
{
    const struct tern_recipe *r = a->o->recipe;
    int64_t n = r->workload.command ? r->workload.workers_per_node / a->place.ranks_per_node : 1;

    return n < 1 ? 1 : n;
}

/* The tensor degree where cores may differ from the ranks' numbers; else 1. */
static int64_t tensor(const struct tern_recipe *r)
{
    return r->launch.mapping == TERN_MAPPING_BLOCK ? 1 : r->parallel.tensor;
}

/* Find the facts of a rank: its node's are this node's, the rest is in the recipe. */
static int find_facts(const struct tern_run_attempt *a, struct tern_env_facts *f,
                      struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    const struct tern_place *p = &a->place;

    if (tern_env_facts_gather(f, err) < 0)
        return -1;
    f->launched = false;
    f->trainer = tern_run_attempt_is_trainer(a);
    f->nodes = (int)p->nodes;
    f->tasks_per_node = (int)p->ranks_per_node;
    f->task = f->tasks_to_come = 0;
    f->workers = (int)workers(a);
    f->cpus_per_task = (int)p->cpus_per_rank;
    f->pipeline = (int)r->parallel.pipeline;
    f->tensor = (int)tensor(r);
    if (!p->slurm) { /* two runs at a time on this machine */
        f->job = (uint32_t)getpid();
        f->master[0] = '\0';
    }
    return 0;
}

static const char *asked_profile(const struct tern_run_attempt *a)
{
    const char *job = tern_var("TERN_PROFILE");

    return job ? job : a->o->recipe->launch.profile;
}

static int build(const struct tern_run_attempt *a, struct tern_env_facts *f,
                 struct tern_env_rows *rows, struct tern_err *err)
{
    struct tern_env_setting settings[TERN_SITE_VARS];
    const struct tern_site *site = a->o->site;

    for (size_t i = 0; site && i < site->n_env; i++)
        settings[f->n_site++] = (struct tern_env_setting){site->env[i].name, site->env[i].value};
    f->site = settings;
    int rc = tern_env_build(asked_profile(a), f, environ, rows, err);
    f->site = NULL;
    f->n_site = 0;
    return rc;
}

static int record(struct tern_run_attempt *a, const struct tern_env_rows *rows,
                  struct tern_err *err)
{
    int rc = 0;

    char *profile = tern_strf("%s: %s", rows->profile, rows->profile_why);
    rc = tern_ledger_spool_param(a->spool, "env.profile", profile, err);
    free(profile);
    for (size_t i = 0; i < rows->n && rc == 0; i++) {
        const struct tern_env_row *r = &rows->row[i];
        if (r->by == TERN_ENV_UNSET)
            continue;
        char *name = tern_strf("env.%s", r->name);
        char *value = tern_strf("%s (%s%s%s%s)", r->value, tern_env_by_word(r->by),
                                r->by == TERN_ENV_PROFILE ? " " : "",
                                r->by == TERN_ENV_PROFILE ? rows->profile : "",
                                r->scope == TERN_ENV_RANK ? ", first rank" : "");
        rc = tern_ledger_spool_param(a->spool, name, value, err);
        free(value);
        free(name);
    }
    return rc;
}

/* As tern_env_apply leaves it: variables that only an outer call set are taken back. */
static const char *predicted(const struct tern_env_rows *rows, const char *name)
{
    for (size_t i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].name, name) == 0)
            return rows->row[i].value;
    for (size_t i = 0; i < rows->n_stale; i++)
        if (strcmp(rows->stale[i], name) == 0)
            return NULL;
    return getenv(name);
}

int tern_run_environ_predict(const struct tern_run_attempt *a, const char *const *names, size_t n,
                             char **values, struct tern_err *err)
{
    struct tern_env_facts facts;
    struct tern_env_rows rows;

    if (find_facts(a, &facts, err) < 0 || build(a, &facts, &rows, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const char *value = predicted(&rows, names[i]);
        values[i] = tern_strdup(value ? value : "");
    }
    tern_env_rows_free(&rows);
    return 0;
}

int tern_run_environ_set(struct tern_run_attempt *a, struct tern_err *err)
{
    const char *profile = asked_profile(a);
    struct tern_env_facts facts;
    struct tern_env_rows rows;
    char number[24], group[24];

    if (find_facts(a, &facts, err) < 0)
        return -1;
    tern_env_facts_blas(&facts);
    if (find_master(a, &facts, err) < 0 || build(a, &facts, &rows, err) < 0)
        return -1;
    int rc = record(a, &rows, err);
    for (size_t i = 0; i < rows.n_advice; i++)
        tern_info("%s", rows.advice[i]);
    /* The tasks know their own nodes, but not the recipe. */
    if (facts.trainer)
        profile = rows.profile;
    tern_env_limit(&rows, TERN_ENV_NODE);
    snprintf(number, sizeof number, "%" PRId64, workers(a));
    snprintf(group, sizeof group, "%" PRId64, tensor(a->o->recipe));
    if (rc == 0)
        rc = tern_env_apply(&rows, err);
    if (rc == 0 &&
        ((profile && setenv("TERN_PROFILE", profile, 1) < 0) ||
         setenv("TERN_RUN_WORKERS", number, 1) < 0 || setenv("TERN_RUN_TENSOR", group, 1) < 0))
        rc = tern_err_sys(err, "cannot set the ranks' environment");
    tern_env_rows_free(&rows);
    return rc;
}
