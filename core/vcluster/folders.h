/* What a cluster's nodes share, and what each has for itself, in words. */
#ifndef TERN_VCLUSTER_FOLDERS_H
#define TERN_VCLUSTER_FOLDERS_H

#include "core/vcluster/plan.h"

/* Sentences for a person, without a newline; malloc'ed.  The plan's mode is decided. */
char *tern_vcluster_folders_describe(const struct tern_vcluster_plan *p);

#endif
