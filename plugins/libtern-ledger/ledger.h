/* libtern-ledger: a program records its values in tern's ledger, in three calls.
 *
 *     struct tern_log *log = tern_log_open("/fsx/ledger", "my-run");
 *     tern_log_value(log, step, "loss", loss);             // as often as wanted
 *     if (tern_log_close(log) < 0)
 *         fprintf(stderr, "%s\n", tern_log_error());
 *
 * `tern ledger list`, `plot` and `sql` read them at once.  Link with `pkg-config --libs
 * tern-ledger`. The types are C's plain ones, so that Fortran (iso_c_binding) and Python (ctypes)
 * call it, too.
 *
 * Threads: any number may log to one handle; one thread closes it, when the others are done.  Only
 * one at a time calls tern_log_open(), which asks the system for the user's name.
 *
 * Forks: a child may log to the handle that it inherited, and gets a file of its own for that.  It
 * closes its copy of the handle, which leaves the parent's as it is.
 *
 * Errors: a call gives -1 (or NULL) and tern_log_error() says why.  Nothing is printed, unless
 * TERN_LOG_LEVEL is set, and no call ends the program for an error of its arguments or of the
 * storage.  A value that the storage does not take waits in memory (4 MiB) until it does.
 */
#ifndef TERN_LEDGER_LOG_H
#define TERN_LEDGER_LOG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by 1 with each function that is added.  None is taken away from libtern-ledger.so.0. */
#define TERN_LOG_VERSION 1
/* The TERN_LOG_VERSION of the library that is loaded. */
int tern_log_version(void);

struct tern_log;

enum {
    TERN_LOG_VALUES_MAX = 1024, /* of one call */
    TERN_LOG_NAME_MAX = 200,    /* bytes of a value's name */
};

/* Begin to log.
 *
 * In a process that `tern run` started (TERN_RUN_SPOOL is set), values go to that run and attempt.
 * Both arguments are ignored: they may be NULL.  Ranks that log the same names at the same steps
 * should prefix them ("rank3/loss"): of two values of one name and step the newer holds.
 *
 * Elsewhere a new run begins, with one attempt.  `ledger_dir` is the ledger's folder, made when it
 * is missing; NULL or "": that of TERN_LEDGER.  `run_name` has 1 to 64 letters, digits, dots,
 * dashes and underscores, begins with no dot or dash, and is not "latest" or "best".  Each call
 * begins a run: of several processes one should open it.  Readers show the run as silent when it
 * has logged nothing for three minutes, and so one whose process ended without tern_log_close().
 *
 * The texts are copied.  NULL on failure; the calls below take that for an error, and do nothing.
 */
struct tern_log *tern_log_open(const char *ledger_dir, const char *run_name);

/* Record one value.  `step` counts finished steps: the first is 1, 0 is before training.  A
 * negative one and one above 2^53, which readers could not tell from its neighbours, are errors.
 * `name` has 1 to TERN_LOG_NAME_MAX bytes without control characters.  NaN and the infinities are
 * values like others.  After 0 the value survives a kill of this process.  After -1 for the
 * storage's sake it waits, and must not be logged again. */
int tern_log_value(struct tern_log *log, int64_t step, const char *name, double value);

/* Record `n` values of one step, all or none, as tern_log_value() does: faster than one by one.
 * `n` is 0 to TERN_LOG_VALUES_MAX; of 0 nothing is recorded, and the arrays may be NULL.  A name
 * twice is an error. */
int tern_log_values(struct tern_log *log, int64_t step, const char *const names[],
                    const double values[], int n);

/* Write all that waits, make it survive a power cut, and free `log`, also on failure.  A run that
 * tern_log_open() began ends with the outcome "done", if this is the process that began it.  -1:
 * values were lost, which the ledger then tells, too, as far as the storage takes it.  NULL: 0. */
int tern_log_close(struct tern_log *log);

/* Why the calling thread's newest call that failed did; "" when none has.  One line, in English.
 * It belongs to the library, and changes when a call of this thread fails. */
const char *tern_log_error(void);

#ifdef __cplusplus
}
#endif

#endif
