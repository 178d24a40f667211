#include "core/vcluster/super.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/process.h"
#include "core/vcluster/accounting.h"
#include "core/vcluster/cause.h"
#include "core/vcluster/ctl.h"
#include "core/vcluster/net.h"
#include "core/vcluster/node.h"
#include "core/vcluster/rootfs.h"
#include "core/vcluster/trouble.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP_NS (2 * INT64_C(1000000))
/* How often it looks whether its folder is still there. */
enum { LOOK_MS = 1000 };

struct super {
    struct tern_vcluster_plan *plan;
    int up;      /* to `up`; -1 once `up` has said that the cluster stays */
    int ctl;     /* listening */
    int signals; /* signalfd */
    int trouble; /* where starting nodes complain */
    int lock;
    pid_t munged, slurmctld, slurmdbd, mariadbd; /* the last two: 0 without accounting */
};

static bool plain(const struct super *s)
{
    return s->plan->mode == TERN_VCLUSTER_PLAIN;
}

/* ------------------------------------------------------------------ starting */

static int write_map(const char *path, const char *text, struct tern_err *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        tern_err_sys(err, "%s: cannot write", path);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return close(fd);
}

/* The identity map: the user keeps the uid, which needs no helper, and Slurm's daemons do not try
 * to change theirs. */
static int map_user(uid_t uid, gid_t gid, struct tern_err *err)
{
    char line[64];

    snprintf(line, sizeof line, "%u %u 1", uid, uid);
    if (write_map("/proc/self/setgroups", "deny", err) < 0 ||
        write_map("/proc/self/uid_map", line, err) < 0)
        return -1;
    snprintf(line, sizeof line, "%u %u 1", gid, gid);
    return write_map("/proc/self/gid_map", line, err);
}

static int daemon_failed(const struct super *s, const char *what, const char *log, bool ended,
                         struct tern_err *err)
{
    char words[400] = "";

    /* Errors from before the daemon opened its log. */
    tern_vcluster_cause_words(s->plan, "supervisor.log", "", words, sizeof words);
    tern_vcluster_cause_words(s->plan, log, "", words, sizeof words);
    return tern_err_set(err, TERN_FAILED, "%s %s%s%s", what,
                        ended ? "ended while starting" : "does not listen in time (--timeout)",
                        *words ? ": " : "", words);
}

/* Wait until a connection to `a` works; an end of `pid`, an error of a node and the deadline of
 * `up` end the wait. */
static int wait_listen(const struct super *s, const struct sockaddr *a, socklen_t len, pid_t pid,
                       const char *what, const char *log, struct tern_err *err)
{
    char text[900];

    for (;;) {
        int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int rc = fd < 0 ? -1 : connect(fd, a, len);
        if (fd >= 0)
            close(fd);
        if (rc == 0)
            return 0;
        if (waitpid(pid, NULL, WNOHANG) == pid)
            return daemon_failed(s, what, log, true, err);
        if (tern_clock_boot_ns() > s->plan->deadline_ns)
            return daemon_failed(s, what, log, false, err);
        ssize_t n = s->trouble < 0 ? -1 : read(s->trouble, text, sizeof text - 1);
        if (n > 0) {
            text[n] = '\0';
            return tern_err_set(err, TERN_FAILED, "%s", text);
        }
        struct pollfd up = {.fd = s->up, .events = POLLIN};
        if (poll(&up, 1, 0) > 0)
            return tern_err_set(err, TERN_FAILED, "interrupted");
        tern_clock_sleep_ns(STEP_NS);
    }
}

static int start_munged(struct super *s, struct tern_err *err)
{
    const struct tern_vcluster_plan *p = s->plan;
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    if (plain(s))
        snprintf(a.sun_path, sizeof a.sun_path, "%s/run/munge.socket", p->dir);
    else
        snprintf(a.sun_path, sizeof a.sun_path, "%s", TERN_VCLUSTER_ROOT_MUNGE);
    s->munged = tern_vcluster_node_start_munged(p, a.sun_path, "munged.log", err);
    return s->munged < 0 ? -1
                         : wait_listen(s, (struct sockaddr *)&a, sizeof a, s->munged, "munged",
                                       "munged.log", err);
}

static int start_accounting(struct super *s, struct tern_err *err)
{
    const struct tern_vcluster_plan *p = s->plan;
    struct sockaddr_un db = {.sun_family = AF_UNIX, .sun_path = TERN_VCLUSTER_ACCOUNTING_SOCKET};
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(TERN_VCLUSTER_ACCOUNTING_PORT)};

    inet_pton(AF_INET, TERN_VCLUSTER_NET_HEAD, &a.sin_addr);
    s->mariadbd = tern_vcluster_accounting_start_database(p, err);
    if (s->mariadbd < 0 || wait_listen(s, (struct sockaddr *)&db, sizeof db, s->mariadbd,
                                       "mariadbd", "mariadbd.log", err) < 0)
        return -1;
    s->slurmdbd = tern_vcluster_accounting_start_slurmdbd(p, err);
    if (s->slurmdbd < 0 || wait_listen(s, (struct sockaddr *)&a, sizeof a, s->slurmdbd, "slurmdbd",
                                       "slurmdbd.log", err) < 0)
        return -1;
    return tern_vcluster_accounting_add_cluster(p, err);
}

