/* Wire-up by MPI_Allgather: where MPI carries the messages, or is compared with, PMIx is its own.
 */
#include "core/wire/wireup.h"

#include "core/base/log.h"
#include "core/wire/mpi/mpi.h"

/* Nothing more is to be waited for: MPI is of the process, and stuck in a collective of its own. */
static bool stuck;

static int exchange(struct tern_wire_up *w, const uint8_t *blob, uint8_t *all, struct tern_err *err)
{
    const struct tern_mpi *mpi = w->state;
    int rc = mpi->gather(blob, TERN_WIRE_BLOB, all, w->deadline_ns);

    stuck = rc != 0;
    if (rc == TERN_MPI_LATE)
        return tern_err_set(err, TERN_TEMPFAIL, "MPI: not all ranks arrived within the deadline");
    return rc ? tern_err_set(err, TERN_TEMPFAIL, "MPI: not all ranks arrived: %s", mpi->text(rc))
              : 0;
}

static void finish(struct tern_wire_up *w)
{
    if (w->state)
        tern_wire_mpi_stop(stuck);
    w->state = NULL;
}

int tern_wire_up_mpi(struct tern_wire_up *w, struct tern_err *err)
{
    const struct tern_mpi *mpi = tern_wire_mpi_start(w->deadline_ns, err);

    if (!mpi)
        return -1;
    tern_debug("phase: mpi");
    w->state = (void *)(uintptr_t)mpi;
    w->name = tern_wire_mpi_library();
    w->exchange = exchange;
    w->close = finish;
    w->rank = mpi->rank();
    w->size = mpi->size();
    return 0;
}
