#include "core/vcluster/stop.h"

#include "core/base/again.h"
#include "core/base/proc.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST = 32768, /* processes: the kernel's default of pid_max; any more run on */
    ROUNDS = 10   /* until no process is found that a running one has made meanwhile */
};

struct tern_vcluster_stop {
    int n;
    pid_t pid[MOST];
};

struct tern_vcluster_stop *tern_vcluster_stop_new(struct tern_err *err)
{
    void *room = mmap(NULL, sizeof(struct tern_vcluster_stop), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (room != MAP_FAILED)
        return room;
    tern_err_sys(err, "no memory for a list of processes");
    return NULL;
}

void tern_vcluster_stop_forget(struct tern_vcluster_stop *s)
{
    s->n = 0;
}

/* A process is written down before it is stopped: if this one is killed halfway, its successor
 * finds it. */
static void stop(struct tern_vcluster_stop *s, pid_t pid)
{
    if (s->n == MOST)
        return;
    s->pid[s->n++] = pid;
    kill(pid, SIGSTOP);
}

/* How many it had to stop; -1.  A main thread that has ended (Z) may have others. */
static int stop_running(struct tern_vcluster_stop *s, struct tern_err *err)
{
    DIR *proc = TERN_AGAIN_PTR(opendir("/proc"));
    int running = 0;

    if (!proc)
        return tern_err_sys(err, "/proc: cannot be read");
    for (struct dirent *e; (e = readdir(proc));) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        const char state = pid > 1 && pid != getpid() ? tern_proc_state(pid) : 'T';
        if (state == 'T' || state == 'X' || state == '\0')
            continue;
        stop(s, pid);
        running += state != 'Z';
    }
    closedir(proc);
    return running;
}

int tern_vcluster_stop_all(struct tern_vcluster_stop *s, struct tern_err *err)
{
    int running = 1;

    for (int i = 0; i < ROUNDS && running > 0; i++)
        running = stop_running(s, err);
    return running < 0 ? -1 : 0;
}

void tern_vcluster_stop_end(struct tern_vcluster_stop *s)
{
    for (int i = 0; i < s->n; i++)
        kill(s->pid[i], SIGCONT);
    s->n = 0;
}
