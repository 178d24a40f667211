#include "cmd/fabric/fabric.h"

#include "core/base/json.h"
#include "core/fabric/autopsy.h"

#include <stdio.h>

static bool json;
static const struct tern_opt opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_autopsy *a = tern_fabric_autopsy(args[0], err);
    struct tern_buf text = {0};
    int rc = 0;

    (void)n;
    if (!a)
        return -1;
    if (json) {
        json_t *j = tern_fabric_autopsy_json(a);
        rc = tern_json_print(stdout, j, err);
        json_decref(j);
    } else {
        tern_fabric_autopsy_text(a, &text);
        rc = tern_buf_check(&text, "the autopsy", err);
        if (rc == 0)
            fputs(text.data, stdout);
        tern_buf_free(&text);
    }
    tern_fabric_autopsy_free(a);
    return rc;
}

const struct tern_cmd fabric_autopsy = {
    .name = "autopsy",
    .args = "DIR",
    .summary = "who was missing where when operations failed or hung",
    .about =
        "Reads what each rank called last (fabric-rank-RRRRR.tfr in DIR, up to 4096 operations a "
        "rank) and says for whom the others waited, or who called something else. Ranks write "
        "these files when an operation fails and on SIGUSR2, into the folder that "
        "TERN_FABRIC_DUMP names; `tern run` lets them lie beside the ranks' logs, "
        "LEDGER/runs/RUN/logs/ATTEMPT. Of a rank that was killed, one of the same node writes the "
        "file; a rank without any was alone on its node, or lost with the whole of it. Times of "
        "different nodes are by their own clocks.",
    .examples = "  tern fabric autopsy ledger/runs/01J.../logs/1\n"
                "  scancel --signal=USR2 JOBID.STEP     # look into a run that hangs, and go on\n",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};
