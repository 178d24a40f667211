/* The supervisor's side of `tern cluster break` and `mend`. */
#ifndef TERN_VCLUSTER_TROUBLE_H
#define TERN_VCLUSTER_TROUBLE_H

#include "core/vcluster/plan.h"

/* Bring `trouble` upon node `i`, which must be well; TERN_USAGE otherwise. */
int tern_vcluster_trouble_begin(struct tern_vcluster_plan *p, size_t i,
                                enum tern_vcluster_trouble trouble, struct tern_err *err);
/* Undo what befell node `i`; TERN_USAGE when it is well. */
int tern_vcluster_trouble_end(struct tern_vcluster_plan *p, size_t i, struct tern_err *err);

/* The process that holds up slow node `i` has ended by itself, and is reaped: the node runs
 * freely. */
void tern_vcluster_trouble_lost_brake(struct tern_vcluster_plan *p, size_t i);

#endif
