/* Before any call to the controller. */
#ifndef TERN_SLURM_START_H
#define TERN_SLURM_START_H

#include "core/base/err.h"

/* Read the configuration, once a process; an error when there is none. */
int tern_slurm_start(struct tern_err *err);

#endif
