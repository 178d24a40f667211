#include "core/vcluster/node.h"

#include "core/base/log.h"
#include "core/vcluster/net.h"
#include "core/vcluster/root.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t tern_node_clone(int flags)
{
    return (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
}

/* What the daemons see: nothing of the environment of whoever said `up`, for it would leak into
 * jobs. */
static void set_environment(const struct tern_vcluster_plan *p)
{
    char *home = getenv("HOME") ? tern_strdup(getenv("HOME")) : NULL;
    char *conf = tern_strf("%s/etc/slurm.conf", p->dir);

    clearenv();
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    setenv("LANG", "C.UTF-8", 1);
    if (home)
        setenv("HOME", home, 1);
    if (p->mode == TERN_VCLUSTER_PLAIN)
        setenv("SLURM_CONF", conf, 1);
    free(home);
    free(conf);
}

pid_t tern_node_spawn(const struct tern_vcluster_plan *p, char *const *argv, struct tern_err *err)
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

/* ------------------------------------------------------------------ a node's first process */

/* Reap for ever: what slurmd leaves behind is this process's to wait for. */
static void be_init(const char *name, pid_t slurmd)
{
    for (;;) {
        int status;
        pid_t pid = wait(&status);
        if (pid < 0 && errno == ECHILD)
            pause();
        if (pid == slurmd)
            tern_warn("%s: slurmd ended (status %#x)", name, (unsigned)status);
    }
}

static void node_main(const struct tern_vcluster_plan *p, size_t i, int go, int trouble)
{
    struct tern_err err = {0};
    const char *name = p->nodes[i].name;
    char byte, *const argv[] = {p->slurmd, "-D", NULL};
    pid_t slurmd = -1;

    prctl(PR_SET_NAME, "tern-node");
    if (sethostname(name, strlen(name)) < 0) {
        tern_err_sys(&err, "%s: cannot set its host name", name);
        goto failed;
    }
    if (tern_root_node(name, p->share, p->nodes[i].chips, &err) < 0)
        goto failed;
    while (read(go, &byte, 1) < 0 && errno == EINTR)
        ;
    if (tern_net_node((int)i + 1, &err) < 0)
        goto failed;
    slurmd = tern_node_spawn(p, argv, &err);
    if (slurmd < 0)
        goto failed;
    close(go);
    close(trouble);
    be_init(name, slurmd);
failed:
    tern_err_prefix(&err, "%s", name);
    tern_error("%s", err.text);
    if (write(trouble, err.text, strlen(err.text)) < 0)
        _exit(2);
    _exit(1);
}

pid_t tern_node_start(const struct tern_vcluster_plan *p, size_t i, int go, int trouble,
                      struct tern_err *err)
{
    pid_t pid =
        tern_node_clone(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID);

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
