#include "core/retain/retain.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/yaml.h"
#include "core/retain/look.h"
#include "core/retain/offline.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t second = 1000000000;

enum {
    REST_MS = 2000,  /* between two looks: a checkpoint takes longer to write */
    REST_TIMES = 10, /* and a look may take a tenth of the time */
    REST_MAX_MS = 60000,
    REPORT_AFTER_S = 2,
    REPORT_AGAIN_S = 60,
    IO_IDLE = 3 << 13, /* ioprio_set(2): IOPRIO_CLASS_IDLE */
};

int tern_retain_once(const struct tern_retain_options *o, struct tern_err *err)
{
    struct tern_retain_look k;

    if (!o->own_dir && tern_retain_note_before(o, err) < 0)
        return -1;
    int rc = tern_retain_look_open(&k, o, err);
    if (rc == 0)
        rc = tern_retain_look_find(&k, err);
    if (rc == 0)
        tern_retain_work(&k);
    tern_retain_look_close(&k);
    return rc;
}

/* ------------------------------------------------------------------ the process */

static void run_process(const struct tern_retain_options *o, int stop, char *doing)
{
    struct tern_retain_look k;
    struct tern_err err = {0};
    struct pollfd end = {.fd = stop, .events = POLLIN};
    bool last = false, reported = false;

    if (tern_retain_look_open(&k, o, &err) < 0) {
        tern_warn("checkpoints are not kept: %s", err.text);
        _exit(1);
    }
    k.doing = doing;
    while (!last) {
        int64_t began = tern_clock_boot_ns();
        /* Polled before the look, which then finds all that was written until now. */
        k.last = last = poll(&end, 1, 0) != 0;
        if (tern_retain_look_find(&k, &err) == 0) {
            int64_t rest = (tern_clock_boot_ns() - began) * REST_TIMES / (second / 1000);
            tern_retain_work(&k);
            reported = false;
            rest = rest < REST_MS ? REST_MS : rest > REST_MAX_MS ? REST_MAX_MS : rest;
            if (!last)
                poll(&end, 1, (int)rest);
        } else {
            if (!reported)
                tern_warn("retention is paused: %s", err.text);
            reported = true;
            if (!last)
                poll(&end, 1, REST_MS);
        }
    }
    tern_retain_look_close(&k);
    _exit(0);
}

void tern_retain_options_read(const struct tern_recipe *r, struct tern_retain_options *o)
{
    const struct tern_yaml_node *c = tern_yaml_get(tern_yaml_root(r->source), "checkpoint");

    *o = (struct tern_retain_options){
        .ledger_dir = r->ledger.dir,
        .glob = r->workload.progress.glob,
        .marker = r->workload.progress.marker,
        .own_dir = r->workload.command ? NULL : r->checkpoint.dir,
        .mirror = r->checkpoint.mirror,
        /* Checkpoints of another trainer are pruned on request, never by default. */
        .keep = tern_yaml_get(c, "keep") ? r->checkpoint.keep : 0,
        .keep_every = r->checkpoint.keep_every,
    };
}

static void release(struct tern_retain *k)
{
    if (k->stop >= 0)
        close(k->stop);
    if (k->doing)
        munmap(k->doing, TERN_RETAIN_DOING);
    *k = (struct tern_retain){.stop = -1};
}

int tern_retain_start(struct tern_retain *k, const struct tern_retain_options *o,
                      struct tern_err *err)
{
    int ends[2];
    pid_t parent = getpid();

