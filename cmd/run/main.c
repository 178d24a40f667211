/* tern run: supervise one attempt of a run, in the batch script or on this machine. */
#include "cmd/cmd.h"
#include "cmd/run/explain.h"
#include "cmd/run/trial.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/check/check.h"
#include "core/ckpt/ckpt.h"
#include "core/inputs/inputs.h"
#include "core/ledger/ledger.h"
#include "core/place/place.h"
#include "core/run/array.h"
#include "core/run/auto_resume.h"
#include "core/run/home.h"
#include "core/run/other.h"
#include "core/run/pace.h"
#include "core/run/run.h"
#include "core/site/site.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/vcluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct tern_opt_list overrides, arrays;
static bool check_only, accept_change, explain_only, json;
static const char *cluster, *kind, *partition, *step_word;
static int64_t trial_steps = -1;
static int64_t ranks = -1, restarts = -1, nodes = -1, tasks = -1;

static const struct tern_opt opts[] = {
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &overrides,
     .help = "change a key of the recipe, such as optimizer.lr=1e-4 (null: remove it); may be "
             "given again"},
    {"array", 0, TERN_OPT_LIST, "KEY=V1,V2", .to.list = &arrays,
     .help = "in a job array: this member's value of each list, by SLURM_ARRAY_TASK_ID; with "
             "--check: all of them"},
    {"ranks", 'n', TERN_OPT_INT, "RANKS", .to.integer = &ranks,
     .help = "outside Slurm: processes to start on this machine; default: the recipe's "
             "number for a node"},
    {"restarts", 0, TERN_OPT_INT, "N", .to.integer = &restarts,
     .help = "attempts after the first, for reasons outside the run; default: that of sbatch "
             "--tern-restarts, else launch.restarts"},
    {"trial", 0, TERN_OPT_INT, "STEPS", .to.integer = &trial_steps,
     .help = "only so many steps of tern's own trainer, as a run of its own that leaves this one's "
             "checkpoints and values alone. Prints tokens a second and memory"},
    {"accept", 0, TERN_OPT_FLAG, .to.flag = &accept_change,
     .help = "go on from checkpoints of another model, precision, data, seed, batch, optimizer or "
             "schedule. Or go on from a copy in checkpoint.mirror of a run that is not known here"},
    {"kind", 0, TERN_OPT_TEXT, "train|smoke", "train", .to.text = &kind,
     .help = "what the ledger calls its attempts; `tern cluster smoke` makes those of the other "
             "kind"},
    {"check", 0, TERN_OPT_FLAG, .to.flag = &check_only,
     .help = "only say what is wrong with the recipe, as `sbatch --tern=RECIPE` does"},
    {"nodes", 'N', TERN_OPT_INT, "NODES", .to.integer = &nodes,
     .help = "with --check or --explain outside a job: of a job of so many nodes, with those in "
             "reserve"},
    {"ntasks", 0, TERN_OPT_INT, "TASKS", .to.integer = &tasks,
     .help = "with --check: and start so many tasks"},
    {"partition", 'p', TERN_OPT_TEXT, "PARTITION", .to.text = &partition,
     .help = "with --check: judge by the nodes of this partition; default: SBATCH_PARTITION, else "
             "Slurm's default partition"},
    {"step", 0, TERN_OPT_TEXT, "JOB.STEP", .to.text = &step_word,
     .help = "with --check, --nodes and --ntasks: as this step, which has so much time"},
    {"explain", 0, TERN_OPT_FLAG, .to.flag = &explain_only,
     .help = "only draw the places of ranks, the switches between them, and their launch: in this "
             "job, on this machine, or on nodes that are assumed"},
    {"cluster", 'c', TERN_OPT_TEXT, "CLUSTER", .to.text = &cluster,
     .help = "with --check: judge by the nodes of this layout (cluster.yaml) or virtual cluster; "
             "with --explain, outside a job: draw them, and its switches"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "with --explain: as JSON"},
    {0},
};

