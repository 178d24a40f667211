#include "cmd/tern/help.h"

#include "core/base/opt.h"
#include "core/base/page.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/doctor/doctor.h"
#include "core/env/env.h"
#include "core/health/health.h"
#include "core/layout/layout.h"
#include "core/recipe/recipe.h"
#include "core/site/site.h"

#include <stdlib.h>
#include <string.h>

static const struct topic topics[] = {
    {"recipe", "run.yaml", "topics: a run", "the keys of a recipe, run.yaml", topic_recipe, 5},
    {"parallel", NULL, NULL, "layouts: tensor, sequence, pipeline, ZeRO, recomputation",
     topic_parallel, 7},
    {"lora", NULL, NULL, "adapters: LoRA, rsLoRA and DoRA", topic_lora, 7},
    {"precision", NULL, NULL, "fp32, and bf16 with a master copy", topic_precision, 7},
    {"launch", NULL, NULL, "how a run starts, stops and resumes; placement of its ranks",
     topic_launch, 7},
    {"workload", NULL, NULL, "trainers other than tern's: launch, values, checkpoints",
     topic_workload, 7},
    {"figures", NULL, NULL, "curves of continued pretraining: domain, forgetting, cost",
     topic_figures, 7},
    {"c-api", "libtern-ledger", NULL, "libtern-ledger: log from C, Fortran or Python", topic_c_api,
     7},
    {"env", NULL, NULL, "profiles of environment variables, and precedence", topic_env, 7},
    {"faults", NULL, NULL, "what happens when a rank, a node or a disk fails", topic_faults, 7},
    {"install", NULL, "topics: a site", "build, install, package, remove", topic_install, 7},
    {"site", "tern.yaml", NULL, "the keys of the site settings, tern.yaml", topic_site, 5},
    {"layout", "cluster.yaml", NULL, "a cluster from its layout: here, in a Slurm, on AWS",
     topic_layout, 7},
    {"layout-settings", "cluster.tern.yaml", NULL, "the keys of cluster.tern.yaml, beside a layout",
     topic_layout_settings, 5},
    {"checks", NULL, NULL, "the checks of nodes and of cluster layouts", topic_checks, 7},
    {"fabric", NULL, NULL, "networks, transports, algorithms, secrecy", topic_fabric, 7},
    {"environment", "variables", NULL, "the TERN_* variables", topic_environment, 7},
    {"checkpoint", NULL, "topics: files", "the format of a checkpoint's folder", topic_checkpoint,
     5},
    {"token-set", "tds", NULL, "the format of a token set", topic_token_set, 5},
    {"ledger-files", "spool", NULL, "the ledger on disk: spools, run.db, ledger.db",
     topic_ledger_files, 5},
    {"ledger-schema", "run.db", NULL, "tables and columns of run.db and ledger.db",
     topic_ledger_schema, 5},
    {"log-files", NULL, NULL, "the format of a rank's log", topic_log_files, 5},
    {"flight-dump", NULL, NULL, "the format of a rank's dump of the flight recorder",
     topic_flight_dump, 5},
};
enum { N_TOPICS = sizeof topics / sizeof *topics };

const struct topic *topic_at(size_t i)
{
    return i < N_TOPICS ? &topics[i] : NULL;
}

const struct topic *topic_find(const char *name)
{
    for (size_t i = 0; i < N_TOPICS; i++) {
        if (strcmp(topics[i].name, name) == 0 ||
            (topics[i].also && strcmp(topics[i].also, name) == 0))
            return &topics[i];
    }
    return NULL;
}

/* ------------------------------------------------------------------ tables inside the texts */

/* Variables that begin with `prefix`. */
static void put_variables(struct tern_page *page, const char *prefix)
{
    for (const struct tern_var *v = tern_vars; v->name; v++) {
        char *help =
            tern_strf("%s%s%s%s", v->help, *v->def ? " [" : "", v->def, *v->def ? "]" : "");
        if (tern_str_starts(v->name, prefix))
            tern_page_item(page, v->name, help);
        free(help);
    }
}

static void put_profiles(struct tern_page *page)
{
    const struct tern_env_profile *p;

    for (size_t i = 0; (p = tern_env_profile(i)); i++)
        tern_page_item(page, p->name, p->summary);
}

/* What should hold (severity and limits).  The remedy where it does not. */
static void put_rule(struct tern_page *page, const struct tern_rule *r, const char *severity,
                     const char *limits)
{
    char *text = tern_strf("%s (%s%s). Remedy: %s", r->holds, severity, limits, r->remedy);

    tern_page_item(page, r->id, text);
    free(text);
}

/* Of nodes; `across`: between them. */
static void put_checks(struct tern_page *page, bool across)
{
    struct tern_health_about a;

    for (size_t i = 0; tern_health_about(i, &a); i++) {
        bool of_node = a.limit_s > 0;
        char *limits =
            of_node ? tern_strf("; %s; at most %g s", a.stages, a.limit_s) : tern_strdup("");
        if (of_node != across)
            put_rule(page, a.rule, tern_health_severity_name(a.rule->severity), limits);
        free(limits);
    }
}

static void put_findings(struct tern_page *page)
{
    const struct tern_rule *r;

    for (size_t i = 0; (r = tern_doctor_rule(i)); i++)
        put_rule(page, r, tern_doctor_severity_name(r->severity), "");
}

static void put_layout_rules(struct tern_page *page, const struct tern_rule *(*row)(size_t i))
{
    const struct tern_rule *r;

    for (size_t i = 0; (r = row(i)); i++)
        put_rule(page, r, r->severity == TERN_RULES_ERROR ? "error" : "warning", "");
}

/* What a line "@WORDS" of a text stands for. */
static void insert(struct tern_page *page, const char *words)
{
    size_t name = strcspn(words, " ");
    const char *rest = words + name + (words[name] == ' ');

    if (strncmp(words, "recipe", name) == 0)
        tern_recipe_describe(page, rest);
    else if (strncmp(words, "fills", name) == 0)
        tern_recipe_describe_fills(page);
    else if (strncmp(words, "site", name) == 0)
        tern_site_describe(page);
    else if (strncmp(words, "variables", name) == 0)
        put_variables(page, rest);
    else if (strncmp(words, "profiles", name) == 0)
        put_profiles(page);
    else if (strncmp(words, "checks", name) == 0)
        put_checks(page, strcmp(rest, "across") == 0);
    else if (strncmp(words, "findings", name) == 0)
        put_findings(page);
    else if (strncmp(words, "layout", name) == 0)
        put_layout_rules(page, tern_layout_rule_row);
    else if (strncmp(words, "sidecar", name) == 0)
        tern_layout_describe_sidecar(page);
    else if (strncmp(words, "hyperpod", name) == 0)
        put_layout_rules(page, tern_layout_hyperpod_rule);
}

void topic_print(FILE *to, const struct topic *t, int columns)
{
    struct tern_page page = {.to = to, .columns = columns, .insert = insert};
    char *name =
        columns ? tern_strdup(t->name)
                : tern_strf("tern-%s%s%s", t->name, t->also ? ", " : "", t->also ? t->also : "");

    tern_page_title(&page, name, t->section, t->summary);
    if (columns == 0)
        tern_page_heading(&page, "DESCRIPTION");
    tern_page_text(&page, t->text);
    tern_opt_topic_files(&page, t->name);
    if (columns == 0) {
        tern_page_heading(&page, "SEE ALSO");
        fputs(".BR tern (1)\n", to);
    }
    free(name);
}
