/* Messages for people, on stderr.  Rooms in core/ log little: only facts that fit no error and that
 * a person needs.  Thread-safe: a line is one write(2), which first clears the line of progress.h.
 */
#ifndef TERN_BASE_LOG_H
#define TERN_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum tern_log_level { TERN_LOG_ERROR, TERN_LOG_WARN, TERN_LOG_INFO, TERN_LOG_DEBUG };

/* `name` stands before every line ("tern-train: rank 3: ...") and is copied, cut at 63 bytes. */
void tern_log_name(const char *name);

/* Lines above `level` are dropped.  Default: INFO, or TERN_LOG_LEVEL (error|warn|info|debug). */
void tern_log_threshold(enum tern_log_level level);

/* Are lines of `level` written? */
bool tern_log_says(enum tern_log_level level);

/* One line; a newline is added.  Debug lines carry the time (seconds since 1970).  Keeps errno. */
void tern_log(enum tern_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Give every line that is written to `copy`, too, without its newline; NULL ends that.  Only in
 * this process, not in its children. */
void tern_log_copy(void (*copy)(const char *line, size_t len));

#define tern_error(...) tern_log(TERN_LOG_ERROR, __VA_ARGS__)
#define tern_warn(...) tern_log(TERN_LOG_WARN, __VA_ARGS__)
#define tern_info(...) tern_log(TERN_LOG_INFO, __VA_ARGS__)
#define tern_debug(...) tern_log(TERN_LOG_DEBUG, __VA_ARGS__)

#endif
