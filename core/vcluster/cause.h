/* Why nodes of a virtual cluster do not start, from its logs. */
#ifndef TERN_VCLUSTER_CAUSE_H
#define TERN_VCLUSTER_CAUSE_H

#include "core/vcluster/plan.h"

/* The last error in log/`log`, of the lines that start with `of`; `to` stays where there is none.
 * In the head and on nodes. */
void tern_vcluster_cause_words(const struct tern_vcluster_plan *p, const char *log, const char *of,
                               char *to, size_t n);
/* -1 with the cause in `err` where Slurm takes one node a host name, and cannot run these. */
int tern_vcluster_cause_several(const struct tern_vcluster_plan *p, struct tern_err *err);
/* That, and the first error of a node's start unless all are `idle`. */
int tern_vcluster_cause_find(const struct tern_vcluster_plan *p, bool idle, struct tern_err *err);

#endif
