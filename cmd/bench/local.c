#include "cmd/bench/local.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(int rank, int n, const char *address,
                 int (*body)(const struct tern_fabric_options *o, struct tern_err *err))
{
    struct tern_fabric_options o = {
        .wireup = TERN_WIREUP_SOCKET, .socket = address, .rank = rank, .size = n};
    struct tern_err err = {0};
    char name[64];

    snprintf(name, sizeof name, "tern bench: rank %d", rank);
    tern_log_name(name);
    int rc = body(&o, &err);
    if (rc < 0)
        tern_error("%s", err.text);
    fflush(stdout);
    return rc < 0 ? (int)err.code : rc;
}

static int status_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The ranks, their parent's to end. */
struct ranks {
    pid_t *pid; /* [started]; 0: has ended */
    int started, left;
    int worst; /* exit status */
};

static int start(struct ranks *r, int n, const char *address,
                 int (*body)(const struct tern_fabric_options *o, struct tern_err *err),
                 struct tern_err *err)
{
    pid_t self = getpid();

    fflush(stdout);
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return tern_err_sys(err, "cannot start rank %d of %d", i, n);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != self)
                _exit(TERN_FAILED);
            exit(child(i, n, address, body));
        }
        r->pid[i] = pid;
        r->started = r->left = i + 1;
    }
    return 0;
}

static void reap(struct ranks *r, int flags)
{
    int status;

    for (pid_t pid; r->left > 0 && (pid = waitpid(-1, &status, flags)) != 0;) {
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            r->left = 0;
        for (int i = 0; i < r->started; i++) {
            if (r->pid[i] != pid)
                continue;
            r->pid[i] = 0;
            r->left--;
            if (status_of(status) > r->worst)
                r->worst = status_of(status);
        }
    }
}

int bench_local(int n, int (*body)(const struct tern_fabric_options *o, struct tern_err *err),
                struct tern_err *err)
{
    struct tern_wire_rendezvous *rendezvous = tern_wire_rendezvous_open("127.0.0.1", n, err);
    struct ranks r = {.pid = tern_alloc((size_t)n, sizeof *r.pid, "the ranks", err)};
    int rc = -1;

    if (rendezvous && r.pid)
        rc = start(&r, n, tern_wire_rendezvous_address(rendezvous), body, err);
    while (rc == 0 && r.left > 0 && (rc = tern_wire_rendezvous_step(rendezvous, err)) == 0) {
        struct pollfd p = {tern_wire_rendezvous_fd(rendezvous), POLLIN, 0};
        poll(&p, 1, 20);
        reap(&r, WNOHANG);
    }
    for (int i = 0; i < r.started; i++) /* they would wait for those that never come */
        if (r.pid[i])
            kill(r.pid[i], SIGKILL);
    reap(&r, 0);
    free(r.pid);
    tern_wire_rendezvous_close(rendezvous);
    return rc < 0 ? -1 : r.worst;
}
