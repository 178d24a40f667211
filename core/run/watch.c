#include "core/run/watch.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/tensorboard/tensorboard.h"

#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t second = 1000000000;

enum {
    TICK_MS = 200,        /* between two looks when no signal comes */
    FOLD_REST_S = 3,      /* a reader sees what is older than this in plain sqlite3 */
    FOLD_REST_TIMES = 10, /* and a fold may take a tenth of the time (ledger.h) */
    GRACE_S = 10,         /* for the other ranks to end and report when one has failed */
    LAST_FOLD_S = 60,
    EVENTS_S = 5, /* for event files that are being written when the last rank ends */
    /* Of a fold beside ranks on this node: a tenth of a core on which a rank computes (sched(7)).
     */
    FOLD_NICE = 10,
};

/* A child folds: storage that hangs delays neither signals nor heartbeats. */
struct folder {
    pid_t pid; /* the child; 0: none */
    int64_t began, next;
    bool reported;        /* a failure is logged once */
    bool board_reported;  /* likewise, of the event files */
    struct timespec seen; /* checkpoint_dir's time of change at the last fold */
};

void tern_run_watch_signals(sigset_t *set)
{
    static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};

    sigemptyset(set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(set, signals[i]);
}

void tern_run_watch_stop_signals(sigset_t *set)
{
    tern_run_watch_signals(set);
    sigdelset(set, SIGCHLD);
    sigdelset(set, SIGUSR2); /* a request for dumps, which ranks that are gone cannot write */
}

/* What the ledger has beyond the event files. */
static int write_events(const char *ledger_dir, const char *tensorboard, const char *run_id,
                        struct tern_err *err)
{
    struct tern_ledger *run = tern_ledger_open_run(ledger_dir, run_id, err);
    int rc = run ? tern_tensorboard_update(run, tensorboard, err) : -1;

    tern_ledger_close(run);
    return rc;
}

/* How the child ends. */
enum { FOLD_FAILED = 1, BOARD_FAILED = 2 };

/* `beside`: ranks compute meanwhile.  Failures that `f` knows of are not logged again. */
static pid_t fold_start(const char *ledger_dir, const char *tensorboard, const char *run_id,
                        bool beside, const struct folder *f)
{
    struct tern_err err = {0};
    pid_t parent = getpid(), pid = fork();

    if (pid)
        return pid < 0 ? 0 : pid;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* harmless to a fold */
    if (getppid() != parent)
        _exit(1);
    if (beside)
        setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + FOLD_NICE);
    if (tern_ledger_fold(ledger_dir, run_id, &err) < 0 ||
        tern_ledger_fold_catalog(ledger_dir, &err) < 0) {
        if (!f->reported)
            tern_warn("the ledger is behind (spools that are there are safe): %s", err.text);
        _exit(FOLD_FAILED);
    }
    if (tensorboard && write_events(ledger_dir, tensorboard, run_id, &err) < 0) {
        if (!f->board_reported)
            tern_warn("TensorBoard's files are behind (the ledger has all values): %s", err.text);
        _exit(BOARD_FAILED);
    }
    _exit(0);
}

static void fold_tick(struct tern_run_watch *w, struct folder *f)
{
    int64_t now = tern_clock_boot_ns();
    struct stat st;

    if (f->pid)
        return;
    bool due = now >= f->next;
    /* A new checkpoint shows at once. */
    if (w->checkpoint_dir && TERN_AGAIN(stat(w->checkpoint_dir, &st)) == 0 &&
        (st.st_mtim.tv_sec != f->seen.tv_sec || st.st_mtim.tv_nsec != f->seen.tv_nsec)) {
        f->seen = st.st_mtim;
        due = true;
    }
    if (!due)
        return;
    f->began = now;
    f->next = now + FOLD_REST_S * second;
    f->pid = fold_start(w->ledger_dir, w->tensorboard, w->run_id, /* beside= */ true, f);
}

static void fold_ended(struct folder *f, int status)
{
    int64_t now = tern_clock_boot_ns(), rest = (now - f->began) * FOLD_REST_TIMES;

    f->pid = 0;
    const bool board = WIFEXITED(status) && WEXITSTATUS(status) == BOARD_FAILED;
    if (f->reported && (status == 0 || board))
        tern_info("the ledger is folded again");
    if (f->board_reported && status == 0)
        tern_info("TensorBoard's files are written again");
    f->reported = status != 0 && !board;
    f->board_reported = board || (f->board_reported && status != 0);
    f->next = now + (rest > FOLD_REST_S * second ? rest : FOLD_REST_S * second);
}

