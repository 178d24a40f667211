#include "core/wire/wire.h"

#include "core/wire/mpi/mpi.h"
#include "core/wire/ofi/ofi.h"

#include "core/base/assert.h"

#include <string.h>

void tern_wire_transfer_check(const struct tern_wire_transfer *x, int rank, int size)
{
    tern_assert(x->peer >= 0 && x->peer < size && x->peer != rank, "peer %d of rank %d of %d",
                x->peer, rank, size);
    tern_assert(x->bytes <= TERN_WIRE_CHUNK && (x->buf || x->bytes == 0), "%zu bytes", x->bytes);
    tern_assert(x->tag % TERN_WIRE_FRAGMENTS == 0, "tag %llx", (unsigned long long)x->tag);
}

struct tern_wire_transport *tern_wire_open(const struct tern_wire_options *o, struct tern_err *err)
{
    char provider[TERN_WIRE_PROVIDER_NAME];

    tern_assert(o->size > 0 && o->rank >= 0 && o->rank < o->size, "rank %d of %d", o->rank,
                o->size);
    if (strcmp(o->carrier, "mpi") == 0)
        return tern_wire_mpi_open(o, err);
    return tern_wire_ofi_open(tern_wire_ofi_provider_choose(o->provider, provider), o, err);
}
