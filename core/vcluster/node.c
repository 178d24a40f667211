#include "core/vcluster/node.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/vcluster/cause.h"
#include "core/vcluster/net.h"
#include "core/vcluster/programs.h"
#include "core/vcluster/rootfs.h"
#include "core/vcluster/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* munged needs some 20 ms on an idle machine.  `up` may have more patience. */
#define MUNGED_NS (20 * INT64_C(1000000000))

pid_t tern_vcluster_node_clone(int flags)
{
    return (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
}

/* The daemons' environment has nothing of the caller's of `up`, which would leak into jobs. */
static void set_environment(const struct tern_vcluster_plan *p)
{
    char *home = getenv("HOME") ? tern_strdup(getenv("HOME")) : NULL;
    char *conf = tern_strf("%s/etc/slurm.conf", p->dir);

    char *path = tern_vcluster_programs_path(TERN_VCLUSTER_PATH, p->bin);

    clearenv();
    setenv("PATH", path, 1);
    setenv("LANG", "C.UTF-8", 1);
    if (home)
        setenv("HOME", home, 1);
    if (p->mode == TERN_VCLUSTER_PLAIN) {
        setenv("SLURM_CONF", conf, 1);
        setenv(TERN_VCLUSTER_SWEEP_MARK, p->dir, 1);
    } else if (tern_vcluster_programs_conf(p->bin)) {
        setenv("SLURM_CONF", tern_vcluster_programs_conf(p->bin), 1);
    }
    free(home);
    free(conf);
    free(path);
}

pid_t tern_vcluster_node_spawn(const struct tern_vcluster_plan *p, char *const *argv,
                               struct tern_err *err)
{
    pid_t pid = fork();

    if (pid < 0)
        tern_err_sys(err, "%s: cannot fork", argv[0]);
    if (pid != 0)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_environment(p);
    execv(argv[0], argv);
    tern_error("%s: cannot run: %s", argv[0], strerror(errno));
    _exit(127);
}

pid_t tern_vcluster_node_start_munged(const struct tern_vcluster_plan *p, const char *socket,
                                      const char *log, struct tern_err *err)
{
    const char *d = p->mode == TERN_VCLUSTER_PLAIN ? p->dir : TERN_VCLUSTER_ROOT_STATE;
    char *own = tern_fs_dirname(socket);
    char *at = tern_strf("--socket=%s", socket), *key = tern_strf("--key-file=%s/munge.key", d);
    char *words = tern_strf("--log-file=%s/log/%s", d, log);
    char *number = tern_strf("--pid-file=%s/munged.pid", own);
    char *seed = tern_strf("--seed-file=%s/munge.seed", own);
    /* Ten threads: many tasks of one step ask at once.  --force: in a user namespace / has no
     * owner that munged accepts. */
    char *const argv[] = {p->munged, "--foreground", "--force", "--num-threads=10", at, key, words,
                          number,    seed,           NULL};
    pid_t pid = tern_vcluster_node_spawn(p, argv, err);

    free(own);
    free(at);
    free(key);
    free(words);
    free(number);
    free(seed);
    return pid;
}

/* ------------------------------------------------------------------ a node's first process */

static int munged_failed(const struct tern_vcluster_plan *p, bool ended, const char *log,
                         struct tern_err *err)
{
    char words[400] = "";

    tern_vcluster_cause_words(p, "supervisor.log", "munged", words, sizeof words);
    tern_vcluster_cause_words(p, log, "", words, sizeof words);
    return tern_err_set(err, TERN_FAILED, "%s %s%s%s", p->munged,
                        ended ? "ended while starting" : "does not listen", *words ? ": " : "",
                        words);
}

/* Until munged listens. */
static int await_munged(const struct tern_vcluster_plan *p, pid_t pid, const char *log,
                        struct tern_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = TERN_VCLUSTER_ROOT_MUNGE};
    int64_t end = tern_clock_boot_ns() + MUNGED_NS;

    end = end > p->deadline_ns ? end : p->deadline_ns;
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int rc = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&a, sizeof a);
        if (fd >= 0)
            close(fd);
        if (rc == 0)
            return 0;
        bool ended = waitpid(pid, NULL, WNOHANG) == pid;
        if (ended || tern_clock_boot_ns() > end)
            return munged_failed(p, ended, log, err);
        tern_clock_sleep_ns(2000000);
    }
}

