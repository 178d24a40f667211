#include "core/wire/wire.h"

#include "core/wire/mpi/mpi.h"
#include "core/wire/ofi/ofi.h"

#include <string.h>

struct tern_wire_transport *tern_wire_open(const struct tern_wire_options *o, struct tern_err *err)
{
    char provider[TERN_WIRE_PROVIDER_NAME];

    if (strcmp(o->carrier, "mpi") == 0)
        return tern_wire_mpi_open(o, err);
    return tern_wire_ofi_open(tern_wire_ofi_provider_choose(o->provider, provider), o, err);
}
