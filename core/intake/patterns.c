#include "core/intake/patterns.h"

#include <stddef.h>

#define NUMBER "([-+.0-9a-zA-Z]+)"

static const char *const nxd_data_parallel[] = {"epoch", "step", "loss",      "lr", "throughput",
                                                "-",     "-",    "grad_norm", NULL};
static const char *const nxd_pipeline[] = {"step", "step_seconds", "throughput",
                                           "loss", "grad_norm",    NULL};
static const char *const nxd_lightning[] = {"step", "loss",      "lr", "throughput",
                                            "-",    "grad_norm", NULL};
static const char *const bar[] = {"step", "-", NULL};
static const char *const batches[] = {"@pairs", NULL};

/* NeuronX Distributed's Lightning module: examples/training/llama/lightning/module_llama.py,
 * on_train_batch_end. */
#define NXD_LIGHTNING                                                                              \
    "step ([0-9]+) loss is " NUMBER ", lr is " NUMBER ", throughput " NUMBER                       \
    " seq/s, .*norm (tensor\\(\\[?)?" NUMBER

#define LIGHTNING_BAR ": [^|]*[|][^|]*[|] *[0-9]+/[0-9?]+ \\[([^]]*)\\]"

const struct tern_intake_pattern tern_intake_patterns[] = {
    /* neuronx-distributed, examples/training/llama/tp_zero1_llama_hf_pretrain/logger.py: the rank
     * prints that is 0 in its tensor and data groups. */
    {"nxd", TERN_INTAKE_PATTERN_GROUPS, "step_loss",
     "LOG .* - \\(([0-9]+), ([0-9]+)\\) step_loss : " NUMBER " learning_rate : " NUMBER
     " throughput : " NUMBER " seq/s *(grad-norm : (tensor\\(\\[?)?" NUMBER ")?",
     nxd_data_parallel},
    /* tp_pp_llama_hf_pretrain/logger.py: the first rank of the last pipeline stage, which may be
     * on any node.  Counts steps from 0. */
    {"nxd", TERN_INTAKE_PATTERN_GROUPS, "step_time",
     "step ([0-9]+) step_time ([-+.0-9e]+)s throughput " NUMBER " seq/s loss " NUMBER
     " grad norm " NUMBER,
     nxd_pipeline},
    {"nxd", TERN_INTAKE_PATTERN_GROUPS, "loss is", NXD_LIGHTNING, nxd_lightning},
    /* transformers, src/transformers/trainer_callback.py: ProgressCallback and PrinterCallback
     * print the dict of the logs, numbers since 5.0 as texts; tqdm's bar without a word before it
     * counts optimizer steps.  Where stdout and stderr are one stream, the bar of an evaluation is
     * cleared before the dict, and ends with the cursor's way back up. */
    {"hf", TERN_INTAKE_PATTERN_DICT, "{'", "^(\033\\[A| )*[{]'.*[}] *$", NULL},
    {"hf", TERN_INTAKE_PATTERN_BAR, "%|", "^ *[0-9]+%[|][^|]*[|] *([0-9]+)/([0-9]+) \\[", bar},
    /* lightning, src/lightning/pytorch/callbacks/progress/tqdm_progress.py: a bar an epoch, which
     * counts batches: with accumulation, another end of the last epoch or after a resume those are
     * not steps. */
    {"lightning", TERN_INTAKE_PATTERN_PAIRS, "Epoch ", "^ *Epoch [0-9]+" LIGHTNING_BAR, batches},
    {"lightning", TERN_INTAKE_PATTERN_PAIRS, "Training:", "^ *Training" LIGHTNING_BAR, batches},
    {"lightning", TERN_INTAKE_PATTERN_GROUPS, "loss is", NXD_LIGHTNING, nxd_lightning},
    {NULL, 0, NULL, NULL, NULL},
};
