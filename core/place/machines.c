/* How many nodes there are, and the memory of a node and of a device, as Slurm tells it. */
#include "core/place/place.h"

#include "core/base/again.h"
#include "core/base/vars.h"
#include "core/check/check.h"
#include "core/slurm/slurm.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Trainium: 32 GiB a chip of two cores (AWS Neuron, Trainium architecture). */
static const uint64_t neuron_core_bytes = 16ULL << 30;

/* A controller answers in milliseconds; a check does not wait for one that hangs. */
enum { ANSWER_MS = 3000 };

/* What the child tells. */
struct machines {
    uint64_t node_memory, device_memory, largest;
    int64_t nodes;
    char partition[64]; /* whose nodes were measured; "": all nodes */
    bool unknown;       /* `partition` is the one that Slurm does not have */
    char there[512];    /* those that it has */
};

static int by_memory(const void *a, const void *b)
{
    const struct tern_slurm_node *const *x = a, *const *y = b;

    return ((*x)->memory_mib < (*y)->memory_mib) - ((*x)->memory_mib > (*y)->memory_mib);
}

static int by_name(const void *a, const void *b)
{
    const struct tern_slurm_node *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* What each of `want` of the nodes has, or each of all where they are fewer. */
static void measure(const struct tern_slurm_node **node, size_t n, int64_t want, struct machines *m)
{
    size_t neuron = 0, least = (size_t)want < n ? (size_t)want : n;

    if (n == 0)
        return;
    qsort(node, n, sizeof *node, by_memory);
    for (size_t i = 0; i < n; i++)
        neuron += strstr(node[i]->gres, "neuron:trn1") != NULL;
    if (neuron >= least)
        m->device_memory = neuron_core_bytes;
    const uint64_t all = node[0]->memory_mib << 20, each = node[least - 1]->memory_mib << 20;
    m->largest = all > m->largest ? all : m->largest;
    m->node_memory = each > m->node_memory ? each : m->node_memory;
}

/* The nodes of a partition, out of all (sorted by name), into `to`: how many. */
static size_t pick(const struct tern_slurm_partition *p, const struct tern_slurm_node **all,
                   size_t n_all, const struct tern_slurm_node **to)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_nodes; i++) {
        const struct tern_slurm_node key = {.name = p->nodes[i]}, *k = &key;
        const struct tern_slurm_node **found = bsearch(&k, all, n_all, sizeof *all, by_name);
        if (found && n < n_all)
            to[n++] = *found;
    }
    return n;
}

/* Does a list such as "a,b" have the partition?  NULL is the default one. */
static bool wanted(const struct tern_slurm_partition *p, const char *list)
{
    const size_t len = strlen(p->name);

    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, p->name, len) == 0 && (at[len] == ',' || at[len] == '\0'))
            return true;
    }
    return !list && p->is_default;
}

/* By the partitions of `list`, of which one gets the job. */
static int measure_partitions(const char *list, int64_t want, const struct tern_slurm_node **all,
                              size_t n_all, struct machines *m)
{
    const struct tern_slurm_node **some = calloc(n_all + 1, sizeof(void *));
    struct tern_slurm_partitions *p = NULL;
    int64_t most = 0;

    if (!some || tern_slurm_partitions_load(&p, NULL) < 0) {
        free(some);
        return -1;
    }
    qsort(all, n_all, sizeof *all, by_name);
    for (size_t i = 0; i < p->n; i++) {
        const struct tern_slurm_partition *at = &p->partition[i];
        size_t used = strlen(m->there), name = strlen(m->partition);
        snprintf(m->there + used, sizeof m->there - used, "%s%s", used ? ", " : "", at->name);
        if (!wanted(at, list))
            continue;
        snprintf(m->partition + name, sizeof m->partition - name, "%s%s", name ? "," : "",
                 at->name);
        measure(some, pick(at, all, n_all, some), want, m);
        most = (int64_t)at->n_nodes > most ? (int64_t)at->n_nodes : most;
    }
    m->unknown = list && !m->partition[0];
    /* Nodes that are not there yet may come into any partition. */
    if (m->partition[0] && m->nodes <= (int64_t)n_all)
        m->nodes = most;
    tern_slurm_partitions_free(p);
    free(some);
    return 0;
}

static int ask(const char *list, int64_t want, struct machines *m)
{
    struct tern_slurm_nodes *nodes = NULL;
    int rc = -1;

    if (tern_slurm_nodes_load(&nodes, NULL) < 0)
        return -1;
    const struct tern_slurm_node **all = calloc(nodes->n + 1, sizeof(void *));
    for (size_t i = 0; all && i < nodes->n; i++)
        all[i] = &nodes->node[i];
    if (all && tern_slurm_nodes_count_max(&m->nodes, NULL) == 0)
        rc = list && !*list ? 0 : measure_partitions(list, want, all, nodes->n, m);
    if (rc == 0 && !m->partition[0])
        measure(all, nodes->n, /* want= */ 1, m);
    free(all);
    tern_slurm_nodes_free(nodes);
    return rc;
}

/* In a process of its own: libslurm ends the one that reads a broken slurm.conf. */
static void child(const char *list, int64_t want, int to)
{
    struct machines m = {0};
    int null = TERN_AGAIN(open("/dev/null", O_RDWR | O_CLOEXEC));

    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    if (ask(list, want, &m) == 0 && write(to, &m, sizeof m) == sizeof m)
        _exit(0);
    _exit(1);
}

static bool ask_child(const char *list, int64_t want, struct machines *m)
{
    int fd[2];
    bool got = false;

    if (TERN_AGAIN(pipe2(fd, O_CLOEXEC)) < 0)
        return false;
    pid_t pid = tern_again_fork();
    if (pid == 0)
        child(list, want, fd[1]);
    close(fd[1]);
    struct pollfd p = {.fd = fd[0], .events = POLLIN};
    got = pid > 0 && TERN_AGAIN(poll(&p, 1, ANSWER_MS)) > 0 &&
          TERN_AGAIN(read(fd[0], m, sizeof *m)) == sizeof *m;
    close(fd[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        TERN_AGAIN(waitpid(pid, NULL, 0));
    }
    return got;
}

int tern_place_find_machines(const struct tern_recipe *r, const char *partition,
                             struct tern_check_options *known, struct tern_err *err)
{
    const char *variable = getenv("SLURM_JOB_ID") ? "SLURM_JOB_PARTITION" : "SBATCH_PARTITION";
    const int64_t nodes = known->nodes ? known->nodes : tern_check_fewest_nodes(r);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const char *from = "";
    struct machines m = {0};

    if (!tern_slurm_available()) {
        known->node_memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
        known->here = true;
        return 0;
    }
    if (!partition && tern_var("TERN_ANY_PARTITION")) {
        partition = "";
    } else if (!partition) {
        partition = getenv(variable);
        partition = partition && *partition ? partition : NULL;
        from = partition ? variable : "Slurm's default";
    }
    if (!ask_child(partition, nodes + r->launch.spares, &m))
        return 0;
    if (m.unknown)
        return tern_err_set(err, TERN_USAGE, "%s: Slurm has no partition '%.100s', only %s",
                            *from ? from : "--partition", partition, m.there);
    known->node_memory = m.node_memory;
    known->larger = m.node_memory < m.largest;
    known->device_memory = m.device_memory;
    known->cluster_nodes = m.nodes;
    if (m.partition[0])
        snprintf(known->partition, sizeof known->partition, "%s%s%s%s", m.partition,
                 *from ? " (" : "", from, *from ? ")" : "");
    return 0;
}
