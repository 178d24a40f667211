/* The line that tells how far a command is: share, rate, time left.
 *
 *     tern_progress_begin(NULL, "%s", path);    the command opens the line
 *     tern_progress_expect(bytes);              the room that does the work: so much is to come
 *     tern_progress_add(n);                     and so much of it is done now, from any thread
 *     tern_progress_end();                      before the command prints what came of it
 *
 * A process has one line, as it has one stderr.  Until tern_progress_begin all calls do nothing, at
 * the cost of one load.  So rooms of core/ count their work wherever they are used; only a command,
 * or the trainer's rank 0, opens the line.
 *
 * Where stderr is a terminal, the line is drawn half a second after the begin, then at most five
 * times a second.  It fits the columns that the terminal has.  It is cleared at the end, before
 * each message (log.h), and when SIGINT, SIGTERM or SIGQUIT ends the process, unless the command
 * handles them.  A process in the background draws nothing.  Elsewhere, and with TERM=dumb, it is a
 * message a minute, the first after a minute: a job's log shows that it lives.  TERN_LOG_LEVEL
 * above info silences both.
 *
 * Not safe in a signal's handler.  A child of fork() draws nothing.
 */
#ifndef TERN_BASE_PROGRESS_H
#define TERN_BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open the line; one that is open ends.  `unit`: what is counted, a plural that outlives the line
 * ("tokens"), or NULL for bytes.  The rest is printf's and names the work, as "corpus.tds". */
void tern_progress_begin(const char *unit, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* `n` more are to come.  Without it (or `all` of tern_progress_set) no share is shown. */
void tern_progress_expect(uint64_t n);
/* `n` more are done. */
void tern_progress_add(uint64_t n);
/* Of `all` (0: not known), `done` are done.  The first call has the part that was done before:
 * rates are measured from there. */
void tern_progress_set(uint64_t done, uint64_t all);
/* The same, for rooms that call back. */
void tern_progress_show(void *unused, uint64_t done, uint64_t all);

/* An open line goes on with other work. It begins to count anew, in `unit` (as above), and `what`
 * stands behind the work's name ("out, opening files"). NULL: nothing does. */
void tern_progress_phase(const char *unit, const char *what);

/* Would a call draw now?  For callers to which `done` costs more than a load. */
bool tern_progress_due(void);

/* Clear the line until it is drawn again: before anything but log.h's messages is printed to the
 * terminal. */
void tern_progress_hide(void);
/* Close and clear the line.  When it returns, no thread draws any more. */
void tern_progress_end(void);

/* ---- the text ---- */

struct tern_progress_state {
    const char *name, *unit; /* as above */
    uint64_t done, all;
    uint64_t since; /* `done` at the time since_ns, from which the rate is measured */
    int64_t since_ns, now_ns;
};

/* "corpus.tds: 45 %, 1.2 GB/s, 3 min left"; without a total "corpus.tds: 12 GB, 1.2 GB/s".  What
 * `columns` cannot hold is left out: first the name's beginning, then the name, the rate, the time.
 * 0: no limit.  A name that is not safe on a terminal is masked.  Writes at most `n` bytes and
 * returns `to`. */
char *tern_progress_text(char *to, size_t n, const struct tern_progress_state *s, int columns);

/* ---- for log.c ---- */

/* What stands before a message: it clears the line, or is "" where none is open. */
const char *tern_progress_clear(void);

#endif
