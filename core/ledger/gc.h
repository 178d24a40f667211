/* Garbage of a ledger: files that no program reads any more, and whose contents are elsewhere,
 * too.
 *
 * Only files of the caller count.  Nothing counts of a run that goes on: its newest attempt has no
 * end, and was heard of in the last day.  Folders and files are looked at again as they are
 * removed, and no link is followed. */
#ifndef TERN_LEDGER_GC_H
#define TERN_LEDGER_GC_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

/* A temporary file, a merge that was ended, and a run's folder count after this time without a
 * write. So does an attempt without an end, which another machine may still own. */
enum { TERN_LEDGER_GC_REST_S = 86400 };

struct tern_ledger_garbage {
    const char *path;
    uint64_t bytes;   /* of its files */
    const char *what; /* "temporary file" */
    const char *kept; /* why it stays; NULL: it goes */
};

struct tern_ledger_gc_how {
    bool remove;                       /* false: nothing is changed */
    int64_t bad_s;                     /* age of a damaged run.db, kept aside, that may go */
    const volatile sig_atomic_t *stop; /* not 0: nothing more is removed; NULL: never */
    /* Each, before it goes; its texts are valid during the call. */
    void (*each)(void *ctx, const struct tern_ledger_garbage *g);
    void *ctx;
};

/* Look through one home (tern_ledger_homes) for:
 *   - temporary files of ended processes, in it and in its runs' folders;
 *   - run.db.bad: where the run verifies and its spools have all that the damaged file has read;
 *   - folders RUN.tmp-X of ended merges, where the run has each of their files;
 *   - runs' folders without any record.
 * What looks like one of these, but may be the only copy of something, is reported as kept.  One
 * that cannot be removed holds up no other: -1 with the first error in the end.  A run that cannot
 * be read is left out with a warning. */
int tern_ledger_gc(const char *home, const struct tern_ledger_gc_how *how, struct tern_err *err);

/* May a run of this home be tidied: is its newest attempt ended, or silent for
 * TERN_LEDGER_GC_REST_S?  1, 0, or -1 where it cannot be read. */
int tern_ledger_gc_rests(const char *home, const char *run_id, struct tern_err *err);

#endif
