#include "core/run/launch.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/place/order.h"
#include "core/run/command.h"
#include "core/slurm/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------ the command line */

struct words {
    char **v;
    size_t n, cap;
    bool failed;
};

__attribute__((format(printf, 2, 3))) static void add(struct words *w, const char *fmt, ...)
{
    va_list ap;

    if (w->n + 1 >= w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 32;
        char **v = reallocarray(w->v, cap, sizeof *v);
        if (!v) {
            w->failed = true;
            return;
        }
        w->v = v;
        w->cap = cap;
    }
    va_start(ap, fmt);
    if (vasprintf(&w->v[w->n], fmt, ap) < 0)
        w->failed = true;
    else
        w->n++;
    va_end(ap);
    w->v[w->n] = NULL;
}

/* Even blocks of ranks whatever options sbatch had, all variables also under --export=NONE, and one
 * rank's failure ends all. */
static void add_srun(struct words *w, const struct tern_run_attempt *a, const char *mpi,
                     const char *step, const char *hosts)
{
    const struct tern_place *p = &a->place;

    add(w, "srun");
    if (mpi)
        add(w, "--mpi=%s", mpi);
    if (p->groups > 1) { /* each group has its own nodes, and the numbers apply to each */
        add(w, "--het-group=0-%d", p->groups - 1);
    } else {
        if (!hosts) /* 24.11 takes either --nodes or a list of hosts */
            add(w, "--nodes=%" PRId64, p->nodes);
        if (p->chosen && !hosts) /* the job may have more nodes, or lost ones */
            add(w, "--nodelist=%s", p->node_list);
        add(w, "--ntasks=%" PRId64, p->nodes * p->ranks_per_node);
    }
    add(w, "--ntasks-per-node=%" PRId64, p->ranks_per_node);
    if (p->cpus_per_rank)
        add(w, "--cpus-per-task=%" PRId64, p->cpus_per_rank);
    add(w, "--distribution=%s", hosts ? "arbitrary" : "block");
    if (p->in_step || a->overlap) /* another step has the job's CPUs until it ends */
        add(w, "--overlap");
    add(w, "--kill-on-bad-exit=1");
    if (a->o->recipe->launch.spares > 0) /* ranks on other nodes survive a node (srun_hang.h) */
        add(w, "--no-kill");
    add(w, "--export=ALL");
    add(w, "--input=none");
    add(w, "--job-name=%s", step);
}

/* Open MPI 4.1 and 5.0.  By default it refuses root, and binds ranks to cores that the virtual
 * nodes of one machine share.  It starts its daemons with srun, which passes the environment on. */
static void add_mpirun(struct words *w, const struct tern_place *p, const char *hosts)
{
    add(w, "mpirun");
    if (geteuid() == 0)
        add(w, "--allow-run-as-root");
    add(w, "-n");
    add(w, "%" PRId64, p->nodes * p->ranks_per_node);
    /* The placement is decided here; sbatch's options for tasks do not count. */
    add(w, "--map-by");
    if (hosts) {
        add(w, "seq:OVERSUBSCRIBE");
        add(w, "--hostfile");
        add(w, "%s", hosts);
    } else {
        add(w, "ppr:%" PRId64 ":node:OVERSUBSCRIBE", p->ranks_per_node);
    }
    add(w, "--bind-to");
    add(w, "none");
}

static void add_trainer(struct words *w, const struct tern_run_options *o)
{
    add(w, "%s", o->trainer);
    if (o->accept)
        add(w, "--accept");
    for (size_t i = 0; i < o->n_overrides; i++) {
        add(w, "--set");
        add(w, "%s", o->overrides[i]);
    }
    add(w, "%s", o->recipe_path);
}

char **tern_run_argv_make(const struct tern_run_attempt *a, const char *step, const char *hosts,
                          struct tern_err *err)
{
    const struct tern_run_options *o = a->o;
    char **command = a->command ? a->command : o->recipe->workload.command;
    char *container[TERN_RUN_CONTAINER_OPTIONS + 1] = {NULL};
    struct words w = {0};
    const char *task = o->task;

    if (a->place.slurm && o->recipe->launch.with == TERN_LAUNCH_MPIRUN)
        add_mpirun(&w, &a->place, hosts);
    else if (a->place.slurm)
        add_srun(&w, a,
                 command                               ? NULL
                 : tern_run_attempt_uses_rendezvous(a) ? "none"
                                                       : "pmix",
                 step, hosts);
    if (a->place.slurm && command && tern_run_command_container(a, container, err) < 0) {
        tern_recipe_words_free(w.v);
        return NULL;
    }
    if (container[0]) /* an image does not contain tern */
        task = o->inside;
    for (size_t i = 0; container[i]; i++) {
        add(&w, "%s", container[i]);
        free(container[i]);
    }
    if (task) {
        add(&w, "%s", task);
        add(&w, "--");
    }
    for (size_t i = 0; command && command[i]; i++)
        add(&w, "%s", command[i]);
    if (!command)
        add_trainer(&w, o);
    if (!w.failed)
        return w.v;
    tern_recipe_words_free(w.v);
    tern_err_set(err, TERN_FAILED, "no memory for the ranks' command line");
    return NULL;
}

