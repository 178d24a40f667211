/* A process that may compute, and write its answer. */
#ifndef TERN_PYTORCH_SANDBOX_H
#define TERN_PYTORCH_SANDBOX_H

/* For a child after fork(2), once it has opened and mapped what it needs: every descriptor is
 * closed but `keep` and standard error; where the caller is root, it becomes nobody; no file can be
 * opened and no process started.  System calls other than those of memory, reading, writing and
 * ending fail with EPERM where the kernel can filter them (seccomp on x86-64 and aarch64).  What
 * cannot be had is left out. */
void tern_pytorch_sandbox(int keep);

#endif
