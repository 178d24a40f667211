/* The retention process: a process of low priority beside the supervisor that keeps checkpoints.
 *
 * It finds the checkpoints of a workload's trainer (workload.progress, `tern metric
 * checkpoint=DIR`), registers them in the ledger, and verifies them (digests every file).  It
 * copies them to `checkpoint.mirror` and, when the recipe sets `checkpoint.keep`, prunes them.  The
 * checkpoints of tern's own trainer are copied to the mirror; the trainer prunes them itself.
 *
 * Training does not wait for it: reading 800 GB takes time.  SIGKILL ends it at any moment when the
 * supervisor ends.  Folders appear and go by rename, records are replaced whole, and the next
 * retention process continues unfinished work.  Folders from before the run are not the run's: they
 * are neither registered nor pruned.
 */
#ifndef TERN_RETAIN_RETAIN_H
#define TERN_RETAIN_RETAIN_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/err.h"
#include "core/ckpt/ckpt.h"
#include "core/recipe/recipe.h"

struct tern_retain_options {
    const char *ledger_dir, *run_id;
    unsigned attempt;
    const char *glob, *marker; /* of the workload's checkpoints; NULL: only registered ones */
    const char *own_dir;       /* of tern's own checkpoints; NULL for a workload */
    const char *mirror;        /* NULL: none */
    int64_t keep, keep_every;  /* keep 0: nothing is pruned */
    bool offline;              /* no supervisor runs beside it (offline.h) */
};

/* Fill *o from the recipe.  Borrows its texts. */
void tern_retain_options_read(const struct tern_recipe *r, struct tern_retain_options *o);

enum { TERN_RETAIN_DOING = 1024 };

struct tern_retain {
    pid_t pid;          /* 0: the process does not run */
    int stop;           /* its pipe; closing it requests the end */
    const char *run_id; /* borrowed from the options */
    char *doing; /* [TERN_RETAIN_DOING], shared with it: the present work, for messages; or NULL */
};

/* Start the process before the ranks start.  The first time, it records the folders that are there
 * already.  Without checkpoints to keep, no process is started. */
int tern_retain_start(struct tern_retain *k, const struct tern_retain_options *o,
                      struct tern_err *err);
/* Child `pid` was waited for.  True when it was the retention process. */
bool tern_retain_reaped(struct tern_retain *k, pid_t pid, int status);
/* Request a last look and wait for its end: at most `seconds`, or until one of the signals `ends`
 * (blocked; NULL: none) is pending; the signal stays pending.  Then the process is ended.  A long
 * wait is logged with its reason and how to end it.  Unfinished work is logged with the command
 * that does it; unless the run is `done`, the next attempt does it, too.  `lease` (or NULL) is
 * renewed meanwhile.  The wait ends when the lease is lost: another supervisor has the run then,
 * and its retention process works in the same folders. */
void tern_retain_finish(struct tern_retain *k, double seconds, bool done,
                        struct tern_ckpt_lease *lease, const sigset_t *ends);

/* One look, in this process.  The retention process repeats it. */
int tern_retain_once(const struct tern_retain_options *o, struct tern_err *err);

#endif
