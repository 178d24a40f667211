/* tern health: is this node, or are a job's nodes, fit to train? */
#include "cmd/cmd.h"
#include "cmd/health/health.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/health/replace.h"
#include "core/site/site.h"
#include "core/slurm/slurm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool as_json, list, node_check, as_prolog, as_program, whole_job, mend;
static const char *only, *skip, *expect, *replace, *platform, *because;
static double wait_s;
static struct tern_opt_list mounts;
static const struct tern_opt opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &as_json, .help = "print JSON"},
    {"list", 0, TERN_OPT_FLAG, .to.flag = &list, .help = "the checks, their stages and limits"},
    {"only", 0, TERN_OPT_TEXT, "ID,...", .to.text = &only, .help = "these checks alone"},
    {"skip", 0, TERN_OPT_TEXT, "ID,...", .to.text = &skip,
     .help = "leave these out, and those that TERN_HEALTH_SKIP names"},
    {"mount", 0, TERN_OPT_LIST, "DIR[:SIZE]", .to.list = &mounts,
     .help = "a folder that must take a file (and have so much free); may be given again. Network "
             "file systems of /etc/fstab are looked at besides"},
    {"expect", 0, TERN_OPT_TEXT, "KEY=N,...", .to.text = &expect,
     .help = "what must be there: neuron, efa (devices), memory (MiB), hugepages; else what the "
             "catalogue knows of the instance type"},
    {"job", 0, TERN_OPT_FLAG, .to.flag = &whole_job,
     .help = "every node of this Slurm job (in its batch script or under salloc), judged together"},
    {"program", 0, TERN_OPT_FLAG, .to.flag = &as_program,
     .help = "as Slurm's HealthCheckProgram: drains this node when it is bad, and undoes tern's "
             "own drain when it is well"},
    {"prolog", 0, TERN_OPT_FLAG, .to.flag = &as_prolog,
     .help = "as Prolog: asks Slurm nothing; fails only when the node is bad"},
    {"mend", 0, TERN_OPT_FLAG, .to.flag = &mend,
     .help = "undo tern's drain of this node if its check is well now, or of the NODEs named"},
    {"replace", 0, TERN_OPT_TEXT, "NODE", .to.text = &replace,
     .help = "ask the platform for another machine in place of NODE"},
    {"because", 0, TERN_OPT_TEXT, "WORDS", "asked by hand", .to.text = &because,
     .help = "why, for the reason that Slurm shows"},
    {"wait", 0, TERN_OPT_REAL, "SECONDS", .to.real = &wait_s,
     .help = "with --replace: until it is there, at most"},
    {"platform", 0, TERN_OPT_TEXT, "NAME", .to.text = &platform,
     .help = "hyperpod, pcluster or virtual, where this machine does not show it, or none: no "
             "request is made"},
    {"node-check", 0, TERN_OPT_FLAG, .to.flag = &node_check,
     .help = "one node's part of --job: send rows to the collector"},
    {0},
};

/* Texts that options point into; as long as the program. */
static struct tern_site *site;
static char *all_skipped, *all_expected, *known_local, *site_mounts;

/* The site's file is root's or the caller's (core/site), so root may read it too. */
static int heed_site(struct tern_err *err)
{
    struct tern_err why = {0};

    site = tern_site_load(NULL, &why);
    if (site)
        return 0;
    if (as_prolog || as_program) { /* a mistake there drains no node */
        tern_warn("%s", why.text);
        return 0;
    }
    *err = why;
    return -1;
}

static int add_mount(struct tern_health_options *o, const char *mount, struct tern_err *err)
{
    if (o->n_mounts == TERN_RULES_MAX_FOLDERS)
        return tern_err_set(err, TERN_USAGE, "--mount: %d at most", TERN_RULES_MAX_FOLDERS);
    o->mount[o->n_mounts++] = mount;
    return 0;
}

/* Both expectations, the second of which wins; malloc'ed, NULL without any. */
static char *join(const char *a, const char *b)
{
    return a && b ? tern_strf("%s;%s", a, b) : a || b ? tern_strdup(a ? a : b) : NULL;
}

/* The site's settings.  A sweep's nodes have the expectations on their command line already, and
 * perhaps the folders. */
static int add_site(struct tern_health_options *o, struct tern_err *err)
{
    char *save = NULL;

    if (site->health_skip)
        o->skip = all_skipped =
            tern_strf("%s%s%s", site->health_skip, skip ? "," : "", skip ? skip : "");
    if (!node_check || !expect)
        o->expect = all_expected = join(site->health_expect, expect);
    site_mounts = tern_strdup(site->health_mounts ? site->health_mounts : "");
    for (char *m = strtok_r(site_mounts, ",", &save); m; m = strtok_r(NULL, ",", &save)) {
        size_t i = 0;
        while (i < o->n_mounts && strcmp(o->mount[i], m) != 0)
            i++;
        if (i == o->n_mounts && add_mount(o, m, err) < 0)
            return -1;
    }
    return 0;
}

