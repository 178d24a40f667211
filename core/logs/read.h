/* Reads logs (logs.h) merged over ranks by time, while they are written or later.
 *
 *     struct tern_logs_reader *r = tern_logs_reader_open(dir, NULL, NULL, err);
 *     while (tern_logs_reader_next(r, &line)) ...
 *     tern_logs_reader_refresh(r)          later: new files, and new records of known ones
 *
 * Each log takes one buffer, whatever its size; no file stays open.  One thread.
 */
#ifndef TERN_LOGS_READ_H
#define TERN_LOGS_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_logs_line {
    int64_t wall_ns;
    const char *name; /* "run", or the rank's number */
    int64_t rank;     /* -1 for "run" */
    const char *node;
    char stream, mark; /* as in logs.h; stream 't' also for lines of the reader itself */
    const char *text;  /* [len], until the next call */
    size_t len;
};

struct tern_logs_reader;

/* Is a log to be read, given its rank (-1 for "run") and node?  NULL: every log is. */
typedef bool tern_logs_choose(void *self, int64_t rank, const char *node);

/* Folder `dir` need not be there yet; one that cannot be read is an error. */
struct tern_logs_reader *tern_logs_reader_open(const char *dir, tern_logs_choose *want, void *self,
                                               struct tern_err *err);
/* Before the first line: leave out all but the last `n` lines of each log; those that were
 * overwritten count only with `progress`. */
void tern_logs_reader_tail(struct tern_logs_reader *r, uint64_t n, bool progress);
/* The earliest unread line; false when there is none yet. */
bool tern_logs_reader_next(struct tern_logs_reader *r, struct tern_logs_line *line);
/* Look for new files and records. */
void tern_logs_reader_refresh(struct tern_logs_reader *r);
/* How many logs there are. */
size_t tern_logs_reader_count(const struct tern_logs_reader *r);
/* How many of them `want` chose, of those read so far. */
size_t tern_logs_reader_chosen(const struct tern_logs_reader *r);
/* -1 when a log exists and could not be read. */
int tern_logs_reader_check(const struct tern_logs_reader *r, struct tern_err *err);
void tern_logs_reader_close(struct tern_logs_reader *r);

#endif
