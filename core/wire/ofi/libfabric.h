/* libfabric, loaded at its first use.  <rdma/fabric.h> says what its functions do. */
#ifndef TERN_WIRE_OFI_LIBFABRIC_H
#define TERN_WIRE_OFI_LIBFABRIC_H

#include "core/base/err.h"

#include <stdint.h>

/* Load it, unless it is there: for the error.  Its functions load it else, and find nothing where
 * it is missing.  `provider`: the one that will be asked for, or NULL. */
int tern_wire_libfabric_load(const char *provider, struct tern_err *err);

/* The version to ask fi_getinfo for.  It is that which tern is written to, or the library's own
 * where it is older (Debian 11 and Ubuntu 22.04 have 1.11).  It loads the library, too. */
uint32_t tern_wire_libfabric_api(void);

#endif
