#include "core/base/again.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOK_MS = 20,        /* between two tries for a descriptor */
    STALE_MS = 10,       /* before the second try; twice as long before each further one */
    IN_VAIN_S = 60,      /* after a wait in vain no call waits for so long */
    INTERRUPTED = 10000, /* no signal comes as often as that: something else says EINTR */
};

/* On the boot clock, of any thread's; 0: never. */
static _Atomic int64_t in_vain_ns;

static void rest_ms(int64_t ms)
{
    tern_clock_sleep_ns(ms * 1000000);
}

static bool wait_for_room(struct tern_again *a, const char *limit)
{
    const int why = errno;
    int64_t now = tern_clock_boot_ns(), vain = atomic_load(&in_vain_ns);

    if (!a->until_ns) {
        if (vain && now - vain < IN_VAIN_S * 1000000000LL)
            return false;
        a->until_ns = now + TERN_AGAIN_FILES_S * 1000000000LL;
        tern_warn("%s (%s): waiting up to %d s for others to end or to close theirs",
                  why == EAGAIN ? "No more processes" : strerror(why), limit, TERN_AGAIN_FILES_S);
    }
    if (now >= a->until_ns) {
        atomic_store(&in_vain_ns, now);
        errno = why;
        return false;
    }
    rest_ms(LOOK_MS);
    return true;
}

bool tern_again_stale(struct tern_again *a)
{
    if (errno != ESTALE || a->stale == TERN_AGAIN_STALE)
        return false;
    rest_ms((int64_t)STALE_MS << a->stale);
    a->stale++;
    errno = ESTALE;
    return true;
}

bool tern_again(struct tern_again *a)
{
    switch (errno) {
    case EINTR:
        return a->interrupted++ < INTERRUPTED;
    case EMFILE:
    case ENFILE:
        return wait_for_room(a, errno == EMFILE ? "ulimit -n" : "sysctl fs.file-max");
    case ESTALE:
        return tern_again_stale(a);
    default:
        return false;
    }
}

pid_t tern_again_fork(void)
{
    struct tern_again a = {0};
    pid_t pid;

    do
        pid = fork();
    while (pid < 0 && errno == EAGAIN && wait_for_room(&a, "ulimit -u, or pids.max of the cgroup"));
    return pid;
}