static int start_slurmctld(struct super *s, struct tern_err *err)
{
    const struct tern_vcluster_plan *p = s->plan;
    char *const argv[] = {p->slurmctld, "-D", NULL};
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port =
                                htons((uint16_t)(plain(s) ? p->port : TERN_VCLUSTER_CTLD_PORT))};

    inet_pton(AF_INET, plain(s) ? "127.0.0.1" : TERN_VCLUSTER_NET_HEAD, &a.sin_addr);
    s->slurmctld = tern_vcluster_node_spawn(p, argv, err);
    if (s->slurmctld < 0)
        return -1;
    return wait_listen(s, (struct sockaddr *)&a, sizeof a, s->slurmctld, "slurmctld",
                       "slurmctld.log", err);
}

/* Nodes come up beside munged and slurmctld, and wait for them before they start slurmd. A node
 * that registers too early tries again only a second later. */
static int start_nodes(struct super *s, int go, int trouble, struct tern_err *err)
{
    struct tern_vcluster_plan *p = s->plan;

    for (size_t i = 0; i < p->n_nodes; i++) {
        if (p->nodes[i].fleet)
            continue;
        p->nodes[i].pid = tern_vcluster_node_start(p, i, go, trouble, err);
        if (p->nodes[i].pid < 0 || tern_vcluster_net_link_node((int)i + 1, p->layout->virtual_nics,
                                                               p->nodes[i].pid, err) < 0)
            return -1;
    }
    return 0;
}

static int start_plain(struct super *s, struct tern_err *err)
{
    if (start_munged(s, err) < 0 || start_slurmctld(s, err) < 0)
        return -1;
    for (size_t i = 0; i < s->plan->n_nodes; i++)
        if (!s->plan->nodes[i].fleet && tern_vcluster_node_start_plain(s->plan, i, err) < 0)
            return -1;
    return 0;
}

static int start_namespaces(struct super *s, struct tern_err *err)
{
    int go[2] = {-1, -1}, trouble[2] = {-1, -1}, rc = -1;

    if (pipe2(go, O_CLOEXEC) < 0 || pipe2(trouble, O_CLOEXEC | O_NONBLOCK) < 0) {
        tern_err_sys(err, "cannot make a pipe");
        goto out;
    }
    s->trouble = trouble[0];
    if (start_nodes(s, go[0], trouble[1], err) < 0 || start_munged(s, err) < 0 ||
        (s->plan->slurmdbd && start_accounting(s, err) < 0) || start_slurmctld(s, err) < 0)
        goto out;
    rc = 0;
out:
    s->trouble = -1;
    for (int i = 0; i < 2; i++) {
        close(go[i]); /* its end lets the nodes go on */
        close(trouble[i]);
    }
    return rc;
}

/* ------------------------------------------------------------------ serving */

static ssize_t node_named(const struct tern_vcluster_plan *p, const char *name)
{
    for (size_t i = 0; i < p->n_nodes; i++)
        if (strcmp(p->nodes[i].name, name) == 0)
            return (ssize_t)i;
    return -1;
}

static int enter(const struct super *s, ssize_t node, int *folder, struct tern_err *err)
{
    const struct tern_vcluster_plan_node *n = node < 0 ? NULL : &s->plan->nodes[node];

    if (plain(s))
        return n ? tern_err_set(err, TERN_USAGE,
                                "%s: in plain mode a node has no namespaces of its own. "
                                "Use srun -w %s.",
                                n->name, n->name)
                 : 0;
    if (n && !n->pid)
        return tern_err_set(err, TERN_USAGE,
                            "%s is off. `tern cluster node %s --power on` starts "
                            "it.",
                            n->name, n->name);
    *folder = tern_process_folder(n ? n->pid : 0);
    return *folder < 0 ? tern_err_sys(err, "cannot open the process") : 0;
}

