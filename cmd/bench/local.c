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

int bench_local(int n, int (*body)(const struct tern_fabric_options *o, struct tern_err *err),
                struct tern_err *err)
{
    struct tern_rendezvous *meeting = tern_rendezvous_open("127.0.0.1", n, err);
    pid_t self = getpid();
    int left = n, worst = 0, status;

    if (!meeting)
        return -1;
    fflush(stdout);
    for (int r = 0; r < n; r++) {
        pid_t pid = fork();
        if (pid < 0) {
            tern_err_sys(err, "cannot start rank %d", r);
            left = r;
            worst = TERN_FAILED;
            break;
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != self)
                _exit(TERN_FAILED);
            exit(child(r, n, tern_rendezvous_address(meeting), body));
        }
    }
    while (left > 0 && tern_rendezvous_step(meeting, err) == 0) {
        struct pollfd p = {tern_rendezvous_fd(meeting), POLLIN, 0};
        poll(&p, 1, 20);
        while (left > 0 && waitpid(-1, &status, WNOHANG) > 0) {
            left--;
            if (status_of(status) > worst)
                worst = status_of(status);
        }
    }
    tern_rendezvous_close(meeting);
    return worst;
}
