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

#endif
