#include "core/run/launch.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/slurm/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ------------------------------------------------------------------ the command line */

struct words {
    char **v;
    size_t n;
};

static void add(struct words *w, char *word)
{
    w->v[w->n++] = word;
}

/* Even blocks of ranks whatever sbatch was told, every variable of ours also under
 * --export=NONE, and one rank's end is everybody's. */
static void add_srun(struct words *w, const struct tern_run_place *p, bool trainer,
                     const char *step)
{
    add(w, tern_strdup("srun"));
    if (trainer)
        add(w, tern_strdup("--mpi=pmix"));
    add(w, tern_strf("--nodes=%" PRId64, p->nodes));
    add(w, tern_strf("--ntasks=%" PRId64, p->nodes * p->ranks_per_node));
    add(w, tern_strf("--ntasks-per-node=%" PRId64, p->ranks_per_node));
    if (p->cpus_per_rank)
        add(w, tern_strf("--cpus-per-task=%" PRId64, p->cpus_per_rank));
    add(w, tern_strdup("--distribution=block"));
    add(w, tern_strdup("--kill-on-bad-exit=1"));
    add(w, tern_strdup("--export=ALL"));
    add(w, tern_strdup("--input=none"));
    add(w, tern_strf("--job-name=%s", step));
}

char **tern_run_command(const struct tern_run_place *p, const struct tern_run_options *o,
                        const char *step, struct tern_err *err)
{
    enum { SRUN = 12, TRAIN = 3 };
    char **command = o->recipe->workload.command;
    size_t n_command = 0;

    while (command && command[n_command])
        n_command++;
    struct words w = {.v = tern_alloc(SRUN + TRAIN + 2 * o->n_overrides + n_command + 1,
                                      sizeof *w.v, "the ranks' command line", err)};
    if (!w.v)
        return NULL;
    if (p->slurm)
        add_srun(&w, p, !command, step);
    for (size_t i = 0; i < n_command; i++)
        add(&w, tern_strdup(command[i]));
    if (command)
        return w.v;
    add(&w, tern_strdup(o->trainer));
    if (o->accept)
        add(&w, tern_strdup("--accept"));
    for (size_t i = 0; i < o->n_overrides; i++) {
        add(&w, tern_strdup("--set"));
        add(&w, tern_strdup(o->overrides[i]));
    }
    add(&w, tern_strdup(o->recipe_path));
    return w.v;
}

/* ------------------------------------------------------------------ processes */

/* In the child.  Outside Slurm it gets its place; a group of its own, so that Ctrl-C reaches the
 * supervisor alone, which passes it on once; and an end with the supervisor, whatever ends that. */
static void become(const struct tern_run_ranks *r, size_t i, pid_t parent)
{
    char number[24];
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    setpgid(0, 0);
    /* SIGTERM is how srun is told to end its step. */
    prctl(PR_SET_PDEATHSIG, r->job ? SIGTERM : SIGKILL);
    if (getppid() != parent)
        _exit(TERN_TEMPFAIL);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if (!r->job) { /* under the names that ranks know from srun */
        snprintf(number, sizeof number, "%zu", i);
        setenv("SLURM_PROCID", number, 1);
        setenv("SLURM_LOCALID", number, 1);
        snprintf(number, sizeof number, "%zu", r->n);
        setenv("SLURM_NTASKS", number, 1);
    }
    sigprocmask(SIG_SETMASK, r->old_mask, NULL);
    execvp(r->argv[0], r->argv);
    tern_error("cannot run '%s': %s", r->argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

int tern_run_ranks_start(struct tern_run_ranks *r, const struct tern_run_place *p,
                         const struct tern_run_options *o, unsigned attempt, struct tern_err *err)
{
    pid_t self = getpid();

    snprintf(r->step, sizeof r->step, "tern-%u", attempt);
    r->job = p->job;
    const size_t n = p->slurm ? 1 : (size_t)p->ranks_per_node;
    r->pid = tern_alloc(n, sizeof *r->pid, "ranks", err);
    r->status = tern_alloc(n, sizeof *r->status, "ranks", err);
    r->argv = tern_run_command(p, o, r->step, err);
    if (!r->pid || !r->status || !r->argv)
        return -1;
    r->n = n;
    for (size_t i = 0; i < r->n; i++) {
        r->pid[i] = fork();
        if (r->pid[i] == 0)
            become(r, i, self);
        if (r->pid[i] < 0) {
            r->pid[i] = 0;
            tern_err_sys(err, "cannot start rank %zu of %zu", i, r->n);
            tern_run_ranks_signal(r, SIGKILL);
            return -1;
        }
        setpgid(r->pid[i], r->pid[i]); /* also here: it must hold before the first signal */
    }
    return 0;
}

void tern_run_ranks_signal(struct tern_run_ranks *r, int sig)
{
    struct tern_err err = {0};

    if (r->job && r->pid[0]) {
        if (tern_slurm_step_signal(r->job, r->step, sig, &err) == 0)
            return;
        tern_warn("%s", err.text);
        /* srun passes these on; any other it takes for the wish to end the step. */
        kill(r->pid[0], sig == SIGUSR1 || sig == SIGUSR2 ? sig : SIGTERM);
        return;
    }
    for (size_t i = 0; i < r->n; i++)
        if (r->pid[i])
            kill(-r->pid[i], sig);
}

void tern_run_ranks_free(struct tern_run_ranks *r)
{
    for (size_t i = 0; r->argv && r->argv[i]; i++)
        free(r->argv[i]);
    free(r->argv);
    free(r->pid);
    free(r->status);
}
