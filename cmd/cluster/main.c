/* tern cluster: layouts checked and rendered, and run as a virtual cluster on this machine. */
#include "cmd/cluster/apply.h"
#include "cmd/cluster/doctor.h"
#include "cmd/cluster/layout.h"
#include "cmd/cluster/plan.h"
#include "cmd/cluster/smoke.h"
#include "cmd/cluster/trouble.h"
#include "cmd/cmd.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/page.h"
#include "core/base/str.h"
#include "core/layout/layout.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/vcluster.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------ up, down */

static const char *up_name, *up_slurm, *up_vars, *up_mode = "auto";
static bool up_accounting;
static int64_t up_dynamic = -1;
static double up_timeout;
static struct tern_opt_list up_share;
static const struct tern_opt up_opts[] = {
    {"name", 'n', TERN_OPT_TEXT, "NAME", .to.text = &up_name,
     .help = "the cluster's name; else the layout's folder or file name"},
    {"mode", 0, TERN_OPT_TEXT, "MODE", "auto", .to.text = &up_mode,
     .help = "namespaces (every node its own network, /tmp, /dev...), plain (several slurmd on "
             "ports of this machine), or auto: namespaces where the kernel allows it"},
    {"dynamic", 0, TERN_OPT_INT, "N", .to.integer = &up_dynamic,
     .help = "start the first N dynamic nodes of each compute resource too"},
    {"accounting", 0, TERN_OPT_FLAG, .to.flag = &up_accounting,
     .help = "also run slurmdbd and MariaDB on the head: sacct and sacctmgr work; takes seconds"},
    {"slurm", 0, TERN_OPT_TEXT, "PREFIX", .env = "TERN_SLURM", .to.text = &up_slurm,
     .help = "the Slurm to run: its sbin and bin are below PREFIX. Else the one whose library tern "
             "uses, or one on PATH"},
    {"share", 0, TERN_OPT_LIST, "DIR", .to.list = &up_share,
     .help = "a folder under /tmp that every node shall see, as it sees the current one; may be "
             "given again"},
    {"timeout", 0, TERN_OPT_REAL, "SECONDS", .to.real = &up_timeout,
     .help = "until every node must be idle; else 30 s and 0.1 s a node"},
    {"vars", 0, TERN_OPT_TEXT, "FILE", .to.text = &up_vars, .help = cluster_vars_help},
    {0},
};

/* The plugin's line for plugstack.conf, with the tern beside this program; NULL without a plugin.
 * build/bin/tern-cluster -> build/plugins/tern_spank.so; installed, PREFIX/bin ->
 * PREFIX/lib/slurm/tern_spank-22.05.so. */
static char *find_plugin(void)
{
    char installed[64];
    const char *const beside[] = {"plugins/tern_spank.so", installed};
    char *bin = tern_fs_self_dir();

    if (!bin)
        return NULL;
    snprintf(installed, sizeof installed, "lib/slurm/tern_spank-%s.so", tern_slurm_release());
    char *top = tern_fs_dirname(bin), *found = NULL;
    for (size_t i = 0; !found && i < sizeof beside / sizeof *beside; i++) {
        found = tern_strf("%s/%s", top, beside[i]);
        if (!tern_fs_exists(found)) {
            free(found);
            found = NULL;
        }
    }
    char *line = found ? tern_strf("%s tern=%s/tern", found, bin) : NULL;
    if (line && strpbrk(top, " \t")) {
        tern_warn("%s: plugstack.conf cannot hold a path with blanks; --tern will be unknown",
                  found);
        free(line);
        line = NULL;
    }
    free(found);
    free(bin);
    free(top);
    return line;
}

static int load_nodes(void *out, struct tern_err *err);

enum { MAX_SHOWN = 2048, TEXT = 80 };

struct shown {
    char name[TEXT], addr[TEXT], state[40], gres[TEXT], reason[TEXT];
    const char *trouble; /* static; "" when it is well */
    uint32_t cpus;
    uint64_t memory_mib;
};

struct table {
    size_t n;
    struct shown node[MAX_SHOWN];
};

static void copy(char *to, size_t n, const char *from)
{
    snprintf(to, n, "%s", from ? from : "");
}

