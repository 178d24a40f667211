/* `tern fabric flight-report`. */
#include "cmd/fabric/fabric.h"

#include "core/base/json.h"
#include "core/flight/report.h"

#include <stdio.h>

static bool json;
static const struct tern_opt opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_flight_report *a = tern_flight_report_read(args[0], err);
    struct tern_buf text = {0};
    int rc = 0;

    (void)n;
    if (!a)
        return -1;
    if (json) {
        json_t *j = tern_flight_report_json(a);
        rc = tern_json_print(stdout, j, err);
        json_decref(j);
    } else {
        tern_flight_report_text(a, &text);
        rc = tern_buf_check(&text, "the flight report", err);
        if (rc == 0)
            fputs(text.data, stdout);
        tern_buf_free(&text);
    }
    tern_flight_report_free(a);
    return rc;
}

const struct tern_cmd fabric_flight_report = {
    .name = "flight-report",
    .args = "DIR",
    .summary = "which rank was missing where, when operations failed or hung",
    .about = "Reads the operations that each rank called last (fabric-rank-RRRRR.tfr in DIR, up to "
             "4096 a rank). It names the rank that the others waited for, or the rank that called "
             "another operation. Ranks write these files when an operation fails and on SIGUSR2, "
             "into the folder that TERN_FABRIC_DUMP names. With `tern run` they are beside the "
             "ranks' logs, LEDGER/runs/RUN/logs/ATTEMPT. A rank of the same node writes the file "
             "of a killed rank. A rank without a file was alone on its node, or lost with the "
             "whole node. Each node's times are by its own clock.",
    .examples = "  tern fabric flight-report ledger/runs/01J.../logs/1\n"
                "  scancel --signal=USR2 JOBID.STEP     # look into a run that hangs, and go on\n",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};
