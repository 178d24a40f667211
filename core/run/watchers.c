#include "core/run/watchers.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/slurm/slurm.h"
#include "core/task/beacon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int64_t second = 1000000000;

enum {
    TICK_MS = 200,
    AGAIN_S = 30, /* until a step that ended is started again */
    END_S = 5,    /* for srun, when the watchers have got the signal to end */
    STOP_S = 15,  /* for the child, which asks the controller (10 s when that is dead) */
};

struct watchers {
    struct tern_task_beacon beacon;
    const char *self; /* this node */
    uint32_t job;
    char step[32];
    pid_t srun;   /* 0: none runs */
    int64_t next; /* start of the next one, on the boot clock */
    bool warned;
};

size_t tern_run_watchers_choose(char *const *hosts, size_t n, const char *self,
                                size_t ret_which[TERN_RUN_WATCHERS])
{
    size_t others = 0, seen = 0, k = 0;

    for (size_t i = 0; i < n; i++)
        others += strcmp(hosts[i], self) != 0;
    const size_t want = others < TERN_RUN_WATCHERS ? others : TERN_RUN_WATCHERS;
    for (size_t i = 0; i < n && k < want; i++) {
        if (strcmp(hosts[i], self) == 0)
            continue;
        /* The first, the last, and others at equal distances: a rack does not have all of them. */
        if (seen == (want > 1 ? k * (others - 1) / (want - 1) : 0))
            ret_which[k++] = i;
        seen++;
    }
    return k;
}

/* The nodes of the watchers in Slurm's notation, malloc'ed; NULL when there is none.  Slurm is
 * queried: the job may have lost nodes. */
static char *find_nodes(const struct watchers *w, size_t *ret_n, struct tern_err *err)
{
    char *chosen[TERN_RUN_WATCHERS + 1] = {NULL}, **hosts = NULL, *list = NULL;
    size_t which[TERN_RUN_WATCHERS], n = 0;
    struct tern_slurm_job *job = NULL;

    *ret_n = 0;
    if (tern_slurm_job_load(w->job, &job, err) < 0)
        return NULL;
    if (tern_slurm_hosts_expand(job->nodes, &hosts, &n, err) == 0)
        *ret_n = tern_run_watchers_choose(hosts, n, w->self, which);
    for (size_t i = 0; i < *ret_n; i++)
        chosen[i] = hosts[which[i]];
    if (*ret_n)
        list = tern_slurm_hosts_compress(chosen, *ret_n);
    tern_slurm_hosts_free(hosts);
    tern_slurm_job_free(job);
    return list;
}

static void become(const struct watchers *w, const char *list, size_t n, pid_t parent)
{
    char *program = tern_fs_beside("tern-orphan"), nodes[40], tasks[40];
    char *name = tern_strf("--job-name=%s", w->step), *where = tern_strf("--nodelist=%s", list);
    int null = TERN_AGAIN(open("/dev/null", O_RDWR | O_CLOEXEC));
    sigset_t none;

    snprintf(nodes, sizeof nodes, "--nodes=%zu", n);
    snprintf(tasks, sizeof tasks, "--ntasks=%zu", n);
    const char *const v[] = {"srun",
                             "--mpi=none",
                             nodes,
                             tasks,
                             "--ntasks-per-node=1",
                             "--cpus-per-task=1",
                             "--overlap", /* it takes nothing from the ranks' share */
                             "--mem=0",
                             "--cpu-bind=none",
                             "--input=none",
                             "--no-kill",
                             "--kill-on-bad-exit=0",
                             "--wait=0",
                             "--export=ALL",
                             "--quiet",
                             name,
                             where,
                             program,
                             "--watch",
                             NULL};
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (!program || getppid() != parent || null < 0)
        _exit(126);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    unsetenv("SLURM_HOSTFILE");
    tern_fs_reset_open();
    execvp(v[0], (char **)v);
    tern_error("cannot run srun: %s", strerror(errno));
    _exit(127);
}

