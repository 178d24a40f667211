/* Splits the bytes of a stream into lines, as a terminal would show them.
 *
 * A newline ends a line.  A carriage return starts the line over, as progress bars do.  The log
 * keeps such a line about once a second; a pattern sees every one.
 */
#ifndef TERN_LOGS_LINES_H
#define TERN_LOGS_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_logs_lines_to {
    void *self;
    /* A line for the log, or a piece of one: `mark` is a log record's (logs.h). */
    void (*log)(void *self, int64_t wall_ns, char stream, char mark, const char *text, size_t len);
    /* A line as printed, NUL-terminated, for patterns; NULL: there are none.  A bar
     * that pauses before its end comes again when it is `whole`; other lines come whole only. */
    void (*line)(void *self, int64_t wall_ns, char stream, const char *text, size_t len,
                 bool whole);
};

struct tern_logs_lines {
    struct tern_logs_lines_to to;
    char stream;
    char *text; /* the line so far, [TERN_LOGS_TEXT_MAX + 1] */
    size_t len;
    size_t logged;   /* bytes of it that the log has */
    size_t matched;  /* its length when `line` saw it */
    int64_t wall_ns; /* of the first byte that is not in the log */
    int64_t newest_ns;
    bool redrawn; /* a carriage return started it over */
    bool broken;  /* its beginning is missing: it is logged, not matched */
    bool missing; /* bytes were lost since the last newline */
    char *before; /* the text that it overwrote, [TERN_LOGS_TEXT_MAX] */
    size_t before_len;
    int64_t before_ns, drawn_ns; /* drawn_ns: of the last '~' in the log */
};

/* `l` starts as {0}; memory is allocated with the first bytes; aborts when there is none. */
void tern_logs_lines_take(struct tern_logs_lines *l, int64_t wall_ns, const char *data, size_t len);
/* Bytes are missing before the next ones: the line so far is logged and not matched.  `inside`:
 * they end within a line, whose rest is logged and not matched either. */
void tern_logs_lines_gap(struct tern_logs_lines *l, bool inside);
/* No byte came for a moment: match a bar, and log text that has waited for a second; `end`: log all
 * that is left. */
void tern_logs_lines_idle(struct tern_logs_lines *l, int64_t now_ns, bool end);
void tern_logs_lines_free(struct tern_logs_lines *l);

#endif
