/* Other processes, and a process's own descriptors, on every kernel from 4.18 on. */
#ifndef TERN_BASE_PROCESS_H
#define TERN_BASE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* A process, and never a later one that got its number: a pidfd, or (before Linux 5.3, and where a
 * seccomp filter of a container refuses pidfd_open) its folder of /proc. */
struct tern_process {
    pid_t pid;
    int fd; /* -1: none; the caller may read it, and leaves it to tern_process_close */
    bool is_pidfd;
};

#define TERN_PROCESS_NONE ((struct tern_process){.fd = -1})

/* -1 with errno; ESRCH when it is not there. */
int tern_process_open(struct tern_process *p, pid_t pid);
/* Wait until it has ended, at most `wait_ms`; true when it has.  False for none. */
bool tern_process_ended(const struct tern_process *p, int wait_ms);
/* kill(2), but for this process alone. */
int tern_process_signal(const struct tern_process *p, int sig);
void tern_process_close(struct tern_process *p);

/* The folder of /proc of `pid` (0: the caller), with which a process that cannot see it there can
 * still enter its namespaces.  -1 with errno. */
int tern_process_folder(pid_t pid);
/* Into the namespaces (CLONE_NEW...) of the process whose folder `fd` is.  Nothing of them when one
 * cannot be opened.  -1 with errno. */
int tern_process_enter(int fd, int namespaces);

/* Close every descriptor from `first` on. */
void tern_close_from(int first);

#endif
