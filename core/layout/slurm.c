/* From the model to Slurm's files.  slurm.conf(5), gres.conf(5), topology.conf(5), cgroup.conf(5),
 * spank(7), as of Slurm 22.05.  Node, feature, weight and partition lines follow ParallelCluster's
 * generator.  They add sockets, cores and threads (without them Slurm 23.11 uses half the CPUs).
 * They add the Neuron devices, too, for which it knows no GRES. */
#include "core/layout/layout.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Releases of Slurm, as 100 * year + month: plugins called none are no more, and a key that follows
 * from AuthType is not needed. topology.yaml is read, and topology.conf beside it is not. */
enum { NO_DEFAULTS = 2311, TOPOLOGY_YAML = 2505 };

/* ------------------------------------------------------------------ nodes */

struct tern_layout_group *tern_layout_groups(const struct tern_layout *l, size_t *n)
{
    size_t most = 0;

    for (size_t i = 0; i < l->n_queues; i++)
        most += 2 * l->queues[i].n_resources;
    struct tern_layout_group *groups = calloc(most + 1, sizeof *groups);
    if (!groups)
        abort();
    *n = 0;
    for (size_t i = 0; i < l->n_queues; i++) {
        const struct tern_layout_queue *q = &l->queues[i];
        for (size_t k = 0; k < q->n_resources; k++) {
            const struct tern_layout_resource *r = &q->resources[k];
            if (r->min)
                groups[(*n)++] = (struct tern_layout_group){q, r, false, r->min};
            if (r->max > r->min)
                groups[(*n)++] = (struct tern_layout_group){q, r, true, r->max - r->min};
        }
    }
    return groups;
}

static char *numbered(const struct tern_layout_group *g, int from, int to)
{
    char *stem =
        tern_strf("%s-%s-%s-", g->queue->name, g->dynamic ? "dy" : "st", g->resource->name);
    char *name =
        from == to ? tern_strf("%s%d", stem, from) : tern_strf("%s[%d-%d]", stem, from, to);

    free(stem);
    return name;
}

char *tern_layout_node_name(const struct tern_layout_group *g, int i)
{
    return i ? numbered(g, i, i) : numbered(g, 1, g->count);
}

/* ------------------------------------------------------------------ slurm.conf */

/* A comment, whatever is in the path. */
static void first_line(struct tern_buf *b, const char *name, const struct tern_layout *l)
{
    char *path = tern_strdup(l->path);

    tern_str_mask(path);
    tern_buf_printf(b, "# %s, rendered by tern from %s\n", name, path);
    free(path);
}

char *tern_layout_plain_name(const struct tern_layout *l)
{
    enum { MAX_LETTERS = 40 };
    struct tern_buf b = {0};
    const char *s = l->name;

    while (*s && !isalpha((unsigned char)*s))
        s++;
    for (; *s && b.len < MAX_LETTERS; s++)
        if (isalnum((unsigned char)*s) || (b.len && b.data[b.len - 1] != '-'))
            tern_buf_printf(&b, "%c", isalnum((unsigned char)*s) ? *s : '-');
    while (b.len && b.data[b.len - 1] == '-')
        b.data[--b.len] = '\0';
    char *name = tern_strdup(b.len ? b.data : "cluster");
    tern_buf_free(&b);
    return name;
}

static bool uses_gres(const struct tern_layout *l)
{
    for (size_t i = 0; l->gres && i < l->n_queues; i++)
        for (size_t k = 0; k < l->queues[i].n_resources; k++)
            if (l->queues[i].resources[k].type->chips)
                return true;
    return false;
}

static void settings(struct tern_buf *b, const struct tern_layout_settings *s, const char *before,
                     const char *after)
{
    for (size_t i = 0; i < s->n; i++)
        tern_buf_printf(b, "%s%s=%s%s", before, s->at[i].key, s->at[i].value, after);
}

/* So many of a group's nodes are there from the beginning. */
static int present(const struct tern_layout_group *g, const struct tern_layout_local *c)
{
    return !g->dynamic ? g->count : !c ? 0 : c->dynamic < g->count ? c->dynamic : g->count;
}

