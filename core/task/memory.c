#include "core/task/memory.h"

#include "core/base/again.h"
#include "core/base/err.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { SMALL = 1 << 16 };

/* Files of /proc and /sys have no size. */
static char *read_small(const char *path)
{
    FILE *f = TERN_AGAIN_PTR(fopen(path, "re"));
    char *text = f ? tern_alloc(1, SMALL, path, NULL) : NULL;
    size_t n = text ? fread(text, 1, SMALL - 1, f) : 0;

    if (f)
        fclose(f);
    if (text)
        text[n] = '\0';
    return text;
}

/* The number behind `word` at the beginning of a line; the first number for NULL; -1 for none. */
static int64_t number(const char *path, const char *word)
{
    char *text = read_small(path), *at = NULL;
    int64_t n = -1;

    for (char *line = text ? strtok_r(text, "\n", &at) : NULL; line && n < 0;
         line = strtok_r(NULL, "\n", &at)) {
        const char *s = line;
        if (word && (strncmp(line, word, strlen(word)) != 0 || line[strlen(word)] != ' '))
            continue;
        s += word ? strlen(word) + 1 : 0;
        if (tern_str_int(s, 0, INT64_MAX, &n) < 0)
            n = -1;
    }
    free(text);
    return n;
}

static int64_t number_in(const char *root, const char *base, const char *group, const char *file,
                         const char *word)
{
    char *path = tern_strf("%s/sys/fs/cgroup%s%s/%s", root, base, group, file);
    int64_t n = number(path, word);

    free(path);
    return n;
}

struct tern_task_memory tern_task_memory_read(const char *root)
{
    enum { NO_LIMIT_BITS = 62 }; /* v1 says "none" by the largest multiple of a page */
    struct tern_task_memory m = {.root = root, .kills = -1, .limit = -1};
    char *path = tern_strf("%s/proc/self/cgroup", root), *text = read_small(path), *at = NULL;

    for (char *line = text ? strtok_r(text, "\n", &at) : NULL; line;
         line = strtok_r(NULL, "\n", &at)) {
        char *colon = strchr(line, ':'), *group = colon ? strchr(colon + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        const char *controllers = colon + 1;
        if (strcmp(controllers, "memory") == 0) {
            m.kills = number_in(root, "/memory", group, "memory.oom_control", "oom_kill");
            m.limit = number_in(root, "/memory", group, "memory.limit_in_bytes", NULL);
            break;
        }
        if (!*controllers && m.kills < 0) {
            m.kills = number_in(root, "", group, "memory.events", "oom_kill");
            m.limit = number_in(root, "", group, "memory.max", NULL);
        }
    }
    free(text);
    free(path);
    if (m.limit >> NO_LIMIT_BITS)
        m.limit = -1;
    return m;
}

/* Did the program end badly?  An end after a signal to end is not: the other ranks of a job get one
 * when the first was killed. */
static bool ended_badly(int wait_status, bool told)
{
    const int status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;

    if ((WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL) || status == 128 + SIGKILL)
        return true;
    return !told && status != TERN_OK && status != TERN_CONTINUED && status != TERN_HALTED;
}

void tern_task_memory_words(const struct tern_task_memory *before, int wait_status, bool told,
                            int64_t rank, const char *node, char *to, size_t size)
{
    struct tern_task_memory now = tern_task_memory_read(before->root);
    char limit[64] = "", how[64] = "was killed for memory";

    if (before->kills < 0 || now.kills <= before->kills || !ended_badly(wait_status, told))
        return;
    if (now.limit >= 0)
        tern_str_bytes(limit, sizeof limit, (uint64_t)now.limit);
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != 128 + SIGKILL)
        snprintf(how, sizeof how, "ended with status %d after a kill for memory",
                 WEXITSTATUS(wait_status));
    else if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) != SIGKILL)
        snprintf(how, sizeof how, "ended by signal %d after a kill for memory",
                 WTERMSIG(wait_status));
    snprintf(to, size,
             "rank %" PRId64 " on %s %s: its job's limit there%s%s was reached. "
             "Request more (--mem), or fewer ranks a node.",
             rank, node, how, *limit ? ", " : "", limit);
    tern_error("%s", to);
}
