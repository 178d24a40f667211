#include "core/run/limit.h"

#include "core/base/clock.h"
#include "core/run/command.h"
#include "core/run/pace.h"
#include "core/slurm/slurm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t second = 1000000000;

enum {
    FIRST_S = 5, /* the launch goes first */
    LOOK_S = 30, /* limits and reservations may change */
    NEAR_S = 5,  /* between queries when the end is near: it may have moved */
};

struct answer {
    time_t end;
    int64_t need;
    bool reserved, measured;
};

static void look(const struct tern_run_attempt *a, struct answer *to)
{
    struct tern_slurm_job *job = NULL;
    struct tern_run_pace pace = {0};
    time_t reserved = 0;

    if (tern_slurm_job_load(a->place.job, &job, NULL) < 0 || job->state != TERN_SLURM_JOB_RUNNING)
        return;
    to->end = job->end;
    if (tern_slurm_job_find_reservation(job, a->place.node_list, &reserved, NULL) == 0 &&
        reserved && (!to->end || reserved <= to->end)) {
        to->end = reserved;
        to->reserved = true;
    }
    if (!to->end)
        return;
    tern_run_pace_read(&pace, a->o->recipe, a->id,
                       a->place.nodes * tern_run_workers(a->o->recipe, &a->place), NULL);
    to->measured = pace.save_seconds > 0;
    to->need = tern_run_pace_warn(&pace, (int64_t)(to->end - job->start));
}

static void query(struct tern_run_limit *l)
{
    const pid_t parent = getpid();
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        struct answer found = {0};
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

bool tern_run_limit_tick(struct tern_run_limit *l, char *text, size_t size)
{
    const int64_t now = tern_clock_boot_ns();
    const int64_t left = l->end ? (int64_t)(l->end - time(NULL)) : INT64_MAX;

    if (!l->a || l->reason)
        return false;
    if (!l->next)
        l->next = now + FIRST_S * second;
    if (!l->pid && now >= l->next) {
        l->next = now + (left < l->need + LOOK_S ? NEAR_S : LOOK_S) * second;
        query(l);
    }
    if (left > l->need)
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
    if (read(l->fd, &found, sizeof found) == (ssize_t)sizeof found) {
        l->end = found.end;
        l->need = found.need;
        l->reserved = found.reserved;
        l->measured = found.measured;
    }
    close(l->fd);
    l->pid = 0;
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