/* Everything on this machine, so everything is quick.  It has short timeouts, and credentials that
 * expire after as long (Slurm's least is 5 s), because a requeued job waits for that.  But many
 * nodes share the machine's processors: until the last of 64 has answered, seconds may go by.
 * Slurm 24.11 pings a node 4 s after its start for the first time, and heeds the answer 1 s later.
 * With SlurmdTimeout=5 it gave up nodes that worked.  No affinity: every slurmd would bind its
 * first task to the same real core.  No cgroups: an ordinary user has none. */
static void local_head(struct tern_buf *b, const struct tern_layout_local *c, int nodes)
{
    int patience_s = nodes > 20 ? nodes / 4 : 5;

    tern_buf_printf(b, "ClusterName=%s\nSlurmctldHost=%s(%s)\n", c->cluster_name, c->head_name,
                    c->head_addr);
    if (c->port)
        tern_buf_printf(b, "SlurmctldPort=%d\n", c->port);
    tern_buf_printf(b,
                    "AuthType=auth/munge\nAuthInfo=socket=%s,cred_expire=%d\nCredType=cred/munge\n"
                    "SlurmUser=%s\nSlurmdUser=%s\n"
                    "StateSaveLocation=%s\nSlurmdSpoolDir=%s\n"
                    "SlurmctldPidFile=%s/slurmctld.pid\nSlurmdPidFile=%s/slurmd-%%n.pid\n"
                    "SlurmctldLogFile=%s/slurmctld.log\nSlurmdLogFile=%s/slurmd-%%n.log\n"
                    "PlugStackConfig=%s/plugstack.conf\n",
                    c->munge_socket, patience_s, c->user, c->user, c->state, c->spool, c->pid_dir,
                    c->pid_dir, c->log, c->log, c->conf_dir);
    if (c->accounting)
        tern_buf_puts(b, "AccountingStorageType=accounting_storage/slurmdbd\n"
                         "AccountingStorageHost=head\nAccountingStoreFlags=job_comment\n"
                         "JobAcctGatherType=jobacct_gather/linux\n");
    if (c->tmp)
        tern_buf_printf(b, "TmpFS=%s\n", c->tmp);
    tern_buf_printf(b, "JobCompType=jobcomp/filetxt\nJobCompLoc=%s/jobs.txt\n", c->log);
    tern_buf_printf(b,
                    "MailProg=/bin/true\nSlurmdParameters=config_overrides\n"
                    "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
                    "SlurmdTimeout=%d\nMessageTimeout=%d\nKillWait=5\n"
                    "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,"
                    "nohold_on_prolog_fail\n",
                    2 * patience_s, patience_s);
}

/* Dynamic nodes as ParallelCluster has them, on which jobs wait for seconds here, not minutes.
 * cloud_dns: /etc/hosts has their addresses. */
static void fleet_head(struct tern_buf *b, const struct tern_layout *l,
                       const struct tern_layout_local *c, const struct tern_layout_group *groups,
                       size_t n)
{
    const char *sep = "SuspendExcNodes=";

    tern_buf_printf(b,
                    "PrivateData=cloud\n"
                    "SlurmctldParameters=idle_on_node_suspend,cloud_dns,power_save_interval=1,"
                    "power_save_min_interval=0\n"
                    "ResumeProgram=%s/resume\nResumeTimeout=60\nResumeRate=0\n"
                    "SuspendProgram=%s/suspend\nSuspendTimeout=5\nSuspendRate=0\n",
                    c->conf_dir, c->conf_dir);
    if (l->idle_minutes < 0 && !l->virtual_idle_s)
        tern_buf_puts(b, "SuspendTime=INFINITE\n");
    else
        tern_buf_printf(b, "SuspendTime=%d\n",
                        l->virtual_idle_s ? l->virtual_idle_s : l->idle_minutes * 60);
    for (size_t i = 0; i < n; i++) {
        int here = present(&groups[i], c);
        char *name = here ? numbered(&groups[i], 1, here) : NULL;
        if (here)
            tern_buf_printf(b, "%s%s", sep, name);
        sep = here ? "," : sep;
        free(name);
    }
    tern_buf_puts(b, *sep == ',' ? "\n" : "");
}

