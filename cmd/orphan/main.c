/* tern orphan: tern-task starts it on a rank's node when the supervisor is silent. tern run starts
 * it as a watcher on nodes of a job of spares. */
#include "cmd/cmd.h"

#include "core/run/orphan.h"

static bool watch;

static const struct tern_opt opts[] = {
    {"watch", 0, TERN_OPT_FLAG, .to.flag = &watch,
     .help = "query the supervisor until SIGTERM comes, and do this whenever it is silent"},
    {0},
};

static int run(int n, char **args, struct tern_err *err)
{
    (void)n, (void)args;
    return watch ? tern_run_orphan_watch(err) : tern_run_orphan(err);
}

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "orphan",
        .summary = "queue a job again whose batch script's node does not answer",
        .about =
            "Started by tern-task on a rank's node when the supervisor has not answered for some "
            "seconds (TERN_RUN_BEACON). With --watch it is started by tern run on other nodes of a "
            "job of spares.  Returns when the supervisor or its node answers.  When neither "
            "answers, one of the job's other nodes queues the job again. It does this at once if "
            "the caller may set the node DOWN. Else (for a job of spares) it does so after Slurm "
            "has declared the node down.  A job of spares that cannot be queued again is ended.",
        .opts = opts,
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