static int load_nodes(void *out, struct tern_err *err)
{
    struct table *t = out;
    struct tern_slurm_nodes *nodes;

    if (tern_slurm_nodes_load(&nodes, err) < 0)
        return -1;
    for (size_t i = 0; i < nodes->n && t->n < MAX_SHOWN; i++) {
        const struct tern_slurm_node *from = &nodes->node[i];
        if (tern_str_starts(from->state, "future"))
            continue;
        struct shown *to = &t->node[t->n++];
        copy(to->name, sizeof to->name, from->name);
        copy(to->addr, sizeof to->addr, from->addr);
        copy(to->state, sizeof to->state, from->state);
        copy(to->gres, sizeof to->gres, from->gres);
        copy(to->reason, sizeof to->reason, from->reason);
        to->cpus = from->cpus;
        to->memory_mib = from->memory_mib;
    }
    tern_slurm_nodes_free(nodes);
    return 0;
}

static void print_nodes(const struct table *t)
{
    size_t width = 4;

    for (size_t i = 0; i < t->n; i++)
        if (strlen(t->node[i].name) > width)
            width = strlen(t->node[i].name);
    printf("%-*s %-9s %5s %10s  %s\n", (int)width, "NODE", "STATE", "CPUS", "MEMORY", "GRES");
    for (size_t i = 0; i < t->n; i++) {
        const struct shown *n = &t->node[i];
        char memory[24];
        tern_str_bytes(memory, sizeof memory, n->memory_mib << 20);
        printf("%-*s %-9s %5u %10s  %s%s%s%s%s\n", (int)width, n->name, n->state, n->cpus, memory,
               n->gres, *n->trouble ? "  broken: " : "", n->trouble, *n->reason ? "  " : "",
               n->reason);
    }
}

/* Slurm knows no trouble that `tern cluster break` brought, only what came of it. */
static void load_troubles(const char *name, struct table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        enum tern_vcluster_trouble trouble = TERN_VCLUSTER_WELL;
        struct tern_err err = {0};
        const char *word = NULL;
        if (tern_vcluster_trouble_of(name, t->node[i].name, &trouble, &err) < 0)
            tern_debug("%s", err.text); /* a node that is in Slurm's files alone */
        else
            word = tern_vcluster_trouble_word(trouble);
        t->node[i].trouble = word ? word : "";
    }
}

static int print_nodes_json(const struct table *t, struct tern_err *err);

static void print_folders(const char *name)
{
    struct tern_err err = {0};
    char *text = tern_vcluster_about_folders(name, &err);

    if (text)
        tern_page_wrap(stdout, text, /* indent= */ 0, /* columns= */ 80, /* at= */ 0);
    else
        tern_debug("%s", err.text);
    free(text);
}

static int show_nodes(const char *name, bool as_json, struct tern_err *err)
{
    struct table *t = tern_alloc(1, sizeof *t, "the nodes", err);
    int rc = t ? tern_vcluster_call(name, load_nodes, t, sizeof *t, err) : -1;

    if (rc == 0)
        load_troubles(name, t);
    if (rc == 0 && as_json)
        rc = print_nodes_json(t, err);
    else if (rc == 0)
        print_nodes(t);
    free(t);
    return rc;
}

static int mode_of(const char *word, enum tern_vcluster_mode *mode, struct tern_err *err)
{
    static const char *const words[] = {"auto", "namespaces", "plain"};

    for (int i = 0; i < 3; i++) {
        if (strcmp(word, words[i]) == 0) {
            *mode = (enum tern_vcluster_mode)i;
            return 0;
        }
    }
    return tern_err_set(err, TERN_USAGE, "--mode: '%s' is not one of: auto, namespaces, plain.",
                        word);
}

/* Until the cluster's name is printed: an interrupt before that leaves no cluster, and after it the
 * user knows the name to end. */
static void hold_signals(sigset_t *old)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, old);
}

