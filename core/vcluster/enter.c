#include "core/vcluster/enter.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/process.h"
#include "core/vcluster/ctl.h"
#include "core/vcluster/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------ the way in */

/* Variables that a process of the cluster gets besides the caller's. */
static void set_environment(const char *dir, bool plain, const char *bin)
{
    const char *old = getenv("PATH");
    char *path = tern_vcluster_programs_path(old ? old : TERN_VCLUSTER_PATH, bin);

    setenv("PATH", path, 1);
    free(path);
    if (plain) {
        char *conf = tern_strf("%s/etc/slurm.conf", dir);
        setenv("SLURM_CONF", conf, 1);
        free(conf);
        /* Ranks of different nodes have one host name here, and would look for each other in
         * shared memory. */
        setenv("OMPI_MCA_btl", "self,tcp", 0);
        setenv("OMPI_MCA_btl_tcp_if_include", "lo", 0);
    } else if (tern_vcluster_programs_conf(bin)) {
        setenv("SLURM_CONF", tern_vcluster_programs_conf(bin), 1);
    } else {
        unsetenv("SLURM_CONF"); /* of another cluster; here it is where Slurm looks */
    }
    /* All nodes share this machine's cores: a waiting rank must not keep a computing one off. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    /* Each node sees all cores: ranks that used all of them would slow each other down. */
    setenv("OMP_NUM_THREADS", "1", 0);
}

/* Put this process into the head's or `node`'s namespaces; its children will be in the PID
 * namespace too. */
static int enter(const char *where, const char *node, struct tern_err *err)
{
    struct tern_vcluster_ctl_request q = {.size = sizeof q, .op = TERN_VCLUSTER_CTL_ENTER};
    struct tern_vcluster_ctl_answer a;
    int folder = -1, rc = 0;
    /* Resolved once: a symbolic link that changes meanwhile has no effect. */
    char *dir = realpath(where, NULL);

    if (!dir)
        dir = tern_strdup(where);
    snprintf(q.node, sizeof q.node, "%s", node ? node : "");
    if (tern_vcluster_ctl_call(dir, &q, &a, &folder, NULL, err) < 0) {
        free(dir);
        return -1;
    }
    char *file = tern_strf("%s/bin", dir), *bin = NULL;
    size_t len;
    if (tern_fs_read(file, 8192, &bin, &len, NULL) < 0)
        bin = tern_strdup("");
    free(file);
    if (a.mode != TERN_VCLUSTER_PLAIN) {
        char cwd[PATH_MAX];
        bool had_cwd = getcwd(cwd, sizeof cwd) != NULL;
        int flags = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID;
        if (folder < 0 ||
            tern_process_enter(folder, flags | (a.user_namespace ? CLONE_NEWUSER : 0)) < 0)
            rc = tern_err_sys(err, "cannot enter the cluster's namespaces");
        /* A folder that the node does not see: / instead. */
        else if (!had_cwd || chdir(cwd) < 0)
            tern_debug("%s is not seen there; in / instead", had_cwd ? cwd : "the current folder");
    }
    if (folder >= 0)
        close(folder);
    if (rc == 0)
        set_environment(dir, a.mode == TERN_VCLUSTER_PLAIN, bin);
    free(bin);
    free(dir);
    return rc;
}

/* ------------------------------------------------------------------ calls */

struct call_head {
    int32_t rc;
    struct tern_err err;
};

static void call_main(int fd, int (*fn)(const void *, void *, struct tern_err *),
                      const void *question, size_t size)
{
    struct call_head head = {0};
    void *out = calloc(1, size);

    head.rc = out ? fn(question, out, &head.err) : -1;
    if (tern_fs_write(fd, &head, sizeof head, "pipe", NULL) < 0 ||
        (out && tern_fs_write(fd, out, size, "pipe", NULL) < 0))
        _exit(1);
    _exit(0);
}

