/* Trouble for a node of a running cluster, for a test of a job's endurance. Each is as a real
 * cluster would meet it, and each is undone without a trace. */
#include "core/vcluster/trouble.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/process.h"
#include "core/vcluster/net.h"
#include "core/vcluster/node.h"
#include "core/vcluster/rootfs.h"
#include "core/vcluster/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A slow node runs for a tenth of each period. */
static const int64_t slow_run_ns = 10 * INT64_C(1000000), slow_rest_ns = 90 * INT64_C(1000000);

struct scene {
    const struct tern_vcluster_plan *plan;
    size_t node;
    bool begin; /* else the trouble ends */
};

/* ------------------------------------------------------------------ inside a node */

/* In a child that is in `namespaces` of the node; its error comes back. */
static int do_inside(const struct scene *s, int namespaces,
                     int (*act)(const struct scene *s, struct tern_err *err), struct tern_err *err)
{
    struct tern_err said = {0};
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return tern_err_sys(err, "cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        int folder = tern_process_folder(s->plan->nodes[s->node].pid), rc = -1;
        if (folder < 0 || tern_process_enter(folder, namespaces) < 0)
            tern_err_sys(&said, "cannot enter the node's namespaces");
        else if (!(namespaces & CLONE_NEWPID))
            rc = act(s, &said);
        else if ((pid = fork()) == 0) /* a child is in the PID namespace, its parent is not */
            rc = act(s, &said);
        else if (pid > 0 && waitpid(pid, NULL, 0) == pid)
            _exit(0);
        else
            tern_err_sys(&said, "cannot fork");
        _exit(rc < 0 && write(ends[1], &said, sizeof said) < 0 ? 2 : 0);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return tern_err_sys(err, "cannot fork");
    }
    ssize_t n;
    do
        n = read(ends[0], &said, sizeof said);
    while (n < 0 && errno == EINTR);
    close(ends[0]);
    waitpid(pid, NULL, 0);
    if (n == 0)
        return 0;
    return tern_err_set(err, said.code ? said.code : TERN_FAILED, "%s", said.text);
}

/* All but the node's first process, which the supervisor itself stops. */
static int stop_all(const struct scene *s, struct tern_err *err)
{
    return tern_vcluster_stop_all(s->plan->nodes[s->node].stopped, err);
}

static int go_on(const struct scene *s, struct tern_err *err)
{
    (void)err;
    tern_vcluster_stop_end(s->plan->nodes[s->node].stopped);
    return 0;
}

static int cut_sending(const struct scene *s, struct tern_err *err)
{
    return tern_vcluster_net_reach_head((int)s->node + 1, s->plan->layout->virtual_nics, !s->begin,
                                        err);
}

static int turn_read_only(const struct scene *s, struct tern_err *err)
{
    return tern_vcluster_rootfs_set_read_only(s->plan->layout, s->begin, err);
}

static int fill(const struct scene *s, struct tern_err *err)
{
    return tern_vcluster_rootfs_fill_tmp(s->plan->layout->virtual_tmp_mib, s->begin, err);
}

/* ------------------------------------------------------------------ each trouble */

static int cut_power(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err)
{
    return s->begin ? tern_vcluster_node_power_off(p, s->node, err)
                    : tern_vcluster_node_power_on(p, s->node, err);
}

/* A list for its processes; at the beginning an empty one, as the node may have lost its power. */
static int make_list(struct tern_vcluster_plan_node *n, bool begin, struct tern_err *err)
{
    if (!n->stopped)
        n->stopped = tern_vcluster_stop_new(err);
    else if (begin)
        tern_vcluster_stop_forget(n->stopped);
    return n->stopped ? 0 : -1;
}

static int freeze(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err)
{
    struct tern_vcluster_plan_node *n = &p->nodes[s->node];

    if (make_list(n, s->begin, err) < 0)
        return -1;
    kill(n->pid, s->begin ? SIGSTOP : SIGCONT);
    return s->begin ? do_inside(s, CLONE_NEWPID | CLONE_NEWNS, stop_all, err)
                    : do_inside(s, CLONE_NEWPID, go_on, err);
}