static int supervise(const struct tern_recipe *recipe, const struct tern_site *site,
                     const char *path, struct tern_err *err)
{
    struct tern_run_result result = {0};
    char *trainer = tern_fs_beside("tern-train"), *task = tern_fs_beside("tern-task");
    char *inside = tern_fs_beside("tern-inside");
    int rc;
    const struct tern_run_options options = {
        .recipe = recipe,
        .recipe_path = path,
        .overrides = overrides.values,
        .n_overrides = overrides.n,
        .trainer = trainer,
        .task = task,
        .inside = tern_fs_exists(inside) ? inside : NULL,
        .accept = accept_change,
        .ranks = ranks > 0 ? ranks : 0,
        .restarts = trial_steps > 0 ? 0 : restarts,
        .kind = trial_steps > 0              ? "trial"
                : strcmp(kind, "smoke") == 0 ? "smoke"
                                             : NULL,
        .site = site,
    };

    if (explain_only) {
        const struct explain e = {
            .options = options, .nodes = nodes > 0 ? nodes : 0, .cluster = cluster, .json = json};
        rc = explain(&e, err);
    } else if (tern_ledger_make(recipe->ledger.dir, /* run_id= */ NULL,
                                (enum tern_ledger_mode)recipe->ledger.mode, err) < 0) {
        rc = -1;
    } else {
        signal(SIGPIPE,
               SIG_IGN); /* a run outlives the reader of its output: Ctrl-C ends `tee` first */
        rc = tern_run(&options, &result, err);
    }
    free(trainer);
    free(task);
    free(inside);
    if (rc < 0 || explain_only)
        return rc;
    if (result.status == TERN_OK && trial_steps > 0)
        return trial_print(recipe->ledger.dir, result.run_id, err);
    if (result.status == TERN_OK)
        tern_info("run %s, attempt %u: %s%s%s", result.run_id, result.attempt, result.outcome,
                  result.why[0] ? ": " : "", result.why);
    else if (result.status == TERN_CONTINUED || result.status == TERN_HALTED)
        tern_info("run %s, attempt %u: %s: %s", result.run_id, result.attempt, result.outcome,
                  result.why);
    else
        tern_error("run %s, attempt %u: %s: %s", result.run_id, result.attempt, result.outcome,
                   result.why);
    return result.status;
}

