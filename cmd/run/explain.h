/* `tern run --explain`: where each rank would run. */
#ifndef TERN_CMD_RUN_EXPLAIN_H
#define TERN_CMD_RUN_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/run/run.h"

struct explain {
    struct tern_run_options options;
    int64_t nodes;       /* of an allocation to assume; 0: all of `cluster`, else this machine */
    const char *cluster; /* layout file or name of a virtual cluster; NULL: no switches known */
    bool json;
};

/* Print it.  Inside a job its nodes count, and `nodes` and `cluster` are refused. */
int explain(const struct explain *e, struct tern_err *err);

#endif
