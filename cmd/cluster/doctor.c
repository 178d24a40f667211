#include "cmd/cluster/doctor.h"

#include "cmd/cmd.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/doctor/doctor.h"
#include "core/recipe/recipe.h"
#include "core/site/site.h"
#include "core/store/store.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* No error, but not every node was looked at; `tern health` says it with the same. */
enum { UNKNOWN = 4 };

static bool as_json, this_node;
static const char *node_list, *ledger, *recipe, *config, *plugstack, *plugin_dir, *tmp_dir, *probe;
static double timeout = 30;

static const struct tern_opt opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &as_json, .help = "print JSON"},
    {"node", 'w', TERN_OPT_TEXT, "LIST", .to.text = &node_list,
     .help = "these nodes alone, as Slurm writes them: trn1-[1-4]"},
    {"ledger", 'l', TERN_OPT_TEXT, "DIR", .env = "TERN_LEDGER", .to.text = &ledger,
     .help = "shared folder to try; default: the site's ledger.dir"},
    {"recipe", 0, TERN_OPT_TEXT, "FILE", .to.text = &recipe,
     .help = "a run's: on Lustre, look at its checkpoint.dir and folders of token sets, too"},
    {"config", 0, TERN_OPT_TEXT, "FILE", .env = "TERN_CONFIG", .to.text = &config,
     .help = "site settings; default: /etc/tern/tern.yaml"},
    {"timeout", 0, TERN_OPT_REAL, "SECONDS", "30", .to.real = &timeout,
     .help = "for the nodes of each partition to answer, 1 to 3600"},
    {"this-node", 0, TERN_OPT_FLAG, .to.flag = &this_node,
     .help = "print this machine's facts, one a line, as on every node"},
    {"plugstack", 0, TERN_OPT_TEXT, "FILE", .to.text = &plugstack,
     .help = "with --this-node: Slurm's plugstack.conf"},
    {"plugin-dir", 0, TERN_OPT_TEXT, "DIR", .to.text = &plugin_dir,
     .help = "with --this-node: Slurm's PluginDir"},
    {"tmp-dir", 0, TERN_OPT_TEXT, "DIR", .to.text = &tmp_dir,
     .help = "with --this-node: Slurm's TmpFS"},
    {"probe", 0, TERN_OPT_TEXT, "DIR", .to.text = &probe,
     .help = "with --this-node: the folder in which the nodes try the shared storage"},
    {0},
};

static void put_line(void *arg, const char *key, const char *value)
{
    const char *name = getenv("SLURMD_NODENAME");
    char host[65] = "";

    (void)arg;
    if (!name)
        gethostname(host, sizeof host - 1);
    char *line = tern_doctor_line(name ? name : host, key, value);
    printf("%s\n", line);
    fflush(stdout); /* in lines of their own: Slurm passes on what it gets at once */
    free(line);
}

static char *nodes_text(const struct tern_doctor_finding *f)
{
    if (f->n_nodes == 0)
        return tern_strdup("-");
    if (f->n_nodes == 1 && !*f->node[0])
        return tern_strdup("(here)");
    bool here = !*f->node[0];
    char *list = tern_slurm_hosts_compress(f->node + here, f->n_nodes - here);
    char *text = tern_strf("%s%s", here ? "(here)," : "", list);
    free(list);
    return text;
}

static void print_table(const struct tern_doctor_findings *f)
{
    static const char *const colors[] = {"", "\033[33m", "\033[31m"};
    bool color = tern_cmd_color(STDOUT_FILENO);

    for (size_t i = 0; i < f->n; i++) {
        const struct tern_doctor_finding *v = &f->v[i];
        char *nodes = nodes_text(v);
        printf("%s%-8s%s %-18s %s\n         %s\n         -> %s\n", color ? colors[v->severity] : "",
               tern_doctor_severity_name(v->severity), color ? "\033[0m" : "", v->id, nodes,
               v->what, v->remedy);
        free(nodes);
    }
}

