/* Reading logs (logs.h) back, merged over ranks by time, while they are written or later.
 *
 *     struct tern_logs_reader *r = tern_logs_reader_open(dir, NULL, NULL, err);
 *     while (tern_logs_reader_next(r, &line)) ...
 *     tern_logs_reader_refresh(r)          later: new files, and what was added to those that are
 * there
 *
 * Memory is a buffer a log, whatever their size; no file stays open.  One thread.
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
    char stream, mark; /* as in logs.h; a stream 't' is also a word of the reader's own */
    const char *text;  /* [len], until the next call */
    size_t len;
};

struct tern_logs_reader;

/* Which logs: `want` is asked with each log's rank (-1 for "run") and node; NULL wants all. */
typedef bool tern_logs_choose(void *self, int64_t rank, const char *node);

/* Folder `dir` need not be there yet; one that cannot be read is an error. */
struct tern_logs_reader *tern_logs_reader_open(const char *dir, tern_logs_choose *want, void *self,
                                               struct tern_err *err);
/* Before the first line: leave out all but the last `n` lines of each log; those that were
 * overwritten count only with `progress`. */
void tern_logs_reader_tail(struct tern_logs_reader *r, uint64_t n, bool progress);
/* The earliest line at hand; false when there is none (yet). */
bool tern_logs_reader_next(struct tern_logs_reader *r, struct tern_logs_line *line);
/* Look again for what was added. */
void tern_logs_reader_refresh(struct tern_logs_reader *r);
/* How many logs there are. */
size_t tern_logs_reader_count(const struct tern_logs_reader *r);
/* How many of them `want` took; known of those that were looked into. */
size_t tern_logs_reader_chosen(const struct tern_logs_reader *r);
/* -1 and why, if one of them was there and could not be read. */
int tern_logs_reader_check(const struct tern_logs_reader *r, struct tern_err *err);
void tern_logs_reader_close(struct tern_logs_reader *r);

#endif
