#include "core/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static int64_t now_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t tern_clock_wall_ns(void)
{
    return now_ns(CLOCK_REALTIME);
}

int64_t tern_clock_boot_ns(void)
{
    return now_ns(CLOCK_BOOTTIME);
}

/* Of the time since the last tick. */
static int64_t gap(int64_t ticked_ns, int64_t now_ns)
{
    const int64_t since = now_ns - ticked_ns;

    return ticked_ns && since > TERN_CLOCK_GAP_MS * 1000000ll ? since : 0;
}

/* A reader between the two stores counts the gap twice: it learns less from that span. */
void tern_clock_gaps_tick(struct tern_clock_gaps *g, int64_t now_ns)
{
    g->lost_ns += gap(g->ticked_ns, now_ns);
    g->ticked_ns = now_ns;
}

int64_t tern_clock_gaps_lost_ns(struct tern_clock_gaps *g, int64_t now_ns)
{
    const int64_t ticked = g->ticked_ns;

    return g->lost_ns + gap(ticked, now_ns);
}

struct tern_clock_limit tern_clock_limit(int64_t ns, int64_t most_ns)
{
    return (struct tern_clock_limit){ns, tern_clock_boot_ns(), most_ns};
}

int64_t tern_clock_left_ns(struct tern_clock_limit *l)
{
    int64_t now = tern_clock_boot_ns(), since = now - l->seen_ns;

    l->seen_ns = now;
    l->left_ns -= since < l->most_ns ? since : l->most_ns;
    return l->left_ns;
}

char *tern_clock_iso8601(char *to, size_t n, int64_t wall_ns)
{
    time_t s = (time_t)(wall_ns / 1000000000);
    struct tm tm;

    localtime_r(&s, &tm);
    long zone = tm.tm_gmtoff / 60;
    long minutes = zone < 0 ? -zone : zone;
    snprintf(to, n, "%04d-%02d-%02dT%02d:%02d:%02d%c%02ld:%02ld", tm.tm_year + 1900, tm.tm_mon + 1,
             tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, zone < 0 ? '-' : '+', minutes / 60,
             minutes % 60);
    return to;
}

void tern_clock_sleep_ns(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}
