#include "core/run/limit.h"

#include "core/base/clock.h"
#include "core/run/command.h"
#include "core/run/pace.h"
#include "core/slurm/slurm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t second = 1000000000;

enum {
    FIRST_S = 5, /* the launch goes first */
    LOOK_S = 30, /* limits and reservations may change */
    NEAR_S = 5,  /* between queries when the end is near: it may have moved */
    GAP_S = 5,   /* between two ticks, which are 0.2 s apart: this process was stopped */
    WAIT_S = 30, /* for an answer after that: three times Slurm's MessageTimeout */
};

struct answer {
    time_t end;
    int64_t need;
    bool known, reserved, measured;
};

/* `to` is the last answer, and stays where there is no new one. */
static void look(const struct tern_run_attempt *a, struct answer *to)
{
    struct tern_slurm_job *job = NULL;
    struct tern_run_pace pace = {0};
    time_t reserved = 0;

    /* The end of a suspended job is set when it is resumed. */
    if (tern_slurm_job_load(a->place.job, &job, NULL) < 0 || job->state != TERN_SLURM_JOB_RUNNING ||
        strcmp(job->word, "SUSPENDED") == 0)
        return;
    if (tern_slurm_job_find_reservation(job, a->place.node_list, &reserved, NULL) < 0 &&
        to->reserved)
        return;
    to->known = true;
    to->reserved = reserved && (!job->end || reserved <= job->end);
    to->end = to->reserved ? reserved : job->end;
    if (!to->end)
        return;
    if (tern_run_pace_read(&pace, a->o->recipe, a->id,
                           a->place.nodes * tern_run_workers(a->o->recipe, &a->place), NULL) < 0 &&
        to->measured)
        return;
    to->measured = pace.save_seconds > 0;
    to->need = tern_run_pace_warn(&pace, (int64_t)(to->end - job->start) - job->suspended);
}

static void query(struct tern_run_limit *l)
{
    const pid_t parent = getpid();
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        struct answer found = {
            .end = l->end, .need = l->need, .reserved = l->reserved, .measured = l->measured};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            look(l->a, &found);
        _exit(write(ends[1], &found, sizeof found) != (ssize_t)sizeof found);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return;
    }
    l->pid = pid;
    l->fd = ends[0];
}

/* Note that it is `now`.  After a gap query at once: an answer, also one that is under way, may be
 * from before it. */
static void note_time(struct tern_run_limit *l, int64_t now)
{
    const int64_t most = GAP_S * second, gap = l->seen ? now - l->seen : 0;

    l->seen = now;
    if (gap <= most) {
        l->wait -= gap < l->wait ? gap : l->wait;
        return;
    }
    /* A process that is stopped again and again waits no longer for that, all in all. */
    l->wait = l->wait ? l->wait - (most < l->wait ? most : l->wait) : WAIT_S * second;
    l->next = now;
    if (l->pid) {
        l->old = true;
        kill(l->pid, SIGKILL);
    }
}

bool tern_run_limit_tick(struct tern_run_limit *l, char *text, size_t size)
{
    const int64_t now = tern_clock_boot_ns();
    const int64_t left = l->end ? (int64_t)(l->end - time(NULL)) : INT64_MAX;

    if (!l->a || l->reason)
        return false;
    if (!l->next)
        l->next = now + FIRST_S * second;
    note_time(l, now);
    if (!l->pid && now >= l->next) {
        l->next = now + (left < l->need + LOOK_S ? NEAR_S : LOOK_S) * second;
        query(l);
    }
    if (left > l->need || l->wait)
        return false;
    l->reason = l->reserved ? "reservation" : "time_limit";
    snprintf(text, size, "%s in %" PRId64 " s, and %s: stopping the ranks",
             l->reserved ? "a reservation takes the job's nodes" : "the job's time limit is",
             left > 0 ? left : 0,
             l->measured ? "a stop with a checkpoint takes that long here"
                         : "the time of a checkpoint is not known here yet");
    return true;
}

bool tern_run_limit_reaped(struct tern_run_limit *l, pid_t pid)
{
    struct answer found;

    if (!l->pid || pid != l->pid)
        return false;
    if (read(l->fd, &found, sizeof found) == (ssize_t)sizeof found && found.known && !l->old) {
        l->end = found.end;
        l->need = found.need;
        l->reserved = found.reserved;
        l->measured = found.measured;
        l->wait = 0;
    }
    close(l->fd);
    l->pid = 0;
    l->old = false;
    return true;
}

void tern_run_limit_free(struct tern_run_limit *l)
{
    if (!l->pid)
        return;
    kill(l->pid, SIGKILL);
    waitpid(l->pid, NULL, 0);
    close(l->fd);
    l->pid = 0;
}
