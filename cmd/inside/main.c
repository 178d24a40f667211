/* tern inside: `tern task` in a container, of whose image nothing is known: it is linked with no
 * shared library, and `tern run` mounts this one file. */
#include "cmd/cmd.h"

#include "core/base/vars.h"
#include "core/task/task.h"

static int run(int n_args, char **args, struct tern_err *err)
{
    if (tern_var("TERN_RUN_SPOOL") && tern_task_set_environ(NULL, err) < 0)
        return -1;
    args[n_args] = NULL; /* main's own array, which has one more */
    return tern_task_run(args);
}

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "inside",
        .args = "PROGRAM [ARGUMENT...]",
        .summary = "the same inside a container without tern",
        .about = "Does in a container (workload.container) the work of `tern task` on a node. "
                 "`tern run` mounts it into every image, under its own path. It needs no library.",
        .args_min = 1,
        .args_max = -1,
        .args_raw = true,
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
