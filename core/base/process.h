/* Other processes, and a process's own descriptors, on every kernel from 4.18 on. */
#ifndef TERN_BASE_PROCESS_H
#define TERN_BASE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* A process, never a later one with the same number. It is held by a pidfd, or by its /proc folder
 * (before Linux 5.3, and where a container's seccomp filter refuses pidfd_open). */
struct tern_process {
    pid_t pid;
    int fd; /* -1: none; the caller may read it, and leaves it to tern_process_close */
    bool is_pidfd;
};

#define TERN_PROCESS_NONE ((struct tern_process){.fd = -1})

/* -1 with errno; ESRCH when there is no such process. */
int tern_process_open(struct tern_process *p, pid_t pid);
/* Wait until it has ended, at most `wait_ms`; true when it has.  False for none. */
bool tern_process_ended(const struct tern_process *p, int wait_ms);
/* kill(2), but for this process alone. */
int tern_process_signal(const struct tern_process *p, int sig);
void tern_process_close(struct tern_process *p);

/* The /proc folder of `pid` (0: the caller).  A process that does not see `pid` in its own /proc
 * can enter the namespaces through it.  -1 with errno. */
int tern_process_folder(pid_t pid);
/* Enter the namespaces (CLONE_NEW...) of the process whose /proc folder is `fd`: all, or none when
 * one cannot be opened.  -1 with errno. */
int tern_process_enter(int fd, int namespaces);

/* Close every descriptor from `first` on. */
void tern_close_from(int first);

/* Give the calling thread a table of descriptors of its own: the standard ones, and the `n` in
 * `keep`. While threads share a table, the kernel counts references at every system call on a
 * descriptor, in every thread of the process. False where the kernel refuses (a container's seccomp
 * filter): the table stays shared. What others open and close later does not reach the thread. A
 * number that it opens itself may be another file elsewhere in the process. The copies that it
 * closes are flushed as by close(2): a file open for writing on hung storage would hold it. */
bool tern_process_unshare_files(const int *keep, int n);

#endif
