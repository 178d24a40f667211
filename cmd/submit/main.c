/* tern submit: write the right sbatch line for a recipe, and run it. */
#include "cmd/cmd.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/check/check.h"
#include "core/ckpt/ckpt.h"
#include "core/inputs/inputs.h"
#include "core/ledger/ledger.h"
#include "core/place/place.h"
#include "core/recipe/recipe.h"
#include "core/run/array.h"
#include "core/run/auto_resume.h"
#include "core/run/home.h"
#include "core/run/other.h"
#include "core/run/pace.h"
#include "core/site/site.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/vcluster.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tern_opt_list overrides, arrays;
static bool dry_run, no_plugin;
static const char *cluster;
static const char *partition; /* of the user's options for sbatch; NULL: not given */
static int64_t nodes = -1;

static const struct tern_opt opts[] = {
    {"nodes", 'N', TERN_OPT_INT, "NODES", .to.integer = &nodes,
     .help = "nodes to request, with those in reserve; default: the fewest that hold the "
             "recipe's tensor and pipeline degrees"},
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &overrides,
     .help = "change a key of the recipe, such as optimizer.lr=1e-4 (null: remove it); may be "
             "given again"},
    {"array", 0, TERN_OPT_LIST, "KEY=V1,V2", .to.list = &arrays,
     .help =
         "a job array, one run a value, each in a folder of its own below checkpoint.dir; given "
         "again: every combination"},
    {"cluster", 'c', TERN_OPT_TEXT, "CLUSTER", .to.text = &cluster,
     .help = "judge the recipe by the nodes of this layout (cluster.yaml) or virtual cluster, not "
             "by those of the Slurm here"},
    {"dry-run", 0, TERN_OPT_FLAG, .to.flag = &dry_run, .help = "print the line, do not submit"},
    {"no-plugin", 0, TERN_OPT_FLAG, .to.flag = &no_plugin,
     .help = "leave out --tern, for clusters without tern's Slurm plugin"},
    {0},
};

enum {
    OPTIONS_MAX = 200, /* of the user's; tern adds some twenty */
    MAX_WORDS = 256,
};

/* The job to submit. */
struct request {
    char *path; /* of the recipe, absolute */
    struct tern_recipe *recipe;
    struct tern_run_array array;
    int64_t nodes, per_node;
    char id[TERN_CKPT_ULID]; /* of the run, or "" */
    struct tern_run_ids ids; /* of the runs that are there already, of an array's members, too */
    int64_t limit; /* seconds to request; 0: the user's option, or the partition's limit */
    int64_t warn;  /* seconds before the end */
};

struct line {
    char *words[MAX_WORDS + 1];
    size_t n;
};

static void add(struct line *l, char *word)
{
    if (l->n < MAX_WORDS)
        l->words[l->n++] = word;
    else
        free(word);
}

/* The batch script's one line.  exec: the supervisor itself gets the batch script's signals. */
static char *script(const char *recipe)
{
    struct tern_buf b = {0};
    char *tern = tern_fs_beside("tern");

    tern_buf_puts(&b, "exec ");
    tern_buf_word(&b, tern);
    tern_buf_puts(&b, " run");
    for (size_t i = 0; i < overrides.n; i++) {
        tern_buf_puts(&b, " --set ");
        tern_buf_word(&b, overrides.values[i]);
    }
    for (size_t i = 0; i < arrays.n; i++) {
        tern_buf_puts(&b, " --array ");
        tern_buf_word(&b, arrays.values[i]);
    }
    tern_buf_puts(&b, " ");
    tern_buf_word(&b, recipe);
    free(tern);
    return b.data;
}

/* The run's id for the job's Comment, so that squeue finds it while it waits; "" when it is not
 * known.  A new run gets its id now; each member of an array gets its own when it starts. */
