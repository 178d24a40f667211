/* tern train: one rank of tern's own trainer. */
#include "cmd/cmd.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/check/check.h"
#include "core/ckpt/ckpt.h"
#include "core/convert/convert.h"
#include "core/inputs/inputs.h"
#include "core/fabric/fabric.h"
#include "core/flight/flight.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/recipe/recipe.h"
#include "core/task/marker.h"
#include "core/tensor/tensor.h"
#include "core/train/train.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tern_opt_list overrides;
static const char *profile, *cluster;
static bool accept_change, explain_only;
static int64_t nodes = -1;
static volatile sig_atomic_t stop;

static const struct tern_opt opts[] = {
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &overrides,
     .help = "change a key of the recipe, such as optimizer.lr=1e-4 (null: take it away); may be "
             "given again"},
    {"accept", 0, TERN_OPT_FLAG, .to.flag = &accept_change,
     .help = "go on from checkpoints of another model, precision, data, seed, batch, optimizer or "
             "schedule"},
    {"explain", 0, TERN_OPT_FLAG, .to.flag = &explain_only,
     .help =
         "print which rank does what, the batch's arithmetic and the memory, and train nothing"},
    {"nodes", 'N', TERN_OPT_INT, "N", .to.integer = &nodes,
     .help = "with --explain: on so many nodes of launch.ranks_per_node ranks; default: 1, with "
             "--cluster all of its largest queue"},
    {"cluster", 'c', TERN_OPT_TEXT, "LAYOUT", .to.text = &cluster,
     .help = "with --explain: also say whether the recipe fits the nodes of this layout "
             "(cluster.yaml)"},
    {"profile", 0, TERN_OPT_TEXT, "FILE", .env = "TERN_TRAIN_PROFILE", .to.text = &profile,
     .help = "write a Chrome trace of one step of all ranks, the third from here or the last: what "
             "each computed, sent, summed and waited for"},
    {0},
};

static void on_signal(int sig)
{
    int request = sig == SIGINT ? TERN_TRAIN_HALT : TERN_TRAIN_CONTINUE_LATER;

    if (request > stop)
        stop = request;
    if (sig == SIGTERM) /* how a rank ends whose peer has died, too */
        tern_flight_write(true);
}

static void on_dump(int sig)
{
    (void)sig;
    tern_flight_write(false);
}