static void site_head(struct tern_buf *b, const struct tern_layout *l)
{
    char *name = tern_layout_plain_name(l);

    tern_buf_printf(b,
                    "ClusterName=%s\n"
                    "# The head node's short host name, with its address where DNS does not know "
                    "it: head(10.0.0.10)\n"
                    "SlurmctldHost=head\n"
                    "AuthType=auth/munge\n%sSlurmUser=slurm\n"
                    "StateSaveLocation=/var/spool/slurmctld\nSlurmdSpoolDir=/var/spool/slurmd\n"
                    "SlurmctldLogFile=/var/log/slurmctld.log\nSlurmdLogFile=/var/log/slurmd.log\n"
                    "PlugStackConfig=/etc/slurm/plugstack.conf\n"
                    "ProctrackType=proctrack/cgroup\nTaskPlugin=task/affinity,task/cgroup\n"
                    "# With accounting, sacct -o comment tells a job's run.\n"
                    "AccountingStoreFlags=job_comment\n"
                    "# A job whose node died may run again at once on the others.\n"
                    "SchedulerParameters=nohold_on_prolog_fail\n",
                    name, l->slurm_release < NO_DEFAULTS ? "CredType=cred/munge\n" : "");
    free(name);
}

static void node_line(struct tern_buf *b, const struct tern_layout *l,
                      const struct tern_layout_group *g, const char *name)
{
    const struct tern_layout_resource *r = g->resource;
    const struct tern_layout_instance *t = r->type;
    int threads = r->smt ? t->threads : 1;

    tern_buf_printf(b,
                    "NodeName=%s CPUs=%d Sockets=%d CoresPerSocket=%d ThreadsPerCore=%d "
                    "RealMemory=%ld Feature=%s",
                    name, t->sockets * t->cores * threads, t->sockets, t->cores, threads,
                    r->memory_mib, g->dynamic ? "dynamic" : "static");
    if (r->n_types == 1)
        tern_buf_printf(b, ",%s", t->name);
    tern_buf_printf(b, ",%s%s Weight=%ld", r->name, r->efa ? ",efa" : "",
                    g->dynamic ? r->dynamic_weight : r->static_weight);
    if (l->gres && t->chips)
        tern_buf_printf(b, " Gres=neuron:%s:%d", t->chip, t->chips);
    settings(b, &r->custom, " ", "");
}

/* A group's lines: one, or where nodes share an address, one that lists their ports too.  Dynamic
 * nodes that are not there are CLOUD where something starts them, else FUTURE: slurm.conf knows
 * them and nothing waits for them. */
static void group_lines(struct tern_buf *b, const struct tern_layout *l,
                        const struct tern_layout_group *g, const struct tern_layout_local *c,
                        int *port)
{
    int here = present(g, c);

    if (here) {
        char *name = numbered(g, 1, here);
        node_line(b, l, g, name);
        free(name);
        if (c && c->port) {
            tern_buf_printf(b, " NodeHostname=%s NodeAddr=%s Port=", c->head_name, c->head_addr);
            tern_buf_printf(b, here > 1 ? "[%d-%d]" : "%d", *port + 1, *port + here);
            *port += here;
        }
        tern_buf_puts(b, " State=UNKNOWN\n");
    }
    if (here < g->count) {
        char *name = numbered(g, here + 1, g->count);
        node_line(b, l, g, name);
        free(name);
        tern_buf_printf(b, " State=%s\n", c && c->fleet ? "CLOUD" : "FUTURE");
    }
}

static void partition_line(struct tern_buf *b, const struct tern_layout_queue *q, bool is_default,
                           const struct tern_layout_group *groups, size_t n)
{
    const char *sep = "";

    tern_buf_printf(b, "PartitionName=%s Nodes=", q->name);
    for (size_t i = 0; i < n; i++) {
        if (groups[i].queue == q) {
            char *name = tern_layout_node_name(&groups[i], 0);
            tern_buf_printf(b, "%s%s", sep, name);
            sep = ",";
            free(name);
        }
    }
    tern_buf_printf(b, " MaxTime=INFINITE State=UP%s%s", is_default ? " Default=YES" : "",
                    q->exclusive ? " OverSubscribe=EXCLUSIVE" : "");
    settings(b, &q->custom, " ", "");
    tern_buf_puts(b, "\n");
}