static void warn(struct watchers *w, const char *why)
{
    if (!w->warned)
        tern_warn("no process on another node watches this one (%s): if it dies now, the job "
                  "stays, empty, until its time limit. Trying again every %d s.",
                  why, (int)AGAIN_S);
    w->warned = true;
}

static void begin(struct watchers *w)
{
    struct tern_err err = {0};
    pid_t parent = getpid();
    size_t n;

    w->next = tern_clock_boot_ns() + AGAIN_S * second;
    char *list = find_nodes(w, &n, &err);
    if (list) {
        w->srun = tern_again_fork();
        if (w->srun == 0)
            become(w, list, n, parent);
        if (w->srun < 0)
            w->srun = 0;
    } else if (err.code) {
        warn(w, err.text);
    } /* a job of one node that is left ends with it */
    free(list);
}

/* srun was waited for: it ends with status 0 when Slurm ends the step or all of its nodes. */
static void ended(struct watchers *w, int status)
{
    char why[80];

    w->srun = 0;
    w->next = tern_clock_boot_ns() + AGAIN_S * second;
    if (status == 0)
        return;
    snprintf(why, sizeof why, "their srun ended with %s %d",
             WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    warn(w, why);
}

/* The tasks end by SIGTERM with status 0, and srun after them, without a word. */
static void end(const struct watchers *w)
{
    const int64_t deadline = tern_clock_boot_ns() + END_S * second;

    if (!w->srun)
        return;
    if (tern_slurm_step_signal(w->job, w->step, SIGTERM, NULL) < 0)
        kill(w->srun, SIGTERM);
    while (waitpid(w->srun, NULL, WNOHANG) == 0) {
        if (tern_clock_boot_ns() > deadline) {
            kill(w->srun, SIGKILL);
            return;
        }
        tern_clock_sleep_ns(second / 50);
    }
}

static void keep(struct watchers *w)
{
    const struct timespec at_once = {0};
    sigset_t term;
    int status;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    while (sigtimedwait(&term, NULL, &at_once) < 0) {
        struct pollfd p = {.fd = w->beacon.socket.fd, .events = POLLIN};
        if (!w->srun && tern_clock_boot_ns() >= w->next)
            begin(w);
        poll(&p, 1, TICK_MS);
        tern_task_beacon_answer(&w->beacon);
        if (w->srun && waitpid(w->srun, &status, WNOHANG) == w->srun)
            ended(w, status);
    }
    end(w);
    _exit(0);
}

pid_t tern_run_watchers_start(const struct tern_place *job, int64_t spares, bool ranks_watch)
{
    struct watchers w = {.self = getenv("SLURMD_NODENAME"), .job = job->job};
    pid_t parent = getpid();

    /* HyperPod's agent repeats a step itself. */
    if (!job->slurm || (spares == 0 && ranks_watch) || job->groups > 1 || job->nodes < 2 || !w.self)
        return 0;
    if (job->auto_resume) {
        if (spares == 0)
            return 0;
        tern_warn("launch.spares: when this node dies, HyperPod's agent has to restart the step; "
                  "with --no-kill the job may stay, empty, until its time limit");
        return 0;
    }
    snprintf(w.step, sizeof w.step, TERN_RUN_WATCHERS_STEP "-%d", (int)parent);
    pid_t pid = tern_again_fork();
    if (pid < 0)
        tern_warn("no process on another node watches this one: %s", strerror(errno));
    if (pid)
        return pid > 0 ? pid : 0;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (getppid() != parent)
        _exit(1);
    tern_task_beacon_open(&w.beacon, w.self, spares);
    if (w.beacon.socket.fd < 0)
        _exit(1); /* it is logged */
    keep(&w);
    return 0;
}

void tern_run_watchers_stop(pid_t *child)
{
    const int64_t deadline = tern_clock_boot_ns() + STOP_S * second;

    if (!*child)
        return;
    kill(*child, SIGTERM);
    while (waitpid(*child, NULL, WNOHANG) == 0) {
        if (tern_clock_boot_ns() > deadline) {
            kill(*child, SIGKILL);
            waitpid(*child, NULL, 0);
            break;
        }
        tern_clock_sleep_ns(second / 50);
    }
    *child = 0;
}
