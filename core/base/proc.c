#include "core/base/proc.h"

#include "core/base/again.h"
#include "core/base/str.h"
#include "core/base/vars.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIVENESS_S = 5, UTIME = 14 /* and STIME behind it: fields of /proc/PID/stat */ };

/* The state, and in *ret_cpu the clock ticks used.  The name, in parentheses, may hold anything. */
static char read_stat(pid_t pid, uint64_t *ret_cpu)
{
    char path[40], text[1024], *end;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? -1 : TERN_AGAIN(read(fd, text, sizeof text - 1));
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *s = n > 0 ? strrchr(text, ')') : NULL;
    if (!s || s[1] != ' ')
        return '\0';
    const char state = s[2];
    for (int field = 2; s && field < UTIME; field++)
        s = strchr(s + 1, ' ');
    if (!s)
        return '\0';
    *ret_cpu = strtoull(s, &end, 10);
    *ret_cpu += strtoull(end, NULL, 10);
    return state;
}

char tern_proc_state(pid_t pid)
{
    uint64_t cpu;

    return read_stat(pid, &cpu);
}

int64_t tern_proc_stopped_ns(struct tern_proc_watch *w, pid_t pid, int64_t now_ns)
{
    const int64_t since = now_ns - w->looked_ns;
    uint64_t cpu = 0;
    const char state = read_stat(pid, &cpu);
    const bool same = w->looked_ns && cpu == w->cpu && since < TERN_PROC_GAP_S * 1000000000ll;

    w->looked_ns = now_ns;
    w->cpu = cpu;
    w->stopped_ns = state == 'T' && same ? w->stopped_ns + since : 0;
    return w->stopped_ns;
}

int64_t tern_proc_stopped_limit_ns(void)
{
    const char *s = tern_var("TERN_LIVENESS");
    double seconds = LIVENESS_S;

    if (s && tern_str_real(s, 0, 1e6, &seconds) < 0)
        seconds = LIVENESS_S;
    return seconds > 0 ? (int64_t)((seconds + TERN_PROC_SUSPEND_S) * 1e9) : 0;
}