    *k = (struct tern_retain){.stop = -1};
    if (o->own_dir && !o->mirror)
        return 0;
    if ((!o->own_dir && tern_retain_note_before(o, err) < 0) ||
        tern_retain_offline_note(o, err) < 0)
        return -1;
    k->run_id = o->run_id;
    if (TERN_AGAIN(pipe2(ends, O_CLOEXEC)) < 0)
        return tern_err_sys(err, "cannot start the retention process");
    k->doing =
        mmap(NULL, TERN_RETAIN_DOING, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (k->doing == MAP_FAILED)
        k->doing = NULL;
    k->pid = tern_again_fork();
    if (k->pid < 0) {
        release(k);
        close(ends[0]);
        close(ends[1]);
        return tern_err_sys(err, "cannot start the retention process");
    }
    if (k->pid == 0) {
        close(ends[1]);
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        setpriority(PRIO_PROCESS, 0, 19);
        syscall(SYS_ioprio_set, 1, 0, IO_IDLE);
        run_process(o, ends[0], k->doing);
    }
    close(ends[0]);
    k->stop = ends[1];
    return 0;
}

bool tern_retain_reaped(struct tern_retain *k, pid_t pid, int status)
{
    const char *run_id = k->run_id;

    if (!k->pid || pid != k->pid)
        return false;
    release(k);
    if (status)
        tern_warn("the retention process ended (wait status %d); the next attempt, or `tern ckpt "
                  "mirror %s`, continues its work",
                  status, run_id);
    return true;
}

/* Copy its present work into `to`; it may be writing there at the same time. */
static const char *doing(const struct tern_retain *k, char to[TERN_RETAIN_DOING])
{
    to[0] = '\0';
    if (k->doing)
        memcpy(to, k->doing, TERN_RETAIN_DOING);
    to[TERN_RETAIN_DOING - 1] = '\0';
    return *to ? to : "looking for checkpoints";
}

static void report_wait(const struct tern_retain *k, int64_t left_ns)
{
    char text[TERN_RETAIN_DOING], how[80] = "";
    const char *job = getenv("SLURM_JOB_ID");

    if (job)
        snprintf(how, sizeof how, " (`scancel --batch --signal=TERM %.20s`)", job);
    tern_info("waiting for the last checkpoints: %s. At most %.0f s more; SIGTERM%s ends the wait, "
              "and the checkpoints stay as they are.",
              doing(k, text), (double)left_ns / (double)second, how);
}

static bool is_pending(const sigset_t *signals)
{
    sigset_t pending;

    if (!signals)
        return false;
    sigpending(&pending);
    sigandset(&pending, &pending, signals);
    return !sigisemptyset(&pending);
}

void tern_retain_finish(struct tern_retain *k, double seconds, bool done,
                        struct tern_ckpt_lease *lease, const sigset_t *ends)
{
    const int64_t began = tern_clock_boot_ns(),
                  deadline = began + (int64_t)(seconds * (double)second);
    int64_t report_at = began + REPORT_AFTER_S * second, heartbeat_at = began;
    char text[TERN_RETAIN_DOING];
    struct tern_err err = {0};
    const char *why = NULL;
    int status;

    if (!k->pid)
        return;
    close(k->stop);
    k->stop = -1;
    while (!why) {
        pid_t pid = waitpid(k->pid, &status, WNOHANG);
        if (pid) {
            tern_retain_reaped(k, k->pid, pid > 0 ? status : 0);
            return;
        }
        int64_t now = tern_clock_boot_ns();
        if (now > deadline)
            why = "the time for it is over";
        else if (is_pending(ends))
            why = "a signal came";
        if (lease && !why && now >= heartbeat_at) {
            heartbeat_at = now + TERN_CKPT_HEARTBEAT_S * second;
            if (tern_ckpt_lease_check(lease, &err) < 0 && err.code != TERN_TEMPFAIL)
                why = err.text;
        }
        if (!why && now >= report_at) {
            report_at = now + REPORT_AGAIN_S * second;
            report_wait(k, deadline - now);
        }
        tern_clock_sleep_ns(second / 100);
    }
    tern_warn("%s: the last checkpoints are not all verified or mirrored (%s was not finished). "
              "`tern ckpt mirror %s` finishes this without holding nodes%s",
              why, doing(k, text), k->run_id, done ? "" : "; the next attempt does, too");
    kill(k->pid, SIGKILL);
    TERN_AGAIN(waitpid(k->pid, NULL, 0));
    release(k);
}
