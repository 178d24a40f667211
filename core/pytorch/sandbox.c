#include "core/pytorch/sandbox.h"

#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    UNPRIVILEGED = 65534, /* user and group without rights (Linux's overflow ids) */
    GRACE_S = 5,          /* from SIGXCPU to the kernel's SIGKILL */
    MAPS_MAX = 16 << 20,  /* Linux allows 65530 mappings, with a line each */
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

static void limit(__rlimit_resource_t what, rlim_t most, rlim_t grace)
{
    const struct rlimit r = {most, most + grace};

    setrlimit(what, &r);
}

/* "7f0000000000-7f0000001000 rw-s ...": the mapping is unmapped if others share it. */
static void unmap_shared(const char *line)
{
    char *end;
    const unsigned long from = strtoul(line, &end, 16);

    if (*end != '-')
        return;
    const unsigned long to = strtoul(end + 1, &end, 16);
    if (strnlen(end, 5) == 5 && end[4] == 's' && from < to)
        munmap((void *)from, to - from);
}

/* Segments of the parent's ranks, its database: a byte written there would be seen elsewhere. */
static void drop_shared(void)
{
    struct tern_buf maps = {.max = MAPS_MAX};
    char piece[4096];
    ssize_t n;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    while (fd >= 0 && (n = read(fd, piece, sizeof piece)) > 0)
        tern_buf_add(&maps, piece, (size_t)n);
    for (const char *line = maps.data; line && *line; line = line ? line + 1 : NULL) {
        unmap_shared(line);
        line = strchr(line, '\n');
    }
    tern_buf_free(&maps);
    if (fd >= 0)
        close(fd);
}

/* Handlers and the mask are the parent's at first. */
static void reset_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2};
    sigset_t none;

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        signal(ends[i], SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
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

    drop_shared();
    if (low > 0)
        close_all(0, low - 1);
    if (high > low + 1)
        close_all(low + 1, high - 1);
    close_all(high + 1, ~0u);
    reset_signals();
    limit(RLIMIT_CORE, 0, 0);
    limit(RLIMIT_FSIZE, 0, 0);
    limit(RLIMIT_NPROC, 0, 0);
    limit(RLIMIT_NOFILE, 0, 0);
    limit(RLIMIT_CPU, TERN_PYTORCH_CPU_S, GRACE_S);
    if (geteuid() == 0) {
        syscall(SYS_setgroups, 0, NULL);
        syscall(SYS_setresgid, UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED);
        syscall(SYS_setresuid, UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another uid has cleared */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    filter();
}