static int print_json(const struct tern_doctor_findings *f, size_t asked, size_t answered,
                      size_t unasked, struct tern_err *err)
{
    json_t *all = json_array();

    for (size_t i = 0; i < f->n; i++) {
        const struct tern_doctor_finding *v = &f->v[i];
        json_t *nodes = json_array();
        bool here = false;
        for (size_t k = 0; k < v->n_nodes; k++) {
            here |= !*v->node[k];
            if (*v->node[k])
                json_array_append_new(nodes, tern_json_text(v->node[k]));
        }
        json_array_append_new(all, json_pack("{ss ss sb so so ss}", "id", v->id, "severity",
                                             tern_doctor_severity_name(v->severity), "here", here,
                                             "nodes", nodes, "what", tern_json_text(v->what),
                                             "remedy", v->remedy));
    }
    json_t *top =
        json_pack("{sI sI sI so}", "nodes_asked", (json_int_t)asked, "nodes_answered",
                  (json_int_t)answered, "nodes_not_asked", (json_int_t)unasked, "findings", all);
    int rc = tern_json_print(stdout, top, err);
    json_decref(top);
    return rc;
}

static size_t count(const struct tern_doctor_facts *facts, const char *key)
{
    size_t n = 0;

    for (size_t i = 0; i < facts->n; i++)
        n += *facts->fact[i].node && strcmp(facts->fact[i].key, key) == 0;
    return n;
}

static int report(const struct tern_slurm_about *about, const struct tern_doctor_facts *facts,
                  struct tern_err *err)
{
    struct tern_doctor_findings f = {0};
    size_t n[3] = {0}, asked = count(facts, "asked"), answered = count(facts, "done");
    size_t unasked = count(facts, "busy") + count(facts, "unusable");
    char rest[64] = "";
    int rc = 0;

    tern_doctor_judge(about, facts, &f);
    for (size_t i = 0; i < f.n; i++)
        n[f.v[i].severity]++;
    if (as_json)
        rc = print_json(&f, asked, answered, unasked, err);
    else
        print_table(&f);
    if (unasked)
        snprintf(rest, sizeof rest, ", %zu not idle and not checked", unasked);
    if (!as_json)
        printf("Slurm %s, tern built for %s; %zu of %zu nodes answered%s: %zu errors, %zu "
               "warnings, %zu for information\n",
               about->version, tern_slurm_release(), answered, asked, rest, n[TERN_RULES_ERROR],
               n[TERN_RULES_WARN], n[TERN_RULES_INFO]);
    bool bad = n[TERN_RULES_ERROR] > 0;
    tern_doctor_findings_free(&f);
    /* Inside a job the job's nodes are checked. */
    bool open = unasked > 0 && !getenv("SLURM_JOB_ID");
    return rc < 0 ? -1 : bad ? TERN_FAILED : open ? UNKNOWN : TERN_OK;
}

/* The folder to try: as given, else the site's.  A damaged site file is a finding, not the end. */
static char *find_ledger(void)
{
    struct tern_site *site = ledger ? NULL : tern_site_load(NULL, NULL);
    char *cwd = getcwd(NULL, 0);
    char *dir = ledger                 ? tern_fs_join(cwd ? cwd : "/", ledger)
                : site && site->ledger ? tern_strdup(site->ledger)
                                       : NULL;

    tern_site_free(site);
    free(cwd);
    return dir;
}

static void check_sets(const struct tern_recipe_sets *s, struct tern_doctor_facts *facts)
{
    char *last = NULL; /* sets often lie in one folder */

    for (size_t i = 0; i < s->n; i++) {
        char *dir = tern_store_is(s->sets[i].path) ? NULL : tern_fs_dirname(s->sets[i].path);
        if (dir && (!last || strcmp(last, dir) != 0))
            tern_doctor_check_stripes(dir, facts);
        if (dir) {
            free(last);
            last = dir;
        }
    }
    free(last);
}

