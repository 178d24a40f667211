/* A queue between a thread that must not wait and one that may: the output of a program on its way
 * to shared storage.
 *
 * While the consumer makes headway, the producer waits for room, PATIENCE_MS at most.  Once it
 * makes none, the producer does not wait: it counts and drops bytes until there is room again.
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
    /* Bytes of a stream were dropped before the next ones, `lines` newlines among them; `inside`:
     * the last one is no newline. */
    void (*lost)(void *self, char stream, uint64_t lines, bool inside);
    /* The queue is empty; called again after at most TERN_TASK_FEED_TICK_MS. */
    void (*idle)(void *self);
    /* The last call. */
    void (*finish)(void *self);
};
enum { TERN_TASK_FEED_TICK_MS = 250, TERN_TASK_FEED_STREAMS = 3 };
#define TERN_TASK_FEED_NAMES "oem" /* stdout, stderr, lines of metrics */

struct tern_task_feed;

/* Start the consumer, a thread that calls `taker` and gets no signals. */
struct tern_task_feed *tern_task_feed_open(const struct tern_task_feed_taker *taker,
                                           struct tern_err *err);
void tern_task_feed_put(struct tern_task_feed *f, int64_t wall_ns, char stream, const char *data,
                        size_t len);
/* Let the consumer finish, as long as it takes a piece every `patience_ms`; then finish() has
 * returned, the thread is gone and `f` freed: true.  Otherwise both stay until the process ends:
 * false. */
bool tern_task_feed_close(struct tern_task_feed *f, int patience_ms);
/* After that: the consumer takes no more.  All that it has not taken goes to take() and lost() of
 * `to`, in the caller's thread.  The piece that it is busy with comes first, if any. */
void tern_task_feed_leave(struct tern_task_feed *f, const struct tern_task_feed_taker *to);

#endif
