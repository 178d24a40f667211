#include "core/recipe/keys.h"

#include "core/base/yaml.h"
#include "core/recipe/lists.h"

#include <string.h>

/* Far beyond any run, and small enough that products of two fit in 64 bits. */
#define COUNT_MAX ((double)TERN_RECIPE_STEPS_MAX)

static const char *const schedules[] = {"constant", "linear", "cosine", "wsd", "infinite", NULL};
static const char *const decays[] = {"auto", "linear", "cosine", "sqrt", "exp", NULL};
static const char *const optimizer_states[] = {"reset", "keep", NULL};
static const char *const precisions[] = {"fp32", "bf16", NULL};
static const char *const recomputes[] = {"none", "selective", "full", NULL};
static const char *const optimizers[] = {"adamw", NULL};
static const char *const health_levels[] = {"off", "quick", "deep", NULL};
static const char *const mappings[] = {"auto", "block", NULL};
/* In the order of enum tern_ledger_mode. */
static const char *const ledger_modes[] = {"umask", "private", "group", "all", NULL};
static const char *const at_limits[] = {"requeue", "stop", NULL};
/* In the order of enum tern_packing and tern_longer. */
static const char *const packings[] = {"concat", "best-fit", "padded", NULL};
static const char *const longers[] = {"cut", "drop", NULL};
static const char *const launchers[] = {"srun", "mpirun", NULL};
static const char *const carriers[] = {"ofi", "mpi", NULL};

#define AT(member) offsetof(struct tern_recipe, member)

