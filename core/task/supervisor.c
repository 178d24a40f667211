#include "core/task/supervisor.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/task/task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ASK_MS = 2000,      /* between two queries of the supervisor's beacon... */
    ASK_AGAIN_MS = 500, /* ...and while a query is unanswered */
    SILENT_MS = 1000 * TERN_TASK_BEACON_SILENT_S,
    GAP_MS = 3000,       /* a longer gap between two looks: this process was stopped */
    END_SIGNS = 2,       /* one may be lost */
    LAST_WORD_MS = 2000, /* for an answer of the beacon when the program has ended */
};

/* A number of Slurm's; -1: there is none. */
static int64_t number(const char *name)
{
    const char *s = getenv(name);
    int64_t n;

    return s && tern_str_int(s, 0, INT32_MAX, &n) == 0 ? n : -1;
}

void tern_task_supervisor_find(struct tern_task_supervisor *s)
{
    const char *node = getenv("SLURMD_NODENAME");
    const int64_t id = number("SLURM_NODEID");

    if (!tern_task_beacon_find(&s->beacon))
        return;
    s->every_ns = tern_task_beacon_every_ns(number("SLURM_NTASKS"));
    s->watches = s->beacon.node[0] && number("SLURM_LOCALID") == 0 && node && id >= 0 &&
                 tern_task_beacon_turn(id) >= 0 && strcmp(node, s->beacon.node) != 0;
    s->asked_ns = s->looked_ns = tern_clock_boot_ns();
}

/* Milliseconds until the next sign. */
static int sign_tick(struct tern_task_supervisor *s, int64_t now)
{
    if (!s->signed_ns || now - s->signed_ns >= s->every_ns) {
        tern_task_beacon_sign(&s->beacon, tern_task_rank(), /* ended= */ false, 0);
        s->signed_ns = now;
    }
    return (int)((s->signed_ns + s->every_ns - now) / 1000000) + 1;
}

static void orphan_start(struct tern_task_supervisor *s)
{
    char *path = tern_fs_beside("tern-orphan");

    s->orphan = path ? fork() : -1;
    if (s->orphan == 0) {
        execl(path, path, (char *)NULL);
        _exit(127);
    }
    if (s->orphan < 0)
        s->orphan = 0;
    s->missed = true;
    free(path);
}

int tern_task_supervisor_tick(struct tern_task_supervisor *s)
{
    const int64_t now = tern_clock_boot_ns(), ms = 1000000;

    if (s->beacon.socket.fd < 0)
        return -1;
    const int sign = sign_tick(s, now);
    if (!s->watches)
        return sign;
    if (now - s->looked_ns > GAP_MS * ms)
        s->beacon.heard_ns = now;
    s->looked_ns = now;
    if (tern_task_beacon_heard(&s->beacon))
        s->missed = false;
    bool waits = s->asked_ns > s->beacon.heard_ns;
    if (now - s->asked_ns >= (waits ? ASK_AGAIN_MS : ASK_MS) * ms) {
        tern_task_beacon_request(&s->beacon);
        s->asked_ns = now;
    }
    if (!s->orphan && now - s->beacon.heard_ns > SILENT_MS * ms)
        orphan_start(s);
    return ASK_AGAIN_MS;
}

void tern_task_supervisor_reap(struct tern_task_supervisor *s)
{
    if (!s->orphan || waitpid(s->orphan, NULL, WNOHANG) != s->orphan)
        return;
    s->orphan = 0;
    /* It ends when the beacon answers, or when its work is done. */
    s->beacon.heard_ns = tern_clock_boot_ns();
}

void tern_task_supervisor_end(struct tern_task_supervisor *s, int status)
{
    if (s->beacon.socket.fd < 0)
        return;
    for (int i = 0; i < END_SIGNS; i++)
        tern_task_beacon_sign(&s->beacon, tern_task_rank(), /* ended= */ true, status);
    if (s->watches && !s->orphan &&
        (s->missed || !tern_task_beacon_await(&s->beacon, LAST_WORD_MS)))
        orphan_start(s);
    tern_task_beacon_drop(&s->beacon);
    while (s->orphan && waitpid(s->orphan, NULL, 0) < 0 && errno == EINTR) {
    }
}