/* Reap for ever: orphans of slurmd become children of this process. */
static void be_init(const char *name, pid_t munged, pid_t slurmd)
{
    for (;;) {
        int status;
        pid_t pid = wait(&status);
        if (pid < 0 && errno == ECHILD)
            pause();
        if (pid == slurmd || pid == munged)
            tern_warn("%s: %s ended (status %#x)", name, pid == slurmd ? "slurmd" : "munged",
                      (unsigned)status);
    }
}

/* A node that Slurm asked for must have booted after that, by times in whole seconds.  slurmctld
 * takes from its own clock slurmd's count since boot, which may be ahead by one.  slurmctld
 * rejects a node with an earlier boot time, and gives it up after ResumeTimeout. */
static void await_next_second(void)
{
    const int64_t second = INT64_C(1000000000);

    tern_clock_sleep_ns(second - tern_clock_wall_ns() % second);
}

static void node_main(const struct tern_vcluster_plan *p, size_t i, int go, int trouble)
{
    struct tern_err err = {0};
    const char *name = p->nodes[i].name;
    /* -b: it has just booted, which a node of the fleet must have; the kernel's uptime is not its
     * own. */
    char byte, *const argv[] = {p->slurmd, "-D", p->nodes[i].fleet ? "-b" : NULL, NULL};
    char log[100];
    pid_t slurmd = -1, munged = -1;

    snprintf(log, sizeof log, "munged.%s.log", name);
    prctl(PR_SET_NAME, "tern-node");
    if (sethostname(name, strlen(name)) < 0) {
        tern_err_sys(&err, "%s: cannot set its host name", name);
        goto failed;
    }
    if (tern_vcluster_rootfs_mount_node(name, p->share, p->nodes[i].chips,
                                        p->layout->virtual_tmp_mib, &err) < 0)
        goto failed;
    munged = tern_vcluster_node_start_munged(p, TERN_VCLUSTER_ROOT_MUNGE, log, &err);
    if (munged < 0)
        goto failed;
    while (read(go, &byte, 1) < 0 && errno == EINTR)
        ;
    if (tern_vcluster_net_setup_node((int)i + 1, p->layout->virtual_nics, &err) < 0 ||
        await_munged(p, munged, log, &err) < 0)
        goto failed;
    if (p->nodes[i].fleet)
        await_next_second();
    slurmd = tern_vcluster_node_spawn(p, argv, &err);
    if (slurmd < 0)
        goto failed;
    close(go);
    close(trouble);
    be_init(name, munged, slurmd);
failed:
    tern_err_prefix(&err, "%s", name);
    tern_error("%s", err.text);
    if (write(trouble, err.text, strlen(err.text)) < 0)
        _exit(2);
    _exit(1);
}

int tern_vcluster_node_start_plain(struct tern_vcluster_plan *p, size_t i, struct tern_err *err)
{
    char *const argv[] = {p->slurmd, "-D", "-N", p->nodes[i].name, NULL};

    p->nodes[i].pid = tern_vcluster_node_spawn(p, argv, err);
    return p->nodes[i].pid < 0 ? -1 : 0;
}

pid_t tern_vcluster_node_start(const struct tern_vcluster_plan *p, size_t i, int go, int trouble,
                               struct tern_err *err)
{
    pid_t pid = tern_vcluster_node_clone(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC |
                                         CLONE_NEWPID);

    if (pid < 0)
        tern_err_sys(err, "%s: cannot make its namespaces", p->nodes[i].name);
    if (pid != 0)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* The supervisor's dozen descriptors: its lock, its sockets, the other end of `go`. */
    for (int fd = 3; fd < 64; fd++)
        if (fd != go && fd != trouble)
            close(fd);
    node_main(p, i, go, trouble);
    _exit(1);
}