static int fill(struct tern_health_options *o, const char *level, struct tern_err *err)
{
    int stage = tern_health_stage_of(level);

    if (stage < 0)
        return tern_err_set(err, TERN_USAGE, "'%s' is not one of: quick, fabric, spot, deep.",
                            level);
    if ((as_prolog || as_program) && stage != TERN_HEALTH_STAGE_QUICK)
        return tern_err_set(err, TERN_USAGE,
                            "'%s': --prolog and --program make the quick checks only: Slurm waits "
                            "for them.",
                            level);
    *o = (struct tern_health_options){
        .stage = (enum tern_health_stage)stage, .only = only, .skip = skip, .expect = expect};
    for (size_t i = 0; i < mounts.n; i++)
        if (add_mount(o, mounts.values[i], err) < 0)
            return -1;
    return site ? add_site(o, err) : 0;
}

/* ------------------------------------------------------------------ this node */

static int local(const struct tern_health_options *o, struct tern_err *err)
{
    struct tern_health_rows rows = {0};
    struct tern_health_judged judged = {0};
    char name[65] = "unknown", *nodes[] = {name};
    int rc = -1;

    tern_health_node_name(NULL, name);
    tern_progress_begin("checks", "%s", name);
    const int checked = tern_health_check_local(o, &rows, err);
    tern_progress_end();
    if (checked == 0 && tern_health_judge(&rows, nodes, 1, &judged, err) == 0 &&
        health_print(&rows, &judged, as_json, err) == 0)
        rc = tern_health_status(&judged);
    tern_health_judged_free(&judged);
    tern_health_rows_free(&rows);
    return rc;
}

/* A node's part of a sweep. */
static int one_of_many(struct tern_health_options *o, struct tern_err *err)
{
    struct tern_health_rows rows = {0};

    o->collect = tern_var("TERN_HEALTH_COLLECT");
    if (!o->collect)
        return tern_err_set(
            err, TERN_USAGE,
            "--node-check: no collector is named (TERN_HEALTH_COLLECT). Use --job.");
    o->fabric = tern_var("TERN_RUN_SOCKET");
    int rc = tern_health_check_local(o, &rows, err);
    if (rc == 0)
        rc = tern_health_send(o->collect, &rows, err);
    tern_health_rows_free(&rows);
    return rc;
}

/* ------------------------------------------------------------------ a job's nodes */

/* The job's list, of a heterogeneous one those of all its groups; malloc'ed, NULL outside a job. */
static char *job_list(int *groups)
{
    const char *one = getenv("SLURM_JOB_NODELIST"), *size = getenv("SLURM_HET_SIZE");
    struct tern_buf all = {0};
    int64_t n = 1;

    if (size && tern_str_int(size, 1, 128, &n) < 0) /* Slurm's MAX_HET_JOB_COMPS */
        n = 1;
    *groups = (int)n;
    if (n == 1)
        return one ? tern_strdup(one) : NULL;
    for (int g = 0; g < n; g++) {
        char name[48];
        snprintf(name, sizeof name, "SLURM_JOB_NODELIST_HET_GROUP_%d", g);
        one = getenv(name);
        tern_buf_printf(&all, "%s%s", all.len && one ? "," : "", one ? one : "");
    }
    return all.data;
}

static int job(const struct tern_health_options *o, struct tern_err *err)
{
    struct tern_health_sweep s = {
        .stage = o->stage, .only = o->only, .skip = o->skip, .n_mounts = o->n_mounts};
    struct tern_health_rows rows = {0};
    struct tern_health_judged judged = {0};
    struct tern_err why = {0};
    char **nodes = NULL, said[400], *known = NULL, *all = NULL,
         *program = tern_fs_beside("tern-health"), *nodes_text = job_list(&s.groups);
    int rc = -1;

    if (!nodes_text) {
        tern_err_set(err, TERN_USAGE,
                     "--job: not inside a Slurm job. Get nodes first: salloc -N4, or sbatch.");
        goto out;
    }
    if (tern_slurm_hosts_expand(nodes_text, &nodes, &s.n_nodes, err) < 0)
        goto out;
    known = tern_health_expect_of(nodes, s.n_nodes, &why);
    if (!known && !o->expect) {
        *err = why;
        goto out;
    }
    if (!known)
        tern_warn("%s", why.text);
    all = join(known, o->expect);
    memcpy(s.mount, o->mount, sizeof s.mount);
    s.nodes = nodes;
    s.program = program;
    s.expect = all;
    tern_progress_begin("nodes", "health");
    const int swept = tern_health_sweep(&s, &rows, said, sizeof said, err);
    tern_progress_end();
    if (swept < 0 || tern_health_judge(&rows, nodes, s.n_nodes, &judged, err) < 0)
        goto out;
    if (*said && judged.count[TERN_HEALTH_UNKNOWN])
        tern_warn("%s", said);
    rc = health_print(&rows, &judged, as_json, err);
    if (rc == 0)
        rc = tern_health_status(&judged);
out:
    tern_health_judged_free(&judged);
    tern_health_rows_free(&rows);
    tern_slurm_hosts_free(nodes);
    free(nodes_text);
    free(all);
    free(known);
    free(program);
    return rc;
}

