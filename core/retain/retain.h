/* The keeper: a process of low priority beside the supervisor that looks after checkpoints.
 *
 * What the trainer of a workload writes is found (workload.progress, `tern metric checkpoint=DIR`),
 * registered in the ledger, verified (every file digested), copied to `checkpoint.mirror` and, when
 * the recipe sets `checkpoint.keep`, pruned.  What tern's own trainer publishes is copied to the
 * mirror; it prunes itself.
 *
 * Nothing waits for it: reading 800 GB takes its time, and training goes on.  It is ended by
 * SIGKILL when the supervisor ends, at any moment: folders appear and go by rename, records are
 * replaced whole, and the next keeper takes up what is unfinished.  Folders that were there before
 * the run began are not the run's: they are neither registered nor pruned.
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
    const char *glob, *marker; /* of the workload's checkpoints; NULL: registered ones alone */
    const char *own_dir;       /* of tern's own checkpoints; NULL for a workload */
    const char *mirror;        /* NULL: none */
    int64_t keep, keep_every;  /* keep 0: nothing is pruned */
    bool offline;              /* offline.h: no supervisor stands behind this */
};

/* What the recipe asks for.  Borrows its texts. */
void tern_retain_options_read(const struct tern_recipe *r, struct tern_retain_options *o);

enum { TERN_RETAIN_DOING = 1024 };

struct tern_retain {
    pid_t pid;          /* 0: none is at work */
    int stop;           /* closed to ask it to finish */
    const char *run_id; /* the options' */
    char *doing; /* [TERN_RETAIN_DOING], shared with it: what it works on, for people; or NULL */
};

/* To be called before the ranks start: notes what lies there already, the first time.  Starts
 * nothing when there is nothing to keep. */
int tern_retain_start(struct tern_retain *k, const struct tern_retain_options *o,
                      struct tern_err *err);
/* Its process was waited for: say so.  True when `pid` was the keeper's. */
bool tern_retain_reaped(struct tern_retain *k, pid_t pid, int status);
/* Let it take a last look and wait for it, `seconds` at most or until one of the signals `ends`
 * (blocked; NULL: none) is pending, which it stays; then it is ended.  A wait that lasts is told,
 * with what it is for and how to end it; what is left then, with who does it: for a run that is
 * `done` no attempt comes.  `lease` (NULL will do) is kept alive meanwhile, and the wait ends when
 * it is lost: the run is another's, whose keeper works in the same folders. */
void tern_retain_finish(struct tern_retain *k, double seconds, bool done,
                        struct tern_ckpt_lease *lease, const sigset_t *ends);

/* One look, in this process: what the keeper does again and again. */
int tern_retain_once(const struct tern_retain_options *o, struct tern_err *err);

#endif
