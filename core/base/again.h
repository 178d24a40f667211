/* Retries of system calls that failed for a passing reason.
 *
 *     int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC));
 *     DIR *d = TERN_AGAIN_PTR(opendir(path));
 *
 * EINTR, a signal came: again at once.
 *
 * EMFILE and ENFILE, out of descriptors of this process or of the node: others close theirs.  Again
 * for TERN_AGAIN_FILES_S; the wait is logged.  After a wait in vain no call waits for a minute.
 *
 * ESTALE, a handle of a network file system is out of date: a call by path looks the path up
 * afresh. Again some times, within half a second.
 *
 * Any other errno is the caller's at once.  For calls that may be made twice: open, stat, opendir,
 * mkdir, unlink.  Not for fsync, which reports an error once, nor for close, after which the
 * descriptor is gone in any case (fs.h has both).  A rename is tern_fs_rename.  A stale descriptor
 * stays stale: its reader opens the file again (tern_again_stale).
 *
 * Threads: any.
 */
#ifndef TERN_BASE_AGAIN_H
#define TERN_BASE_AGAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Ten times what a rank's burst of files (shards, spools, logs) takes on a slow storage. */
enum { TERN_AGAIN_FILES_S = 10, TERN_AGAIN_STALE = 5 };

/* The retries of one call; starts as zeros. */
struct tern_again {
    unsigned interrupted, stale;
    int64_t until_ns; /* of a wait for descriptors or processes; 0: none yet */
};

/* Should the call be made again, by errno?  Waits first where that helps.  Keeps errno when not. */
bool tern_again(struct tern_again *a);

/* errno is ESTALE, and the file may be opened once more: true at most TERN_AGAIN_STALE times for
 * one `a`, a longer wait before each. */
bool tern_again_stale(struct tern_again *a);

/* fork(2), made again where there are no more processes for a moment. */
pid_t tern_again_fork(void);

#define TERN_AGAIN(call)                                                                           \
    ({                                                                                             \
        struct tern_again again_ = {0};                                                            \
        __typeof__(call) again_rc_;                                                                \
        do                                                                                         \
            again_rc_ = (call);                                                                    \
        while (again_rc_ < 0 && tern_again(&again_));                                              \
        again_rc_;                                                                                 \
    })

#define TERN_AGAIN_PTR(call)                                                                       \
    ({                                                                                             \
        struct tern_again again_ = {0};                                                            \
        __typeof__(call) again_p_;                                                                 \
        do                                                                                         \
            again_p_ = (call);                                                                     \
        while (!again_p_ && tern_again(&again_));                                                  \
        again_p_;                                                                                  \
    })

#endif
