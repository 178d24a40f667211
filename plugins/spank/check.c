/* `tern run --check RECIPE`, run as the user with a bound on its time and on what it may say. */
#include "plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LIMIT_MS = 20000, /* a check takes 50 ms; a shared file system that hangs takes for ever */
    SAID_BYTES = 4096 /* its message is one line of at most 1000 bytes and two paths */
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The child: its words go into the pipe, and nothing of its caller's is left open in it. */
static void become(const char *program, const char *recipe, int words)
{
    char *argv[] = {(char *)program, "run", "--check", "--", (char *)recipe, NULL};
    int null = open("/dev/null", O_RDWR);
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(words, 2) < 0)
        _exit(126);
    close_range(3, ~0U, 0);
    setpgid(0, 0);
    execvp(program, argv);
    dprintf(2, "cannot run '%s': %s. Ask the admin to mend tern=PATH in plugstack.conf.\n", program,
            strerror(errno));
    _exit(127);
}

/* Read what the child says until it closes the pipe or time is up; true in time. */
static bool listen_to(int fd, char said[SAID_BYTES], int64_t deadline)
{
    size_t n = 0;

    said[0] = '\0';
    for (;;) {
        char rest[512];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = deadline - now_ms();
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        bool full = n == SAID_BYTES - 1;
        ssize_t got = full ? read(fd, rest, sizeof rest) : read(fd, said + n, SAID_BYTES - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return true;
        n += full ? 0 : (size_t)got;
        said[n] = '\0';
    }
}

/* Wait for the child until `deadline`; false when it was still there. */
static bool ended(pid_t pid, int *status, int64_t deadline)
{
    pid_t got;

    while ((got = waitpid(pid, status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (now_ms() > deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (got < 0)
        *status = 0; /* somebody else's SIGCHLD handler took it: what was said decides */
    return true;
}

/* Every line it said, without the name of the program that said it and without controls. */
static void repeat(char *said)
{
    static const char own[] = "tern run: error: ";
    char *save = NULL;

    for (char *line = strtok_r(said, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        for (char *c = line; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 127)
                *c = '?';
        slurm_error("tern: %s",
                    strncmp(line, own, sizeof own - 1) == 0 ? line + sizeof own - 1 : line);
    }
}

int tern_spank_check(const char *program, const char *recipe)
{
    char said[SAID_BYTES];
    int64_t deadline = now_ms() + LIMIT_MS;
    int words[2], status = 0;

    if (pipe2(words, O_CLOEXEC) < 0) {
        slurm_error("tern: cannot check %s: %s", recipe, strerror(errno));
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0)
        become(program, recipe, words[1]);
    close(words[1]);
    if (pid < 0) {
        slurm_error("tern: cannot check %s: %s", recipe, strerror(errno));
        close(words[0]);
        return -1;
    }
    bool in_time = listen_to(words[0], said, deadline) && ended(pid, &status, deadline);
    close(words[0]);
    if (!in_time) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        slurm_error("tern: checking %s took more than %d s. Is its file system up?", recipe,
                    LIMIT_MS / 1000);
        return -1;
    }
    if (status == 0 && !said[0])
        return 0;
    if (WIFSIGNALED(status))
        slurm_error("tern: '%s run --check %s' ended by signal %d", program, recipe,
                    WTERMSIG(status));
    repeat(said);
    return status == 0 ? 0 : -1;
}