/* From the beginning: neither a request for a dump nor a closed pipe may end the run. */
static void survive_signals(void)
{
    struct sigaction sa = {.sa_handler = on_dump, .sa_flags = SA_RESTART};

    sigaction(SIGUSR2, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void catch_signals(void)
{
    static const int signals[] = {SIGTERM, SIGHUP, SIGUSR1, SIGINT};
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &sa, NULL);
}

/* The config of the model that the recipe begins from. */
static int read_config(const struct tern_recipe *r, struct tern_model_config *c,
                       struct tern_err *err)
{
    char *at = NULL;

    if (!r->model.from)
        return tern_model_config_load(r->model.config, c, err);
    if (tern_ckpt_resolve(r->model.from, &at, err) < 0)
        return -1;
    int rc = tern_convert_config(at, c, err);
    free(at);
    return rc;
}

/* What a node has to hold, and what it has. */
static int print_node(const struct tern_recipe *r, const struct tern_model_config *c,
                      const struct tern_check_options *known, struct tern_err *err)
{
    const int64_t data = known->ranks / (r->parallel.tensor * r->parallel.pipeline);
    char need[32], have[32] = "unknown size";
    struct tern_plan_memory m;

    if (tern_plan_host(r, c, data, &m, err) < 0)
        return -1;
    tern_str_bytes(need, sizeof need, m.total * (uint64_t)r->launch.ranks_per_node);
    if (known->node_memory)
        tern_str_bytes(have, sizeof have, known->node_memory);
    printf("\nMemory of a node: %s at most, of %s in %s\n", need, have, cluster);
    return 0;
}

static int explain(const struct tern_recipe *r, struct tern_err *err)
{
    const int64_t spares = cluster ? r->launch.spares : 0;
    struct tern_check_options known = {.submission = true, .nodes = nodes > 0 ? nodes - spares : 0};
    struct tern_model_config c;
    struct tern_buf text = {0};

    if (!explain_only)
        return tern_err_set(err, TERN_USAGE, "--cluster and --nodes go with --explain");
    if (nodes == 0 || nodes > TERN_RECIPE_NODES_MAX)
        return tern_err_set(err, TERN_USAGE, "--nodes: from 1 to %d", TERN_RECIPE_NODES_MAX);
    if (nodes > 0 && nodes <= spares)
        return tern_recipe_fail(r, "launch.spares", err,
                                "%lld nodes in reserve of %lld: none is left to work.",
                                (long long)spares, (long long)nodes);
    if (cluster && tern_check_assume(cluster, r, &known, err) < 0)
        return -1;
    if (nodes < 0)
        known.nodes = cluster ? known.cluster_nodes - spares : 1;
    /* The memory of all nodes of the largest queue, whose number is known only now. */
    if (nodes < 0 && cluster && tern_check_assume(cluster, r, &known, err) < 0)
        return -1;
    known.ranks = known.nodes * r->launch.ranks_per_node;
    int rc = read_config(r, &c, err);

    if (rc == 0)
        rc = tern_plan_explain(r, &c, known.ranks, &text, err);
    if (rc == 0)
        fputs(text.data, stdout);
    tern_buf_free(&text);
    if (rc == 0 && cluster)
        rc = print_node(r, &c, &known, err) < 0 ? -1 : tern_check_fits(r, &known, &c, err);
    return rc;
}

/* This rank's name in messages, and a warning about devices that stay idle. */
static void introduce(int rank)
{
    char name[64];

    snprintf(name, sizeof name, "tern train: rank %d", rank);
    tern_log_name(rank ? name : "tern train");
    if (rank == 0 && access("/dev/neuron0", F_OK) == 0)
        tern_info("this node has Neuron devices; tern's own trainer computes on CPUs. NeuronCores "
                  "are used by trainers made for them, launched through workload.command");
}

static int check_recipe(struct tern_recipe *r, struct tern_err *err)
{
    if (tern_inputs_length(r, err) < 0)
        return -1;
    return r->workload.command
               ? tern_recipe_fail(r, "workload.command", err,
                                  "this recipe's trainer is not tern's. `tern run` launches it.")
               : 0;
}

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_recipe *recipe = NULL;
    struct tern_fabric *fabric = NULL;
    struct tern_train_result result;
    int rank = 0, rc = -1;

    (void)n;
    survive_signals();
    tern_debug("phase: main");
    const char *local = getenv("SLURM_LOCALID");
    if (tern_task_check_marker(!local || strcmp(local, "0") == 0, err) < 0)
        return -1;
    recipe = tern_recipe_load(args[0], overrides.values, overrides.n, err);
    if (!recipe)
        return -1;
    if (check_recipe(recipe, err) < 0)
        goto out;
    if (explain_only || cluster || nodes >= 0) {
        rc = explain(recipe, err);
        goto out;
    }
    if (profile && *profile && tern_train_profile_check(profile, err) < 0)
        goto out;
    if (tern_tensor_start((int)recipe->launch.threads, (int)recipe->launch.ranks_per_node, err) < 0)
        goto out;
    catch_signals();
    fabric = tern_fabric_open(
        &(struct tern_fabric_options){.transport =
                                          recipe->launch.fabric == TERN_CARRY_MPI ? "mpi" : NULL},
        err);
    if (!fabric)
        goto out;
    tern_debug("phase: fabric");
    rank = tern_fabric_rank(fabric);
    introduce(rank);
    const struct tern_train_options options = {
        .recipe = recipe,
        .fabric = fabric,
        .spool_dir = tern_var("TERN_RUN_SPOOL"),
        .profile = profile && *profile ? profile : NULL,
        .accept = accept_change,
        .stop = &stop,
    };
    rc = tern_train_run(&options, &result, err);
    fabric = NULL;
    if (rc == 0 && result.stop != TERN_TRAIN_GO_ON) {
        if (rank == 0)
            tern_info("stopped after step %llu of %lld, with a checkpoint",
                      (unsigned long long)result.step, (long long)recipe->steps);
        rc = result.stop == TERN_TRAIN_HALT ? TERN_HALTED : TERN_CONTINUED;
    }
    /* An error that all ranks agreed on is printed once; a lost connection, by each rank. */
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
        "Resumes from the newest verified checkpoint in the recipe's checkpoint.dir; if there is "
        "none, it starts from the recipe's model. `tern run` starts `tern train` on every rank and "
        "records the run. Without `tern run`, `srun --mpi=pmix tern train RECIPE` and `mpirun tern "
        "train RECIPE` work too.\n\nUnder `tern run` each step records loss, lr, grad_norm, "
        "tokens, tokens_per_second, and the seconds of data, forward, backward, comm and update. "
        "The seconds are of rank 0, of each of up to 64 ranks (rank3/forward_seconds), and their "
        "_min, _median and _max over the ranks. It records memory_bytes likewise, the most that "
        "was resident so far, and memory_predicted_bytes, the value of --explain. It records "
        "slowest_rank, too, and mfu, the share of the peak that the step's FLOPs by its seconds "
        "are. FLOPs are those of matrix products and of the half of attention that is not masked. "
        "Repeated computations and gradients of frozen weights do not count. The peak is the rate "
        "that the trainer's own matrix product reaches as an attempt begins, on all ranks and "
        "their threads at once. It multiplies two matrices of 512, with several threads of 1536, "
        "with precision: bf16 of numbers of bf16. The params are peak_gflops and, of the unit, "
        "peak_unit.\n\nTraining goes on while a checkpoint of checkpoint.every is written "
        "(checkpoint.async), one at a time; at its end a run waits for it. A save that fails for "
        "want of storage is logged and recorded (event save_failed), and training goes on, unless "
        "it is the last one. The step of a checkpoint records its checkpoint_bytes, "
        "checkpoint_bytes_per_second, the checkpoint_copy_seconds and checkpoint_write_seconds of "
        "the slowest rank, and checkpoint_stall_seconds, that training waited for it. With "
        "checkpoint.local, checkpoint_local_seconds are those of its write on the nodes, and "
        "checkpoint_write_seconds those of its copy to checkpoint.dir.\n\n--profile writes JSON "
        "for https://ui.perfetto.dev or chrome://tracing; a process is a node, a thread a rank. "
        "Times begin at a barrier before the step; several tell how the clocks of nodes lie apart, "
        "each to clock_error_us (by rank, against rank 0's). `TERN_TRAIN_PROFILE=FILE tern run "
        "RECIPE` does the same there.\n\nSIGTERM, SIGHUP and SIGUSR1 end the run after the present "
        "step with a checkpoint (exit status 76), SIGINT halts it for good (77). SIGUSR2 does not "
        "end the run: the rank writes its last calls to TERN_FABRIC_DUMP, for `tern fabric "
        "flight-report`. `tern train` computes on CPUs, also on nodes with Neuron devices.",
    .examples = "  tern train run.yaml --explain -N 4\n"
                "  tern train run.yaml --explain -c cluster.yaml\n"
                "  srun --mpi=pmix tern train run.yaml\n",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};

int main(int argc, char **argv)
{
    return tern_cmd_main(&cmd, argc, argv);
}
