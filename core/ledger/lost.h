/* Records that are not in the ledger: how many, and of which steps. */
#ifndef TERN_LEDGER_LOST_H
#define TERN_LEDGER_LOST_H

#include <stddef.h>
#include <stdint.h>

struct tern_ledger_spool;

/* Their number, and their first and last step (-1: of none).  Starts as {0}. */
struct tern_ledger_lost {
    uint64_t n;
    int64_t first, last;
};
/* Add n records of steps `first` to `last`. */
void tern_ledger_lost_join(struct tern_ledger_lost *l, uint64_t n, int64_t first, int64_t last);
/* "212 records lost (steps 89 to 300): CAUSE".  Readers of "gap" events take the number from it. */
void tern_ledger_lost_words(const struct tern_ledger_lost *l, const char *cause, char *to,
                            size_t size);

/* The same for a look from another thread, which waits for no lock: the storage that a writer waits
 * for may never answer. */
struct tern_ledger_unwritten {
    _Atomic uint64_t n;
    _Atomic int64_t first, last;
};
void tern_ledger_unwritten_set(struct tern_ledger_unwritten *u, const struct tern_ledger_lost *l);
/* Add what stands there. */
void tern_ledger_unwritten_join(const struct tern_ledger_unwritten *u, struct tern_ledger_lost *to);
/* From now on *u has the records that wait or had no room, without those that the ledger reports
 * as lost.  It outlives the spool. */
void tern_ledger_spool_show(struct tern_ledger_spool *s, struct tern_ledger_unwritten *u);

#endif
