/* Ranks on this machine, without a launcher. */
#include "cmd/eval/eval.h"

#include "core/base/log.h"
#include "core/base/vars.h"
#include "core/wire/rendezvous.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 256, TICK_MS = 100 };

/* Serve the ranks' rendezvous until all have ended; the worst exit status. */
static int wait_for_ranks(struct tern_wire_rendezvous *r, int n, int *ret_status,
                          struct tern_err *err)
{
    int status;

    *ret_status = 0;
    while (n > 0) {
        struct pollfd p = {tern_wire_rendezvous_fd(r), POLLIN, 0};
        poll(&p, 1, TICK_MS);
        if (tern_wire_rendezvous_step(r, err) < 0)
            return -1;
        while (n > 0 && waitpid(-1, &status, WNOHANG) > 0) {
            n--;
            if (WIFSIGNALED(status))
                tern_error("a rank was ended by signal %d", WTERMSIG(status));
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : TERN_FAILED;
            *ret_status = code > *ret_status ? code : *ret_status;
        }
    }
    return 0;
}

int eval_start_ranks(int n, struct tern_fabric_options *ret_options, int *ret_status,
                     struct tern_err *err)
{
    static char address[512]; /* of the rendezvous, until the program ends */

    if (getenv("PMIX_RANK") || tern_var("TERN_RUN_SOCKET"))
        return tern_err_set(err, TERN_USAGE,
                            "--ranks: a launcher has started this process, and so its ranks. "
                            "Leave it out here.");
    if (n > RANKS_MAX)
        return tern_err_set(err, TERN_USAGE, "--ranks %d: at most %d", n, RANKS_MAX);
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", n, err);
    if (!r)
        return -1;
    const pid_t parent = getpid();
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(TERN_FAILED);
            snprintf(address, sizeof address, "%s", tern_wire_rendezvous_address(r));
            tern_wire_rendezvous_close(r); /* this process's: the ranks' parent serves it */
            *ret_options = (struct tern_fabric_options){
                .wireup = TERN_WIREUP_SOCKET, .socket = address, .rank = i, .size = n};
            return 0;
        }
        if (pid < 0) {
            tern_err_sys(err, "cannot start rank %d", i);
            tern_wire_rendezvous_close(r);
            return -1; /* the ranks so far end with this process */
        }
    }
    int rc = wait_for_ranks(r, n, ret_status, err);
    tern_wire_rendezvous_close(r);
    return rc < 0 ? -1 : 1;
}
