#include "core/run/other.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/slurm/slurm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LIMIT_MS = 5000,   /* for the controller; sbatch, which runs next, has the message */
    AFTER_BYTES = 400, /* of a dependency's jobs; the runs of an array are mostly of one job */
};

/* What the child finds out. */
struct found {
    size_t n; /* runs that are in jobs */
    char first[160];
    char after[AFTER_BYTES];
};

void tern_run_ids_add(struct tern_run_ids *ids, const char *dir)
{
    char id[TERN_CKPT_ULID];

    if (!dir || tern_ckpt_run_read(dir, id, NULL) != 0)
        return;
    void *more = reallocarray(ids->id, ids->n + 1, sizeof *ids->id);
    if (!more)
        return;
    ids->id = more;
    memcpy(ids->id[ids->n++], id, sizeof id);
}

void tern_run_ids_free(struct tern_run_ids *ids)
{
    free(ids->id);
    *ids = (struct tern_run_ids){0};
}

/* ":12", once. */
static void add_job(struct found *f, uint32_t job)
{
    char word[16], *at = f->after;
    const size_t n = (size_t)snprintf(word, sizeof word, ":%u", job);

    for (; (at = strstr(at, word)); at += n)
        if (!at[n] || at[n] == ':')
            return;
    const size_t len = strlen(f->after);
    if (len + n < sizeof f->after)
        memcpy(f->after + len, word, n + 1);
}

static int find(const struct tern_run_ids *ids, struct found *f)
{
    struct tern_slurm_found *jobs = calloc(ids->n, sizeof *jobs);

    if (!jobs || tern_slurm_jobs_find(ids->id, ids->n, jobs, NULL) < 0) {
        free(jobs);
        return -1;
    }
    for (size_t i = 0; i < ids->n; i++) {
        const struct tern_slurm_found *j = &jobs[i];
        if (!j->job)
            continue;
        if (!f->n++)
            snprintf(f->first, sizeof f->first, "run %s is job %s already (%s)", ids->id[i],
                     j->name, j->word);
        add_job(f, j->whole);
    }
    free(jobs);
    return 0;
}

/* In a child: libslurm ends a process when the configuration is bad. */
static bool ask(const struct tern_run_ids *ids, struct found *f)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        close(ends[0]);
        int null = TERN_AGAIN(open("/dev/null", O_WRONLY | O_CLOEXEC));
        dup2(null, STDERR_FILENO);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || find(ids, f) < 0)
            _exit(1);
        _exit(write(ends[1], f, sizeof *f) != (ssize_t)sizeof *f);
    }
    close(ends[1]);
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    bool got =
        pid > 0 && poll(&p, 1, LIMIT_MS) > 0 && read(ends[0], f, sizeof *f) == (ssize_t)sizeof *f;
    close(ends[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return got;
}

void tern_run_other_tell(const struct tern_run_ids *ids, const char *before)
{
    struct found f = {0};
    char more[60] = "";

    if (!ids->n || !tern_slurm_available() || !ask(ids, &f) || !f.n)
        return;
    if (f.n > 1)
        snprintf(more, sizeof more, ", and so are %zu more", f.n - 1);
    if (before)
        tern_warn("%s%s: two jobs of a run cannot work at once, and this one fails while that one "
                  "runs. To run after it: %s--dependency=afterany%s",
                  f.first, more, before, f.after);
    else
        tern_warn("%s%s: two jobs of a run cannot work at once. Unless this one waits for it "
                  "(--dependency=afterany%s) or sets another checkpoint.dir, it fails",
                  f.first, more, f.after);
}
