#include "cmd/cluster/trouble.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/vcluster.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *how, *cluster;

#define OPT_CLUSTER                                                                                \
    {                                                                                              \
        "cluster", 'c', TERN_OPT_TEXT, "NAME", .to.text = &cluster,                                \
                                               .help = "of which cluster; else of the only one"    \
    }

static const struct tern_opt break_opts[] = {
    {"how", 0, TERN_OPT_TEXT, "HOW", "kill", .to.text = &how,
     .help = "kill: its power is cut. freeze: its processes are stopped. slow: they run a tenth of "
             "the time. partition: no message reaches it or leaves it, without an error. one-way: "
             "it sends, and receives nothing. read-only: its /tmp and the shared storage take no "
             "more writes from it, but to files that are open. A process whose current folder is "
             "there may still write beside such files. disk-full: its /tmp is full. no-capacity: "
             "once off, it cannot be started. spot-reclaim: kill and no-capacity"},
    OPT_CLUSTER,
    {0},
};
static const struct tern_opt mend_opts[] = {OPT_CLUSTER, {0}};

static int read_how(enum tern_vcluster_trouble *trouble, struct tern_err *err)
{
    struct tern_buf words = {0};

    for (int i = TERN_VCLUSTER_KILL; i < TERN_VCLUSTER_TROUBLES; i++) {
        *trouble = (enum tern_vcluster_trouble)i;
        if (strcmp(tern_vcluster_trouble_word(*trouble), how) == 0) {
            tern_buf_free(&words);
            return 0;
        }
        tern_buf_printf(&words, "%s%s", words.len ? ", " : "",
                        tern_vcluster_trouble_word(*trouble));
    }
    tern_err_set(err, TERN_USAGE, "--how: '%s' is not one of: %s.", how, words.data);
    tern_buf_free(&words);
    return -1;
}

static int run_break(int n, char **args, struct tern_err *err)
{
    enum tern_vcluster_trouble trouble;

    (void)n;
    if (read_how(&trouble, err) < 0)
        return -1;
    char *name = tern_vcluster_find(cluster, err);
    int rc = name ? tern_vcluster_break(name, args[0], trouble, err) : -1;
    if (rc == 0)
        printf("%s: %s\n", args[0], tern_vcluster_trouble_about(trouble));
    free(name);
    return rc;
}

static int run_mend(int n, char **args, struct tern_err *err)
{
    enum tern_vcluster_trouble was;
    char *name = tern_vcluster_find(cluster, err);
    int rc = name ? tern_vcluster_mend(name, args[0], &was, err) : -1;

    (void)n;
    if (rc == 0)
        printf("%s: mended (%s)\n", args[0],
               tern_vcluster_trouble_word(was) ? tern_vcluster_trouble_word(was) : "-");
    free(name);
    return rc;
}

const struct tern_cmd break_cmd = {
    .name = "break",
    .args = "NODE",
    .summary = "bring trouble upon a node of a virtual cluster",
    .about = "One trouble a node, until `tern cluster mend NODE`; a power cut ends all but "
             "no-capacity. Slurm notices by itself, as it would elsewhere. disk-full wants a /tmp "
             "of limited size: 'virtual: {tmp_mib: 256}' in cluster.tern.yaml. In plain mode a "
             "node has kill, no-capacity and spot-reclaim alone.",
    .examples = "  tern cluster break trn1-st-trn1-2 --how partition\n"
                "  tern cluster mend trn1-st-trn1-2\n",
    .opts = break_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_break,
};

const struct tern_cmd mend_cmd = {
    .name = "mend",
    .args = "NODE",
    .summary = "undo what `break` did",
    .opts = mend_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_mend,
};

/* ------------------------------------------------------------------ power */

/* ParallelCluster waits for ten minutes before it asks for a type again that was not to be had. */
enum { BACK_OFF_S = 30 };

static const char *power;
static bool for_slurm;
static const struct tern_opt node_opts[] = {
    {"power", 0, TERN_OPT_TEXT, "on|off", .to.text = &power,
     .help = "off: a power cut without notice; on: it boots again"},
    {"for-slurm", 0, TERN_OPT_FLAG, .to.flag = &for_slurm,
     .help = "as Slurm's ResumeProgram and SuspendProgram, in the cluster around this process. A "
             "node that cannot be had is set down with the reason, and asked for again later"},
    OPT_CLUSTER,
    {0},
};

/* Begins a process that outlives this one.  Slurm kills the process group of a program that has
 * ended: this one goes on only when the other has left the group.  True in the new process. */
