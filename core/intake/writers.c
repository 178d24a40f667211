#include "core/intake/writers.h"

#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROCS_MAX = 1 << 15, OURS_MAX = 4096, OPEN_MAX = 1024 };

/* ------------------------------------------------------------------ names */

/* Take ".NUMBER" off the end of a text; -1: it does not end so. */
static int64_t cut_number(char *text)
{
    char *dot = strrchr(text, '.');
    int64_t v;

    if (!dot || tern_str_int(dot + 1, 0, INT32_MAX, &v) < 0)
        return -1;
    *dot = '\0';
    return v;
}

void tern_intake_writer_read(struct tern_intake_writer *w, const char *name)
{
    const char *at = strstr(name, "tfevents.");
    char text[sizeof w->host];

    *w = (struct tern_intake_writer){.time_s = -1, .pid = -1};
    if (!at)
        return;
    at += strlen("tfevents.");
    size_t digits = strspn(at, "0123456789");
    if (digits < 1 || at[digits] != '.')
        return;
    if (digits == 10)
        w->time_s = strtoll(at, NULL, 10);
    snprintf(text, sizeof text, "%s", at + digits + 1);
    size_t len = strlen(text);
    if (len > 3 && strcmp(text + len - 3, ".v2") == 0)
        text[len - 3] = '\0';
    snprintf(w->host, sizeof w->host, "%s", text);
    int64_t pid = cut_number(text) < 0 ? -1 : cut_number(text);
    if (pid < 1 || !text[0])
        return;
    w->pid = pid;
    snprintf(w->host, sizeof w->host, "%s", text);
}

bool tern_intake_writer_same(const struct tern_intake_writer *a, const struct tern_intake_writer *b)
{
    return a->pid == b->pid && strcmp(a->host, b->host) == 0;
}

bool tern_intake_writer_is_local(const struct tern_intake_writer *w)
{
    char here[256] = "";

    gethostname(here, sizeof here - 1);
    return strcmp(here, w->host) == 0;
}

bool tern_intake_writer_runs(const struct tern_intake_writer *w)
{
    return w->pid > 0 && tern_intake_writer_is_local(w) &&
           (kill((pid_t)w->pid, 0) == 0 || errno == EPERM);
}

/* ------------------------------------------------------------------ processes */

struct proc {
    int pid, parent;
    bool ours;
};

struct tern_intake_writers {
    struct proc *proc; /* [PROCS_MAX] */
    size_t n;
    int *ours; /* [OURS_MAX]: the task's, of all looks */
    size_t n_ours;
    struct {
        dev_t dev;
        ino_t ino;
        bool ours;
    } open[OPEN_MAX];
    size_t n_open;
};

struct tern_intake_writers *tern_intake_writers_open(void)
{
    struct tern_intake_writers *p = tern_alloc(1, sizeof *p, "processes", NULL);

    if (!p)
        return NULL;
    p->proc = tern_alloc(PROCS_MAX, sizeof *p->proc, "processes", NULL);
    p->ours = tern_alloc(OURS_MAX, sizeof *p->ours, "processes", NULL);
    if (p->proc && p->ours)
        return p;
    tern_intake_writers_close(p);
    return NULL;
}

void tern_intake_writers_close(struct tern_intake_writers *p)
{
    if (!p)
        return;
    free(p->proc);
    free(p->ours);
    free(p);
}

static bool is_number(const char *s)
{
    return *s && strspn(s, "0123456789") == strlen(s);
}

/* The parent of a process: the fourth field of stat, behind the name, which may hold anything. */
static int parent_of(const char *pid)
{
    char path[64], text[512] = "";
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fgets(text, sizeof text, f)) {
        const char *end = strrchr(text, ')');
        if (!end || sscanf(end + 1, " %*c %d", &parent) != 1)
            parent = 0;
    }
    fclose(f);
    return parent;
}

