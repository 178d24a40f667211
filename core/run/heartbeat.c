#include "core/run/heartbeat.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/log.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* It runs for seconds mostly: frequent checks cost nothing, and a lost lease is noticed at once. */
static const int64_t pause_ns = 1000000000;

static void renew(struct tern_ckpt_lease *lease)
{
    struct tern_err err = {0};

    while (tern_ckpt_lease_check(lease, &err) == 0 || err.code == TERN_TEMPFAIL)
        tern_clock_sleep_ns(pause_ns);
    _exit(0);
}

pid_t tern_run_heartbeat_start(struct tern_ckpt_lease *lease)
{
    pid_t parent = getpid(), pid = lease ? tern_again_fork() : 0;

    if (!lease)
        return 0;
    if (pid < 0) {
        tern_warn("the lease on the checkpoints is not renewed before the ranks start: %s",
                  strerror(errno));
        return 0;
    }
    if (pid)
        return pid;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    renew(lease);
    return 0;
}

void tern_run_heartbeat_stop(pid_t *child)
{
    if (!*child)
        return;
    kill(*child, SIGKILL);
    while (waitpid(*child, NULL, 0) < 0 && errno == EINTR)
        ;
    *child = 0;
}
