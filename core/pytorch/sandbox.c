#include "core/pytorch/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    UNPRIVILEGED = 65534, /* user and group without rights (Linux's overflow ids) */
    CPU_S = 120,          /* the largest pickle takes a second or two */
};

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ARCH
#define STATEMENT(code_, k_)                                                                       \
    {                                                                                              \
        .code = (code_), .k = (k_)                                                                 \
    }
#define ALLOW(call_)                                                                               \
    {.code = BPF_JMP | BPF_JEQ | BPF_K, .jf = 1, .k = SYS_##call_},                                \
        STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Memory, the pipe, the end, and what an abort and the sanitizers' allocators need. */
static void filter(void)
{
    struct sock_filter rules[] = {
        STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        {.code = BPF_JMP | BPF_JEQ | BPF_K, .jt = 1, .k = ARCH},
        STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read),
        ALLOW(write),
        ALLOW(brk),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(mprotect), /* malloc of a thread's arena */
        ALLOW(mremap),
        ALLOW(madvise),
        ALLOW(futex),
        ALLOW(getrandom),
        ALLOW(clock_gettime),
        ALLOW(nanosleep),
        ALLOW(clock_nanosleep),
        ALLOW(sched_yield),
        ALLOW(close),
        ALLOW(getpid),
        ALLOW(gettid),
        ALLOW(sigaltstack),
        ALLOW(rt_sigaction),
        ALLOW(rt_sigprocmask),
        ALLOW(rt_sigreturn),
        ALLOW(exit),
        ALLOW(exit_group),
        /* A signal is for this process alone. */
        {.code = BPF_JMP | BPF_JEQ | BPF_K, .jf = 3, .k = SYS_tgkill},
        STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])), /* low half */
        {.code = BPF_JMP | BPF_JEQ | BPF_K, .jf = 1, .k = (uint32_t)getpid()},
        STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    const struct sock_fprog program = {.len = sizeof rules / sizeof *rules, .filter = rules};

    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
#else
static void filter(void)
{
}
#endif

static void limit(__rlimit_resource_t what, rlim_t most)
{
    const struct rlimit r = {most, most};

    setrlimit(what, &r);
}

/* Descriptors from..to. */
static void close_all(unsigned from, unsigned to)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, from, to, 0) == 0)
        return;
#endif
    for (unsigned fd = from; fd <= to && fd < 1u << 16; fd++)
        close((int)fd);
}

void tern_pytorch_sandbox(int keep)
{
    const unsigned kept = (unsigned)keep, low = kept < 2 ? kept : 2, high = kept < 2 ? 2 : kept;

    if (low > 0)
        close_all(0, low - 1);
    if (high > low + 1)
        close_all(low + 1, high - 1);
    close_all(high + 1, ~0u);
    signal(SIGPIPE, SIG_IGN);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_NPROC, 0);
    limit(RLIMIT_NOFILE, 0);
    limit(RLIMIT_CPU, CPU_S);
    if (geteuid() == 0) {
        syscall(SYS_setgroups, 0, NULL);
        syscall(SYS_setresgid, UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED);
        syscall(SYS_setresuid, UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another uid has cleared */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    filter();
}
