/* The supervisor: the head's first process (plain: an ordinary daemon), and each node's. */
#ifndef TERN_VCLUSTER_SUPER_H
#define TERN_VCLUSTER_SUPER_H

#include "core/base/process.h"
#include "core/vcluster/plan.h"

/* The supervisor's report to `up`: the daemons run, or an error. */
struct tern_vcluster_super_report {
    int32_t code;
    bool refused; /* the namespaces could not be made: plain mode may do */
    char text[1000];
};

/* Start it for `plan`, with `lock_fd` as its own.  *up is a socket on which one struct
 * tern_vcluster_super_report will arrive.  A byte written to it keeps the cluster; a close before
 * that ends it.  *super is the supervisor.  -1 when there is no process. */
int tern_vcluster_super_start(struct tern_vcluster_plan *plan, int lock_fd, int *up,
                              struct tern_process *super, bool *refused, struct tern_err *err);

#endif
