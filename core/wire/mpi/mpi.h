/* MPI: a transport, and a place to meet.  The library is reached through plugins/fabric-mpi alone
 * (table.h), which is loaded when it is first asked for.
 *
 * What differs from libfabric, because MPI is so:
 *
 * - MPI keeps its PMIx client to the end.  A rank that dies in the middle therefore takes the step
 *   with it (srun --mpi=pmix).  mpirun ends the others, often before they can name the dead rank.
 * - MPI starts once in a process; a fabric that was closed cannot be opened again over it.
 * - Starting waits for all ranks in MPI_Init, which has no limit and cannot be called off. After
 *   the deadline it is left in a thread of its own, and the error says which wait it was.
 * - Leaving waits up to the deadline for the others to leave too (MPI_Finalize needs them all),
 *   unless an operation has failed before. A rank that leaves alone ends without MPI_Finalize, and
 *   its launcher says so. */
#ifndef TERN_WIRE_MPI_MPI_H
#define TERN_WIRE_MPI_MPI_H

#include "core/wire/mpi/table.h"
#include "core/wire/wire.h"

/* Load the plugin and start MPI, unless that is done; each start wants a stop.  `limit_ns`: how
 * long this start and the last stop wait for the other ranks; 0: as it was (at first a minute).
 * TERN_USAGE when no launcher has started this process, TERN_FAILED when there is no plugin or no
 * MPI. */
const struct tern_mpi *tern_wire_mpi_start(int64_t limit_ns, struct tern_err *err);
/* The last one ends MPI; with `alone`, without waiting for the other ranks.  Keeps errno. */
void tern_wire_mpi_stop(bool alone);
/* "Open MPI v4.1.4"; after a start. */
const char *tern_wire_mpi_library(void);

/* Where the plugin is; malloc'ed.  NULL with `err` where none was built. */
char *tern_wire_mpi_plugin(struct tern_err *err);

struct tern_wire_transport *tern_wire_mpi_open(const struct tern_wire_options *o,
                                               struct tern_err *err);

#endif