/* A fold may be killed at any moment.  A child that writes event files gets a while.  Else a
 * TensorBoard may have read bytes that the child did not note, and would find other bytes there. */
static void end_folder(struct folder *f, bool writes_events)
{
    const int64_t deadline = tern_clock_boot_ns() + (writes_events ? EVENTS_S * second : 0);

    if (!f->pid)
        return;
    while (waitpid(f->pid, NULL, WNOHANG) == 0) {
        if (tern_clock_boot_ns() > deadline) {
            kill(f->pid, SIGKILL);
            waitpid(f->pid, NULL, 0);
            return;
        }
        tern_clock_sleep_ns(second / 100);
    }
}

void tern_run_watch_last_fold(const char *ledger_dir, const char *tensorboard, const char *run_id)
{
    const struct folder unknown = {.pid = 0};
    pid_t pid = fold_start(ledger_dir, tensorboard, run_id, /* beside= */ false, &unknown);
    int64_t deadline = tern_clock_boot_ns() + LAST_FOLD_S * second, pause = second / 1000;

    while (pid && waitpid(pid, NULL, WNOHANG) == 0) {
        if (tern_clock_boot_ns() > deadline) {
            tern_warn("the last fold takes more than %d s; `tern ledger` will do it",
                      (int)LAST_FOLD_S);
            return;
        }
        tern_clock_sleep_ns(pause);
        pause = pause < second / 20 ? 2 * pause : pause;
    }
}

/* A child that has ended and is to be waited for; 0: none.  Outside Slurm the processes that a rank
 * has started are ended with it, as in a step of Slurm.  Its workers have memory, devices and ports
 * that the next attempt needs.  Until the rank is waited for, its pid names its group. */
static pid_t ended(const struct tern_run_ranks *r)
{
    siginfo_t info = {0};

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return 0;
    for (size_t i = 0; !r->job && i < r->n; i++)
        if (info.si_pid && r->pid[i] == info.si_pid)
            kill(-info.si_pid, SIGKILL);
    return info.si_pid;
}

/* Wait for children that have ended; true while ranks are left. */
static bool reap(struct tern_run_watch *w, struct folder *f)
{
    struct tern_run_ranks *r = w->ranks;
    int status;
    bool left = false;
    pid_t pid;

    while ((pid = ended(r)) > 0 && waitpid(pid, &status, 0) == pid) {
        if (pid == f->pid)
            fold_ended(f, status);
        if (w->watchers && pid == *w->watchers)
            *w->watchers = 0;
        if (tern_retain_reaped(w->retention, pid, status) ||
            tern_run_limit_reaped(&w->limit, pid) ||
            tern_run_srun_hang_reaped(&w->srun_hang, w->ranks, pid, status))
            continue;
        for (size_t i = 0; i < r->n; i++) {
            if (r->pid[i] != pid)
                continue;
            r->pid[i] = 0;
            r->status[i] = status;
            if (status && w->first < 0)
                w->first = (int)i;
        }
    }
    for (size_t i = 0; i < r->n; i++)
        left = left || r->pid[i];
    return left;
}

static void note(struct tern_run_watch *w, const char *kind, const char *severity, const char *text)
{
    struct tern_err err = {0};
    const struct tern_ledger_event e = {.kind = kind, .severity = severity, .text = text};

    if (tern_ledger_spool_event(w->spool, &e, &err) < 0)
        tern_warn("%s", err.text);
}

enum tern_run_stop tern_run_watch_classify(int asked, int64_t since_ns, int sig)
{
    if (sig != SIGINT || asked != SIGINT)
        return TERN_RUN_PASS_ON;
    return since_ns < TERN_RUN_SAME_S * second ? TERN_RUN_SAME_STOP : TERN_RUN_END_NOW;
}

static void pass_on(struct tern_run_watch *w, int sig)
{
    const int64_t now = tern_clock_boot_ns();
    const enum tern_run_stop stop = tern_run_watch_classify(w->asked, now - w->asked_ns, sig);
    bool again = stop == TERN_RUN_END_NOW;
    bool look = sig == SIGUSR2 && w->ranks->trainer; /* requests dumps, not the end */
    char text[80], more[120] = "";

    if (stop == TERN_RUN_SAME_STOP) {
        tern_info("signal %d again within %d s: the same stop request", sig, (int)TERN_RUN_SAME_S);
        return;
    }
    if (sig == SIGHUP)
        sig = SIGTERM; /* the terminal is gone: end the run */
    snprintf(text, sizeof text, "signal %d (%s)%s", sig, strsignal(sig),
             again ? " again: ending the ranks" : ", passed on to the ranks");
    if (sig == SIGINT && !again)
        snprintf(more, sizeof more,
                 ". They may finish their step; Ctrl-C again, %d s from now or later, ends them "
                 "without a checkpoint.",
                 (int)TERN_RUN_SAME_S);
    tern_info("%s%s", text, more);
    note(w, "signal", "info", text);
    if (!look) {
        w->asked = sig;
        w->asked_ns = now;
    }
    tern_run_ranks_signal(w->ranks, again ? SIGKILL : sig);
}

