/* Time: wall clock for people and records, boot clock for durations and deadlines. */
#ifndef TERN_BASE_CLOCK_H
#define TERN_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Nanoseconds since 1970 (may jump). */
int64_t tern_clock_wall_ns(void);
/* Nanoseconds since boot, suspend included (never jumps): for durations and deadlines. */
int64_t tern_clock_boot_ns(void);

/* "2026-11-21T05:04:25+00:00" in the local zone; writes at most `n` bytes (26 suffice), returns
 * `to`. */
char *tern_clock_iso8601(char *to, size_t n, int64_t wall_ns);

/* Sleep at least `ns`, through signals. */
void tern_clock_sleep_ns(int64_t ns);

/* Time in which this process did not run: it was stopped, or its machine was.  One thread ticks,
 * every TERN_CLOCK_TICK_MS; any may ask.  Begins as zeros; without a tick, nothing is known.  A gap
 * counts from TERN_CLOCK_GAP_MS on, in which a busy machine gives every thread its turn. */
struct tern_clock_gaps {
    _Atomic int64_t ticked_ns, lost_ns;
};
enum { TERN_CLOCK_TICK_MS = 500, TERN_CLOCK_GAP_MS = 2000 };
/* `now_ns`: boot clock. */
void tern_clock_gaps_tick(struct tern_clock_gaps *g, int64_t now_ns);
/* The nanoseconds lost so far, with those of a gap whose end no tick has noted yet.  The difference
 * of two answers is what a span of time has lost. */
int64_t tern_clock_gaps_lost_ns(struct tern_clock_gaps *g, int64_t now_ns);

/* A limit on waiting.  Time between two looks counts up to `most_ns`.  A longer gap means that this
 * process was stopped (a suspended job, a frozen machine), and perhaps its peers with it.  The
 * caller therefore looks at least that often. */
struct tern_clock_limit {
    int64_t left_ns, seen_ns, most_ns;
};
struct tern_clock_limit tern_clock_limit(int64_t ns, int64_t most_ns);
/* What is left; 0 or less when it is over. */
int64_t tern_clock_left_ns(struct tern_clock_limit *l);

#endif
