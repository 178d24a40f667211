#include "core/base/log.h"

#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/base/vars.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char prefix[64] = "tern";
static int threshold = -1;

static void (*copy_to)(const char *line, size_t len);
static pid_t copy_pid;

static const char *const names[] = {"error", "warn", "info", "debug"};

void tern_log_name(const char *name)
{
    snprintf(prefix, sizeof prefix, "%s", name);
}

void tern_log_threshold(enum tern_log_level level)
{
    threshold = (int)level;
}

static int threshold_from_environment(void)
{
    const char *v = tern_var("TERN_LOG_LEVEL");

    for (int i = 0; v && i <= TERN_LOG_DEBUG; i++)
        if (strcmp(v, names[i]) == 0)
            return i;
    return TERN_LOG_INFO;
}

bool tern_log_says(enum tern_log_level level)
{
    if (threshold < 0)
        threshold = threshold_from_environment();
    return (int)level <= threshold;
}

void tern_log_copy(void (*copy)(const char *line, size_t len))
{
    copy_to = copy;
    copy_pid = getpid();
}

/* Paths and names in a message may come from other users.  Newlines stay. */
static void mask(char *line)
{
    for (char *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end = '\0';
        tern_str_mask(line);
        if (end)
            *end++ = '\n';
    }
}

void tern_log(enum tern_log_level level, const char *fmt, ...)
{
    int saved = errno;
    char room[2064]; /* an error's text, twice */
    const char *clear = tern_progress_clear();
    const size_t before = strlen(clear);
    char *line = room + before;
    const int size = (int)(sizeof room - before);
    va_list ap;

    if (!tern_log_says(level))
        return;
    char when[40] = "";
    struct timespec now;
    if (level == TERN_LOG_DEBUG && clock_gettime(CLOCK_REALTIME, &now) == 0)
        snprintf(when, sizeof when, "debug: %lld.%06ld ", (long long)now.tv_sec,
                 now.tv_nsec / 1000);
    int n = snprintf(line, (size_t)size, "%s: %s", prefix,
                     level == TERN_LOG_ERROR  ? "error: "
                     : level == TERN_LOG_WARN ? "warning: "
                                              : when);
    va_start(ap, fmt);
    n += vsnprintf(line + n, (size_t)(size - n), fmt, ap);
    va_end(ap);
    if (n > size - 2)
        n = size - 2;
    mask(line);
    line[n++] = '\n';
    memcpy(room, clear, before);
    if (write(STDERR_FILENO, room, before + (size_t)n) < 0) {
        /* nowhere left to say it */
    }
    if (copy_to && getpid() == copy_pid)
        copy_to(line, (size_t)n - 1);
    errno = saved;
}