/* Stop the ranks in time as --signal would, when the job has none or a later one. */
static void stop_in_time(struct tern_run_watch *w)
{
    char text[200];

    if (w->asked || !tern_run_limit_tick(&w->limit, text, sizeof text))
        return;
    tern_info("%s", text);
    note(w, "signal", "info", text);
    w->asked = SIGUSR1;
    w->asked_ns = tern_clock_boot_ns();
    tern_run_ranks_signal(w->ranks, SIGUSR1);
}

/* Record that the attempt runs, and renew the lease.  When another process has the run, the attempt
 * must not go on writing. */
static void send_heartbeat(struct tern_run_watch *w, int64_t *next)
{
    struct tern_err err = {0};
    int64_t now = tern_clock_boot_ns();

    if (now < *next || w->fenced.code)
        return;
    *next = now + TERN_CKPT_HEARTBEAT_S * second;
    tern_ledger_spool_heartbeat(w->spool);
    if (!w->lease || tern_ckpt_lease_check(w->lease, &err) == 0)
        return;
    tern_warn("%s", err.text);
    if (err.code == TERN_TEMPFAIL)
        return; /* the storage failed: the ranks notice when it matters to them */
    w->fenced = err;
    note(w, "fenced", "error", err.text);
    tern_run_ranks_signal(w->ranks, SIGKILL);
}

/* Wait for a signal, a rank at the rendezvous, a beacon query, or the next tick. */
static void wait_a_little(struct tern_run_watch *w, int signals)
{
    struct signalfd_siginfo info;
    const struct timespec at_once = {0};
    siginfo_t got;
    struct tern_err err = {0};
    struct pollfd fds[3] = {
        {.fd = signals, .events = POLLIN},
        {.fd = w->rendezvous ? tern_wire_rendezvous_fd(w->rendezvous) : -1, .events = POLLIN},
        {.fd = w->beacon->socket.fd, .events = POLLIN},
    };

    poll(fds, 3, TICK_MS);
    if (fds[2].revents)
        tern_task_beacon_answer(w->beacon);
    while (read(signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD)
            pass_on(w, (int)info.ssi_signo);
    while (signals < 0 &&
           sigtimedwait(&w->signals, &got, &at_once) > 0) /* no descriptor was left for signalfd */
        if (got.si_signo != SIGCHLD)
            pass_on(w, got.si_signo);
    if (w->rendezvous && tern_wire_rendezvous_step(w->rendezvous, &err) < 0)
        tern_warn("%s", err.text); /* the ranks get the error, and end */
}

void tern_run_watch(struct tern_run_watch *w)
{
    struct folder folder = {.next = tern_clock_boot_ns() + second};
    int64_t next_heartbeat = tern_clock_boot_ns() + TERN_CKPT_HEARTBEAT_S * second;
    int64_t kill_at = 0;
    int signals = TERN_AGAIN(signalfd(-1, &w->signals, SFD_CLOEXEC | SFD_NONBLOCK));

    w->first = -1;
    while (reap(w, &folder)) {
        int64_t now = tern_clock_boot_ns();
        if (w->first >= 0 && !kill_at) {
            /* As srun's --kill-on-bad-exit: the other ranks cannot go on without it. */
            tern_run_ranks_signal(w->ranks, SIGTERM);
            kill_at = now + GRACE_S * second;
        } else if (kill_at && now > kill_at) {
            tern_run_ranks_signal(w->ranks, SIGKILL);
            kill_at = now + second;
        }
        send_heartbeat(w, &next_heartbeat);
        stop_in_time(w);
        fold_tick(w, &folder);
        tern_run_srun_hang_tick(&w->srun_hang, w->ranks);
        tern_run_frozen_tick(&w->frozen, w->ranks);
        wait_a_little(w, signals);
    }
    close(signals);
    end_folder(&folder, w->tensorboard != NULL);
    tern_run_srun_hang_free(&w->srun_hang);
    tern_run_limit_free(&w->limit);
    tern_run_frozen_free(&w->frozen);
}
