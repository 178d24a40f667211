/* Bytes of a stream as lines, the way a terminal would show them.
 *
 * A newline ends a line.  A carriage return begins it anew: of what a progress bar prints, only
 * what a person would see once a second is worth keeping, but a pattern wants all of it.
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
    /* A line as printed, NUL-terminated, for patterns; NULL: nobody wants them.  A bar that pauses
     * before its end comes once more, then `whole`; any other line comes when it is. */
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
    int64_t wall_ns; /* of the first byte that the log has not */
    int64_t newest_ns;
    bool redrawn; /* a carriage return began it */
    bool broken;  /* its beginning is not there: for the log alone */
    bool missing; /* nor anywhere else: bytes were lost before it */
    char *before; /* what that one overwrote, [TERN_LOGS_TEXT_MAX] */
    size_t before_len;
    int64_t before_ns, drawn_ns; /* drawn_ns: of the last '~' in the log */
};

/* `l` starts as {0}; its memory comes with the first bytes (aborts without). */
void tern_logs_lines_take(struct tern_logs_lines *l, int64_t wall_ns, const char *data, size_t len);
/* Bytes are missing before the next ones: the line so far and the rest of the one that follows are
 * logged, and not matched. */
void tern_logs_lines_gap(struct tern_logs_lines *l);
/* Nothing came for a moment: match a bar, log what has waited for a second; `end`: all that is
 * left. */
void tern_logs_lines_idle(struct tern_logs_lines *l, int64_t now_ns, bool end);
void tern_logs_lines_free(struct tern_logs_lines *l);

#endif
