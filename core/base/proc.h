/* Is another process of this machine stopped?  From /proc/PID/stat (proc(5)). */
#ifndef TERN_BASE_PROC_H
#define TERN_BASE_PROC_H

#include <stdint.h>
#include <sys/types.h>

/* The letter of its state; '\0' when there is no such process, or it cannot be read.  'T': a signal
 * stopped it.  't': a debugger holds it. */
char tern_proc_state(pid_t pid);

/* A watch over one process.  Begins as zeros. */
struct tern_proc_watch {
    int64_t looked_ns, stopped_ns;
    uint64_t cpu; /* clock ticks that it had used at the last look */
};

/* How long `pid` has been stopped by a signal, as far as this process watched, in nanoseconds.  It
 * is 0 again when the process ran, also for a moment.  It is 0 also after a gap between two looks
 * of TERN_PROC_GAP_S: whatever stopped this process, such as a suspended job, stopped both. So the
 * caller looks at least once a second.  `now_ns`: boot clock. */
int64_t tern_proc_stopped_ns(struct tern_proc_watch *w, pid_t pid, int64_t now_ns);
enum { TERN_PROC_GAP_S = 3 };

/* Nanoseconds after which a process of a rank that is stopped will not come back. They are those of
 * TERN_LIVENESS, in which other ranks find it, and TERN_PROC_SUSPEND_S. 0: it is never looked for.
 * An unreadable TERN_LIVENESS is refused elsewhere, and counts as its default. */
int64_t tern_proc_stopped_limit_ns(void);
enum { TERN_PROC_SUSPEND_S = 3 }; /* Slurm sends SIGTSTP, and SIGSTOP 2 s later */

#endif
