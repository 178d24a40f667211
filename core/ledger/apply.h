/* Records into the tables of run.db.
 *
 * Applying is idempotent and does not depend on the order of files. Of two records about one thing
 * the one with the later wall clock holds, and a writer's clock only grows (frame.h). */
#ifndef TERN_LEDGER_APPLY_H
#define TERN_LEDGER_APPLY_H

#include <sqlite3.h>

#include "core/ledger/record.h"

struct tern_ledger_apply;

/* The kind of the event of a run with more names than are kept, and its row.  No spool has one. */
#define TERN_APPLY_LIMIT "limit"
#define TERN_APPLY_LIMIT_ROW                                                                       \
    "writer_id = 0 AND seq = 0 AND writer = 'fold' AND kind = '" TERN_APPLY_LIMIT "'"

/* `points` false: values of steps count for "newest" only and are not stored. */
struct tern_ledger_apply *tern_ledger_apply_new(sqlite3 *db, bool points, struct tern_err *err);
/* One record of the file that begins with `head`.  1 when its payload makes no sense. */
int tern_ledger_apply_frame(struct tern_ledger_apply *a, const struct tern_ledger_record_head *head,
                            const struct tern_ledger_frame *f, struct tern_err *err);
/* Write the collected rows (newest values, spans of attempts).  Call it once, at the end. */
int tern_ledger_apply_end(struct tern_ledger_apply *a, struct tern_err *err);
void tern_ledger_apply_free(struct tern_ledger_apply *a);

#endif
