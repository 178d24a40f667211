/* The transport over libfabric: RDM endpoints, no order assumed. */
#ifndef TERN_FABRIC_OFI_H
#define TERN_FABRIC_OFI_H

#include "core/fabric/transport.h"

enum { PROVIDER_NAME = 64 };

/* `provider` if given, else TERN_FABRIC_PROVIDER, else what FI_PROVIDER names first, else efa where
 * there is one, else tcp.  `name` is room for it. */
const char *tern_fabric_provider_choose(const char *provider, char name[PROVIDER_NAME]);

/* Why that one was chosen, for people. */
const char *tern_fabric_provider_why(const char *name);

/* `provider` as libfabric names it.  With `far` waits some seconds for a network. */
struct transport *tern_fabric_ofi_open(const char *provider, const struct transport_options *o,
                                       struct tern_err *err);

#endif