static void list(struct tern_intake_writers *p)
{
    DIR *d = opendir("/proc");
    struct dirent *e;

    while (d && (e = readdir(d)) && p->n < PROCS_MAX) {
        if (!is_number(e->d_name))
            continue;
        int pid = (int)strtol(e->d_name, NULL, 10);
        p->proc[p->n++] =
            (struct proc){.pid = pid, .parent = parent_of(e->d_name), .ours = pid == getpid()};
    }
    if (d)
        closedir(d);
}

static int by_pid(const void *a, const void *b)
{
    const struct proc *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool is_ours(const struct tern_intake_writers *p, int pid)
{
    const struct proc key = {.pid = pid}, *q = bsearch(&key, p->proc, p->n, sizeof key, by_pid);

    return q && q->ours;
}

/* Those below ours are ours. */
static void descend(struct tern_intake_writers *p)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t k = 0; k < p->n; k++)
            if (!p->proc[k].ours && is_ours(p, p->proc[k].parent))
                p->proc[k].ours = more = true;
    }
}

/* A process that left its parents is ours if it has the variable that tern-task sets. */
static bool has_our_variable(int pid)
{
    enum { ENVIRON_MAX = 1 << 18 };
    char path[64], want[64], *text = NULL;
    bool has = false;

    snprintf(want, sizeof want, "TERN_METRIC_FILE=/proc/%d/", (int)getpid());
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *f = fopen(path, "re");
    if (f && (text = malloc(ENVIRON_MAX))) {
        size_t n = fread(text, 1, ENVIRON_MAX - 1, f);
        text[n] = '\0';
        for (const char *at = text; !has && at < text + n; at += strlen(at) + 1)
            has = tern_str_starts(at, want);
    }
    if (f)
        fclose(f);
    free(text);
    return has;
}

static void list_open(struct tern_intake_writers *p, const struct proc *q)
{
    char dir[64], target[4096];
    struct dirent *e;
    struct stat st;

    snprintf(dir, sizeof dir, "/proc/%d/fd", q->pid);
    DIR *d = opendir(dir);
    while (d && (e = readdir(d)) && p->n_open < OPEN_MAX) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        if (strstr(target, "tfevents") && fstatat(dirfd(d), e->d_name, &st, 0) == 0) {
            p->open[p->n_open].dev = st.st_dev;
            p->open[p->n_open].ino = st.st_ino;
            p->open[p->n_open++].ours = q->ours || has_our_variable(q->pid);
        }
    }
    if (d)
        closedir(d);
}

static bool was_ours(const struct tern_intake_writers *p, int64_t pid)
{
    for (size_t k = 0; k < p->n_ours; k++)
        if (p->ours[k] == pid)
            return true;
    return false;
}

void tern_intake_writers_look(struct tern_intake_writers *p)
{
    p->n = p->n_open = 0;
    list(p);
    qsort(p->proc, p->n, sizeof *p->proc, by_pid);
    descend(p);
    for (size_t k = 0; k < p->n; k++) {
        const struct proc *q = &p->proc[k];
        if (q->ours && p->n_ours < OURS_MAX && !was_ours(p, q->pid))
            p->ours[p->n_ours++] = q->pid;
        list_open(p, q);
    }
}

enum tern_intake_owner tern_intake_writers_owner(const struct tern_intake_writers *p,
                                                 const struct tern_intake_writer *w,
                                                 const struct stat *st)
{
    enum tern_intake_owner owner = TERN_INTAKE_UNKNOWN;

    if (w->pid > 0 && tern_intake_writer_is_local(w) && was_ours(p, w->pid))
        return TERN_INTAKE_OURS;
    if (tern_intake_writer_runs(w) && has_our_variable((int)w->pid))
        return TERN_INTAKE_OURS;
    if ((geteuid() != 0 && st->st_uid != geteuid()) || tern_intake_writer_runs(w))
        owner = TERN_INTAKE_OTHERS;
    for (size_t k = 0; k < p->n_open; k++) {
        if (p->open[k].dev != st->st_dev || p->open[k].ino != st->st_ino)
            continue;
        if (p->open[k].ours)
            return TERN_INTAKE_OURS;
        owner = TERN_INTAKE_OTHERS;
    }
    return owner;
}
