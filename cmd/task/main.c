/* tern task: `tern run` starts each rank's program under it. */
#include "cmd/cmd.h"

#include "core/base/vars.h"
#include "core/env/env.h"
#include "core/task/task.h"

static int run(int n_args, char **args, struct tern_err *err)
{
    if (tern_var("TERN_RUN_SPOOL") && tern_task_set_environ(tern_env_facts_blas, err) < 0)
        return -1;
    args[n_args] = NULL; /* main's own array, which has one more */
    return tern_task_run(args);
}

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "task",
        .args = "PROGRAM [ARGUMENT...]",
        .summary = "run one rank's program, keep its output and its metrics",
        .about =
            "`tern run` starts every rank with `tern task`. It passes the program's output on "
            "unchanged. It also keeps the output, with time and stream, in the log that `tern "
            "logs` shows (TERN_RUN_LOGS, TERN_LOG_BYTES). It records the values in the output "
            "in the ledger, by the recipe's workload.metrics.  Under `tern run` it also sets "
            "the variables that the rank's node and place need (`tern env --explain`).\n\nThe "
            "program may also write lines like 'step=7 loss=2.31' or 'step=100 checkpoint=DIR' to "
            "the descriptor TERN_METRIC_FD, or to the file TERN_METRIC_FILE. The file is the same "
            "pipe, for processes whose parent closes descriptors, such as torchrun's workers. A "
            "line of up to 4096 bytes is never mixed with another.\n\nThe exit status is the "
            "program's; when a signal ends it, the same signal ends tern-task. Signals to the "
            "process group reach the program directly.",
        .examples = "  srun tern task python3 train.py\n"
                    "  echo step=7 loss=2.31 >$TERN_METRIC_FILE\n",
        .args_min = 1,
        .args_max = -1,
        .args_raw = true,
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