static bool begin_later(struct tern_err *err)
{
    int left[2];
    char byte;

    if (pipe2(left, O_CLOEXEC) < 0) {
        tern_err_sys(err, "cannot make a pipe");
        return false;
    }
    const pid_t pid = fork();
    if (pid < 0)
        tern_err_sys(err, "cannot fork");
    if (pid == 0)
        setsid();
    close(left[1]);
    if (pid > 0 && TERN_AGAIN(read(left[0], &byte, 1)) < 0)
        tern_err_sys(err, "cannot wait for a process");
    close(left[0]);
    return pid == 0;
}

/* After the back-off the node counts as switched off, and the next job may ask for it.  One that
 * has come back meanwhile may be at work. */
static void give_back_later(const char *node, const char *reason)
{
    struct tern_slurm_node_state state;
    struct tern_err err = {0};

    if (!begin_later(&err)) {
        if (err.code != TERN_OK)
            tern_warn("%s: %s", node, err.text);
        return;
    }
    sleep(BACK_OFF_S);
    if (tern_slurm_node_load_state(node, &state, &err) < 0)
        tern_warn("%s: %s", node, err.text);
    else if (!state.down || !tern_str_starts(state.reason, reason))
        _exit(0);
    if (tern_slurm_node_update(node, TERN_SLURM_NODE_POWER_OFF, NULL, &err) < 0)
        tern_warn("%s: %s", node, err.text);
    _exit(0);
}

/* The reason is ParallelCluster's, which people search for. */
static void tell_slurm(const char *node, bool lost, const struct tern_err *why)
{
    struct tern_err err = {0};
    char when[40];
    char *reason = tern_strf("(Code:%s)Failure when resuming nodes",
                             lost ? "InsufficientInstanceCapacity" : "LaunchFailure");

    tern_warn("%s", why->text);
    /* Before the node is down, and its job is without nodes. */
    char *note = tern_strf("tern: %s: %s, %s", node, reason,
                           tern_clock_iso8601(when, sizeof when, tern_clock_wall_ns()));
    if (tern_slurm_jobs_set_admin_comment(node, note, &err) < 0)
        tern_warn("%s: %s", node, err.text);
    free(note);
    if (tern_slurm_node_update(node, TERN_SLURM_NODE_DOWN, reason, &err) < 0)
        tern_warn("%s: %s", node, err.text);
    give_back_later(node, reason);
    free(reason);
}

/* All nodes, also after one has failed; the first error is reported in the end. */
static int power_all(const char *name, char **hosts, size_t n_hosts, bool on, struct tern_err *err)
{
    struct tern_err first = {0};
    size_t failed = 0;

    for (size_t i = 0; i < n_hosts; i++) {
        struct tern_err e = {0};
        bool lost;
        if (tern_vcluster_power(name, hosts[i], on, &lost, &e) == 0)
            continue;
        if (for_slurm && on && e.code != TERN_USAGE) /* else it is on already */
            tell_slurm(hosts[i], lost, &e);
        if (!for_slurm && failed++ == 0)
            first = e;
    }
    if (failed == 0)
        return 0;
    *err = first;
    return failed == 1
               ? -1
               : tern_err_prefix(err, "%zu of %zu nodes failed, the first with", failed, n_hosts);
}

static int run_node(int n, char **args, struct tern_err *err)
{
    const bool on = power && strcmp(power, "on") == 0;
    char **hosts = NULL, *name = NULL;
    size_t n_hosts = 0;

    (void)n;
    if (!on && (!power || strcmp(power, "off") != 0))
        return tern_err_set(err, TERN_USAGE, "--power: say on or off.");
    if (for_slurm && cluster)
        return tern_err_set(err, TERN_USAGE, "--for-slurm is in one cluster: leave --cluster out.");
    if (!for_slurm && !(name = tern_vcluster_find(cluster, err)))
        return -1;
    int rc = tern_slurm_hosts_expand(args[0], &hosts, &n_hosts, err);
    if (rc == 0)
        rc = power_all(name, hosts, n_hosts, on, err);
    tern_slurm_hosts_free(hosts);
    free(name);
    return rc;
}

const struct tern_cmd node_cmd = {
    .name = "node",
    .args = "NODES",
    .summary = "cut the power of nodes, or give it back",
    .examples = "  tern cluster node trn1-st-trn1-2 --power off\n"
                "  tern cluster node 'trn1-st-trn1-[1-3]' --power off\n",
    .opts = node_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_node,
};