char **tern_run_predict_command(const struct tern_run_options *o, const struct tern_place *place,
                                const struct tern_place_order *order, struct tern_err *err)
{
    struct tern_run_attempt a = {
        .o = o, .place = *place, .kind = "train", .id = "RUN", .number = 1};
    const bool listed =
        order->map.moved || (place->chosen && o->recipe->launch.with == TERN_LAUNCH_MPIRUN);
    char **filled = NULL;

    setenv("TERN_COMPILE_CACHE", "CACHE", 0);
    if (place->slurm && order->n)
        setenv("MASTER_ADDR", order->hosts[order->map.order ? order->map.order[0] : 0], 0);
    if (tern_run_command_fill(&a, &filled, err) < 0)
        return NULL;
    a.command = filled;
    char **argv = tern_run_argv_make(&a, "tern-1", listed ? "HOSTS" : NULL, err);
    tern_recipe_words_free(filled);
    return argv;
}

/* ------------------------------------------------------------------ processes */

/* The path of the list of hosts for a child: a descriptor, which leaves no file behind. */
static void hosts_path(const struct tern_run_ranks *r, char to[32])
{
    snprintf(to, 32, "/proc/self/fd/%d", r->hosts);
}

/* Set rank and size under the names that srun uses. */
static void set_place(const struct tern_run_ranks *r, size_t i)
{
    char number[24];

    snprintf(number, sizeof number, "%zu", i);
    setenv("SLURM_PROCID", number, 1);
    setenv("SLURM_LOCALID", number, 1);
    snprintf(number, sizeof number, "%zu", r->n);
    setenv("SLURM_NTASKS", number, 1);
}

/* The srun of mpirun runs beside the step around this process.  mpirun counts the slots of a node
 * by the job's variable, which has the step's value here. */
static void leave_step(const struct tern_run_ranks *r)
{
    char per_node[64];

    snprintf(per_node, sizeof per_node, "%" PRId64 "(x%" PRId64 ")", r->per_node, r->nodes);
    setenv("SLURM_TASKS_PER_NODE", per_node, 1);
    setenv("SLURM_OVERLAP", "1", 1);
}

/* Runs in the child.  Outside Slurm the child gets its rank.  It gets a process group of its own:
 * Ctrl-C reaches only the supervisor, which passes it on once.  It ends with the supervisor. */
