/* What the ranks print, on disk: one log a rank and attempt, bounded in size.
 *
 *     LEDGER/runs/RUN/logs/ATTEMPT/NAME.log            the beginning
 *     LEDGER/runs/RUN/logs/ATTEMPT/NAME.000001.log     and so on; "run" is the supervisor's NAME, a
 *                                                      rank's is its number
 *
 * Each file begins with "tern-log 1 NAME NODE" and goes on with records, a line each:
 *
 *     1763713465123456789 o step 7 loss 2.31
 *     nanoseconds since 1970, a space, the stream, a mark, the text
 *
 * Streams: o stdout, e stderr, t tern's own words.  Marks: ' ' the line is whole; '+' it goes on in
 * the stream's next record (it was longer than a record, or its end took its time); '~' it was
 * ended by a carriage return and overwritten, as progress bars do.  The text is what was printed,
 * whatever that is; it holds no newline.  A file may end in a torn record at any moment, never hold
 * one elsewhere.
 *
 * Of `max_bytes`, an eighth is for the beginning and the rest for the newest: files in between are
 * removed, so that a gap in the numbers is a gap in the log.
 */
#ifndef TERN_LOGS_LOGS_H
#define TERN_LOGS_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

enum {
    TERN_LOGS_TEXT_MAX = 1 << 16, /* bytes of a record's text: pipes' own size */
    TERN_LOGS_PARTS = 8,          /* files a log has at most, of equal size */
    TERN_LOGS_SHARES = 4,         /* of a run: the first attempt's and the newest three's, when
                                        they are full; of most there are many more */
};
#define TERN_LOGS_BYTES_MIN (1 << 20) /* an eighth of it holds a record and more */
#define TERN_LOGS_MAGIC "tern-log 1"

/* The folder of an attempt's logs, malloc'ed: what `tern run` puts into TERN_RUN_LOGS. */
char *tern_logs_dir(const char *ledger_dir, const char *run_id, unsigned attempt);
/* Before attempt `attempt` of a run begins: keep the logs of all its attempts together below
 * TERN_LOGS_SHARES times `share`, what one attempt's may take at most, by removing those of
 * attempts between the first, which tells how it began, and the one before this.  Told in the log.
 */
void tern_logs_trim(const char *ledger_dir, const char *run_id, unsigned attempt, uint64_t share);
/* TERN_LOG_BYTES: bytes of a rank's log; 0: none is kept. */
uint64_t tern_logs_bytes(void);
/* malloc'ed path of part `part` of a log. */
char *tern_logs_path(const char *dir, const char *name, unsigned part);
/* The parts of a file's name: "12.000003.log" -> "12", 3.  -1 when it is no log's. */
int tern_logs_parse_name(const char *file, char name[32], unsigned *part);

/* A log being written, by one thread.  Nothing here is synced: a log is not worth a wait. */
struct tern_logs_file;

/* `name` is [a-z0-9]+, at most 31; `node` a host's name.  Goes on behind what lies there already.
 */
struct tern_logs_file *tern_logs_file_open(const char *dir, const char *name, const char *node,
                                           uint64_t max_bytes, struct tern_err *err);
/* A record.  Buffered; text beyond TERN_LOGS_TEXT_MAX becomes records of its own. */
void tern_logs_file_add(struct tern_logs_file *f, int64_t wall_ns, char stream, char mark,
                        const char *text, size_t len);
/* Lines that were lost before they came here: told in the log. */
void tern_logs_file_add_lost(struct tern_logs_file *f, uint64_t lines);
/* The last record: how the program ended; `status` is wait(2)'s. */
void tern_logs_file_add_end(struct tern_logs_file *f, int64_t wall_ns, int status);
/* Is a text of stream t such a record's? */
bool tern_logs_is_end(const char *text, size_t len);
/* Have the programs of ranks 0 to n - 1 all ended, as their logs in `dir` say?  *status: wait(2)'s
 * of the first that did not end well, else 0.  False also where a log is missing. */
bool tern_logs_ended(const char *dir, size_t n, int *status);
/* Hand what is buffered to the file system.  What that refuses is lost, and told when it takes
 * something again. */
void tern_logs_file_flush(struct tern_logs_file *f);
/* Lines lost so far for which the log has no word yet. */
uint64_t tern_logs_file_unreported(const struct tern_logs_file *f);
void tern_logs_file_close(struct tern_logs_file *f);

#endif
