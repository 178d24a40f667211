#include "core/vcluster/sweep.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/str.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 2500 }; /* of ROUND_NS: 10 s */
#define ROUND_NS (4 * INT64_C(1000000))

struct process {
    pid_t pid, parent;
    bool ours;
};

struct processes {
    size_t n;
    struct process *at;
};

/* slurmstepd gives each task the name of its node, which a user's shell on the head lacks. */
static bool is_marked(pid_t pid, const char *mark, const char *conf)
{
    char path[40], *variable = NULL;
    size_t room = 0;
    bool marked = false, in_cluster = false, in_task = false;

    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && getdelim(&variable, &room, '\0', f) > 0) {
        marked = marked || strcmp(variable, mark) == 0;
        in_cluster = in_cluster || strcmp(variable, conf) == 0;
        in_task = in_task || tern_str_starts(variable, "SLURMD_NODENAME=");
    }
    free(variable);
    if (f)
        fclose(f);
    return marked || (in_cluster && in_task);
}

/* 0 when it has ended. */
static pid_t parent_of(pid_t pid)
{
    char path[40], text[512];
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    if (!name_end || sscanf(name_end + 1, " %*c %d", &parent) != 1)
        return 0;
    return parent;
}

static int list(struct processes *all, const char *mark, const char *conf, struct tern_err *err)
{
    DIR *d = TERN_AGAIN_PTR(opendir("/proc"));

    all->n = 0;
    if (!d)
        return tern_err_sys(err, "/proc: cannot be read");
    for (struct dirent *e; (e = readdir(d));) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid < 2)
            continue;
        all->at = reallocarray(all->at, all->n + 1, sizeof *all->at);
        if (!all->at)
            abort();
        all->at[all->n++] = (struct process){pid, parent_of(pid), is_marked(pid, mark, conf)};
    }
    closedir(d);
    return 0;
}

static struct process *find(const struct processes *all, pid_t pid)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i].pid == pid)
            return &all->at[i];
    return NULL;
}

/* What a task has started may have an environment of its own. */
static void take_children(const struct processes *all)
{
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < all->n; i++) {
            const struct process *up = all->at[i].ours ? NULL : find(all, all->at[i].parent);
            if (up && up->ours)
                found = all->at[i].ours = true;
        }
    }
    for (struct process *p = find(all, getpid()); p; p = find(all, p->parent))
        p->ours = false;
}

/* How many there are. */
static size_t kill_ours(const struct processes *all)
{
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++)
        if (all->at[i].ours && kill(all->at[i].pid, SIGKILL) == 0)
            n++;
    return n;
}

int tern_vcluster_sweep(const char *dir, struct tern_err *err)
{
    char *mark = tern_strf("%s=%s", TERN_VCLUSTER_SWEEP_MARK, dir);
    char *conf = tern_strf("SLURM_CONF=%s/etc/slurm.conf", dir);
    struct processes all = {0};
    int rc = 0;

    for (int i = 0;; i++) {
        if ((rc = list(&all, mark, conf, err)) < 0)
            break;
        take_children(&all);
        if (kill_ours(&all) == 0)
            break;
        if (i == ROUNDS) {
            rc = tern_err_set(err, TERN_TEMPFAIL,
                              "processes of the cluster's jobs do not end: `grep -l %s "
                              "/proc/[0-9]*/environ` lists them",
                              conf);
            break;
        }
        tern_clock_sleep_ns(ROUND_NS);
    }
    free(all.at);
    free(mark);
    free(conf);
    return rc;
}
