/* A child process with a bound on its time and its output. */
#include "plugin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* close_range(2) is of Linux 5.9 and its wrapper of glibc 2.34: RHEL 8 has neither. */
static void close_from(int first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0U, 0) == 0)
        return;
#endif
    DIR *d = opendir("/proc/self/fd");
    int max = first - 1;

    for (struct dirent *e; d && (e = readdir(d));)
        if ((int)strtol(e->d_name, NULL, 10) > max)
            max = (int)strtol(e->d_name, NULL, 10);
    for (int fd = first; fd <= (d ? max : (int)sysconf(_SC_OPEN_MAX)); fd++)
        close(fd);
}

/* The child: its words go into the pipes, and nothing of its caller's is left open in it. */
static void become(const struct tern_spank_child *c, int out, int words)
{
    int null = open("/dev/null", O_RDWR);
    const char *program = c->program;
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    if (null < 0 || dup2(null, 0) < 0 || dup2(c->out ? out : null, 1) < 0 || dup2(words, 2) < 0)
        _exit(126);
    close_from(3);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (c->env)
        environ = (char **)c->env;
    if (c->find && !(program = c->find(program)))
        _exit(126);
    execvp(program, c->argv);
    dprintf(2, "error: cannot run '%s': %s. Ask the admin to fix tern=PATH in plugstack.conf.\n",
            c->program, strerror(errno));
    _exit(127);
}

/* One read; bytes are kept as far as there is room.  False at the end. */
static bool take(int fd, char *to, size_t room, size_t *n, bool *more)
{
    char rest[4096];
    bool full = *n >= room;
    ssize_t got = full ? read(fd, rest, sizeof rest) : read(fd, to + *n, room - *n);

    if (got < 0)
        return errno == EINTR;
    if (full && got > 0)
        *more = true;
    else
        *n += (size_t)got;
    return got > 0;
}

/* Read what the child says until it closes both pipes or has said more than it may; false when time
 * was up first. */
static bool listen_to(struct tern_spank_child *c, int out, int words, int64_t deadline)
{
    struct pollfd p[2] = {{.fd = words, .events = POLLIN}, {.fd = out, .events = POLLIN}};
    size_t n_said = 0;
    bool cut = false;

    while (!c->more && (p[0].fd >= 0 || p[1].fd >= 0)) {
        int64_t left = deadline - now_ms();
        int ready = left > 0 ? poll(p, 2, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        if (p[0].revents && !take(words, c->said, sizeof c->said - 1, &n_said, &cut))
            p[0].fd = -1;
        if (p[1].revents && !take(out, c->out, c->out_size, &c->n_out, &c->more))
            p[1].fd = -1;
        c->said[n_said] = '\0';
    }
    return true;
}

/* Wait for the child until `deadline`; false when it was still there. */
static bool ended(struct tern_spank_child *c, pid_t pid, int64_t deadline)
{
    pid_t got;

    while ((got = waitpid(pid, &c->status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (now_ms() > deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    c->unseen = got < 0;
    if (c->unseen)
        c->status = 0;
    return true;
}

/* Where the caller of the hook ignores SIGCHLD (a shell's trap '' CHLD, a daemon's habit) the
 * kernel reaps children unseen.  So the disposition is reset while ours runs.  A handler stays. */
static bool look_at_children(struct sigaction *before)
{
    struct sigaction seen;

    if (sigaction(SIGCHLD, NULL, before) < 0)
        return false;
    if (before->sa_handler != SIG_IGN && !(before->sa_flags & SA_NOCLDWAIT))
        return false;
    seen = *before;
    seen.sa_flags &= ~SA_NOCLDWAIT;
    if (seen.sa_handler == SIG_IGN)
        seen.sa_handler = SIG_DFL;
    return sigaction(SIGCHLD, &seen, NULL) == 0;
}

int tern_spank_child(struct tern_spank_child *c)
{
    int64_t deadline = now_ms() + c->limit_ms;
    int out[2] = {-1, -1}, words[2] = {-1, -1}, rc = -1;
    struct sigaction before;
    bool restore = look_at_children(&before);

    c->n_out = 0, c->status = 0;
    c->more = c->late = c->unseen = false;
    c->said[0] = '\0';
    if (pipe2(words, O_CLOEXEC) < 0 || (c->out && pipe2(out, O_CLOEXEC) < 0))
        goto out;
    pid_t pid = fork();
    if (pid == 0)
        become(c, out[1], words[1]);
    if (pid < 0)
        goto out;
    close(words[1]);
    close(out[1]);
    words[1] = out[1] = -1;
    c->late = !listen_to(c, out[0], words[0], deadline) || (!c->more && !ended(c, pid, deadline));
    if (c->late || c->more) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        /* One that hangs in a file system is not even killed: it is left behind then. */
        ended(c, pid, now_ms() + 500);
    }
    rc = 0;
out:;
    int saved = errno;
    const int fds[] = {out[0], out[1], words[0], words[1]};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (restore)
        sigaction(SIGCHLD, &before, NULL);
    errno = saved;
    return rc;
}

bool tern_spank_control(const char *at)
{
    unsigned char c = (unsigned char)at[0], next = (unsigned char)at[1];

    return c < ' ' || c == 127 || (c == 0xc2 && next >= 0x80 && next < 0xa0);
}

void tern_spank_repeat(char *said, const char *own)
{
    char *save = NULL;
    size_t n = strlen(own);

    for (char *line = strtok_r(said, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        for (char *c = line; *c; c++)
            if (tern_spank_control(c))
                *c = '?';
        slurm_error("tern: %s", strncmp(line, own, n) == 0 ? line + n : line);
    }
}
