/* A process that may compute, and write its answer. */
#ifndef TERN_PYTORCH_SANDBOX_H
#define TERN_PYTORCH_SANDBOX_H

/* CPU time, after which SIGXCPU ends the child: the largest pickle takes a second or two. */
enum { TERN_PYTORCH_CPU_S = 120 };

/* For a child after fork(2), once it has opened and mapped what it needs.  `keep` and standard
 * error stay open.  Root becomes a user without rights.  The child can open no file and start no
 * process.  Memory that the parent shares with others is unmapped here.  Signals that ask a process
 * to end do so, whatever the parent does at them.  Where the kernel filters system calls (seccomp
 * on x86-64 and aarch64), the child has few.  They are those of memory, reading, writing, sleeping,
 * signals to itself and ending; others fail with EPERM.  What cannot be had is left out. */
void tern_pytorch_sandbox(int keep);

#endif
