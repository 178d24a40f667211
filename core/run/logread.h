/* Reading logs (logfile.h) back, merged over ranks by time, while they are written or later.
 *
 *     struct tern_run_logread *r = tern_run_logread_open(dir, NULL, NULL, err);
 *     while (tern_run_logread_next(r, &line)) ...
 *     tern_run_logread_more(r)          later: new files, and what was added to those that are
 * there
 *
 * Memory is a buffer a log, whatever their size; no file stays open.  One thread.
 */
#ifndef TERN_RUN_LOGREAD_H
#define TERN_RUN_LOGREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_run_logline {
    int64_t wall_ns;
    const char *name; /* "run", or the rank's number */
    int64_t rank;     /* -1 for "run" */
    const char *node;
    char stream, mark; /* as in logfile.h; a stream 't' is also a word of the reader's own */
    const char *text;  /* [len], until the next call */
    size_t len;
};

struct tern_run_logread;

/* Which logs: `want` is asked with each log's rank (-1 for "run") and node; NULL wants all. */
typedef bool tern_run_logread_want(void *self, int64_t rank, const char *node);

/* Folder `dir` need not be there yet; one that cannot be read is an error. */
struct tern_run_logread *tern_run_logread_open(const char *dir, tern_run_logread_want *want,
                                               void *self, struct tern_err *err);
/* Before the first line: leave out all but the last `n` lines of each log; those that were
 * overwritten count only with `progress`. */
void tern_run_logread_tail(struct tern_run_logread *r, uint64_t n, bool progress);
/* The earliest line at hand; false when there is none (yet). */
bool tern_run_logread_next(struct tern_run_logread *r, struct tern_run_logline *line);
/* Look again for what was added. */
void tern_run_logread_more(struct tern_run_logread *r);
/* How many logs there are. */
size_t tern_run_logread_count(const struct tern_run_logread *r);
/* How many of them `want` took; known of those that were looked into. */
size_t tern_run_logread_chosen(const struct tern_run_logread *r);
/* -1 and why, if one of them was there and could not be read. */
int tern_run_logread_check(const struct tern_run_logread *r, struct tern_err *err);
void tern_run_logread_close(struct tern_run_logread *r);

#endif
