/* tern train: one rank of tern's own trainer. */
#include "cmd/cmd.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/fabric/fabric.h"
#include "core/recipe/recipe.h"
#include "core/tensor/tensor.h"
#include "core/train/train.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tern_opt_list overrides;
static bool accept_change;
static volatile sig_atomic_t stop;

static const struct tern_opt opts[] = {
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &overrides,
     .help = "change a key of the recipe, such as optimizer.lr=1e-4; may be given again"},
    {"accept", 0, TERN_OPT_FLAG, .to.flag = &accept_change,
     .help = "go on from checkpoints of another model, data, seed, batch, optimizer or schedule"},
    {0},
};

static void on_signal(int sig)
{
    int wish = sig == SIGINT ? TERN_TRAIN_HALT : TERN_TRAIN_CONTINUE_LATER;

    if (wish > stop)
        stop = wish;
}

static void catch_signals(void)
{
    static const int signals[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGINT};
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &sa, NULL);
}

/* A job submitted with --tern whose node lacks the plugin would run without what it sets up: the
 * option arrives as Slurm's own variable, the receipt only from the plugin. */
static int check_receipt(struct tern_err *err)
{
    if (getenv("SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern") && !tern_var("TERN_RECEIPT"))
        return tern_err_set(err, TERN_TEMPFAIL,
                            "the job was submitted with --tern, but tern's plugin did not run on "
                            "node %s. Is tern_spank.so in its plugstack.conf?",
                            getenv("SLURMD_NODENAME") ? getenv("SLURMD_NODENAME") : "(unknown)");
    return 0;
}

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_recipe *recipe = NULL;
    struct tern_fabric *fabric = NULL;
    struct tern_train_result result;
    int rank = 0, rc = -1;

    (void)n;
    if (check_receipt(err) < 0)
        return -1;
    recipe = tern_recipe_load(args[0], overrides.values, overrides.n, err);
    if (!recipe)
        return -1;
    if (recipe->workload.command) {
        tern_recipe_fail(recipe, "workload.command", err,
                         "this recipe's trainer is not tern's. `tern run` launches it.");
        goto out;
    }
    if (tern_tensor_start((int)recipe->launch.threads, (int)recipe->launch.ranks_per_node, err) < 0)
        goto out;
    catch_signals();
    fabric = tern_fabric_open(&(struct tern_fabric_options){0}, err);
    if (!fabric)
        goto out;
    rank = tern_fabric_rank(fabric);
    char name[64];
    snprintf(name, sizeof name, "tern train: rank %d", rank);
    tern_log_name(rank ? name : "tern train");
    if (rank == 0 && access("/dev/neuron0", F_OK) == 0)
        tern_info("this node has Neuron devices; tern's own trainer computes on CPUs. NeuronCores "
                  "are used by trainers made for them, launched through workload.command");
    const struct tern_train_options options = {
        .recipe = recipe,
        .fabric = fabric,
        .spool_dir = tern_var("TERN_RUN_SPOOL"),
        .accept = accept_change,
        .stop = &stop,
    };
    rc = tern_train(&options, &result, err);
    if (rc == 0 && result.stop != TERN_TRAIN_GO_ON) {
        if (rank == 0)
            tern_info("stopped after step %llu of %lld, with a checkpoint",
                      (unsigned long long)result.step, (long long)recipe->steps);
        rc = result.stop == TERN_TRAIN_HALT ? TERN_HALTED : TERN_CONTINUED;
    }
    /* An error that all ranks agreed on is said once; what a rank saw of others' ends, by each. */
    if (rc < 0 && rank > 0 && err->code != TERN_TEMPFAIL)
        rc = (int)err->code;
out:
    tern_fabric_close(fabric);
    tern_recipe_free(recipe);
    return rc;
}

static const struct tern_cmd cmd = {
    .name = "train",
    .args = "RECIPE",
    .summary = "train one rank of tern's own trainer",
    .about =
        "Continues from the newest verified checkpoint of the recipe's checkpoint.dir, else begins "
        "from its model. `tern run` starts one on every rank and records the run; without it, "
        "`srun --mpi=pmix tern train RECIPE` and `mpirun tern train RECIPE` work too.\n\n"
        "SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 end the run after the present step with a checkpoint "
        "(exit status "
        "76), SIGINT does so for good (77). It computes on CPUs, also on nodes with Neuron "
        "devices.",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};

int main(int argc, char **argv)
{
    return tern_cmd_main(&cmd, argc, argv);
}