static int change(struct super *s, const struct tern_vcluster_ctl_request *q, size_t node,
                  struct tern_vcluster_ctl_answer *a, struct tern_err *err)
{
    switch (q->op) {
    case TERN_VCLUSTER_CTL_OFF:
        return tern_vcluster_node_power_off(s->plan, node, err);
    case TERN_VCLUSTER_CTL_ON:
        a->trouble = s->plan->nodes[node].trouble;
        return tern_vcluster_node_power_on(s->plan, node, err);
    case TERN_VCLUSTER_CTL_BREAK:
        return tern_vcluster_trouble_begin(s->plan, node, (enum tern_vcluster_trouble)q->trouble,
                                           err);
    case TERN_VCLUSTER_CTL_MEND:
        a->trouble = s->plan->nodes[node].trouble;
        return tern_vcluster_trouble_end(s->plan, node, err);
    default:
        return tern_err_set(err, TERN_USAGE, "request %u is not known.", q->op);
    }
}

static void serve(struct super *s)
{
    struct tern_vcluster_ctl_request q;
    struct tern_vcluster_ctl_answer a = {
        .size = sizeof a,
        .mode = s->plan->mode,
        .user_namespace = s->plan->user_namespace,
        .n_nodes = (uint32_t)(s->plan->n_nodes - (plain(s) ? s->plan->n_fleet : 0))};
    struct tern_err err = {0};
    int folder = -1, rc = 0, fd = tern_vcluster_ctl_accept(s->ctl, &q);
    ssize_t node = fd < 0 || !*q.node ? -1 : node_named(s->plan, q.node);

    if (fd < 0)
        return;
    if (*q.node && node < 0)
        rc =
            tern_err_set(&err, TERN_USAGE, "cluster '%s' has no node '%s'.", s->plan->name, q.node);
    else if (q.op == TERN_VCLUSTER_CTL_ENTER)
        rc = enter(s, node, &folder, &err);
    else if (q.op == TERN_VCLUSTER_CTL_INFO && node >= 0)
        a.trouble = s->plan->nodes[node].trouble;
    else if (q.op != TERN_VCLUSTER_CTL_INFO && node < 0)
        rc = tern_err_set(&err, TERN_USAGE, "a request without a node.");
    else if (q.op != TERN_VCLUSTER_CTL_INFO)
        rc = change(s, &q, (size_t)node, &a, &err);
    if (rc < 0) {
        a.code = err.code;
        snprintf(a.text, sizeof a.text, "%.*s", (int)sizeof a.text - 1, err.text);
    }
    tern_vcluster_ctl_answer(fd, &a, folder);
    if (folder >= 0)
        close(folder);
}

static void reap(struct super *s)
{
    int status;

    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        const char *what = pid == s->munged      ? "munged"
                           : pid == s->slurmctld ? "slurmctld"
                           : pid == s->slurmdbd  ? "slurmdbd"
                           : pid == s->mariadbd  ? "mariadbd"
                                                 : NULL;
        if (what)
            tern_warn("%s ended (status %#x)", what, (unsigned)status);
        for (size_t i = 0; i < s->plan->n_nodes; i++) {
            if (pid == s->plan->nodes[i].brake)
                tern_vcluster_trouble_lost_brake(s->plan, i);
            if (pid == s->plan->nodes[i].pid) {
                tern_vcluster_node_is_off(&s->plan->nodes[i]);
                tern_warn("%s ended (status %#x)", s->plan->nodes[i].name, (unsigned)status);
            }
        }
    }
}

/* Plain mode has no PID namespace to end: kill children until none is left; as subreaper this
 * process inherits theirs. */
static void kill_all(void)
{
    for (int rounds = 0; rounds < 2500; rounds++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
        FILE *f = fopen(path, "r");
        for (int pid; f && fscanf(f, "%d", &pid) == 1;)
            kill(pid, SIGKILL);
        if (f)
            fclose(f);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (waitpid(-1, NULL, WNOHANG) < 0)
            return;
        tern_clock_sleep_ns(STEP_NS);
    }
}

static void end(struct super *s)
{
    if (plain(s))
        kill_all();
    _exit(0); /* the end of a PID namespace's first process is the end of all in it */
}

/* Without its folder no process could reach or end the cluster any more. */
static bool folder_gone(const struct super *s)
{
    struct stat st;

    return fstat(s->lock, &st) == 0 && st.st_nlink == 0;
}

static void serve_for_ever(struct super *s)
{
    struct pollfd fds[3] = {{.fd = s->ctl, .events = POLLIN},
                            {.fd = s->signals, .events = POLLIN},
                            {.fd = s->up, .events = POLLIN}};

    for (;;) {
        struct signalfd_siginfo info;
        char keep;
        if ((poll(fds, 3, LOOK_MS) < 0 && errno != EINTR) || folder_gone(s))
            end(s);
        if (fds[2].revents) {
            if (read(s->up, &keep, 1) != 1)
                end(s); /* `up` is gone before it was done */
            close(s->up);
            fds[2].fd = s->up = -1;
            fds[2].revents = 0;
        }
        if (fds[1].revents && read(s->signals, &info, sizeof info) == sizeof info) {
            if (info.ssi_signo == SIGTERM)
                end(s);
            reap(s);
        }
        if (fds[0].revents)
            serve(s);
    }
}