/* The folders of a run that hold large files. */
static void check_folders(const struct tern_recipe *r, struct tern_doctor_facts *facts)
{
    if (r->checkpoint.dir)
        tern_doctor_check_stripes(r->checkpoint.dir, facts);
    for (size_t i = 0; i < r->data.n_stages; i++)
        check_sets(&r->data.stages[i].train, facts);
    check_sets(&r->data.held_out, facts);
}

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
    stop = sig;
}

/* Ctrl-C leaves neither a job nor a folder on shared storage behind. */
static void catch_signals(void)
{
    const struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};

    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

/* The whole cluster, and the folders of recipe `r`; NULL: of none. */
static int look(const struct tern_recipe *r, struct tern_err *err)
{
    struct tern_slurm_about *about = NULL;
    struct tern_doctor_facts facts = {0};

    if (tern_slurm_about_load(&about, err) < 0)
        return tern_err_prefix(err, "Is slurmctld up, and is this one of its machines?");
    char *exe = tern_fs_self();
    if (!exe) {
        tern_slurm_about_free(about);
        return tern_err_sys(err, "cannot determine where this program is");
    }
    char *dir = find_ledger();
    const struct tern_doctor_options o = {
        .program = exe, .nodes = node_list, .ledger = dir, .timeout_s = timeout, .stop = &stop};
    catch_signals();
    int rc = tern_doctor_collect(&o, about, &facts, err);
    if (rc == 0 && r)
        check_folders(r, &facts);
    if (rc == 0)
        rc = report(about, &facts, err);
    tern_doctor_facts_free(&facts);
    tern_slurm_about_free(about);
    free(exe);
    free(dir);
    return rc;
}

static int run(int n, char **args, struct tern_err *err)
{
    const struct tern_doctor_gather_options local = {
        .plugstack = plugstack, .plugin_dir = plugin_dir, .tmp_fs = tmp_dir, .probe = probe};

    (void)n, (void)args;
    if (config && setenv("TERN_CONFIG", config, 1) < 0)
        return tern_err_sys(err, "--config");
    if (!(timeout >= 1 && timeout <= 3600))
        return tern_err_set(err, TERN_USAGE, "--timeout: 1 to 3600 seconds are allowed");
    if (this_node) {
        tern_doctor_gather(&local, put_line, NULL);
        return 0;
    }
    struct tern_recipe *r = recipe ? tern_recipe_load(recipe, NULL, 0, err) : NULL;
    if (recipe && !r)
        return -1;
    int rc = look(r, err);
    tern_recipe_free(r);
    return rc;
}

const struct tern_cmd doctor_cmd = {
    .name = "doctor",
    .summary = "is tern installed right on every idle node? each finding with its remedy",
    .about = "Runs one short job on the idle nodes of each partition (inside a job: one step on "
             "its nodes). On each node and on this machine it checks the plugin (its line in "
             "plugstack.conf, its build, the Slurm it is for) and tern's programs. It checks "
             "Slurm's releases, libfabric's provider, PMIx, and shared storage (seen by all, "
             "link(2) and O_EXCL won by one, locks). It checks the clock, limits, BLAS, TmpFS, and "
             "site settings. At last it checks settings of Slurm that matter when a node dies. "
             "Nodes that are busy or down are named and not checked.\n\nExit status 0: all nodes "
             "(inside a job: its own) answered and nothing is an error; warnings are none. 1: an "
             "error. 4: no error, but nodes that are busy or down were not checked.",
    .examples = "  tern cluster doctor\n"
                "  tern cluster doctor --recipe run.yaml\n"
                "  tern cluster doctor -w trn1-[1-4] --ledger /fsx/ledger --json\n"
                "  tern cluster exec trn1-4 -- tern cluster doctor\n",
    .opts = opts,
    .run = run,
};