const struct tern_recipe_key tern_recipe_keys[] = {
    {"name", KEY_TEXT, AT(name), .help = "name of the run"},
    {"model.from", KEY_PATH, AT(model.from), .identity = true,
     .help = "Hugging Face folder, checkpoint, DIR/latest or DIR/best to start from"},
    {"model.config", KEY_PATH, AT(model.config), .identity = true,
     .help = "config.json of a model with random weights, instead of model.from"},
    {"model.pending", KEY_YESNO, AT(model.pending),
     .help = "an earlier job writes model.from: submission does not look for it"},
    {"model.tokenizer", KEY_PATH, AT(model.tokenizer),
     .help = "tokenizer that exports include; default: the tokenizer of model.from"},
    {"model.optimizer", KEY_WORD, AT(model.optimizer), .words = optimizer_states, .identity = true,
     .help = "whether to keep the moments found in model.from"},
    {"model.init_std", KEY_REAL, AT(model.init_std), 0, 1, 0.02, .identity = true,
     .help = "standard deviation of random weights"},
    {"precision", KEY_WORD, AT(precision), .words = precisions, .by_word = true,
     .help = "precision of parameters and activations; gradients, moments and, with bf16, a master "
             "copy of the parameters are fp32"},
    {"lora.rank", KEY_COUNT, AT(lora.rank), 1, 4096, 0, .identity = true, .late = true,
     .help =
         "rank of the adapters beside frozen weights (LoRA); without it tern trains every weight"},
    {"lora.alpha", KEY_REAL, AT(lora.alpha), 1e-6, 1e6, 0, .identity = true, .late = true,
     .help = "tern scales adapters by alpha / rank; default: the rank"},
    {"lora.dropout", KEY_REAL, AT(lora.dropout), 0, 0.99, 0, .identity = true, .late = true,
     .help = "share of an adapter's inputs that dropout removes"},
    {"lora.rslora", KEY_YESNO, AT(lora.rslora), .identity = true, .late = true,
     .help = "scale by alpha / sqrt(rank)"},
    {"lora.dora", KEY_YESNO, AT(lora.dora), .identity = true, .late = true,
     .help = "also train the magnitude of each weight's rows (DoRA)"},
    {"data.seed", KEY_COUNT, AT(data.seed), 0, COUNT_MAX, 1234, .identity = true,
     .help = "seed for the order of samples and for random weights"},
    {"data.isolate", KEY_YESNO, AT(data.isolate), .identity = true, .late = true,
     .help = "documents in one row do not attend to each other"},
    {"data.packing", KEY_WORD, AT(data.packing), .words = packings, .identity = true, .late = true,
     .by_word = true,
     .help = "rows of training data: documents one after the other, cut where a row ends; whole "
             "documents, as many as fit; or one document a row. Evaluation is concat"},
    {"data.longer", KEY_WORD, AT(data.longer), .words = longers, .identity = true, .late = true,
     .by_word = true, .help = "best-fit, padded: documents longer than a row"},
    {"batch.global", KEY_COUNT, AT(batch.global), 1, 1 << 24, 0, .identity = true,
     .help = "sequences per step, over all ranks"},
    {"batch.micro", KEY_COUNT, AT(batch.micro), 1, 65536, 1, .identity = true,
     .help = "sequences that a rank computes at once"},
    {"batch.seq_len", KEY_COUNT, AT(batch.seq_len), 2, 1 << 20, 0, .identity = true,
     .help = "tokens per sequence"},
    {"steps", KEY_COUNT, AT(steps), 1, COUNT_MAX, 0, .help = "optimizer steps of the whole run"},
    {"epochs", KEY_REAL, AT(epochs), 1e-6, 1e6, 0, .late = true,
     .help = "instead of steps: passes over the first set of data.train"},
    {"tokens", KEY_REAL, AT(tokens), 1, 1e15, 0, .late = true,
     .help = "instead of steps: number of tokens; a step has batch.global x batch.seq_len tokens"},
    {"parallel.tensor", KEY_COUNT, AT(parallel.tensor), 1, 4096, 1,
     .help = "ranks that share a layer"},
    {"parallel.pipeline", KEY_COUNT, AT(parallel.pipeline), 1, 4096, 1,
     .help = "stages: groups of layers on different ranks"},
    {"parallel.interleave", KEY_COUNT, AT(parallel.interleave), 1, 4096, 1, .late = true,
     .help = "groups of layers per pipeline rank: more make a smaller bubble and more messages"},
    {"parallel.sequence", KEY_YESNO, AT(parallel.sequence), .late = true,
     .help = "also divide norms and residuals among the tensor ranks, by tokens"},
    {"parallel.zero", KEY_COUNT, AT(parallel.zero), 0, 1, 0, .late = true,
     .help = "1: divide the optimizer's state among the data-parallel ranks (ZeRO-1)"},
    {"parallel.recompute", KEY_WORD, AT(parallel.recompute), .words = recomputes, .late = true,
     .help = "activations that the backward pass computes again: those of attention (selective), "
             "or of whole layers (full)"},
    {"optimizer.name", KEY_WORD, KEY_NOWHERE, .words = optimizers, .help = "the optimizer"},
    {"optimizer.lr", KEY_REAL, AT(optimizer.lr), 0, 10, 3e-4, .identity = true,
     .help = "peak learning rate"},
    {"optimizer.eps", KEY_REAL, AT(optimizer.eps), 1e-30, 1, 1e-8, .identity = true,
     .help = "added to the root of the second moment"},
    {"optimizer.weight_decay", KEY_REAL, AT(optimizer.weight_decay), 0, 1, 0.1, .identity = true,
     .help = "decoupled weight decay, for matrices but not for norms"},
    {"optimizer.clip", KEY_REAL, AT(optimizer.clip), 0, 1e6, 1.0, .identity = true,
     .help = "largest global gradient norm; 0: no clipping"},
    {"optimizer.stochastic_rounding", KEY_YESNO, AT(optimizer.stochastic_rounding),
     .identity = true, .late = true,
     .help = "with precision: bf16, round parameters from the master copy at random, instead of to "
             "the nearest value; the mean is exact"},
    {"optimizer.guard.spike", KEY_REAL, AT(optimizer.guard.spike), 0, 1000, 0, .late = true,
     .help = "a loss or gradient norm is a spike if it is this many standard deviations above the "
             "window's mean. Its step makes no update; 0: no value is a spike"},
    {"optimizer.guard.window", KEY_COUNT, AT(optimizer.guard.window), 8, 1024, 128, .late = true,
     .help = "newest steps whose mean and deviation a spike is compared with"},
    {"optimizer.guard.stop_after", KEY_COUNT, AT(optimizer.guard.stop_after), 1, 1000, 5,
     .late = true,
     .help = "the run fails after this many steps in a row without an update (spikes, or values "
             "that are not finite)"},
    {"schedule.kind", KEY_WORD, AT(schedule.kind), .def = TERN_SCHEDULE_COSINE, .words = schedules,
     .identity = true, .help = "schedule of the learning rate after the warm-up"},
    {"schedule.warmup", KEY_COUNT, AT(schedule.warmup), 0, COUNT_MAX, 0, .identity = true,
     .help = "steps from start_lr to the peak learning rate"},
    {"schedule.start_lr", KEY_REAL, AT(schedule.start_lr), 0, 10, 0, .identity = true, .late = true,
     .help = "learning rate at the start of the warm-up; to warm up again, give the last learning "
             "rate of model.from"},
    {"schedule.min_lr", KEY_REAL, AT(schedule.min_lr), 0, 10, 0, .identity = true,
     .help = "learning rate at the end"},
    {"schedule.decay", KEY_COUNT, AT(schedule.decay), 0, COUNT_MAX, 0, .identity = true,
     .late = true,
     .help = "wsd, infinite: steps at the end, in which the learning rate falls to min_lr"},
    {"schedule.shape", KEY_WORD, AT(schedule.shape), .words = decays, .identity = true,
     .late = true,
     .help = "shape of the decay; auto: linear for wsd, exp for infinite; sqrt is 1 - sqrt(x)"},
    {"schedule.cooldown", KEY_COUNT, AT(schedule.cooldown), 0, COUNT_MAX, 0, .identity = true,
     .late = true, .help = "infinite: steps of the cosine from the peak to constant_lr"},
    {"schedule.constant_lr", KEY_REAL, AT(schedule.constant_lr), 0, 10, 0, .identity = true,
     .late = true, .help = "infinite: learning rate between cooldown and decay"},
    {"evaluate.every", KEY_COUNT, AT(evaluate.every), 0, COUNT_MAX, 0,
     .help = "steps between evaluations; 0: only before and after the run"},
    {"evaluate.stop.metric", KEY_TEXT, AT(evaluate.stop.metric), .late = true,
     .help = "held-out set: the run is done when its loss per token no longer improves"},
    {"evaluate.stop.patience", KEY_COUNT, AT(evaluate.stop.patience), 1, COUNT_MAX, 3, .late = true,
     .help = "the run is done after this many evaluations in a row without an improvement"},
    {"checkpoint.dir", KEY_PATH, AT(checkpoint.dir),
     .help = "folder that holds the step-%08d folders"},
    {"checkpoint.every", KEY_COUNT, AT(checkpoint.every), 0, COUNT_MAX, 0, .automatic = true,
     .help = "steps between checkpoints; 0: only at the end; auto: by what a save costs and how "
             "often nodes fail (checkpoint.mtbf)"},
    {"checkpoint.mtbf", KEY_REAL, AT(checkpoint.mtbf), 1e-3, 1e9, 6300, .late = true,
     .help = "for checkpoint.every: auto, the mean hours between failures of one node. The default "
             "is that of the 2048 nodes that trained Llama 3 405B"},
    {"checkpoint.async", KEY_YESNO, AT(checkpoint.async), .def = true, .late = true,
     .help = "training goes on while a checkpoint of checkpoint.every is written. Each rank has "
             "memory for one copy of the arrays that it saves"},
    {"checkpoint.keep", KEY_COUNT, AT(checkpoint.keep), 2, 1e6, 3,
     .help = "number of newest checkpoints that stay, beside that of the best evaluation of each "
             "held-out set. tern prunes a workload's checkpoints only if you set this key. They "
             "are those of workload.progress or, without that, those of `tern metric "
             "checkpoint=DIR` with their step in their name"},
    {"checkpoint.keep_every", KEY_COUNT, AT(checkpoint.keep_every), 0, COUNT_MAX, 0,
     .help = "checkpoints at multiples of this step always stay; 0: none"},
    {"checkpoint.local", KEY_PATH, AT(checkpoint.local), .late = true,
     .help =
         "folder on each node's own storage, such as /local/nvme/ckpt: each checkpoint is written "
         "there first, and copied to checkpoint.dir while training goes on"},
    {"checkpoint.partner", KEY_YESNO, AT(checkpoint.partner), .late = true,
     .help = "with checkpoint.local, another node gets a copy of each node's files, so that the "
             "loss of one node loses no checkpoint"},
    {"checkpoint.mirror", KEY_PATH, AT(checkpoint.mirror),
     .help =
         "folder or s3://BUCKET/PREFIX that gets a verified copy of each checkpoint. A run whose "
         "checkpoint.dir has none goes on from the newest copy; tern prunes nothing there"},
    {"ledger.dir", KEY_PATH, AT(ledger.dir),
     .help = "the ledger's folder, on shared storage; default: the site's. In a shared ledger each "
             "user has a folder"},
    {"ledger.mode", KEY_WORD, AT(ledger.mode), .words = ledger_modes, .late = true, .by_word = true,
     .help = "users who can read the run's records: by the umask, its user alone, the group or "
             "all. With group or all, a new ledger is a shared one"},
    {"ledger.tensorboard", KEY_PATH, AT(ledger.tensorboard), .late = true,
     .help = "folder that gets the run's values as TensorBoard's event files while it runs, in a "
             "folder of the run"},
    {"launch.ranks_per_node", KEY_COUNT, AT(launch.ranks_per_node), 1, 4096, 1,
     .help = "ranks (processes) per node"},
    {"launch.threads", KEY_COUNT, AT(launch.threads), 0, 4096, 0,
     .help = "threads per rank; 0: an even share of the cores"},
    {"launch.restarts", KEY_COUNT, AT(launch.restarts), 0, 1e6, 20,
     .help = "most attempts after the first one, after failures outside the run"},
    {"launch.at_time_limit", KEY_WORD, AT(launch.at_time_limit), .words = at_limits, .late = true,
     .by_word = true,
     .help = "when the job reaches its time limit, is preempted, or must leave for a reservation: "
             "queue the job again, or stop with status 76"},
    {"launch.stop_at", KEY_COUNT, AT(launch.stop_at), 0, TERN_RECIPE_STEPS_MAX, 0, .late = true,
     .help =
         "stop after this step with a checkpoint, to be continued (exit status 76); 0: no stop"},
    {"launch.spares", KEY_COUNT, AT(launch.spares), 0, 65536, 0,
     .help = "nodes of the job in reserve, to replace nodes that fail"},
    {"launch.health", KEY_WORD, AT(launch.health), .def = TERN_RECIPE_HEALTH_QUICK,
     .words = health_levels, .help = "checks of the nodes before each launch"},
    {"launch.profile", KEY_TEXT, AT(launch.profile),
     .help = "profile of the ranks' environment, see `tern env --list`; default: by the nodes"},
    {"launch.rails", KEY_TEXT, AT(launch.rails),
     .help =
         "networks between nodes: all (default) or any, or interfaces with commas between, which "
         "must all work. all and any take each that works when the ranks connect; with any, one "
         "may fail later. FI_TCP_IFACE also counts"},
    {"launch.mapping", KEY_WORD, AT(launch.mapping), .words = mappings,
     .help = "mapping of ranks to nodes and NeuronCores: by the links of network and chips, or in "
             "the job's order and by number"},
    {"launch.with", KEY_WORD, AT(launch.with), .words = launchers,
     .help = "program that starts the ranks"},
    {"launch.fabric", KEY_WORD, AT(launch.fabric), .words = carriers,
     .help = "carrier of messages between nodes: libfabric, or MPI, which needs PMIx"},
    {"workload.tasks_per_node", KEY_COUNT, AT(workload.tasks_per_node), 1, 4096, 1,
     .help = "tasks of workload.command per node"},
    {"workload.workers_per_node", KEY_COUNT, AT(workload.workers_per_node), 1, 4096, 0,
     .help = "ranks that all tasks of a node start together, such as torchrun's; default: one per "
             "task"},
    {"workload.precompile.steps", KEY_COUNT, AT(workload.precompile.steps), 1, COUNT_MAX, 10,
     .help = "steps whose graphs workload.precompile.command compiles"},
    {"workload.precompile.cache", KEY_PATH, AT(workload.precompile.cache),
     .help = "folder for compiled graphs, on shared storage, with a folder for each recipe and "
             "layout; default with precompile.command: 'graphs' in the ledger's folder"},
    {"workload.container", KEY_TEXT, AT(workload.container),
     .help =
         "image in which pyxis runs the command (srun --container-image). tern mounts the folders "
         "that the run writes, and tern-inside, which keeps logs and values as it does elsewhere"},
    {"workload.progress.glob", KEY_PATH, AT(workload.progress.glob),
     .help = "pattern of the trainer's checkpoints, such as out/step_*"},
    {"workload.progress.marker", KEY_TEXT, AT(workload.progress.marker),
     .help = "file that every complete checkpoint has"},
};
const size_t tern_recipe_n_keys = sizeof tern_recipe_keys / sizeof *tern_recipe_keys;

