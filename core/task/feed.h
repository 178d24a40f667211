/* A queue between a thread that must not wait and one that may: what a program prints, on its way
 * to shared storage.
 *
 * The producer waits for room for PATIENCE_MS at most while the consumer makes headway, and not at
 * all once it made none: then what comes is counted and dropped, until there is room again.
 */
#ifndef TERN_TASK_FEED_H
#define TERN_TASK_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_task_feed_taker {
    void *self;
    /* Bytes of a stream, in the order they came in. */
    void (*take)(void *self, int64_t wall_ns, char stream, const char *data, size_t len);
    /* Bytes of a stream were dropped before what comes next, `lines` newlines among them. */
    void (*lost)(void *self, char stream, uint64_t lines);
    /* Nothing is queued now; called again after at most TERN_TASK_FEED_TICK_MS. */
    void (*idle)(void *self);
    /* The last call. */
    void (*finish)(void *self);
};
enum { TERN_TASK_FEED_TICK_MS = 250, TERN_TASK_FEED_STREAMS = 3 };
#define TERN_TASK_FEED_NAMES "oem" /* stdout, stderr, lines of metrics */

struct tern_task_feed;

/* Begins the consumer, a thread that calls `taker` and gets no signals. */
struct tern_task_feed *tern_task_feed_open(const struct tern_task_feed_taker *taker,
                                           struct tern_err *err);
void tern_task_feed_put(struct tern_task_feed *f, int64_t wall_ns, char stream, const char *data,
                        size_t len);
/* Let the consumer finish, as long as it takes a piece every `patience_ms`; then finish() has
 * returned, the thread is gone and `f` freed: true.  Else it is stuck, and both stay until the
 * process ends: false. */
bool tern_task_feed_close(struct tern_task_feed *f, int patience_ms);

#endif
