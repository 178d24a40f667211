/* Slurm's printed topology. */
#ifndef TERN_SLURM_TOPOLOGY_H
#define TERN_SLURM_TOPOLOGY_H

#include <stddef.h>

#include "core/base/err.h"

/* `text`: lines of "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=a[1-2]" or "BlockName=b1 ...
 * Nodes=", as `scontrol show topology` prints them; others are passed over.  *where as of
 * tern_slurm_topology_load. */
int tern_slurm_topology_parse(const char *text, char *const *hosts, size_t n, char ***where,
                              struct tern_err *err);

#endif
