/* LD_PRELOAD: reads of rows of a token set, whose path has $HOLD_READ, wait until this process has
 * been asked to stop: so a signal comes in an evaluation, however short that is.
 *
 *     $HELD      the file that says that one waits
 *     $HOLD_IF   none waits before this path is there
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bytes of the file: rows that are neither the first nor the last ones, nor its head or tail. */
enum { FROM = 8192, TO = 16384, LIMIT_S = 600, LOOK_US = 5000 };

static volatile sig_atomic_t asked;
static void (*handlers[65])(int);

static void note(int sig)
{
    handlers[sig](sig);
    asked = 1;
}

int sigaction(int sig, const struct sigaction *new, struct sigaction *old)
{
    static int (*real)(int, const struct sigaction *, struct sigaction *);
    struct sigaction mine;

    if (!real)
        real = dlsym(RTLD_NEXT, "sigaction");
    if ((sig != SIGUSR1 && sig != SIGTERM) || !new || new->sa_handler == SIG_DFL ||
        new->sa_handler == SIG_IGN)
        return real(sig, new, old);
    mine = *new;
    handlers[sig] = new->sa_handler;
    mine.sa_handler = note;
    return real(sig, &mine, old);
}

static int is_held(int fd, off64_t at)
{
    const char *word = getenv("HOLD_READ"), *first = getenv("HOLD_IF");
    char link[40], path[4096];

    if (!word || asked || at < FROM || at >= TO || (first && access(first, F_OK) < 0))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return strstr(path, word) != NULL;
}

ssize_t pread64(int fd, void *to, size_t n, off64_t at)
{
    if (is_held(fd, at)) {
        close(open(getenv("HELD"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        for (int i = 0; !asked && i < LIMIT_S * (1000000 / LOOK_US); i++)
            usleep(LOOK_US);
    }
    return syscall(SYS_pread64, fd, to, n, at);
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    return pread64(fd, to, n, at);
}
