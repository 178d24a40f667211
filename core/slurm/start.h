/* Around every call to the controller. */
#ifndef TERN_SLURM_START_H
#define TERN_SLURM_START_H

#include <stdint.h>

#include "core/base/err.h"

/* Read the configuration, once a process; an error when there is none. */
int tern_slurm_start(struct tern_err *err);

/* "job 7: cannot <what>: <libslurm's reason in errno>"; without "job 7: " where `job` is 0.  A
 * refusal by the controller is TERN_FAILED, trouble on the way to it TERN_TEMPFAIL.  Returns -1. */
int tern_slurm_fail(struct tern_err *err, const char *what, uint32_t job);

/* A copy, malloc'ed; "" of NULL. */
char *tern_slurm_text(const char *s);

#endif