static int run_up(int n, char **args, struct tern_err *err)
{
    const char *share[sizeof up_share.values / sizeof *up_share.values + 1] = {NULL};
    struct tern_vcluster_options o = {.name = up_name,
                                      .slurm = up_slurm,
                                      .share = share,
                                      .accounting = up_accounting,
                                      .timeout_s = up_timeout};
    struct tern_vcluster_up up;

    (void)n;
    if (mode_of(up_mode, &o.mode, err) < 0)
        return -1;
    struct tern_layout *l = cluster_load_layout(args[0], up_vars, err);
    if (!l)
        return -1;
    if (up_dynamic >= 0)
        l->virtual_dynamic = up_dynamic > INT_MAX ? INT_MAX : (int)up_dynamic;
    memcpy(share, up_share.values, up_share.n * sizeof *share);
    char *plugin = find_plugin();
    o.plugin = plugin;
    sigset_t old;
    hold_signals(&old);
    int rc = tern_vcluster_up(l, &o, &up, err);
    free(plugin);
    tern_layout_free(l);
    if (rc == 0 && *up.missing)
        tern_warn("plain mode (%s)", up.missing);
    if (rc == 0)
        rc = show_nodes(up.name, /* as_json= */ false, err);
    if (rc == 0)
        printf("%s: %zu nodes idle after %.2f s%s. tern cluster exec %s -- sinfo\n", up.name,
               up.n_nodes, up.seconds, up.user_namespace ? " (in a user namespace)" : "", up.name);
    if (rc == 0 && up.n_fleet)
        printf("%zu more start when a job wants them.\n", up.n_fleet);
    if (rc == 0)
        print_folders(up.name);
    fflush(stdout);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return rc;
}

static const struct tern_cmd up_cmd = {
    .name = "up",
    .args = "LAYOUT",
    .summary = "run a layout as a real Slurm on this machine",
    .about =
        "Starts munged, slurmctld and one slurmd for each node, and returns when every node "
        "is idle. Dynamic nodes (up to MaxCount) are off until a job wants them. They are switched "
        "off again when they were idle for ScaledownIdletime (virtual.idle_s of "
        "cluster.tern.yaml). Nodes see this machine's programs and files. Each node has its own "
        "/tmp, /run, /dev and /dev/shm. The cluster has its own /etc/slurm (/run/slurm/conf if "
        "this machine has no /etc/slurm) and the layout's SharedStorage. All nodes see the current "
        "folder and HOME, even under /tmp. Nodes reach each other and nothing else. An ordinary "
        "user needs only the right to use the kernel's user namespaces.",
    .examples = "  tern cluster up cluster-templates/trn1-4/cluster.yaml\n"
                "  tern cluster exec trn1-4 -- srun -N4 hostname\n",
    .opts = up_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_up,
};

static int run_down(int n, char **args, struct tern_err *err)
{
    if (n)
        return tern_vcluster_down(args[0], err);
    char *name = tern_vcluster_find(NULL, err);
    int rc = name ? tern_vcluster_down(name, err) : -1;
    free(name);
    return rc;
}

static const struct tern_cmd down_cmd = {
    .name = "down",
    .args = "[NAME]",
    .summary = "end a virtual cluster and remove its folder",
    .about = "The cluster's jobs die, and its shared storage is removed. Without NAME, this "
             "command ends the only cluster that is up.",
    .args_max = 1,
    .run = run_down,
};

/* ------------------------------------------------------------------ status, list */

static bool status_json, list_json;
static const struct tern_opt status_opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &status_json, .help = "print JSON"},
    {0},
};
static const struct tern_opt list_opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &list_json, .help = "print JSON"},
    {0},
};

static int print_nodes_json(const struct table *t, struct tern_err *err)
{
    json_t *all = json_array();

    for (size_t i = 0; i < t->n; i++) {
        const struct shown *n = &t->node[i];
        json_array_append_new(all,
                              json_pack("{ss ss ss si sI ss ss ss}", "name", n->name, "address",
                                        n->addr, "state", n->state, "cpus", (int)n->cpus,
                                        "memory_mib", (json_int_t)n->memory_mib, "gres", n->gres,
                                        "reason", n->reason, "trouble", n->trouble));
    }
    int rc = tern_json_print(stdout, all, err);
    json_decref(all);
    return rc;
}

static int run_status(int n, char **args, struct tern_err *err)
{
    char *name = tern_vcluster_find(n ? args[0] : NULL, err);
    int rc = name ? show_nodes(name, status_json, err) : -1;

    if (rc == 0 && !status_json)
        print_folders(name);
    free(name);
    return rc;
}

