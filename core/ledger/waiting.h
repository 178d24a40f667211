/* Records that the storage does not take now: they wait in memory, which is bounded. */
#ifndef TERN_LEDGER_WAITING_H
#define TERN_LEDGER_WAITING_H

#include <stdbool.h>

#include "core/base/str.h"
#include "core/ledger/frame.h"
#include "core/ledger/lost.h"

enum { TERN_WAITING_MAX = 4 << 20 }; /* bytes: some ten thousand steps of a dozen values */

struct tern_ledger_waiting_record {
    enum tern_ledger_frame_type type;
    int64_t wall_ns;
    const uint8_t *payload; /* of tern_ledger_waiting_first: until the next call */
    uint32_t len;
};

/* Oldest first.  Starts as {0}. */
struct tern_ledger_waiting {
    struct tern_buf bytes;
    size_t at; /* of the oldest in `bytes` */
    uint64_t n;
};

/* False where there is no room left. */
bool tern_ledger_waiting_add(struct tern_ledger_waiting *w,
                             const struct tern_ledger_waiting_record *r);
/* The oldest; false when none waits. */
bool tern_ledger_waiting_first(const struct tern_ledger_waiting *w,
                               struct tern_ledger_waiting_record *r);
void tern_ledger_waiting_pop(struct tern_ledger_waiting *w);
void tern_ledger_waiting_free(struct tern_ledger_waiting *w);

void tern_ledger_lost_add(struct tern_ledger_lost *l, const struct tern_ledger_waiting_record *r);

#endif