/* ------------------------------------------------------------------ the process */

/* stdin and stdout nowhere, stderr into the log, nothing else open but `up` and the lock. */
static int settle(struct super *s, int lock_fd, struct tern_err *err)
{
    char *log = tern_strf("%s/log/supervisor.log", s->plan->dir);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int words = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int rc = -1;

    setsid();
    prctl(PR_SET_NAME, "tern-cluster");
    if (null < 0 || words < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(words, 2) < 0) {
        tern_err_sys(err, "%s: cannot open", log);
        goto out;
    }
    /* Above all that is open, then down to 3 and 4. */
    int up = fcntl(s->up, F_DUPFD_CLOEXEC, 64), lock = fcntl(lock_fd, F_DUPFD_CLOEXEC, 64);
    if (up < 0 || lock < 0 || dup3(up, 3, O_CLOEXEC) < 0 || dup3(lock, 4, O_CLOEXEC) < 0) {
        tern_err_sys(err, "cannot arrange descriptors");
        goto out;
    }
    tern_close_from(5);
    s->up = 3;
    s->lock = 4;
    rc = chdir("/");
out:
    free(log);
    return rc;
}

static int catch_signals(struct super *s, struct tern_err *err)
{
    sigset_t set;

    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_SETMASK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? tern_err_sys(err, "cannot make a signalfd") : 0;
}

/* Namespaces, which a kernel or a container may forbid. */
static int make_head(struct super *s, uid_t uid, gid_t gid, struct tern_err *err)
{
    struct tern_vcluster_plan *p = s->plan;

    if (p->user_namespace && map_user(uid, gid, err) < 0)
        return -1;
    if (sethostname("head", 4) < 0)
        return tern_err_sys(err, "cannot set the host name");
    if (tern_vcluster_rootfs_mount_head(p->dir, p->layout, p->share, err) < 0)
        return -1;
    return tern_vcluster_net_setup_head(p->layout->virtual_nics, err);
}

static void super_main(struct tern_vcluster_plan *p, int lock_fd, int up, uid_t uid, gid_t gid)
{
    struct super s = {.plan = p, .up = up, .trouble = -1};
    struct tern_vcluster_super_report word = {0};
    struct tern_err err = {0};
    int rc = 0;

    umask(022);
    if (settle(&s, lock_fd, &err) < 0 || catch_signals(&s, &err) < 0) {
        rc = -1;
    } else {
        s.ctl = tern_vcluster_ctl_listen(p->dir, &err);
        rc = s.ctl < 0 ? -1 : 0;
    }
    if (rc == 0 && plain(&s)) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        rc = start_plain(&s, &err);
    } else if (rc == 0) {
        rc = make_head(&s, uid, gid, &err);
        word.refused = rc < 0 && err.code != TERN_USAGE;
        if (rc == 0)
            rc = start_namespaces(&s, &err);
    }
    if (rc < 0) {
        word.code = err.code ? (int32_t)err.code : TERN_FAILED;
        snprintf(word.text, sizeof word.text, "%s", err.text);
    }
    if (send(s.up, &word, sizeof word, MSG_NOSIGNAL) < 0 || rc < 0)
        end(&s);
    serve_for_ever(&s);
}

int tern_vcluster_super_start(struct tern_vcluster_plan *plan, int lock_fd, int *up,
                              struct tern_process *super, bool *refused, struct tern_err *err)
{
    int pair[2], flags = 0;
    uid_t uid = geteuid();
    gid_t gid = getegid();

    *refused = false;
    plan->user_namespace = plan->mode == TERN_VCLUSTER_NAMESPACES && uid != 0;
    if (plan->mode == TERN_VCLUSTER_NAMESPACES)
        flags = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID;
    if (plan->user_namespace)
        flags |= CLONE_NEWUSER;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return tern_err_sys(err, "cannot make a socket pair");
    pid_t pid = tern_vcluster_node_clone(flags);
    if (pid == 0) {
        close(pair[0]);
        super_main(plan, lock_fd, pair[1], uid, gid);
        _exit(1);
    }
    int saved = errno;
    close(pair[1]);
    if (pid > 0 && tern_process_open(super, pid) == 0) {
        *up = pair[0];
        return 0;
    }
    close(pair[0]);
    *refused = pid < 0 && flags;
    if (*refused && saved == ENOSPC) /* the kernel's word for a limit */
        return tern_err_set(err, TERN_FAILED,
                            "cannot make namespaces: the limit is reached (sysctl user)");
    errno = saved;
    return tern_err_sys(err, "cannot make %snamespaces", uid ? "user " : "");
}