static int run_id(const struct tern_recipe *r, char id[TERN_CKPT_ULID], struct tern_err *err)
{
    id[0] = '\0';
    if (arrays.n)
        return 0;
    if (!r->checkpoint.dir)
        return dry_run ? 0 : (tern_ledger_ulid_new(id), 0);
    if (tern_ckpt_run_read(r->checkpoint.dir, id, NULL) == 0)
        return 0;
    id[0] = '\0';
    return dry_run ? 0 : tern_ckpt_run_identity(r->checkpoint.dir, tern_ledger_ulid_new(id), err);
}

/* The value of --comment, when the user's options for sbatch begin with it; NULL: they do not. */
static const char *comment_of(int n, char **more, int *ret_words)
{
    const size_t len = n > 0 ? strcspn(more[0], "=") : 0;

    *ret_words = 1;
    /* sbatch takes the beginning of a name, too; --con is that of others. */
    if (len < strlen("--com") || strncmp(more[0], "--comment", len) != 0)
        return NULL;
    if (more[0][len] == '=')
        return more[0] + len + 1;
    *ret_words = n > 1 ? 2 : 1;
    return n > 1 ? more[1] : NULL;
}

/* The user's Comment goes behind the id, as the job of a run is found by it. */
static void add_comment(struct line *l, const struct request *q, int n, char **more)
{
    const char *comment = NULL;
    int words;

    if (q->array.n) /* each member has a run of its own */
        return;
    for (int i = 0; i < n; i += words) {
        const char *c = comment_of(n - i, more + i, &words);
        comment = c ? c : comment;
    }
    /* only --dry-run has no id: submitting makes one */
    add(l, tern_strf("--comment=%s%s%s", q->id[0] ? q->id : "<new id>", comment ? " " : "",
                     comment ? comment : ""));
}

static void compose(struct line *l, const struct request *q, int n_more, char **more)
{
    add(l, tern_strdup("sbatch"));
    add(l, tern_strf("--job-name=%s", q->recipe->name));
    add(l, tern_strf("--nodes=%" PRId64, q->nodes));
    add(l, tern_strf("--ntasks-per-node=%" PRId64, q->per_node));
    add(l, tern_strdup("--exclusive"));
    /* With nodes in reserve a lost node ends the attempt, not the job.  Without, Slurm ends the job
     * and queues it again, also when the batch script's node is lost. */
    if (q->recipe->launch.spares > 0)
        add(l, tern_strdup("--no-kill"));
    add(l, tern_strdup("--requeue"));
    add(l, tern_strdup("--open-mode=append"));
    add(l, tern_strf("--signal=B:USR1@%" PRId64, q->warn));
    if (q->limit) {
        char *time = tern_slurm_time_write(q->limit);
        add(l, tern_strf("--time=%s", time));
        free(time);
    }
    if (q->array.n)
        add(l, tern_strf("--array=0-%zu", q->array.n - 1));
    add_comment(l, q, n_more, more);
    if (!no_plugin)
        add(l, tern_strf("--tern=%s", q->path));
    for (int i = 0, words; i < n_more; i += words)
        if (!comment_of(n_more - i, more + i, &words) || q->array.n)
            for (int k = 0; k < words; k++)
                add(l, tern_strdup(more[i + k]));
    char *run = script(q->path);
    add(l, tern_strf("--wrap=%s", run));
    free(run);
}

static void print(const struct line *l)
{
    struct tern_buf b = {0};

    for (size_t i = 0; i < l->n; i++) {
        tern_buf_puts(&b, i ? " " : "");
        tern_buf_word(&b, l->words[i]);
    }
    puts(b.data);
    tern_buf_free(&b);
}

/* Of --cluster, or of the Slurm here. */
static int find_machines(const struct tern_recipe *r, struct tern_check_options *known,
                         struct tern_err *err)
{
    if (!cluster)
        return tern_place_find_machines(r, partition, known, err);
    char *layout = tern_vcluster_layout(cluster, err);
    int rc = layout ? tern_check_assume(layout, r, known, err) : -1;
    free(layout);
    return rc;
}

