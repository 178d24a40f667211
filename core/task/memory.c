#include "core/task/memory.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int64_t number_in(const char *base, const char *group, const char *file, const char *word)
{
    char *path = tern_strf("%s%s/%s", base, group, file);
    int64_t n = number(path, word);

    free(path);
    return n;
}

struct tern_task_memory tern_task_memory_read(void)
{
    enum { NO_LIMIT_BITS = 62 }; /* v1 says "none" by the largest multiple of a page */
    struct tern_task_memory m = {-1, -1};
    char *text = read_small("/proc/self/cgroup"), *at = NULL;

    for (char *line = text ? strtok_r(text, "\n", &at) : NULL; line;
         line = strtok_r(NULL, "\n", &at)) {
        char *colon = strchr(line, ':'), *group = colon ? strchr(colon + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        const char *controllers = colon + 1;
        if (strcmp(controllers, "memory") == 0) {
            m.kills = number_in("/sys/fs/cgroup/memory", group, "memory.oom_control", "oom_kill");
            m.limit = number_in("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", NULL);
            break;
        }
        if (!*controllers && m.kills < 0) {
            m.kills = number_in("/sys/fs/cgroup", group, "memory.events", "oom_kill");
            m.limit = number_in("/sys/fs/cgroup", group, "memory.max", NULL);
        }
    }
    free(text);
    if (m.limit >> NO_LIMIT_BITS)
        m.limit = -1;
    return m;
}
