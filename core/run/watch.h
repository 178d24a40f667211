/* While the ranks work: signals passed on, heartbeat, folds; until the last of them is gone. */
#ifndef TERN_RUN_WATCH_H
#define TERN_RUN_WATCH_H

#include <signal.h>

#include "core/ckpt/ckpt.h"
#include "core/wire/rendezvous.h"
#include "core/ledger/ledger.h"
#include "core/retain/retain.h"
#include "core/run/frozen.h"
#include "core/run/launch.h"
#include "core/run/limit.h"
#include "core/run/srun_hang.h"
#include "core/task/beacon.h"

struct tern_run_watch {
    struct tern_run_ranks *ranks;
    struct tern_ledger_spool *spool;
    struct tern_wire_rendezvous *rendezvous; /* NULL: PMIx is used, or a workload */
    struct tern_ckpt_lease *lease;           /* NULL: a workload without checkpoint.dir */
    const char *checkpoint_dir;              /* NULL likewise */
    const char *ledger_dir;
    const char *tensorboard; /* NULL: no event files are written */
    const char *run_id;
    struct tern_retain *retention;       /* notified when its child has ended */
    struct tern_run_srun_hang srun_hang; /* the caller sets ranks, nodes and logs */
    struct tern_run_limit limit;         /* the caller sets its attempt */
    struct tern_run_frozen frozen;       /* frozen.why is a result */
    struct tern_task_beacon *beacon;     /* answers the ranks' nodes */
    pid_t *watchers;  /* of the attempt: 0 from when its child has ended; may be NULL */
    sigset_t signals; /* blocked since before the ranks were started; SIGCHLD is one */
    /* results */
    int first;              /* the first child that failed; -1: none did */
    int asked;              /* the last signal passed on; 0 for none */
    int64_t asked_ns;       /* and when, on the boot clock */
    struct tern_err fenced; /* why the lease was lost; code 0 while it holds */
};

/* The meaning of a signal `since_ns` after signal `asked` (0: none) was passed on.  The first
 * Ctrl-C requests a checkpoint and the end; another one ends the ranks without a checkpoint. Within
 * TERN_RUN_SAME_S it is the same stop request: a double press, or it came by terminal and srun. */
enum tern_run_stop { TERN_RUN_PASS_ON, TERN_RUN_SAME_STOP, TERN_RUN_END_NOW };
enum { TERN_RUN_SAME_S = 2 };
enum tern_run_stop tern_run_watch_classify(int asked, int64_t since_ns, int sig);

/* The signals that the supervisor reads. */
void tern_run_watch_signals(sigset_t *set);
/* Those of them that end the waits after the ranks. */
void tern_run_watch_stop_signals(sigset_t *set);
/* Returns when no rank is left. */
void tern_run_watch(struct tern_run_watch *w);
/* The fold after the last record, for at most a minute. */
void tern_run_watch_last_fold(const char *ledger_dir, const char *tensorboard, const char *run_id);

#endif