static void slurm_conf(struct tern_buf *b, const struct tern_layout *l,
                       const struct tern_layout_local *c, const struct tern_layout_group *groups,
                       size_t n)
{
    int port = c ? c->port : 0, nodes = 0;

    for (size_t i = 0; i < n; i++)
        nodes += c && c->fleet ? groups[i].count : present(&groups[i], c);
    first_line(b, "slurm.conf", l);
    if (!c && l->slurm_release)
        tern_buf_printf(b, "# For Slurm %d.%02d.\n", l->slurm_release / 100,
                        l->slurm_release % 100);
    if (c)
        local_head(b, c, nodes);
    else
        site_head(b, l);
    if (c && c->fleet)
        fleet_head(b, l, c, groups, n);
    tern_buf_printf(b,
                    "SelectType=select/cons_tres\nSelectTypeParameters=%s\n"
                    "ReturnToService=2\n%s"
                    "TopologyPlugin=topology/tree\n%s",
                    l->memory_scheduling ? "CR_Core_Memory" : "CR_Core",
                    c || l->slurm_release < NO_DEFAULTS ? "SwitchType=switch/none\n" : "",
                    uses_gres(l) ? "GresTypes=neuron\n" : "");
    settings(b, &l->custom, "", "\n");
    tern_buf_puts(b, "\n");
    for (size_t i = 0; i < n; i++)
        group_lines(b, l, &groups[i], c, &port);
    tern_buf_puts(b, "\n");
    for (size_t i = 0; i < l->n_queues; i++)
        partition_line(b, &l->queues[i], i == 0, groups, n);
}

/* ------------------------------------------------------------------ the other files */

static void gres_conf(struct tern_buf *b, const struct tern_layout *l,
                      const struct tern_layout_local *c, const struct tern_layout_group *groups,
                      size_t n)
{
    if (!uses_gres(l))
        return;
    first_line(b, "gres.conf", l);
    for (size_t i = 0; i < n; i++) {
        const struct tern_layout_instance *t = groups[i].resource->type;
        if (!t->chips)
            continue;
        char *name = tern_layout_node_name(&groups[i], 0);
        tern_buf_printf(b, "NodeName=%s Name=neuron Type=%s ", name, t->chip);
        if (c && c->port) /* the host's /dev has no such devices */
            tern_buf_printf(b, "Count=%d\n", t->chips);
        else if (t->chips == 1)
            tern_buf_puts(b, "File=/dev/neuron0\n");
        else
            tern_buf_printf(b, "File=/dev/neuron[0-%d]\n", t->chips - 1);
        free(name);
    }
}

/* The switch of a group's node `i` (from 1), malloc'ed.  A placement group is the nearest thing to
 * a switch that EC2 knows: a resource is one switch, unless the sidecar gives nodes a switch. */
static char *leaf_name(const struct tern_layout *l, const struct tern_layout_group *g, int i)
{
    int before = g->dynamic ? g->resource->min : 0;

    if (!l->topology_leaf)
        return tern_strf("%s-%s", g->queue->name, g->resource->name);
    return tern_strf("%s-%s-%d", g->queue->name, g->resource->name,
                     (before + i - 1) / l->topology_leaf + 1);
}

char *tern_layout_switches(const struct tern_layout *l, const struct tern_layout_group *g, int i)
{
    char *leaf = leaf_name(l, g, i), *all = tern_strf("spine.%s", leaf);

    free(leaf);
    return all;
}

