/* libfabric, loaded at its first use.  <rdma/fabric.h> says what its functions do. */
#ifndef TERN_FABRIC_LIBFABRIC_H
#define TERN_FABRIC_LIBFABRIC_H

#include "core/base/err.h"

/* Load it, unless it is there: for the error.  Its functions load it else, and find nothing where
 * it is missing.  `provider`: the one that will be asked for, or NULL. */
int tern_libfabric_load(const char *provider, struct tern_err *err);

#endif
