/* How ranks first find each other: each gives a blob and gets those of all ranks. */
#ifndef TERN_WIRE_WIREUP_H
#define TERN_WIRE_WIREUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

enum { TERN_WIRE_BLOB = 512 }; /* every blob has this size */

struct tern_wire_up {
    const char *name;
    int rank, size;
    int64_t deadline_ns; /* a duration */
    void *state;
    /* Collective: blob[TERN_WIRE_BLOB] of every rank to all[size][TERN_WIRE_BLOB].  Each takes
     * deadline_ns at most, else it is an error that names the missing rank where that is known.
     * After an error `all` is undefined, the other ranks may have theirs, and only `close` may
     * follow. */
    int (*exchange)(struct tern_wire_up *w, const uint8_t *blob, uint8_t *all,
                    struct tern_err *err);
    /* Harmless when not open. */
    void (*close)(struct tern_wire_up *w);
};

/* Each fills `w`, rank and size included; deadline_ns is set already.  To be closed also after an
 * error. */
int tern_wire_up_pmix(struct tern_wire_up *w, struct tern_err *err);
int tern_wire_up_mpi(struct tern_wire_up *w, struct tern_err *err);
int tern_wire_up_socket(struct tern_wire_up *w, const char *address, struct tern_err *err);

/* Did a launcher that speaks MPI start this process? */
bool tern_wire_up_mpi_launched(void);

#endif