/* Is there time for one step, as an earlier attempt has measured it? */
static int check_time(const struct tern_recipe *r, int64_t world, struct tern_err *err)
{
    struct tern_run_pace pace = {0};
    char id[TERN_CKPT_ULID];
    unsigned job, step;
    time_t end = 0;
    int n = 0;

    if (sscanf(step_word, "%9u.%9u%n", &job, &step, &n) < 2 || step_word[n])
        return tern_err_set(err, TERN_USAGE, "--step=%s: is no JOB.STEP, such as 17.0", step_word);
    if (world == 0 || !r->checkpoint.dir || tern_ckpt_run_read(r->checkpoint.dir, id, NULL) < 0 ||
        tern_run_pace_read(&pace, r, id, world, NULL) < 0 || pace.step_seconds <= 0)
        return 0;
    struct tern_err trouble = {0};
    if (tern_slurm_step_get_end(job, step, &end, &trouble) < 0) {
        tern_warn("%s", trouble.text); /* the time is not known: no reason to refuse the step */
        return 0;
    }
    int64_t seconds = end - time(NULL);
    if (end && tern_run_pace_fits(&pace, seconds > 0 ? seconds : 1, err) < 0)
        return tern_err_prefix(err, "%s: --time", r->path);
    return 0;
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

/* At a submission with --tern alone: tern submit has reported them already, and a step is a part of
 * its own job. */
static void tell_of_others(const struct tern_recipe *r)
{
    struct tern_run_ids ids = {0};

    if (!tern_var("TERN_ANY_PARTITION") || tern_var("TERN_RUN_WARN") || getenv("SLURM_JOB_ID"))
        return;
    tern_run_ids_add(&ids, r->checkpoint.dir);
    tern_run_other_tell(&ids, NULL);
    tern_run_ids_free(&ids);
}

/* Check the shape of the job as far as it is known. */
static int check(const struct tern_recipe *r, struct tern_err *err)
{
    struct tern_check_options known = {.submission = true};
    int64_t workers =
        r->workload.command ? r->workload.workers_per_node / r->workload.tasks_per_node : 1;
    int64_t per_node = r->workload.command ? r->workload.tasks_per_node : r->launch.ranks_per_node;
    /* srun starts a step's tasks on all of its nodes. */
    const int64_t spares = step_word ? 0 : r->launch.spares;

    if (nodes == 0 || tasks == 0 || nodes > TERN_RECIPE_NODES_MAX || tasks > TERN_RECIPE_NODES_MAX)
        return tern_err_set(err, TERN_USAGE, "--nodes and --ntasks: from 1 to %d",
                            TERN_RECIPE_NODES_MAX);
    if (nodes > 0 && nodes <= spares)
        return tern_recipe_fail(r, "launch.spares", err,
                                "%" PRId64 " nodes in reserve of %" PRId64
                                ": none is left to work. Ask for more nodes.",
                                spares, nodes);
    known.nodes = nodes > 0 ? nodes - spares : 0;
    if (known.nodes && tasks > 0 && tasks % known.nodes)
        return tern_err_set(err, TERN_USAGE,
                            "%" PRId64 " tasks on %" PRId64 " nodes: every node must have as many. "
                            "Use --ntasks-per-node.",
                            tasks, known.nodes);
    known.ranks = (tasks > 0 ? tasks : known.nodes * per_node) * workers;
    if (find_machines(r, &known, err) < 0)
        return -1;
    if (known.here && nodes > 1)
        known.node_memory = 0; /* this machine is none of them */
    if (tern_check_recipe(r, &known, err) < 0)
        return -1;
    if (known.partition[0])
        tern_info("%s: judged by the nodes of partition %s", r->path, known.partition);
    if (!step_word) {
        tern_run_auto_resume_tell(r->launch.restarts);
        tell_of_others(r);
    }
    return step_word ? check_time(r, known.ranks, err) : 0;
}

/* The number of this process among the members of the array. */
static int member(const struct tern_run_array *array, size_t *i, struct tern_err *err)
{
    const char *task = getenv("SLURM_ARRAY_TASK_ID");
    int64_t index = 0;

    if (array->n && !task)
        return tern_err_set(err, TERN_USAGE,
                            "--array: this is no member of a job array (SLURM_ARRAY_TASK_ID is "
                            "not set). Submit with `tern submit --array`.");
    if (array->n && tern_str_int(task, 0, (int64_t)array->n - 1, &index) < 0)
        return tern_err_set(err, TERN_USAGE,
                            "--array: member %s of the job array is none of the %zu combinations",
                            task, array->n);
    *i = (size_t)index;
    return 0;
}

static int check_members(const char *path, struct tern_run_array *array,
                         const struct tern_site *site, struct tern_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < array->n && rc == 0; i++) {
        struct tern_opt_list settings = overrides;
        struct tern_recipe *r = tern_run_array_load(array, i, path, &settings, err);
        rc = r && tern_run_apply_site(site, r, err) == 0 ? check(r, err) : -1;
        tern_recipe_free(r);
        if (rc < 0) {
            char *words = tern_run_array_describe(array, i);
            tern_err_prefix(err, "%s", words);
            free(words);
        }
    }
    return rc;
}

static int check_options(struct tern_err *err)
{
    if (!explain_only && json)
        return tern_err_set(err, TERN_USAGE, "--json goes with --explain");
    if (!explain_only && !check_only && cluster)
        return tern_err_set(err, TERN_USAGE, "--cluster goes with --check or --explain");
    if (partition && (!check_only || cluster))
        return tern_err_set(err, TERN_USAGE, "--partition goes with --check, without --cluster");
    return ranks == 0 ? tern_err_set(err, TERN_USAGE, "--ranks: at least 1") : 0;
}

/* malloc'ed; NULL on error. */
static char *in_current_folder(const char *path, struct tern_err *err)
{
    char *cwd = getcwd(NULL, 0);

    if (!cwd) {
        tern_err_sys(err, "cannot determine the current folder");
        return NULL;
    }
    char *absolute = tern_fs_join(cwd, path);
    free(cwd);
    return absolute;
}

