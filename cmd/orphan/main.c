/* tern orphan: tern-task starts it on a rank's node when the supervisor is silent. */
#include "cmd/cmd.h"

#include "core/run/orphan.h"

static int run(int n, char **args, struct tern_err *err)
{
    (void)n, (void)args;
    return tern_run_orphan(err);
}

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "orphan",
        .summary = "queue a job again whose batch script's node does not answer",
        .about =
            "Started by tern-task on a rank's node when the supervisor has not answered for some "
            "seconds (TERN_RUN_BEACON).  Returns when the supervisor or its node answers.  When "
            "neither answers, one of the job's other nodes queues the job again. It does this at "
            "once if the caller may set the node DOWN, else (for a job of spares) after Slurm has "
            "declared the node down.  A job of spares that cannot be queued again is ended.",
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