/* The nodes that the recipe needs, and whether the run works on them. */
static int shape(const struct tern_recipe *r, int64_t *n_nodes, int64_t *per_node,
                 struct tern_err *err)
{
    int64_t spares = r->launch.spares;
    int64_t ranks = r->workload.command ? r->workload.workers_per_node : r->launch.ranks_per_node;

    *per_node = r->workload.command ? r->workload.tasks_per_node : r->launch.ranks_per_node;
    if (nodes == 0 || nodes > TERN_RECIPE_NODES_MAX)
        return tern_err_set(err, TERN_USAGE, "--nodes: from 1 to %d", TERN_RECIPE_NODES_MAX);
    if (nodes > 0 && nodes <= spares)
        return tern_recipe_fail(r, "launch.spares", err,
                                "%" PRId64 " nodes in reserve of %" PRId64
                                ": none is left to work. Ask for more nodes.",
                                spares, nodes);
    *n_nodes = nodes > 0 ? nodes : tern_check_fewest_nodes(r) + spares;
    struct tern_check_options known = {.submission = true, .nodes = *n_nodes - spares};
    known.ranks = known.nodes * ranks;
    if (find_machines(r, &known, err) < 0)
        return -1;
    if (known.here)
        known.node_memory = 0; /* the job does not run on this machine */
    return tern_check_recipe(r, &known, err);
}