static void become(const struct tern_run_ranks *r, size_t i, pid_t parent)
{
    char path[32];
    int null = TERN_AGAIN(open("/dev/null", O_RDONLY | O_CLOEXEC));

    setpgid(0, 0);
    /* SIGTERM makes srun end its step. */
    prctl(PR_SET_PDEATHSIG, r->job ? SIGTERM : SIGKILL);
    if (getppid() != parent)
        _exit(TERN_TEMPFAIL);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if (!r->job)
        set_place(r, i);
    if (r->hosts >= 0) {
        char nodes[24];
        snprintf(nodes, sizeof nodes, "%" PRId64, r->nodes);
        setenv("SLURM_NNODES", nodes, 1); /* without --nodes, srun reads the number here */
        setenv("SLURM_JOB_NUM_NODES", nodes, 1);
        hosts_path(r, path);
        setenv("SLURM_HOSTFILE", path, 1);
        fcntl(r->hosts, F_SETFD, 0);
    } else {
        unsetenv("SLURM_HOSTFILE");
    }
    if (r->mpirun) { /* sbatch --export=NONE would apply to mpirun's srun */
        setenv("SLURM_EXPORT_ENV", "ALL", 1);
        unsetenv("SLURM_HOSTFILE");
        if (r->in_step)
            leave_step(r);
    }
    sigprocmask(SIG_SETMASK, r->old_mask, NULL);
    signal(SIGPIPE, SIG_DFL); /* the default for a workload */
    tern_fs_reset_open();     /* srun would set the limit of this process on the nodes */
    execvp(r->argv[0], r->argv);
    tern_error("cannot run '%s': %s", r->argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int order_hosts(struct tern_run_ranks *r, const struct tern_run_attempt *a,
                       struct tern_err *err)
{
    const struct tern_place *p = &a->place;
    struct tern_place_order order;
    struct tern_buf list = {0};
    int rc = 0;

    if (!p->slurm)
        return 0;
    if (tern_place_order_read(p, a->o->recipe, &order, err) < 0)
        return -1;
    if (order.map.moved || (r->mpirun && p->chosen)) {
        tern_place_order_list(&order, p->ranks_per_node, &list);
        rc = tern_buf_check(&list, "the ranks' hosts", err);
        r->hosts = rc == 0 ? TERN_AGAIN(memfd_create("hosts", MFD_CLOEXEC)) : -1;
        if (rc == 0 &&
            (r->hosts < 0 || TERN_AGAIN(write(r->hosts, list.data, list.len)) != (ssize_t)list.len))
            rc = tern_err_sys(err, "cannot write the list of the ranks' hosts");
    }
    if (order.map.moved)
        tern_info(
            "ranks follow the network's switches: node %s comes second (`tern run --explain`)",
            order.hosts[order.map.order[1]]);
    tern_buf_free(&list);
    tern_place_order_free(&order);
    return rc;
}

static int start_one(struct tern_run_ranks *r, size_t i, pid_t self, struct tern_err *err)
{
    pid_t pid = tern_again_fork();

    if (pid == 0)
        become(r, i, self);
    if (pid < 0) {
        tern_err_sys(err, "cannot start rank %zu of %zu", i, r->n);
        tern_run_ranks_signal(r, SIGKILL);
        return -1;
    }
    r->pid[i] = pid;
    setpgid(pid, pid); /* also here: the group must exist before the first signal */
    return 0;
}

int tern_run_ranks_start(struct tern_run_ranks *r, const struct tern_run_attempt *a,
                         struct tern_err *err)
{
    const struct tern_place *p = &a->place;
    const size_t n = p->slurm ? 1 : (size_t)p->ranks_per_node;
    char path[32];

    snprintf(r->step, sizeof r->step, "tern-%u", a->number);
    r->job = p->job;
    r->nodes = p->nodes;
    r->groups = p->group_job;
    r->n_groups = (size_t)p->groups;
    r->in_step = p->in_step;
    r->per_node = p->ranks_per_node;
    r->mpirun = p->slurm && a->o->recipe->launch.with == TERN_LAUNCH_MPIRUN;
    r->trainer = tern_run_attempt_is_trainer(a);
    r->wrapped = a->o->task != NULL;
    r->hosts = -1;
    if (order_hosts(r, a, err) < 0)
        return -1;
    hosts_path(r, path);
    r->pid = tern_alloc(n, sizeof *r->pid, "ranks", err);
    r->status = tern_alloc(n, sizeof *r->status, "ranks", err);
    r->argv = tern_run_argv_make(a, r->step, r->hosts >= 0 ? path : NULL, err);
    if (!r->pid || !r->status || !r->argv)
        return -1;
    r->n = n;
    tern_debug("phase: launch");
    for (size_t i = 0; i < r->n; i++)
        if (start_one(r, i, getpid(), err) < 0)
            return -1;
    return 0;
}

/* mpirun passes SIGUSR1 and SIGUSR2 on; on any other signal it ends the ranks at once.  SIGUSR1
 * means the same as SIGTERM to the trainer: finish the step, write a checkpoint. */
static void signal_mpirun(const struct tern_run_ranks *r, int sig)
{
    if (r->trainer && (sig == SIGTERM || sig == SIGINT))
        sig = SIGUSR1;
    kill(r->pid[0], sig);
}

static void signal_srun(const struct tern_run_ranks *r, int sig)
{
    struct tern_err err = {0};
    bool passed = true;

    for (size_t g = 0; g < r->n_groups; g++)
        if (tern_slurm_step_signal(r->groups[g], r->step, sig, &err) < 0)
            passed = false;
    if (passed)
        return;
    tern_warn("%s", err.text);
    /* srun passes these on; on any other signal it ends the step. */
    kill(r->pid[0], sig == SIGUSR1 || sig == SIGUSR2 ? sig : SIGTERM);
}

void tern_run_ranks_signal(struct tern_run_ranks *r, int sig)
{
    if (r->job && r->n && r->pid[0]) {
        if (r->mpirun)
            signal_mpirun(r, sig);
        else
            signal_srun(r, sig);
        return;
    }
    for (size_t i = 0; i < r->n; i++)
        if (r->pid[i])
            kill(-r->pid[i], sig);
}

void tern_run_ranks_leftover(const struct tern_run_ranks *r)
{
    if (!r->job || r->mpirun || !r->n || !WIFSIGNALED(r->status[0]))
        return;
    for (size_t g = 0; g < r->n_groups; g++)
        if (tern_slurm_step_signal(r->groups[g], r->step, SIGKILL, NULL) == 0)
            tern_warn("srun was killed (signal %d) and left its ranks: ending them",
                      WTERMSIG(r->status[0]));
}

int tern_run_ranks_status(const struct tern_run_ranks *r, int i, int asked)
{
    int status = r->status[i];

    if (r->mpirun && WIFEXITED(status) && WEXITSTATUS(status) == 1 &&
        (asked == SIGTERM || asked == SIGINT))
        return asked; /* mpirun ended the ranks on request */
    return status;
}

void tern_run_ranks_free(struct tern_run_ranks *r)
{
    tern_recipe_words_free(r->argv);
    free(r->pid);
    free(r->status);
    if (r->job && r->hosts > 0)
        close(r->hosts);
}