/* ------------------------------------------------------------------ power */

/* What a power cut ends is mended by it; a capacity that is lost stays lost. */
void tern_vcluster_node_is_off(struct tern_vcluster_plan_node *n)
{
    n->pid = 0;
    if (n->trouble != TERN_VCLUSTER_NO_CAPACITY && n->trouble != TERN_VCLUSTER_SPOT_RECLAIM &&
        n->trouble != TERN_VCLUSTER_KILL)
        n->trouble = TERN_VCLUSTER_WELL;
    if (n->brake > 0) {
        kill(n->brake, SIGKILL);
        waitpid(n->brake, NULL, 0);
        n->brake = 0;
    }
}

int tern_vcluster_node_power_off(struct tern_vcluster_plan *p, size_t i, struct tern_err *err)
{
    struct tern_vcluster_plan_node *n = &p->nodes[i];

    if (!n->pid)
        return tern_err_set(err, TERN_USAGE, "%s is off already.", n->name);
    kill(n->pid, SIGKILL);
    waitpid(n->pid, NULL, 0);
    tern_vcluster_node_is_off(n);
    return 0;
}

/* The words of EC2's error, as ParallelCluster writes them into the node's Reason. */
static int no_capacity(const struct tern_vcluster_plan_node *n, struct tern_err *err)
{
    return tern_err_set(err, TERN_TEMPFAIL,
                        "%s: (Code:InsufficientInstanceCapacity) there is no capacity for it, "
                        "until `tern cluster mend %s`",
                        n->name, n->name);
}

/* In namespaces of its own.  Its pid, or -1. */
static pid_t boot(const struct tern_vcluster_plan *p, size_t i, struct tern_err *err)
{
    int go[2] = {-1, -1}, trouble[2] = {-1, -1}, rc = -1;
    pid_t pid = -1;
    char text[900];

    if (pipe2(go, O_CLOEXEC) < 0 || pipe2(trouble, O_CLOEXEC) < 0) {
        tern_err_sys(err, "cannot make a pipe");
    } else {
        pid = tern_vcluster_node_start(p, i, go[0], trouble[1], err);
        rc = pid < 0 ? -1
                     : tern_vcluster_net_link_node((int)i + 1, p->layout->virtual_nics, pid, err);
    }
    for (int k = 0; k < 2 && go[k] >= 0; k++)
        close(go[k]);
    if (trouble[1] >= 0)
        close(trouble[1]);
    ssize_t len = rc < 0 ? 0 : read(trouble[0], text, sizeof text - 1);
    if (trouble[0] >= 0)
        close(trouble[0]);
    if (len > 0) {
        text[len] = '\0';
        rc = tern_err_set(err, TERN_FAILED, "%s", text);
    }
    if (rc < 0 && pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return rc < 0 ? -1 : pid;
}

int tern_vcluster_node_power_on(struct tern_vcluster_plan *p, size_t i, struct tern_err *err)
{
    struct tern_vcluster_plan_node *n = &p->nodes[i];

    if (n->pid)
        return tern_err_set(err, TERN_USAGE, "%s is on already.", n->name);
    if (p->mode == TERN_VCLUSTER_PLAIN && n->fleet)
        return tern_err_set(err, TERN_USAGE,
                            "%s: plain mode has the static nodes, and the dynamic ones of "
                            "--dynamic N.",
                            n->name);
    if (n->trouble == TERN_VCLUSTER_NO_CAPACITY || n->trouble == TERN_VCLUSTER_SPOT_RECLAIM)
        return no_capacity(n, err);
    if (p->mode == TERN_VCLUSTER_PLAIN) {
        if (tern_vcluster_node_start_plain(p, i, err) < 0)
            return -1;
    } else {
        pid_t pid = boot(p, i, err);
        if (pid < 0)
            return -1;
        n->pid = pid;
    }
    n->trouble = TERN_VCLUSTER_WELL;
    return 0;
}
