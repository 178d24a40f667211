#include "core/run/frozen.h"

#include "core/base/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOK_MS = 500 };
static const int64_t second = 1000000000;

void tern_run_frozen_tell(char *why, size_t size, int64_t rank)
{
    snprintf(why, size,
             "rank %" PRId64 " has not ended, though all others have for %d s: it is stopped or "
             "frozen, and was ended",
             rank, (int)TERN_RUN_FROZEN_LEFT_S);
    tern_warn("%s", why);
}

/* tern-task of rank `i` alone: its program may be held. */
static void look_at_task(struct tern_run_frozen *f, pid_t pid, size_t i, int64_t now)
{
    if (!f->limit_ns || !f->tasks || tern_proc_stopped_ns(&f->tasks[i], pid, now) < f->limit_ns)
        return;
    tern_warn("tern-task of rank %zu (process %d) was stopped by a signal %.3g s ago: it goes on",
              i, (int)pid, (double)f->limit_ns / 1e9);
    f->tasks[i] = (struct tern_proc_watch){0};
    kill(pid, SIGCONT);
}

/* The rank that is left when another has ended, all of them well; -1: there is none. */
static int64_t find_left(const struct tern_run_ranks *r)
{
    int64_t left = -1;
    bool ended = false;

    for (size_t i = 0; i < r->n; i++) {
        if (!r->pid[i] && r->status[i])
            return -1; /* the watch ends the others */
        ended = ended || !r->pid[i];
        if (r->pid[i])
            left = (int64_t)i;
    }
    return ended ? left : -1;
}

void tern_run_frozen_tick(struct tern_run_frozen *f, struct tern_run_ranks *r)
{
    const int64_t now = tern_clock_boot_ns();

    if (r->job || now < f->next_ns)
        return;
    if (!f->next_ns) {
        f->limit_ns = r->wrapped ? tern_proc_stopped_limit_ns() : 0;
        f->tasks = calloc(r->n, sizeof *f->tasks);
    }
    f->next_ns = now + LOOK_MS * (second / 1000);
    for (size_t i = 0; i < r->n; i++)
        if (r->pid[i])
            look_at_task(f, r->pid[i], i, now);
    const int64_t rank = r->trainer ? find_left(r) : -1;
    if (rank < 0 || f->why[0])
        return;
    if (!f->counts)
        f->left = tern_clock_limit(TERN_RUN_FROZEN_LEFT_S * second, second);
    f->counts = true;
    if (tern_clock_left_ns(&f->left) > 0)
        return;
    tern_run_frozen_tell(f->why, sizeof f->why, rank);
    tern_run_ranks_signal(r, SIGKILL);
}

void tern_run_frozen_free(struct tern_run_frozen *f)
{
    free(f->tasks);
    f->tasks = NULL;
}
