/* tern link: the ways between nodes, measured.  What `tern health fabric` runs on every node. */
#include "cmd/cmd.h"

#include "core/base/vars.h"
#include "core/wire/wire.h"
#include "core/health/link.h"

#include <stdlib.h>

static bool deep, provider;
static const struct tern_opt opts[] = {
    {"deep", 0, TERN_OPT_FLAG, .to.flag = &deep, .help = "longer, and with more data"},
    {"provider", 0, TERN_OPT_FLAG, .to.flag = &provider,
     .help = "only: does libfabric have TERN_FABRIC_PROVIDER here?"},
    {0},
};

static void ask_provider(struct tern_health_rows *rows)
{
    struct tern_health_row r = {.check = "provider"};
    struct tern_err err = {0};

    if (tern_wire_provider(NULL, r.text, sizeof r.text, &err) < 0) {
        r.verdict = TERN_HEALTH_NODE_BAD;
        r.severity = TERN_RULES_ERROR;
        snprintf(r.text, sizeof r.text, "%.390s", err.text);
    }
    tern_health_rows_add(rows, &r);
}

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_health_rows rows = {0};

    (void)n, (void)args, (void)err;
    if (provider)
        ask_provider(&rows);
    else
        tern_health_link(tern_var("TERN_RUN_SOCKET"), deep, &rows);
    for (size_t i = 0; i < rows.n; i++) {
        json_t *j = tern_health_row_json(&rows.row[i]);
        json_dumpf(j, stdout, JSON_COMPACT);
        puts("");
        json_decref(j);
    }
    tern_health_rows_free(&rows);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "link",
        .summary = "measure the links between nodes, for `tern health fabric`",
        .about = "Measures bandwidth and latency to two neighbours on a ring, and makes an "
                 "all-reduce with a known result. Start one process on each node. It prints one "
                 "line of JSON for each finding.",
        .examples = "  srun -N4 --ntasks-per-node=1 --mpi=pmix tern link\n",
        .opts = opts,
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
