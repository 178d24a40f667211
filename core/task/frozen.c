#include "core/task/frozen.h"

#include "core/base/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

void tern_task_frozen_begin(struct tern_task_frozen *f, const char *program, int64_t rank,
                            const char *node)
{
    const char *name = strrchr(program, '/');

    *f = (struct tern_task_frozen){.rank = rank};
    snprintf(f->node, sizeof f->node, "%s", node);
    if (strcmp(name ? name + 1 : program, "tern-train") == 0)
        f->limit_ns = tern_proc_stopped_limit_ns();
}

int tern_task_frozen_tick(struct tern_task_frozen *f, pid_t pid, int64_t now_ns, int most_ms)
{
    const int ms = most_ms < 0 || most_ms > TERN_TASK_FROZEN_MS ? TERN_TASK_FROZEN_MS : most_ms;

    if (!f->limit_ns || f->why[0])
        return most_ms;
    if (now_ns < f->next_ns)
        return ms;
    f->next_ns = now_ns + TERN_TASK_FROZEN_MS * 1000000ll;
    const int64_t stopped = tern_proc_stopped_ns(&f->watch, pid, now_ns);
    if (stopped < f->limit_ns)
        return ms;
    snprintf(f->why, sizeof f->why,
             "rank %" PRId64 " on %s has shown no sign of life for %.3g s: its process %d was "
             "stopped by a signal; it is killed now",
             f->rank, f->node, (double)stopped / 1e9, (int)pid);
    tern_error("%s", f->why);
    kill(pid, SIGKILL);
    return most_ms;
}
