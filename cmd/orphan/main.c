/* tern orphan: what tern-task starts on a rank's node when the supervisor is silent. */
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
            "seconds (TERN_RUN_BEACON).  Returns when it or its node answers.  When neither does, "
            "the job is queued again, by the first of its nodes that can: where the caller may set "
            "the node DOWN, at once, else (a job of spares) when Slurm has given up the node.  A "
            "job of spares that may not be queued again is ended.",
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