static void topology(struct tern_buf *b, const struct tern_layout *l, bool yaml,
                     const struct tern_layout_group *groups, size_t n)
{
    struct tern_buf leaves = {0};
    char *last = tern_strdup("");

    first_line(b, yaml ? "topology.yaml" : "topology.conf", l);
    if (yaml)
        tern_buf_puts(b, "- topology: tree\n  cluster_default: true\n  tree:\n    switches:");
    for (size_t i = 0; i < n; i++)
        for (int from = 1, to; from <= groups[i].count; from = to + 1) {
            char *leaf = leaf_name(l, &groups[i], from), *next = NULL;
            for (to = from; to < groups[i].count; to++) {
                next = leaf_name(l, &groups[i], to + 1);
                bool same = strcmp(leaf, next) == 0;
                free(next);
                if (!same)
                    break;
            }
            char *nodes = numbered(&groups[i], from, to);
            if (strcmp(leaf, last) == 0) { /* the resource's dynamic nodes */
                tern_buf_printf(b, ",%s", nodes);
            } else {
                if (yaml)
                    tern_buf_printf(b, "\n      - switch: %s\n        nodes: %s", leaf, nodes);
                else
                    tern_buf_printf(b, "%sSwitchName=%s Nodes=%s", *last ? "\n" : "", leaf, nodes);
                tern_buf_printf(&leaves, "%s%s", leaves.len ? "," : "", leaf);
            }
            free(nodes);
            free(last);
            last = leaf;
        }
    tern_buf_printf(b,
                    yaml ? "\n      - switch: spine\n        children: %s\n"
                         : "\nSwitchName=spine Switches=%s\n",
                    leaves.data ? leaves.data : "");
    tern_buf_free(&leaves);
    free(last);
}

int tern_layout_nodes_text(const struct tern_layout *l, bool with_default, struct tern_buf *to,
                           struct tern_err *err)
{
    size_t n;
    int port = 0;

    if (tern_layout_usable(l, err) < 0)
        return -1;
    struct tern_layout_group *groups = tern_layout_groups(l, &n);
    first_line(to, "nodes and partitions", l);
    for (size_t i = 0; i < n; i++)
        group_lines(to, l, &groups[i], /* c= */ NULL, &port);
    tern_buf_puts(to, "\n");
    for (size_t i = 0; i < l->n_queues; i++)
        partition_line(to, &l->queues[i], with_default && i == 0, groups, n);
    free(groups);
    return tern_buf_check(to, "nodes and partitions", err);
}

int tern_layout_render(const struct tern_layout *l, const struct tern_layout_local *local,
                       struct tern_layout_conf *conf, struct tern_err *err)
{
    struct tern_layout_conf c = {0};
    size_t n;

    if (tern_layout_usable(l, err) < 0)
        return -1;
    struct tern_layout_group *groups = tern_layout_groups(l, &n);
    slurm_conf(&c.slurm, l, local, groups, n);
    gres_conf(&c.gres, l, local, groups, n);
    const bool yaml = !local && l->slurm_release >= TOPOLOGY_YAML;
    topology(&c.topology, l, yaml, groups, n);
    c.topology_name = yaml ? "topology.yaml" : "topology.conf";
    free(groups);
    /* On the virtual cluster the named version keeps slurmd from looking for cgroup mounts, which
     * its nodes do not have; nothing else there uses them. */
    tern_buf_puts(&c.cgroup, local ? "CgroupPlugin=cgroup/v1\n"
                                   : "ConstrainCores=yes\nConstrainRAMSpace=yes\n");
    if (!local)
        tern_buf_puts(&c.plugstack, "# tern's `make install` puts the plugin's line there.\n"
                                    "include /etc/slurm/plugstack.conf.d/*.conf\n");
    else if (local->plugin)
        tern_buf_printf(&c.plugstack, "optional %s\n", local->plugin);
    if (tern_buf_check(&c.slurm, "slurm.conf", err) < 0 ||
        tern_buf_check(&c.gres, "gres.conf", err) < 0 ||
        tern_buf_check(&c.topology, "topology.conf", err) < 0) {
        tern_layout_conf_free(&c);
        return -1;
    }
    *conf = c;
    return 0;
}

void tern_layout_conf_free(struct tern_layout_conf *conf)
{
    tern_buf_free(&conf->slurm);
    tern_buf_free(&conf->gres);
    tern_buf_free(&conf->topology);
    tern_buf_free(&conf->cgroup);
    tern_buf_free(&conf->plugstack);
}