int tern_recipe_read_key(struct tern_recipe *r, const struct tern_recipe_key *k,
                         struct tern_err *err)
{
    struct tern_yaml_node *n;
    void *to = k->offset == KEY_NOWHERE ? NULL : (char *)r + k->offset;
    int word = (int)k->def;
    const char *text;

    if (tern_recipe_look_up(r, k->name, &n, err) < 0)
        return -1;
    switch (k->kind) {
    case KEY_TEXT:
        return tern_yaml_read_text(n, to, err);
    case KEY_PATH:
        if (tern_yaml_read_text(n, to, err) < 0)
            return -1;
        tern_recipe_join(r, to);
        return 0;
    case KEY_COUNT:
        *(int64_t *)to = (int64_t)k->def;
        text = n && k->automatic ? tern_yaml_text(n) : NULL;
        if (text && strcmp(text, "auto") == 0) {
            *(int64_t *)to = TERN_RECIPE_AUTO;
            return 0;
        }
        return tern_yaml_read_int(n, (int64_t)k->lo, (int64_t)k->hi, to, err);
    case KEY_REAL:
        *(double *)to = k->def;
        return tern_yaml_read_real(n, k->lo, k->hi, to, err);
    case KEY_YESNO:
        *(bool *)to = k->def != 0;
        return tern_yaml_read_bool(n, to, err);
    case KEY_WORD:
        if (tern_yaml_read_word(n, k->words, &word, err) < 0)
            return -1;
        if (to)
            *(int64_t *)to = word;
        return 0;
    }
    return 0;
}