int tern_vcluster_enter_call_start(struct tern_vcluster_enter_call *c, const char *dir,
                                   int (*fn)(const void *question, void *out, struct tern_err *err),
                                   const void *question, size_t size, struct tern_err *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return tern_err_sys(err, "cannot make a pipe");
    pid_t pid = fork();
    if (pid < 0) {
        tern_err_sys(err, "cannot fork");
        close(fds[0]);
        close(fds[1]);
        return -1;
    }
    if (pid == 0) {
        struct call_head head = {.rc = -1};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pid_t inner = enter(dir, NULL, &head.err) < 0 ? -1 : fork();
        if (inner == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            call_main(fds[1], fn, question, size);
        }
        if (inner < 0) {
            ssize_t n = write(fds[1], &head, sizeof head);
            _exit(n < 0);
        }
        close(fds[1]);
        waitpid(inner, NULL, 0);
        _exit(0);
    }
    close(fds[1]);
    *c = (struct tern_vcluster_enter_call){.pid = pid, .fd = fds[0], .size = size};
    return 0;
}

static bool read_all(int fd, void *to, size_t len)
{
    char *p = to;

    while (len) {
        ssize_t n = read(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

int tern_vcluster_enter_call_end(struct tern_vcluster_enter_call *c, void *out,
                                 struct tern_err *err)
{
    struct call_head head;
    int rc = -1;
    char *copy = tern_alloc(1, c->size, "an answer", err);

    if (copy && !read_all(c->fd, &head, sizeof head))
        tern_err_set(err, TERN_FAILED, "a process in the head died");
    else if (copy && head.rc < 0)
        tern_err_set(err, head.err.code ? head.err.code : TERN_FAILED, "%s", head.err.text);
    else if (copy && !read_all(c->fd, copy, c->size))
        tern_err_set(err, TERN_FAILED, "a process in the head died");
    else if (copy)
        rc = 0;
    if (rc == 0)
        memcpy(out, copy, c->size);
    free(copy);
    close(c->fd);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return rc;
}

void tern_vcluster_enter_call_abort(struct tern_vcluster_enter_call *c)
{
    kill(c->pid, SIGKILL);
    close(c->fd);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static int plain_call(const void *question, void *out, struct tern_err *err)
{
    int (*const *fn)(void *, struct tern_err *) = question;

    return (*fn)(out, err);
}

int tern_vcluster_call(const char *name, int (*fn)(void *out, struct tern_err *err), void *out,
                       size_t size, struct tern_err *err)
{
    char *dir = tern_vcluster_plan_dir(name, err);
    struct tern_vcluster_enter_call c;
    int rc = dir ? tern_vcluster_enter_call_start(&c, dir, plain_call, &fn, size, err) : -1;

    free(dir);
    return rc < 0 ? -1 : tern_vcluster_enter_call_end(&c, out, err);
}

/* ------------------------------------------------------------------ exec */

/* Pass signals on until the child ends.  Those that the terminal sends reach the child by
 * themselves, being in the same process group. */
static int attend(pid_t child, const sigset_t *set)
{
    for (;;) {
        siginfo_t info;
        int status, sig = sigwaitinfo(set, &info);
        if (sig == SIGCHLD || sig < 0) {
            pid_t pid = waitpid(child, &status, WNOHANG);
            if (pid == child && WIFEXITED(status))
                return WEXITSTATUS(status);
            if (pid == child && WIFSIGNALED(status))
                return 128 + WTERMSIG(status);
            if (pid < 0 && errno == ECHILD)
                return TERN_FAILED;
        } else if (info.si_code != SI_KERNEL) {
            kill(child, sig);
        }
    }
}

int tern_vcluster_exec(const char *name, const char *node, char *const *argv, int *status,
                       struct tern_err *err)
{
    static const int passed[] = {SIGINT,  SIGQUIT, SIGTERM, SIGHUP,  SIGUSR1,
                                 SIGUSR2, SIGCONT, SIGALRM, SIGCHLD, SIGWINCH};
    char *dir = tern_vcluster_plan_dir(name, err);
    sigset_t set, old;

    if (!dir)
        return -1;
    int rc = enter(dir, node, err);
    free(dir);
    if (rc < 0)
        return -1;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaddset(&set, passed[i]);
    sigprocmask(SIG_BLOCK, &set, &old);
    pid_t pid = fork();
    if (pid < 0) {
        sigprocmask(SIG_SETMASK, &old, NULL);
        return tern_err_sys(err, "cannot fork");
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        sigprocmask(SIG_SETMASK, &old, NULL);
        execvp(argv[0], argv);
        tern_error("%s: cannot run: %s", argv[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126); /* as shells do */
    }
    *status = attend(pid, &set);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return 0;
}
