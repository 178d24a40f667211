/* What a cluster's nodes share, and what each has for itself, in words. */
#ifndef TERN_VCLUSTER_FOLDERS_H
#define TERN_VCLUSTER_FOLDERS_H

#include "core/vcluster/plan.h"

/* Fill `share` of `p`, whose programs are found: folders that /tmp and /run of the nodes would
 * hide. */
int tern_vcluster_folders_list(struct tern_vcluster_plan *p, const struct tern_vcluster_options *o,
                               struct tern_err *err);

/* Sentences for a person, without a newline; malloc'ed.  The plan's mode is decided. */
char *tern_vcluster_folders_describe(const struct tern_vcluster_plan *p);

#endif