/* Every member must work, on as many nodes as the first. */
static int check_members(struct request *q, const struct tern_site *site, struct tern_err *err)
{
    int64_t n_nodes, per_node;

    for (size_t i = 0; i < q->array.n; i++) {
        struct tern_opt_list settings = overrides;
        struct tern_recipe *r = tern_run_array_load(&q->array, i, q->path, &settings, err);
        char *words = tern_run_array_describe(&q->array, i);
        int rc =
            r && tern_run_apply_site(site, r, err) == 0 ? shape(r, &n_nodes, &per_node, err) : -1;
        if (rc == 0 && (n_nodes != q->nodes || per_node != q->per_node))
            rc = tern_err_set(err, TERN_USAGE,
                              "wants %" PRId64 " nodes of %" PRId64 " tasks, not %" PRId64
                              " of %" PRId64 ": members of a job array have one shape",
                              n_nodes, per_node, q->nodes, q->per_node);
        if (rc == 0)
            tern_run_ids_add(&q->ids, r->checkpoint.dir);
        if (rc < 0)
            tern_err_prefix(err, "--array, %s", words);
        else
            tern_info("member %zu: %s%s%s", i, words, r->checkpoint.dir ? ", in " : "",
                      r->checkpoint.dir ? r->checkpoint.dir : "");
        free(words);
        tern_recipe_free(r);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* The value of option `name` or its letter (0: none) among the user's options for sbatch, the last
 * one; NULL without. */
static const char *option(int n, char **more, const char *name, char letter)
{
    const size_t len = strlen(name);
    const char *found = NULL;

    for (int i = 0; i < n; i++) {
        const char *o = more[i];
        const bool is_short = letter && o[0] == '-' && o[1] == letter;
        if (strncmp(o, name, len) == 0 && o[len] == '=')
            found = o + len + 1;
        else if ((strcmp(o, name) == 0 || (is_short && !o[2])) && i + 1 < n)
            found = more[++i];
        else if (is_short && o[2])
            found = o + 2;
    }
    return found;
}

/* sbatch uses the user's --nodes and --partition, so they count here, too; Slurm chooses from a
 * range.  Another cluster's partitions are not known. */
static void heed_options(int n, char **more)
{
    const bool elsewhere =
        option(n, more, "--clusters", 'M') || getenv("SBATCH_CLUSTERS") || getenv("SLURM_CLUSTERS");
    const char *given = option(n, more, "--nodes", 'N');
    int64_t number;

    if (given && tern_str_int(given, 1, TERN_RECIPE_NODES_MAX, &number) == 0)
        nodes = number;
    partition = elsewhere ? "" : option(n, more, "--partition", 'p');
}

/* The plugin checks the file alone: when only --set makes it valid, sbatch would refuse it. */
static bool good_alone(const char *path, const struct tern_site *site)
{
    struct tern_err err = {0};
    int64_t n_nodes, per_node;
    struct tern_recipe *r = tern_recipe_load(path, NULL, 0, &err);
    bool good = r && tern_inputs_length(r, &err) == 0 && tern_run_apply_site(site, r, &err) == 0 &&
                shape(r, &n_nodes, &per_node, &err) == 0;

    if (!good)
        tern_info("without --tern, whose check would refuse the recipe's file (%s): "
                  "tern run checks it with --set instead, as was done here",
                  err.text);
    tern_recipe_free(r);
    return good;
}

/* How long the job may and must run. */
static int time_limit(struct request *q, int n, char **more, struct tern_err *err)
{
    const struct tern_recipe *r = q->recipe;
    const char *given = option(n, more, "--time", 't');
    struct tern_run_pace pace = {0};
    int64_t seconds = 0;
    char step[32];

    if (given && tern_slurm_time_read(given, &seconds) < 0)
        return tern_err_set(err, TERN_USAGE,
                            "--time=%s: is no time limit, such as 90, 8:00:00 or "
                            "2-12:00:00",
                            given);
    q->warn = tern_run_pace_warn(&pace, seconds);
    const int64_t ranks = r->workload.command ? r->workload.workers_per_node : q->per_node;
    const int64_t world = (q->nodes - r->launch.spares) * ranks;
    /* The time of a workload before its first step, such as compiling, is not known. */
    if (!q->id[0] || (r->workload.command && !given))
        return 0;
    if (tern_run_pace_read(&pace, r, q->id, world, err) < 0)
        return -1;
    q->warn = tern_run_pace_warn(&pace, seconds);
    if (given)
        return tern_run_pace_fits(&pace, seconds, err) < 0
                   ? tern_err_prefix(err, "--time=%s", given)
                   : 0;
    q->limit = tern_run_pace_left(&pace, r);
    if (q->limit)
        tern_info("%" PRId64 " steps are left, at %s each as attempt %" PRIu32
                  " measured: requesting that time and a tenth more; --time=... after -- wins",
                  r->steps - pace.done, tern_str_seconds(step, sizeof step, pace.step_seconds),
                  pace.attempt);
    return 0;
}

static int prepare(struct request *q, const char *path, const struct tern_site *site,
                   struct tern_err *err)
{
    q->recipe = tern_recipe_load(path, overrides.values, overrides.n, err);
    if (!q->recipe || tern_inputs_length(q->recipe, err) < 0 ||
        tern_run_apply_site(site, q->recipe, err) < 0 ||
        shape(q->recipe, &q->nodes, &q->per_node, err) < 0 ||
        tern_run_array_read(&q->array, arrays.values, arrays.n, err) < 0 ||
        check_members(q, site, err) < 0)
        return -1;
    if (!q->array.n)
        tern_run_ids_add(&q->ids, q->recipe->checkpoint.dir);
    if (dry_run || tern_slurm_available())
        return run_id(q->recipe, q->id, err);
    return tern_err_set(err, TERN_FAILED,
                        "no Slurm configuration here. In a virtual cluster: `tern cluster exec "
                        "NAME -- tern submit ...`; without Slurm: `tern run %s`.",
                        path);
}

/* HyperPod's own restart beside tern's would start the ranks twice. */
static int check_auto_resume(const struct tern_recipe *r, int n, char **more, struct tern_err *err)
{
    const char *given = option(n, more, "--auto-resume", '\0');
    const char *tern = option(n, more, "--tern-restarts", '\0');
    int64_t restarts = r->launch.restarts;

    if (tern && tern_str_int(tern, 0, 1000000, &restarts) < 0)
        restarts = r->launch.restarts; /* sbatch has the message */
    if (given && strcmp(given, "0") != 0 && restarts > 0)
        return tern_err_set(err, TERN_USAGE,
                            "--auto-resume=%s: HyperPod would restart this run, and tern restarts "
                            "it, too (launch.restarts: %" PRId64
                            "). Leave the option out, or say launch.restarts: 0.",
                            given, restarts);
    if (!given)
        tern_run_auto_resume_tell(restarts);
    return 0;
}

/* A --dependency is the user's own decision. */
static void tell_of_others(const struct tern_run_ids *ids, int n_more, char **more)
{
    for (int i = 0; i < n_more; i++)
        if (tern_str_starts(more[i], "--dependency") || tern_str_starts(more[i], "-d") ||
            tern_str_starts(more[i], "--hold") || strcmp(more[i], "-H") == 0)
            return;
    tern_run_other_tell(ids, "-- ");
}

static int run(int n, char **args, struct tern_err *err)
{
    struct line line = {0};
    struct request q = {0};
    int rc = -1;

    if (n - 1 > OPTIONS_MAX)
        return tern_err_set(err, TERN_USAGE, "more than %d options for sbatch", OPTIONS_MAX);
    char *cwd = getcwd(NULL, 0);
    if (!cwd)
        return tern_err_sys(err, "cannot determine the current folder");
    q.path = tern_fs_join(cwd, args[0]);
    heed_options(n - 1, args + 1);
    struct tern_site *site = tern_site_load(NULL, err);
    if (!site || prepare(&q, args[0], site, err) < 0 || time_limit(&q, n - 1, args + 1, err) < 0 ||
        check_auto_resume(q.recipe, n - 1, args + 1, err) < 0)
        goto out;
    no_plugin |= overrides.n && !no_plugin && !good_alone(q.path, site);
    tell_of_others(&q.ids, n - 1, args + 1);
    compose(&line, &q, n - 1, args + 1);
    if (dry_run) {
        print(&line);
        rc = 0;
        goto out;
    }
    char warn[24];
    snprintf(warn, sizeof warn, "%" PRId64, q.warn);
    setenv("TERN_RUN_WARN", warn, 1); /* sbatch passes it on */
    execvp(line.words[0], line.words);
    tern_err_sys(err, "cannot run sbatch. Is this a login machine of a Slurm cluster?");
out:
    for (size_t i = 0; i < line.n; i++)
        free(line.words[i]);
    tern_run_array_free(&q.array);
    tern_run_ids_free(&q.ids);
    tern_site_free(site);
    tern_recipe_free(q.recipe);
    free(q.path);
    free(cwd);
    return rc;
}

static const struct tern_cmd cmd = {
    .name = "submit",
    .args = "RECIPE [-- SBATCH-OPTION...]",
    .summary = "write and submit the right sbatch line for a recipe",
    .about =
        "Checks the recipe, then runs sbatch with the nodes and ranks that it needs. The job has "
        "requeueing, one output file for all attempts, and a warning before the time limit, so "
        "that the run stops with a checkpoint. Options after -- go to sbatch and have precedence. "
        "The job's Comment is the run's id, with your --comment behind it. squeue -o %k shows it, "
        "and so does sacct -o comment if slurm.conf has AccountingStoreFlags=job_comment.",
    .examples = "  tern submit run.yaml -N 4 --dry-run\n"
                "  tern submit run.yaml -N 16 --dry-run -c cluster.yaml   # on a laptop\n"
                "  tern submit run.yaml -N 4 --array optimizer.lr=1e-4,2e-4\n"
                "  tern submit run.yaml -N 4 --set optimizer.lr=1e-4 -- --time=8:00:00 -p trn1\n",
    .opts = opts,
    .args_min = 1,
    .args_max = -1,
    .run = run,
};

int main(int argc, char **argv)
{
    return tern_cmd_main(&cmd, argc, argv);
}