/* What Slurm suspends or resumes while they run is seen at the next stop. */
static void brake_for_ever(struct tern_vcluster_stop *stopped)
{
    prctl(PR_SET_NAME, "tern-brake");
    while (tern_vcluster_stop_all(stopped, NULL) == 0) {
        tern_clock_sleep_ns(slow_rest_ns);
        tern_vcluster_stop_end(stopped);
        tern_clock_sleep_ns(slow_run_ns);
    }
    _exit(1);
}

/* Outside of the node, so that its brake does not stop it: until it is asked to end, or the node
 * ends. */
static void hold_brake(pid_t node, struct tern_vcluster_stop *stopped, int ready)
{
    int folder = tern_process_folder(node), sig = 0;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_SETMASK, &set, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pid_t brake =
        folder < 0 || tern_process_enter(folder, CLONE_NEWPID | CLONE_NEWNS) < 0 ? -1 : fork();
    if (brake == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        brake_for_ever(stopped);
    }
    if (brake < 0 || write(ready, "b", 1) != 1)
        _exit(1);
    close(ready);
    sigwait(&set, &sig);
    kill(brake, SIGKILL);
    waitpid(brake, NULL, 0);
    _exit(0);
}

static int slow(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err)
{
    struct tern_vcluster_plan_node *n = &p->nodes[s->node];

    if (make_list(n, s->begin, err) < 0)
        return -1;
    if (!s->begin) {
        if (n->brake > 0) {
            kill(n->brake, SIGTERM);
            waitpid(n->brake, NULL, 0);
        }
        n->brake = 0;
        return do_inside(s, CLONE_NEWPID, go_on, err); /* it may have been at rest */
    }
    int ready[2];
    char byte;
    if (pipe2(ready, O_CLOEXEC) < 0)
        return tern_err_sys(err, "cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0)
        hold_brake(n->pid, n->stopped, ready[1]);
    close(ready[1]);
    const bool holds = pid > 0 && read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    n->brake = pid > 0 ? pid : 0;
    return holds ? 0 : tern_err_set(err, TERN_FAILED, "its processes cannot be held up");
}

void tern_vcluster_trouble_lost_brake(struct tern_vcluster_plan *p, size_t i)
{
    const struct scene s = {.plan = p, .node = i, .begin = false};
    struct tern_vcluster_plan_node *n = &p->nodes[i];
    struct tern_err err = {0};

    n->brake = 0;
    n->trouble = TERN_VCLUSTER_WELL;
    tern_warn("%s is slow no longer: the process that held it up has ended", n->name);
    if (n->pid && do_inside(&s, CLONE_NEWPID, go_on, &err) < 0)
        tern_warn("%s: %s", n->name, err.text);
}

static int one_way(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err)
{
    return tern_vcluster_net_reach_node((int)s->node + 1, p->layout->virtual_nics, !s->begin, err);
}

static int partition(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err)
{
    int rc = one_way(p, s, err);

    return rc < 0 ? rc : do_inside(s, CLONE_NEWNET, cut_sending, err);
}

static int read_only(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err)
{
    (void)p;
    return do_inside(s, CLONE_NEWPID | CLONE_NEWNS, turn_read_only, err);
}

static int disk_full(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err)
{
    if (!p->layout->virtual_tmp_mib)
        return tern_err_set(err, TERN_USAGE,
                            "disk-full wants a /tmp of limited size: put 'virtual: {tmp_mib: 256}' "
                            "into the .tern.yaml beside %s, and bring the cluster up again.",
                            p->layout->path);
    return do_inside(s, CLONE_NEWNS, fill, err);
}

static int no_capacity(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err)
{
    (void)p, (void)s, (void)err;
    return 0; /* power_on asks for it */
}

static int spot_reclaim(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err)
{
    return cut_power(p, s, err);
}

static const struct trouble {
    const char *word, *about;
    bool plain; /* also without namespaces */
    bool off;   /* also of a node that is off */
    int (*act)(struct tern_vcluster_plan *p, const struct scene *s, struct tern_err *err);
} troubles[TERN_VCLUSTER_TROUBLES] = {
    [TERN_VCLUSTER_KILL] = {"kill", "its power is cut", true, false, cut_power},
    [TERN_VCLUSTER_FREEZE] = {"freeze", "its processes are stopped", false, false, freeze},
    [TERN_VCLUSTER_SLOW] = {"slow", "its processes run a tenth of the time", false, false, slow},
    [TERN_VCLUSTER_PARTITION] = {"partition", "no message reaches it or leaves it", false, false,
                                 partition},
    [TERN_VCLUSTER_ONE_WAY] = {"one-way", "it sends, and receives nothing", false, false, one_way},
    [TERN_VCLUSTER_READ_ONLY] = {"read-only",
                                 "its /tmp and the shared storage take no more writes from it",
                                 false, false, read_only},
    [TERN_VCLUSTER_DISK_FULL] = {"disk-full", "its /tmp is full", false, false, disk_full},
    [TERN_VCLUSTER_NO_CAPACITY] = {"no-capacity", "once off, it cannot be started", true, true,
                                   no_capacity},
    [TERN_VCLUSTER_SPOT_RECLAIM] = {"spot-reclaim", "both kill and no-capacity", true, false,
                                    spot_reclaim},
};

const char *tern_vcluster_trouble_word(enum tern_vcluster_trouble trouble)
{
    return (unsigned)trouble < TERN_VCLUSTER_TROUBLES ? troubles[trouble].word : NULL;
}

const char *tern_vcluster_trouble_about(enum tern_vcluster_trouble trouble)
{
    return (unsigned)trouble < TERN_VCLUSTER_TROUBLES ? troubles[trouble].about : NULL;
}

int tern_vcluster_trouble_begin(struct tern_vcluster_plan *p, size_t i,
                                enum tern_vcluster_trouble trouble, struct tern_err *err)
{
    struct tern_vcluster_plan_node *n = &p->nodes[i];
    const struct scene s = {.plan = p, .node = i, .begin = true};

    if (!tern_vcluster_trouble_word(trouble))
        return tern_err_set(err, TERN_USAGE, "trouble %d is not known.", (int)trouble);
    const struct trouble *t = &troubles[trouble];
    if (n->trouble != TERN_VCLUSTER_WELL)
        return tern_err_set(err, TERN_USAGE, "%s is broken already (%s): `tern cluster mend %s`",
                            n->name, troubles[n->trouble].word, n->name);
    if (p->mode == TERN_VCLUSTER_PLAIN && !t->plain)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %s: in plain mode a node is only a slurmd; kill is what it has.",
                            n->name, t->word);
    if (!n->pid && !t->off)
        return tern_err_set(err, TERN_USAGE, "%s is off.", n->name);
    if (t->act(p, &s, err) < 0) {
        /* What was done of it is undone, as far as that goes. */
        const struct scene back = {.plan = p, .node = i, .begin = false};
        struct tern_err ignored;
        if (!t->plain)
            t->act(p, &back, &ignored);
        return tern_err_prefix(err, "%s: %s", n->name, t->word);
    }
    n->trouble = trouble;
    return 0;
}

/* Can what has befallen it not be undone as long as it is off? */
static bool starts_again(const struct tern_vcluster_plan_node *n)
{
    return n->trouble == TERN_VCLUSTER_KILL || n->trouble == TERN_VCLUSTER_SPOT_RECLAIM;
}

int tern_vcluster_trouble_end(struct tern_vcluster_plan *p, size_t i, struct tern_err *err)
{
    struct tern_vcluster_plan_node *n = &p->nodes[i];
    const struct scene s = {.plan = p, .node = i, .begin = false};
    const enum tern_vcluster_trouble was = n->trouble;

    if (was == TERN_VCLUSTER_WELL)
        return tern_err_set(err, TERN_USAGE, "%s is not broken.", n->name);
    if (starts_again(n))
        n->trouble = TERN_VCLUSTER_WELL; /* or power_on would refuse */
    if (!(starts_again(n) && n->pid) && troubles[was].act(p, &s, err) < 0) {
        n->trouble = was;
        return tern_err_prefix(err, "%s: %s", n->name, troubles[was].word);
    }
    n->trouble = TERN_VCLUSTER_WELL;
    return 0;
}