static int run(int n, char **args, struct tern_err *err)
{
    const char *path = n > 0 ? args[0] : NULL;
    char *absolute = NULL, *per_node = NULL;
    struct tern_recipe *recipe = NULL;
    struct tern_site *site = NULL;
    struct tern_run_array array = {0};
    struct trial trial = {0};
    size_t i = 0;
    int rc = -1;

    tern_debug("phase: begin");
    if (!path && tern_run_job_recipe(&path, err) < 0)
        return -1;
    if (!path)
        return tern_err_set(err, TERN_USAGE,
                            "no recipe: give its path, or submit the job with --tern=RECIPE");
    if (tern_run_array_read(&array, arrays.values, arrays.n, err) < 0)
        return -1;
    if (!check_only || array.n) { /* the ranks may start elsewhere */
        absolute = in_current_folder(path, err);
        if (!absolute)
            goto out;
        path = absolute;
    }
    if (check_options(err) < 0)
        goto out;
    /* By this number the ranks share the cores. */
    if (ranks > 0 && overrides.n < sizeof overrides.values / sizeof *overrides.values)
        overrides.values[overrides.n++] = per_node =
            tern_strf("launch.ranks_per_node=%lld", (long long)ranks);
    site = tern_site_load(NULL, err);
    if (!site)
        goto out;
    if (check_only && array.n) {
        rc = check_members(path, &array, site, err);
        goto out;
    }
    if (member(&array, &i, err) < 0)
        goto out;
    recipe = tern_run_array_load(&array, i, path, &overrides, err);
    if (!recipe || tern_run_apply_site(site, recipe, err) < 0)
        goto out;
    if (trial_steps >= 0) {
        if (trial_begin(&trial, recipe, trial_steps, &overrides, err) < 0)
            goto out;
        tern_recipe_free(recipe);
        recipe = tern_recipe_load(path, overrides.values, overrides.n, err);
        if (!recipe || tern_inputs_length(recipe, err) < 0 ||
            tern_run_apply_site(site, recipe, err) < 0)
            goto out;
    }
    rc = check_only ? check(recipe, err) : supervise(recipe, site, absolute, err);
out:
    trial_end(&trial);
    tern_run_array_free(&array);
    tern_site_free(site);
    tern_recipe_free(recipe);
    free(per_node);
    free(absolute);
    return rc;
}

static const struct tern_cmd cmd = {
    .name = "run",
    .args = "[RECIPE]",
    .summary = "supervise a training run inside a job or on one machine",
    .about = "`tern run` is the last line of a batch script. It acquires the lease on the run, and "
             "launches tern's own trainer or the recipe's workload.command on every node of the "
             "job with srun. It passes signals on, records the attempt in the ledger and folds it "
             "every few seconds. In a job submitted with --tern=RECIPE, it finds the recipe "
             "itself. Outside Slurm, the ranks are processes of this machine.\n\nThe exit status "
             "is the trainer's (see EXIT STATUS). It is 75 after a signal or a lost node ended the "
             "ranks; any other status of a workload is passed on. `tern run` passes SIGTERM, "
             "SIGINT, SIGUSR1 and SIGUSR2 to every rank. A second SIGINT (Ctrl-C) ends the ranks "
             "at once, without a checkpoint; within 2 s of the first, it counts as the same stop "
             "request. tern's own trainer keeps running after SIGUSR2: each rank writes its flight "
             "record beside its log (TERN_FABRIC_DUMP), for `tern fabric flight-report`.",
    .examples = "  exec tern run                       # in train.sbatch\n"
                "  tern run run.yaml --ranks 2         # on this machine\n"
                "  tern run --check run.yaml -N 16 -c cluster.yaml\n"
                "  tern run --trial 10 run.yaml        # how fast, how much memory\n"
                "  tern run --explain run.yaml -N 16 -c cluster.yaml\n",
    .opts = opts,
    .args_max = 1,
    .run = run,
};

int main(int argc, char **argv)
{
    return tern_cmd_main(&cmd, argc, argv);
}