/* ------------------------------------------------------------------ drains and machines */

/* What Slurm believes of this node, and the folder that tern has drained it for. */
static void ask_slurm(struct tern_health_options *o)
{
    static char mount[520];
    char known[200], dir[512], node[65] = "unknown";
    struct tern_err err = {0};

    if (!tern_slurm_available())
        return;
    tern_health_node_name(NULL, node);
    if (tern_health_known(node, known, sizeof known, dir, sizeof dir, &err) < 0) {
        tern_warn("%s", err.text);
        return;
    }
    o->expect = known_local = join(known, o->expect);
    snprintf(mount, sizeof mount, "%s:0", dir);
    if (*dir && add_mount(o, mount, NULL) < 0)
        tern_warn("%s: is not looked at again", dir);
}

static int mend_nodes(struct tern_health_options *o, char **nodes, int n, struct tern_err *err)
{
    struct tern_health_rows rows = {0};
    char name[65] = "unknown", *self[] = {name};
    int rc = 0;

    tern_health_node_name(NULL, name);
    if (n == 0) {
        ask_slurm(o);
        rc = tern_health_check_local(o, &rows, err);
    }
    for (int i = 0; rc == 0 && i < (n ? n : 1); i++) {
        const char *node = n ? nodes[i] : self[0];
        bool mended = false;
        rc = tern_health_undrain(node, n ? NULL : &rows, &mended, err);
        if (rc == 0)
            printf("%s: %s\n", node,
                   mended ? "tern's drain is taken back"
                   : n    ? "not drained by tern"
                          : "not drained by tern, or for a check that is not well now");
    }
    tern_health_rows_free(&rows);
    return rc;
}

static int replace_node(struct tern_err *err)
{
    char said[400];
    const char *word = platform ? platform : site ? site->platform : NULL;
    int p = word ? tern_health_platform_of(word) : (int)tern_health_platform_find();

    if (p < 0)
        return tern_err_set(err, TERN_USAGE,
                            "--platform: '%s' is not one of: none, hyperpod, pcluster, virtual.",
                            word);
    if (tern_health_replace((enum tern_health_platform)p, replace, because, wait_s, said,
                            sizeof said, err) < 0)
        return -1;
    printf("%s\n", said);
    return 0;
}

/* ------------------------------------------------------------------ */

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_health_options o;
    bool level = n > 0 && tern_health_stage_of(args[0]) >= 0;

    if (list)
        return health_print_checks(as_json, err);
    if (heed_site(err) < 0)
        return -1;
    if (replace)
        return n ? tern_err_set(err, TERN_USAGE, "--replace takes no further argument.")
                 : replace_node(err);
    if (fill(&o, level ? args[0] : n > 0 && !mend ? args[0] : "quick", err) < 0)
        return -1;
    if (mend)
        return mend_nodes(&o, args + level, n - level, err);
    if (n > 1)
        return tern_err_set(err, TERN_USAGE, "'%s': one level, please.", args[1]);
    if (as_program)
        ask_slurm(&o);
    if (as_prolog || as_program)
        return health_root_check(&o, as_program, err);
    if (node_check)
        return one_of_many(&o, err);
    return whole_job ? job(&o, err) : local(&o, err);
}

static int run_and_free(int n, char **args, struct tern_err *err)
{
    if (as_prolog || as_program)
        health_root_begin(as_prolog);
    int rc = run(n, args, err);
    if (as_prolog)
        rc = health_root_prolog_status(rc, err);
    free(all_skipped);
    free(all_expected);
    free(known_local);
    free(site_mounts);
    tern_site_free(site);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "health",
        .args = "[quick|fabric|spot|deep] [NODE...]",
        .summary = "check nodes, drain the bad ones, have them replaced",
        .about =
            "quick (5 s): devices, links, mounts, memory, limits, clock, leftovers, software. spot "
            "(30 s): memory bandwidth and arithmetic, bit for bit. fabric (60 s, with --job): "
            "every node with two neighbours, and an all-reduce with a known result. deep: all of "
            "them, longer. These are times for one node. With --job and before a launch, tern "
            "waits for the answers of all nodes, and 1 s more for srun's end. It waits 10, 35, 65 "
            "and 600 s for the four levels. Every check has a limit; one that hangs is a finding. "
            "Exit status: 0 all is well; 3 a node is bad; 2 usage. 4: fabric or storage is bad or "
            "a check was not possible (tern drains no node for that).\n\nA site leaves checks out "
            "or adds folders in tern.yaml (health.skip, health.mounts, "
            "health.expect).\n\nslurm.conf: HealthCheckProgram runs a script with 'exec tern "
            "health --program'; Prolog likewise with --prolog.",
        .examples = "  tern health\n"
                    "  salloc -N4 tern health fabric --job\n"
                    "  tern health quick --mount /fsx:100G --expect neuron=16,efa=8\n"
                    "  tern health --mend trn1-st-trn1-3\n"
                    "  tern health --replace trn1-st-trn1-3 --wait 1800\n",
        .opts = opts,
        .args_max = -1,
        .run = run_and_free,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
