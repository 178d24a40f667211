/* One srun step over all nodes, and its answers. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/wire/rendezvous.h"
#include "core/health/collect.h"
#include "core/health/probe.h"
#include "core/slurm/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const double limits_s[] = {10, 35, 65, 600};
enum { OWN_FILES = 256 }; /* open ones, with strangers' connections */

struct command {
    char *v[64];
    size_t n;
};

static void add(struct command *c, char *word)
{
    c->v[c->n++] = word;
}

static void add_option(struct command *c, const char *name, const char *value)
{
    if (value && *value)
        add(c, tern_strf("%s=%s", name, value));
}

/* The step takes nothing from the ranks' share (--overlap: it has the job's devices with them). A
 * node that fails in it does not end it for the others. */
static void make_command(struct command *c, const struct tern_health_sweep *s)
{
    static const char *const fixed[] = {
        "srun",
        "--mpi=none",
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        "--overlap",
        "--mem=0",
        "--input=none",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--export=ALL",
        "--quiet",
        "--job-name=tern-health",
    };

    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        add(c, tern_strdup(fixed[i]));
    if (s->stage != TERN_HEALTH_STAGE_QUICK)
        add(c, tern_strdup("--cpu-bind=none")); /* all of the node's cores */
    if (s->groups > 1) {                        /* the numbers would be for each group */
        add(c, tern_strf("--het-group=0-%d", s->groups - 1));
    } else {
        char *list = tern_slurm_hosts_compress(s->nodes, s->n_nodes);
        add(c, tern_strf("--nodes=%zu", s->n_nodes));
        add(c, tern_strf("--ntasks=%zu", s->n_nodes));
        add(c, tern_strf("--nodelist=%s", list));
        free(list);
    }
    add(c, tern_strdup(s->program));
    add(c, tern_strdup(tern_health_stage_name(s->stage)));
    add(c, tern_strdup("--node-check"));
    add_option(c, "--expect", s->expect);
    add_option(c, "--only", s->only);
    add_option(c, "--skip", s->skip);
    for (size_t i = 0; i < s->n_mounts; i++)
        add_option(c, "--mount", s->mount[i]);
    add(c, NULL);
}

static pid_t start(const struct tern_health_sweep *s, const char *collect, const char *rendezvous,
                   int said, struct tern_err *err)
{
    struct command c = {.n = 0};
    pid_t parent = getpid();

    make_command(&c, s);
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent || null < 0 || dup2(null, 0) < 0 || dup2(said, 1) < 0 ||
            dup2(said, 2) < 0)
            _exit(126);
        setenv("TERN_HEALTH_COLLECT", collect, 1);
        if (rendezvous)
            setenv("TERN_RUN_SOCKET", rendezvous, 1);
        tern_fs_reset_open(); /* srun would have the nodes allow what this one does */
        execvp(c.v[0], c.v);
        dprintf(2, "cannot run srun: %s\n", strerror(errno));
        _exit(127);
    }
    if (pid < 0)
        tern_err_sys(err, "cannot start srun");
    for (size_t i = 0; i < c.n; i++)
        free(c.v[i]);
    return pid;
}

/* The last line that is not empty. */
static void last_line(int fd, char *to, size_t size)
{
    char text[4096];
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end > (off_t)sizeof text - 1 ? end - (off_t)sizeof text + 1 : 0;
    ssize_t n = pread(fd, text, sizeof text - 1, from);
    char *save = NULL;

    *to = '\0';
    if (n <= 0)
        return;
    text[n] = '\0';
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        snprintf(to, size, "%s", line);
}

/* Until every node has answered and srun is gone, srun is gone for a while, or time is up. */
static void serve(struct tern_health_listener *l, struct tern_wire_rendezvous *rendezvous,
                  pid_t pid, double limit_s)
{
    const int64_t ms = 1000000;
    int64_t until = tern_clock_boot_ns() + (int64_t)(limit_s * 1e9), gone = 0;
    bool ended = false;

    for (;;) {
        int64_t now = tern_clock_boot_ns();
        tern_progress_set(l->n_done, l->n_nodes);
        if (!gone && waitpid(pid, NULL, WNOHANG) != 0)
            gone = now;
        if (gone && (l->n_done == l->n_nodes || now > gone + 300 * ms))
            return;
        if (!ended && now > until) {
            kill(pid, SIGTERM); /* srun then ends the step on the nodes */
            ended = true;
        } else if (ended && now > until + 1000 * ms) {
            kill(pid, SIGKILL);
            while (!gone && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
            return;
        }
        /* srun's end comes without a descriptor: near it the looks are close together. */
        tern_health_listen_step(l, rendezvous ? tern_wire_rendezvous_fd(rendezvous) : -1,
                                l->n_done == l->n_nodes ? 2 : 20);
        if (rendezvous)
            tern_wire_rendezvous_step(rendezvous, NULL);
    }
}

int tern_health_sweep(const struct tern_health_sweep *s, struct tern_health_rows *rows, char *said,
                      size_t size, struct tern_err *err)
{
    struct tern_health_listener l;
    struct tern_wire_rendezvous *rendezvous = NULL;
    bool fabric = s->stage == TERN_HEALTH_STAGE_FABRIC || s->stage == TERN_HEALTH_STAGE_DEEP;
    int output = -1, rc = -1;

    *said = '\0';
    /* A node may connect twice, and once more to the fabric's rendezvous.  Where fewer files are
     * allowed they may suffice. */
    tern_fs_allow_open(OWN_FILES + 3 * s->n_nodes, NULL);
    if (tern_health_listen(&l, s->nodes, s->n_nodes, rows, err) < 0)
        return -1;
    output = memfd_create("srun", MFD_CLOEXEC);
    if (output < 0) {
        tern_err_sys(err, "cannot make a file for srun's output");
        goto out;
    }
    if (fabric && !(rendezvous = tern_wire_rendezvous_open(NULL, (int)s->n_nodes, err)))
        goto out;
    pid_t pid = start(s, l.address, rendezvous ? tern_wire_rendezvous_address(rendezvous) : NULL,
                      output, err);
    if (pid < 0)
        goto out;
    serve(&l, rendezvous, pid, s->limit_s > 0 ? s->limit_s : limits_s[s->stage]);
    last_line(output, said, size);
    rc = 0;
out:
    tern_wire_rendezvous_close(rendezvous);
    if (output >= 0)
        close(output);
    tern_health_listen_end(&l);
    return rc;
}
