/* How ranks first find each other: each gives a blob and gets everybody's. */
#ifndef TERN_FABRIC_WIREUP_H
#define TERN_FABRIC_WIREUP_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/fabric/fabric.h"

enum { WIREUP_BLOB = 512 }; /* every blob has this size */

struct wireup {
    const char *name;
    int rank, size;
    int64_t deadline_ns; /* a duration */
    void *state;
    /* Collective: blob[WIREUP_BLOB] of every rank to all[size][WIREUP_BLOB].  Each takes
     * deadline_ns at most, else it is an error that says who is missing where that is known.  After
     * an error `all` is undefined, the other ranks may have theirs, and only `close` may follow. */
    int (*exchange)(struct wireup *w, const uint8_t *blob, uint8_t *all, struct tern_err *err);
    /* Harmless when not open. */
    void (*close)(struct wireup *w);
};

/* Each fills `w`, rank and size included; deadline_ns is set already.  To be closed also after an
 * error. */
int tern_fabric_wireup_pmix(struct wireup *w, struct tern_err *err);
int tern_fabric_wireup_mpi(struct wireup *w, struct tern_err *err);
int tern_fabric_wireup_socket(struct wireup *w, const char *address, struct tern_err *err);

#endif
