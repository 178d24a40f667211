/* The transport over libfabric: RDM endpoints, no order assumed. */
#ifndef TERN_WIRE_OFI_OFI_H
#define TERN_WIRE_OFI_OFI_H

#include "core/wire/wire.h"

enum { TERN_WIRE_PROVIDER_NAME = 64 };

/* `provider` if given, else TERN_FABRIC_PROVIDER, else what FI_PROVIDER names first, else efa where
 * there is one, else tcp.  `name` is room for it. */
const char *tern_wire_ofi_provider_choose(const char *provider, char name[TERN_WIRE_PROVIDER_NAME]);

/* Why that one was chosen, for people. */
const char *tern_wire_ofi_provider_why(const char *name);

/* `provider` as libfabric names it.  With `far` waits some seconds for a network. */
struct tern_wire_transport *
tern_wire_ofi_open(const char *provider, const struct tern_wire_options *o, struct tern_err *err);

#endif
