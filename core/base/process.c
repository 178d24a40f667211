#include "core/base/process.h"

#include "core/base/again.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Numbers that headers of older kernels lack; they are the same on every architecture. */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { LOOK_EVERY_MS = 5 };

int tern_process_folder(pid_t pid)
{
    char path[32];

    if (pid)
        snprintf(path, sizeof path, "/proc/%d", (int)pid);
    else
        snprintf(path, sizeof path, "/proc/self");
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0 && errno == ENOENT)
        errno = ESRCH;
    return fd;
}

int tern_process_open(struct tern_process *p, pid_t pid)
{
    *p = (struct tern_process){.pid = pid, .is_pidfd = true};
    p->fd = TERN_AGAIN((int)syscall(SYS_pidfd_open, pid, 0));
    if (p->fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        p->is_pidfd = false;
        p->fd = tern_process_folder(pid);
    }
    return p->fd < 0 ? -1 : 0;
}

/* A zombie has ended, too. */
static bool folder_ended(int fd)
{
    char text[512];
    int stat = TERN_AGAIN(openat(fd, "stat", O_RDONLY | O_CLOEXEC));
    ssize_t n = stat < 0 ? -1 : TERN_AGAIN(read(stat, text, sizeof text - 1));

    if (stat >= 0)
        close(stat);
    if (n <= 0)
        return stat >= 0 || errno == ENOENT || errno == ESRCH;
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && (name_end[1] && (name_end[2] == 'Z' || name_end[2] == 'X'));
}

bool tern_process_ended(const struct tern_process *p, int wait_ms)
{
    if (p->fd < 0)
        return false;
    if (p->is_pidfd) {
        struct pollfd end = {p->fd, POLLIN, 0};
        return TERN_AGAIN(poll(&end, 1, wait_ms)) == 1;
    }
    while (!folder_ended(p->fd)) {
        int ms = wait_ms < LOOK_EVERY_MS ? wait_ms : LOOK_EVERY_MS;
        if (ms <= 0)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
        wait_ms -= ms;
    }
    return true;
}

int tern_process_signal(const struct tern_process *p, int sig)
{
    if (p->is_pidfd) {
        int rc = (int)syscall(SYS_pidfd_send_signal, p->fd, sig, NULL, 0);
        if (rc == 0 || (errno != ENOSYS && errno != EPERM))
            return rc;
    }
    /* Between the two another may get the number; a kernel that can do better has done it above. */
    if (tern_process_ended(p, 0)) {
        errno = ESRCH;
        return -1;
    }
    return kill(p->pid, sig);
}

void tern_process_close(struct tern_process *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

int tern_process_enter(int folder, int namespaces)
{
    /* The user namespace first: it gives the rights that the others need.  The mounts last: this
     * /proc cannot be seen behind them. */
    static const struct {
        int flag;
        const char *file;
    } order[] = {{CLONE_NEWUSER, "ns/user"}, {CLONE_NEWPID, "ns/pid"}, {CLONE_NEWNET, "ns/net"},
                 {CLONE_NEWUTS, "ns/uts"},   {CLONE_NEWIPC, "ns/ipc"}, {CLONE_NEWNS, "ns/mnt"}};
    enum { N = sizeof order / sizeof *order };
    int fds[N], rc = 0;

    for (int i = 0; i < N; i++) {
        fds[i] = -1;
        if (rc == 0 && (namespaces & order[i].flag) &&
            (fds[i] = TERN_AGAIN(openat(folder, order[i].file, O_RDONLY | O_CLOEXEC))) < 0)
            rc = -1;
    }
    for (int i = 0; i < N && rc == 0; i++)
        if (fds[i] >= 0)
            rc = setns(fds[i], order[i].flag);
    int saved = errno;
    for (int i = 0; i < N; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    errno = saved;
    return rc;
}

/* Without /proc: all that there may be. */
static void close_counted(unsigned from, unsigned to)
{
    const long most = sysconf(_SC_OPEN_MAX);

    for (long fd = from; fd < most && fd <= (long)to; fd++)
        close((int)fd);
}

/* Descriptors from..to of the calling thread's table. */
static void close_between(unsigned from, unsigned to)
{
    if (syscall(SYS_close_range, from, to, 0U) == 0)
        return;
    /* Reading a folder while its entries vanish may skip some: repeat until none is found. */
    for (bool found = true; found;) {
        DIR *d = opendir("/proc/thread-self/fd");
        found = false;
        for (struct dirent *e; d && (e = readdir(d));) {
            unsigned fd = (unsigned)strtoul(e->d_name, NULL, 10);
            if (e->d_name[0] != '.' && fd >= from && fd <= to && fd != (unsigned)dirfd(d)) {
                close((int)fd);
                found = true;
            }
        }
        if (d)
            closedir(d);
        else
            close_counted(from, to);
    }
}

void tern_close_from(int first)
{
    close_between((unsigned)first, ~0U);
}

bool tern_process_unshare_files(const int *keep, int n)
{
    enum { UNSHARE = 2 }; /* CLOSE_RANGE_UNSHARE: filters that refuse unshare(2) mostly allow it */

    if (syscall(SYS_close_range, ~0U, ~0U, UNSHARE) < 0 && unshare(CLONE_FILES) < 0)
        return false;
    for (unsigned from = STDERR_FILENO + 1, next; from > 0; from = next + 1) {
        next = ~0U;
        for (int i = 0; i < n; i++)
            if ((unsigned)keep[i] >= from && (unsigned)keep[i] < next)
                next = (unsigned)keep[i];
        if (next > from)
            close_between(from, next - (next < ~0U));
    }
    return true;
}
