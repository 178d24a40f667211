/* Counts the values that a rank's program gave and a storage that hangs did not take.  The thread
 * that writes stays where it is; what waits for it is read once more, and counted. */
#ifndef TERN_TASK_LEFT_H
#define TERN_TASK_LEFT_H

#include <stdint.h>

#include "core/intake/intake.h"
#include "core/logs/lines.h"
#include "core/task/feed.h"

struct tern_task_left {
    int64_t rank;
    const char *metrics; /* TERN_RUN_METRICS or NULL */
    /* Of the thread that hangs.  Lines as they are split there, in the streams' order. */
    const struct tern_logs_lines *lines;
    const struct tern_intake_unwritten *unwritten;
    char stream;    /* of the piece that it is busy with; 0: of none yet */
    uint64_t begun; /* lines of that piece that it has begun to record */
};

/* The records that are not in the ledger.  Call it when tern_task_feed_close(f) has given up. */
struct tern_ledger_lost tern_task_left_count(struct tern_task_feed *f,
                                             const struct tern_task_left *from);

#endif
