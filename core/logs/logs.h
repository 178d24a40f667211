/* The logs of ranks on disk: one log a rank and attempt, bounded in size.
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
 * Streams: o stdout, e stderr, t lines of tern's own.  Marks: ' ' the line is whole.  '+' it goes
 * on in the stream's next record (it was longer than a record, or its end came late).  '~' a
 * carriage return ended it and it was overwritten, as progress bars do.  The text is the bytes as
 * printed, without a newline.  A file may end in a torn record at any moment; no other record is
 * torn.
 *
 * An eighth of `max_bytes` is for the beginning, the rest for the newest records.  Files in between
 * are removed: a gap in the numbers is a gap in the log.
 */
#ifndef TERN_LOGS_LOGS_H
#define TERN_LOGS_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

enum {
    TERN_LOGS_TEXT_MAX = 1 << 16, /* bytes of a record's text: the size of a pipe */
    TERN_LOGS_PARTS = 8,          /* files a log has at most, of equal size */
    TERN_LOGS_SHARES = 4,         /* full logs that a run keeps: of the first attempt and of the
                                        newest three; logs that are not full fit more often */
};
#define TERN_LOGS_BYTES_MIN (1 << 20) /* an eighth of it holds a record and more */
#define TERN_LOGS_MAGIC "tern-log 1"

/* The folder of an attempt's logs, malloc'ed; `tern run` puts it into TERN_RUN_LOGS. */
char *tern_logs_dir(const char *ledger_dir, const char *run_id, unsigned attempt);
/* Called before attempt `attempt` of a run begins.  `share`: bytes that the logs of one attempt may
 * take.  Keeps all logs of the run below TERN_LOGS_SHARES shares: it removes logs of attempts after
 * the first and before the previous one, and logs that. */
void tern_logs_trim(const char *ledger_dir, const char *run_id, unsigned attempt, uint64_t share);
/* TERN_LOG_BYTES: bytes of a rank's log; 0: ranks have no log. */
uint64_t tern_logs_bytes(void);
/* malloc'ed path of part `part` of a log. */
char *tern_logs_path(const char *dir, const char *name, unsigned part);
/* The parts of a file's name: "12.000003.log" -> "12", 3.  -1 when it is not the name of a log. */
int tern_logs_parse_name(const char *file, char name[32], unsigned *part);

/* A log being written, by one thread.  No write is synced: a log is not worth the wait. */
struct tern_logs_file;

/* `name` is [a-z0-9]+, at most 31; `node` a host's name.  A log that is there already goes on
 * behind its last record. */
struct tern_logs_file *tern_logs_file_open(const char *dir, const char *name, const char *node,
                                           uint64_t max_bytes, struct tern_err *err);
/* Add a record, buffered; text beyond TERN_LOGS_TEXT_MAX becomes records of its own. */
void tern_logs_file_add(struct tern_logs_file *f, int64_t wall_ns, char stream, char mark,
                        const char *text, size_t len);
/* `lines` were lost before they reached the log: a record says so. */
void tern_logs_file_add_lost(struct tern_logs_file *f, uint64_t lines);
/* Add the last record: how the program ended; `status` is wait(2)'s.  `told`: it had got a signal
 * to end before. */
void tern_logs_file_add_end(struct tern_logs_file *f, int64_t wall_ns, int status, bool told);
/* Is this text, of stream t, the text of a last record? */
bool tern_logs_is_end(const char *text, size_t len);
/* Have the programs of ranks 0 to n - 1 all ended, as their logs in `dir` say?  *status: wait(2)'s
 * of the first that failed, else 0.  *ret_last_ns (NULL is fine): when the last one ended, on the
 * wall clock of its node.  False also when a log is missing. */
bool tern_logs_ended(const char *dir, size_t n, int *status, int64_t *ret_last_ns);
/* The first of ranks 0 to n - 1 whose program has not ended, by its log, though another's has, and
 * none has failed.  -1 when there is none, or the logs cannot be read. */
int64_t tern_logs_left(const char *dir, size_t n);
/* The first rank that failed before it got a signal to end, by the nodes' clocks: *ret_status is
 * wait(2)'s. -1 when there is none, or not all have ended as above. */
int64_t tern_logs_first_failed(const char *dir, size_t n, int *ret_status);
/* The first rank that exited with 1 to 128, which no signal makes, also after a signal to end:
 * *ret_status is wait(2)'s. -1 as above. */
int64_t tern_logs_first_exit(const char *dir, size_t n, int *ret_status);
/* Write the buffered records.  Records that the file system refuses are lost; a record says so when
 * it takes writes again. */
void tern_logs_file_flush(struct tern_logs_file *f);
/* Lines lost so far that no record of the log reports yet. */
uint64_t tern_logs_file_unreported(const struct tern_logs_file *f);
void tern_logs_file_close(struct tern_logs_file *f);

#endif
