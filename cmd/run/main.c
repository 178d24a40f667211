/* tern run: supervise one attempt of a run, in the batch script or on this machine. */
#include "cmd/cmd.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/check/check.h"
#include "core/run/run.h"

#include <stdlib.h>
#include <unistd.h>

static struct tern_opt_list overrides;
static bool check_only, accept_change;
static int64_t ranks = -1;

static const struct tern_opt opts[] = {
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &overrides,
     .help = "change a key of the recipe, such as optimizer.lr=1e-4; may be given again"},
    {"ranks", 'n', TERN_OPT_INT, "RANKS", .to.integer = &ranks,
     .help = "outside Slurm: processes to start on this machine; default: what the recipe says for "
             "a node"},
    {"accept", 0, TERN_OPT_FLAG, .to.flag = &accept_change,
     .help = "go on from checkpoints of another model, data, seed, batch, optimizer or schedule"},
    {"check", 0, TERN_OPT_FLAG, .to.flag = &check_only,
     .help = "only say what is wrong with the recipe, as `sbatch --tern=RECIPE` does"},
    {0},
};

/* The trainer lies beside this program. */
static char *trainer_program(void)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n < 0)
        return tern_strdup("tern-train");
    self[n] = '\0';
    char *folder = tern_fs_dirname(self);
    char *path = tern_strf("%s/tern-train", folder);
    free(folder);
    return path;
}

static int supervise(const struct tern_recipe *recipe, const char *path, struct tern_err *err)
{
    struct tern_run_result result = {0};
    char *trainer = trainer_program();
    const struct tern_run_options options = {
        .recipe = recipe,
        .recipe_path = path,
        .overrides = overrides.values,
        .n_overrides = overrides.n,
        .trainer = trainer,
        .accept = accept_change,
        .ranks = ranks > 0 ? ranks : 0,
    };

    int rc = tern_run(&options, &result, err);
    free(trainer);
    if (rc < 0)
        return -1;
    if (result.status == TERN_OK)
        tern_info("run %s, attempt %u: %s", result.run_id, result.attempt, result.outcome);
    else if (result.status == TERN_CONTINUED || result.status == TERN_HALTED)
        tern_info("run %s, attempt %u: %s: %s", result.run_id, result.attempt, result.outcome,
                  result.why);
    else
        tern_error("run %s, attempt %u: %s: %s", result.run_id, result.attempt, result.outcome,
                   result.why);
    return result.status;
}

static int run(int n, char **args, struct tern_err *err)
{
    const char *path = n > 0 ? args[0] : NULL;
    char *cwd = NULL, *absolute = NULL, *per_node = NULL;
    struct tern_recipe *recipe = NULL;
    const struct tern_check_options submission = {.submission = true};
    int rc = -1;

    if (!path && tern_run_job_recipe(&path, err) < 0)
        return -1;
    if (!path)
        return tern_err_set(err, TERN_USAGE,
                            "no recipe: give its path, or submit the job with --tern=RECIPE");
    if (!check_only) { /* the ranks may start elsewhere */
        cwd = getcwd(NULL, 0);
        if (!cwd)
            return tern_err_sys(err, "cannot tell the current folder");
        absolute = tern_fs_join(cwd, path);
    }
    if (ranks == 0) {
        tern_err_set(err, TERN_USAGE, "--ranks: at least 1");
        goto out;
    }
    /* The ranks share the cores by it. */
    if (ranks > 0 && overrides.n < sizeof overrides.values / sizeof *overrides.values)
        overrides.values[overrides.n++] = per_node =
            tern_strf("launch.ranks_per_node=%lld", (long long)ranks);
    recipe = tern_recipe_load(absolute ? absolute : path, overrides.values, overrides.n, err);
    if (!recipe)
        goto out;
    rc =
        check_only ? tern_check_recipe(recipe, &submission, err) : supervise(recipe, absolute, err);
out:
    tern_recipe_free(recipe);
    free(per_node);
    free(absolute);
    free(cwd);
    return rc;
}

static const struct tern_cmd cmd = {
    .name = "run",
    .args = "[RECIPE]",
    .summary = "supervise a training run inside a job or on one machine",
    .about =
        "The last line of a batch script: claims the run, launches tern's own trainer or the "
        "recipe's workload.command on every node of the job with srun, passes signals on, records "
        "the attempt in the ledger and folds it every few seconds. In a job submitted with "
        "--tern=RECIPE it finds the recipe itself. Outside Slurm the ranks are processes of this "
        "machine.\n\n"
        "The exit status is the trainer's (see EXIT STATUS); ranks ended by a signal or a lost "
        "node give 75, any other status of a workload is passed on. SIGTERM, SIGINT, SIGUSR1 and "
        "SIGUSR2 are passed to every rank; a second SIGINT ends them at once.",
    .examples = "  exec tern run                       # in train.sbatch\n"
                "  tern run run.yaml --ranks 2         # on this machine\n"
                "  tern run --check run.yaml\n",
    .opts = opts,
    .args_max = 1,
    .run = run,
};

int main(int argc, char **argv)
{
    return tern_cmd_main(&cmd, argc, argv);
}