static const struct tern_cmd status_cmd = {
    .name = "status",
    .args = "[NAME]",
    .summary = "the nodes of a virtual cluster, as its Slurm sees them",
    .about = "Shows what `tern cluster break` has brought upon a node, and which folders the nodes "
             "share.",
    .opts = status_opts,
    .args_max = 1,
    .run = run_status,
};

static int list_as_json(const struct tern_vcluster_info *list, size_t n, struct tern_err *err)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            all, json_pack("{ss sb ss si sI ss ss}", "name", list[i].name, "up", list[i].alive,
                           "mode", list[i].mode == TERN_VCLUSTER_PLAIN ? "plain" : "namespaces",
                           "nodes", (int)list[i].n_nodes, "pid", (json_int_t)list[i].pid, "layout",
                           list[i].layout, "folder", list[i].folder));
    int rc = tern_json_print(stdout, all, err);
    json_decref(all);
    return rc;
}

static int run_list(int n_args, char **args, struct tern_err *err)
{
    struct tern_vcluster_info *list;
    size_t n;
    int rc = 0;

    (void)n_args;
    (void)args;
    if (tern_vcluster_list(&list, &n, err) < 0)
        return -1;
    if (list_json) {
        rc = list_as_json(list, n, err);
    } else {
        printf("%-16s %-10s %5s %8s  %s\n", "NAME", "STATE", "NODES", "PID", "LAYOUT");
        for (size_t i = 0; i < n; i++)
            printf("%-16s %-10s %5zu %8d  %s\n", list[i].name,
                   !list[i].alive                        ? "dead"
                   : list[i].mode == TERN_VCLUSTER_PLAIN ? "up (plain)"
                                                         : "up",
                   list[i].n_nodes, (int)list[i].pid, list[i].layout);
    }
    tern_vcluster_list_free(list, n);
    return rc;
}

static const struct tern_cmd list_cmd = {
    .name = "list",
    .summary = "the virtual clusters of this user",
    .about = "A crash or a reboot leaves a dead cluster; `down` or the next `up` ends its jobs and "
             "removes it.",
    .opts = list_opts,
    .run = run_list,
};

/* ------------------------------------------------------------------ exec, node */

static const char *exec_node;
static const struct tern_opt exec_opts[] = {
    {"node", 'w', TERN_OPT_TEXT, "NODE", .to.text = &exec_node, .help = "there, not on the head"},
    {0},
};

static int run_exec(int n, char **args, struct tern_err *err)
{
    int status;
    char **command = args + 1;

    if (strcmp(command[0], "--") == 0 && n > 2)
        command++;
    args[n] = NULL; /* parsed options lie behind the arguments */
    char *name = tern_vcluster_find(args[0], err);
    int rc = name ? tern_vcluster_exec(name, exec_node, command, &status, err) : -1;
    free(name);
    return rc < 0 ? -1 : status;
}

static const struct tern_cmd exec_cmd = {
    .name = "exec",
    .args = "NAME [--] COMMAND...",
    .summary = "run a command on the head or on a node",
    .about = "Runs the command in the current folder (or in /, if the cluster does not see that "
             "folder), with this environment, stdin and stdout. The exit status is the command's, "
             "or 128 + n after signal n.",
    .examples = "  tern cluster exec trn1-4 -- sinfo\n"
                "  tern cluster exec --node trn1-st-trn1-2 trn1-4 -- ls /dev\n",
    .opts = exec_opts,
    .args_min = 2,
    .args_max = -1,
    .args_raw = true,
    .run = run_exec,
};

int main(int argc, char **argv)
{
    static const struct tern_cmd *const verbs[] = {
        &check_cmd, &lint_cmd,   &render_cmd, &plan_cmd,  &apply_cmd, &drift_cmd,
        &up_cmd,    &status_cmd, &exec_cmd,   &node_cmd,  &break_cmd, &mend_cmd,
        &down_cmd,  &list_cmd,   &doctor_cmd, &smoke_cmd, NULL,
    };
    static const struct tern_cmd cmd = {
        .name = "cluster",
        .summary = "check, render and apply layouts, run them as a virtual cluster",
        .about =
            "A layout is ParallelCluster 3 YAML (cluster.yaml). cluster.tern.yaml beside it holds "
            "settings for tern alone: dynamic nodes, network interfaces, the /tmp of virtual "
            "nodes. "
            "`tern help layout-settings` lists them.",
        .verbs = verbs,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
