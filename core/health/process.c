/* Facts of other processes: leftovers of ended jobs, and those that hang in the kernel. */
#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/health/probe.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PIDS = 65536 };

/* All process numbers; malloc'ed. */
static pid_t *processes(const struct tern_health_probe *p, size_t *n)
{
    char path[512];
    DIR *d = opendir(tern_health_path(p, path, "/proc"));
    pid_t *all = calloc(MAX_PIDS, sizeof *all);

    *n = 0;
    for (struct dirent *e; all && d && *n < MAX_PIDS && (e = readdir(d));)
        if (isdigit((unsigned char)e->d_name[0]))
            all[(*n)++] = (pid_t)strtol(e->d_name, NULL, 10);
    if (d)
        closedir(d);
    return all;
}

/* Bytes of a file in /proc/PID; texts in it are ended by NUL. */
static ssize_t proc_read(const struct tern_health_probe *p, pid_t pid, const char *file, char *to,
                         size_t size)
{
    char path[512];
    int fd = open(tern_health_path(p, path, "/proc/%d/%s", (int)pid, file), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, to, size - 1);

    if (fd >= 0)
        close(fd);
    if (n >= 0)
        to[n] = '\0';
    return n;
}

/* ------------------------------------------------------------------ leftovers */

/* The job whose cgroup a process is in: 77 of ".../slurmstepd.scope/job_77/step_0/...", or with the
 * older cgroups ".../slurm/uid_1000/job_77/...".  0 when it is in none.  Its environment and title
 * do not count, since its user writes them.  Names below a user's slice do not count either. */
static long job_of(const struct tern_health_probe *p, pid_t pid)
{
    char text[4096], *save = NULL;

    if (proc_read(p, pid, "cgroup", text, sizeof text) <= 0)
        return 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *path = strchr(line, '/'), *slurm = path ? strstr(path, "slurm") : NULL;
        const char *job = slurm ? strstr(slurm, "/job_") : NULL;
        if (job && !tern_str_starts(path, "/user.slice/"))
            return strtol(job + strlen("/job_"), NULL, 10);
    }
    return 0;
}

/* The real uid, which no set-uid program changes; -1 when it cannot be read. */
static int64_t owner(const struct tern_health_probe *p, pid_t pid)
{
    char text[4096];

    if (proc_read(p, pid, "status", text, sizeof text) <= 0)
        return -1;
    const char *uid = strstr(text, "\nUid:");
    return uid ? strtoll(uid + strlen("\nUid:"), NULL, 10) : -1;
}

/* Has the job a "slurmstepd: [77.batch]" here?  Any user may call a process so: it counts when it
 * is root's or this user's, as where a user runs Slurm. */
static bool is_live(const struct tern_health_probe *p, const pid_t *pids, size_t n, long job)
{
    static const char title[] = "slurmstepd: [";

    for (size_t i = 0; i < n; i++) {
        char words[128];
        if (proc_read(p, pids[i], "cmdline", words, sizeof words) <= 0 ||
            !tern_str_starts(words, title) || strtol(words + sizeof title - 1, NULL, 10) != job)
            continue;
        int64_t uid = owner(p, pids[i]);
        if (uid == 0 || uid == (int64_t)geteuid())
            return true;
    }
    return false;
}

/* Has it a Neuron device open? */
static bool holds_device(const struct tern_health_probe *p, pid_t pid)
{
    char path[512], dev[512];
    DIR *d = opendir(tern_health_path(p, path, "/proc/%d/fd", (int)pid));
    bool found = false;

    tern_health_path(p, dev, "/dev/neuron");
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        char link[800], target[600];
        snprintf(link, sizeof link, "%s/%s", path, e->d_name);
        ssize_t n = readlink(link, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        found = tern_str_starts(target, dev) || tern_str_starts(target, "/dev/neuron");
    }
    if (d)
        closedir(d);
    return found;
}

/* A process that holds a device and belongs to no job that runs. */
struct leftover {
    pid_t pid; /* 0: nothing */
    long job;  /* 0: not known */
};

/* One of an ended job rather than one whose job is not known.  Root's own (neuron-monitor) may hold
 * devices. */
static struct leftover leftover(const struct tern_health_probe *p, const pid_t *pids, size_t n)
{
    struct leftover found = {0, 0};
    long live = 0; /* the last live job: a job has many processes */

    for (size_t i = 0; i < n; i++) {
        if (!holds_device(p, pids[i]))
            continue;
        long job = job_of(p, pids[i]);
        if (job && (job == live || is_live(p, pids, n, job)))
            live = job;
        else if (job)
            return (struct leftover){pids[i], job};
        else if (owner(p, pids[i]) > 0) /* -1: it has ended meanwhile */
            found.pid = pids[i];
    }
    return found;
}

/* Shared memory that an older tern or a killed test left; this tern's has no name in the file
 * system. */
static int stray_memory(const struct tern_health_probe *p, char *name, size_t size)
{
    char path[512];
    DIR *d = opendir(tern_health_path(p, path, "/dev/shm"));
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        if (!tern_str_starts(e->d_name, "tern"))
            continue;
        n++;
        snprintf(name, size, "%.60s", e->d_name);
    }
    if (d)
        closedir(d);
    return n;
}

void tern_health_gather_leftovers(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    size_t n;
    pid_t *pids = processes(p, &n);
    struct leftover left = pids ? leftover(p, pids, n) : (struct leftover){0, 0};

    free(pids);
    f->leftovers.pid = left.pid;
    f->leftovers.job = left.job;
    f->leftovers.strays = stray_memory(p, f->leftovers.name, sizeof f->leftovers.name);
}

/* ------------------------------------------------------------------ stuck */

/* Is it in an uninterruptible sleep?  Its name in `name`. */
static bool in_d_state(const struct tern_health_probe *p, pid_t pid, char name[32])
{
    char text[512];

    if (proc_read(p, pid, "stat", text, sizeof text) <= 0)
        return false;
    char *open = strchr(text, '('), *shut = strrchr(text, ')');
    if (!open || !shut || shut[1] != ' ')
        return false;
    snprintf(name, 32, "%.*s", (int)(shut - open - 1), open + 1);
    return shut[2] == 'D';
}

void tern_health_gather_hung(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    enum { LOOKS = 4 };
    size_t n, left = 0;
    pid_t *pids = processes(p, &n);

    f->hung.unreadable = !pids;
    /* A healthy process sleeps so for milliseconds; only those seen each time count. */
    for (int look = 0; pids && look < LOOKS; look++) {
        left = 0;
        for (size_t i = 0; i < n; i++)
            if (in_d_state(p, pids[i], f->hung.name))
                pids[left++] = pids[i];
        n = left;
        if (!left)
            break;
        tern_clock_sleep_ns(150000000);
    }
    f->hung.n = left;
    f->hung.pid = left ? (int)pids[0] : 0;
    free(pids);
}
