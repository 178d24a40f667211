/* Facts of this node, this job and this rank: small files and the environment, and no wait for a
 * network. */
#include "core/env/env.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/env/sdk.h"
#include "core/layout/layout.h"

#include <ctype.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum {
    MAX_DEVICES = 64,  /* four times what the largest instance has */
    MAX_TASKS = 32768, /* processes of a node, more than any runs; its square fits an int */
    MAX_NODES = 65536,
};

/* ------------------------------------------------------------------ small files */

/* The first line of `root`/`path`, without its newline; "" when it cannot be read.  Files of /proc
 * and /sys have no size, so this reads to their end. */
static void first_line(const char *root, const char *path, char *to, size_t size)
{
    char full[512];
    ssize_t n = -1;

    to[0] = '\0';
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return;
    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        n = read(fd, to, size - 1);
        close(fd);
    }
    to[n > 0 ? n : 0] = '\0';
    to[strcspn(to, "\n")] = '\0';
}

/* How many of <pattern>0, <pattern>1, ... there are. */
static int count_files(const char *root, const char *pattern)
{
    char path[512];
    struct stat st;
    int n = 0;

    while (n < MAX_DEVICES && snprintf(path, sizeof path, "%s%s%d", root, pattern, n) > 0 &&
           stat(path, &st) == 0)
        n++;
    return n;
}

static bool there(const char *root, const char *path)
{
    char full[512];

    return snprintf(full, sizeof full, "%s%s", root, path) < (int)sizeof full &&
           access(full, F_OK) == 0;
}

/* ------------------------------------------------------------------ the node */

/* Is every hardware thread of the first CPU's core ours?  Then they come in whole cores. */
static int threads_a_core(const char *root, const cpu_set_t *cpus)
{
    char path[96], list[128], *at = list;
    int first = 0, threads = 0;

    while (first < CPU_SETSIZE && !CPU_ISSET(first, cpus))
        first++;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             first);
    first_line(root, path, list, sizeof list);
    while (*at) { /* "0,64" or "0-1" */
        char *end;
        long low = strtol(at, &end, 10), high = low;
        if (end == at)
            return 1;
        if (*end == '-')
            high = strtol(at = end + 1, &end, 10);
        for (long c = low; c <= high && c >= 0 && c < CPU_SETSIZE; c++, threads++)
            if (!CPU_ISSET((size_t)c, cpus))
                return 1;
        at = end + (*end == ',');
    }
    return threads > 0 ? threads : 1;
}

static void look_at_cpus(const char *root, struct tern_env_facts *f)
{
    cpu_set_t cpus;
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    f->node_cpus = online > 0 && online < MAX_TASKS ? (int)online : 1;
    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0) {
        f->cpus = f->cores = f->node_cpus;
        return;
    }
    f->cpus = CPU_COUNT(&cpus);
    f->cores = f->cpus / threads_a_core(root, &cpus);
    if (f->cores < 1)
        f->cores = 1;
}

/* "ml.trn1.32xlarge" is SageMaker's name of the same machine. */
static const struct tern_layout_instance *instance(const char *type)
{
    return tern_layout_instance(tern_str_starts(type, "ml.") ? type + 3 : type);
}

/* Trainium2 shows two physical cores as one (LNC=2) unless set otherwise. */
static int neuron_cores(const struct tern_layout_instance *i)
{
    return i->chip && strcmp(i->chip, "trn2") == 0 ? i->neuron_cores / 2 : i->neuron_cores;
}

static void look_at_devices(const char *root, struct tern_env_facts *f)
{
    char cores[16];
    int64_t n = 2; /* NeuronCores of a Trainium chip */

    f->neuron_devices = count_files(root, "/dev/neuron");
    f->efa_devices = count_files(root, "/dev/infiniband/uverbs");
    const struct tern_layout_instance *i = instance(f->instance);
    f->neuron_chips = i ? i->chips : 0;
    if (i && i->chips && i->chips == f->neuron_devices) {
        f->neuron_cores = neuron_cores(i);
        return;
    }
    first_line(root, "/sys/devices/virtual/neuron_device/neuron0/core_count", cores, sizeof cores);
    tern_str_int(cores, 1, 64, &n);
    f->neuron_cores = f->neuron_devices * (int)n;
}

/* The interface of the default route. */
static void look_at_network(const char *root, struct tern_env_facts *f)
{
    char path[512], line[256], name[17], range[64];
    unsigned to, gateway, flags, mask;
    int low, high;

    snprintf(path, sizeof path, "%s/proc/net/route", root);
    FILE *routes = fopen(path, "re");
    for (int i = 0; routes && i < 1000 && fgets(line, sizeof line, routes); i++)
        if (sscanf(line, "%16s %x %x %x %*d %*d %*d %x", name, &to, &gateway, &flags, &mask) == 5 &&
            to == 0 && mask == 0 && strlen(name) < sizeof f->interface) {
            snprintf(f->interface, sizeof f->interface, "%s", name);
            break;
        }
    if (routes)
        fclose(routes);
    first_line(root, "/proc/sys/net/ipv4/ip_local_reserved_ports", f->ports, sizeof f->ports);
    first_line(root, "/proc/sys/net/ipv4/ip_local_port_range", range, sizeof range);
    if (sscanf(range, "%d %d", &low, &high) == 2 && low > 0 && high < 65536 && low <= high) {
        f->port_low = low;
        f->port_high = high;
    }
}

static void look_at_node(const char *root, struct tern_env_facts *f)
{
    struct utsname u;

    if (uname(&u) == 0)
        snprintf(f->kernel, sizeof f->kernel, "%.64s", u.release);
    first_line(root, "/sys/devices/virtual/dmi/id/product_name", f->instance, sizeof f->instance);
    for (const char *c = f->instance; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(".-", *c)) {
            f->instance[0] = '\0'; /* no name of an instance type */
            break;
        }
    look_at_cpus(root, f);
    look_at_devices(root, f);
    look_at_network(root, f);
    f->container = there(root, "/.dockerenv") || there(root, "/run/.containerenv");
    tern_env_sdk_find(root, f);
}

/* ------------------------------------------------------------------ the job */

/* A variable of the launcher as a number; `def` when it is absent or is none. */
static int number(const char *name, int low, int high, int def)
{
    const char *s = getenv(name);
    int64_t n;

    return s && tern_str_int(s, low, high, &n) == 0 ? (int)n : def;
}

/* "2(x4),1" at index `i`: tasks of the i-th node; `def` when it is no such list. */
static int tasks_of_node(const char *list, int i, int def)
{
    while (list && *list) {
        char *end;
        long tasks = strtol(list, &end, 10), times = 1;
        if (end == list || tasks < 1 || tasks > MAX_TASKS)
            return def;
        if (end[0] == '(' && end[1] == 'x') {
            times = strtol(end + 2, &end, 10);
            if (*end++ != ')' || times < 1)
                return def;
        }
        if (i < times)
            return (int)tasks;
        i -= (int)times;
        list = end + (*end == ',');
    }
    return def;
}

static void look_at_nodes(struct tern_env_facts *f)
{
    static const char *const lists[] = {"SLURM_JOB_NODELIST_HET_GROUP_0", "SLURM_STEP_NODELIST",
                                        "SLURM_JOB_NODELIST", NULL};
    int groups = number("SLURM_HET_SIZE", 1, 128, 0);

    for (int i = 0; lists[i] && !f->master[0]; i++) {
        const char *list = getenv(lists[i]);
        if (list)
            tern_env_first_host(list, f->master, sizeof f->master);
    }
    f->nodes = number("SLURM_STEP_NUM_NODES", 1, MAX_NODES,
                      number("SLURM_JOB_NUM_NODES", 1, MAX_NODES, 1));
    if (groups < 2)
        return;
    f->nodes = 0;
    for (int g = 0; g < groups && f->nodes < MAX_NODES; g++) {
        char name[64];
        snprintf(name, sizeof name, "SLURM_JOB_NUM_NODES_HET_GROUP_%d", g);
        f->nodes += number(name, 1, MAX_NODES, 1);
    }
}

/* Under mpirun, SLURM_* describe its daemon: Open MPI's own variables come first. */
static void look_at_job(struct tern_env_facts *f)
{
    const char *list = getenv("SLURM_STEP_TASKS_PER_NODE");
    int task = number("SLURM_LOCALID", 0, MAX_TASKS, 0);

    f->nodes = f->tasks_per_node = f->workers = 1;
    f->job = (uint32_t)number("SLURM_HET_JOB_ID", 0, INT32_MAX, 0);
    if (!f->job)
        f->job = (uint32_t)number("SLURM_JOB_ID", 0, INT32_MAX, 0);
    if (f->job) {
        look_at_nodes(f);
        f->node = number("SLURM_NODEID", 0, MAX_NODES, 0);
        f->cpus_per_task = number("SLURM_CPUS_PER_TASK", 1, MAX_TASKS, 0);
        /* A batch script is one process, whatever its srun will start. */
        f->tasks_per_node = tasks_of_node(list, f->node, 1);
        f->tasks_to_come = list ? 0 : number("SLURM_NTASKS_PER_NODE", 1, MAX_TASKS, 0);
        f->task = task;
    }
    const char *cache = tern_var("TERN_COMPILE_CACHE");
    if (cache && strlen(cache) < sizeof f->cache)
        snprintf(f->cache, sizeof f->cache, "%s", cache);
    f->launched = tern_var("TERN_RUN_SPOOL") != NULL;
    f->forked = !f->job && !getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (f->launched && !f->job) { /* `tern run` without Slurm numbers its ranks like srun */
        f->tasks_per_node = number("SLURM_NTASKS", 1, MAX_TASKS, 1);
        f->task = task;
    }
    f->tasks_per_node = number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, MAX_TASKS, f->tasks_per_node);
    f->task = number("OMPI_COMM_WORLD_LOCAL_RANK", 0, MAX_TASKS, f->task);
    if (f->task >= f->tasks_per_node)
        f->task = 0;
    const char *threads = getenv("OMP_NUM_THREADS");
    int64_t n_threads;
    if (threads && tern_str_int(threads, 1, MAX_TASKS, &n_threads) == 0)
        f->omp_threads = (int)n_threads;
    const char *provider = tern_var("TERN_FABRIC_PROVIDER");
    if (provider && strlen(provider) < sizeof f->provider)
        snprintf(f->provider, sizeof f->provider, "%s", provider);
    const char *workers = f->launched ? tern_var("TERN_RUN_WORKERS") : NULL;
    int64_t n;
    if (workers && tern_str_int(workers, 1, MAX_TASKS, &n) == 0)
        f->workers = (int)n;
    const char *tensor = f->launched ? tern_var("TERN_RUN_TENSOR") : NULL;
    if (tensor && tern_str_int(tensor, 1, MAX_TASKS, &n) == 0)
        f->tensor = (int)n;
}

int tern_env_facts_under(const char *root, struct tern_env_facts *f, struct tern_err *err)
{
    (void)err;
    *f = (struct tern_env_facts){.nodes = 1, .tasks_per_node = 1, .workers = 1};
    look_at_node(root, f);
    look_at_job(f);
    return 0;
}

int tern_env_facts_gather(struct tern_env_facts *f, struct tern_err *err)
{
    return tern_env_facts_under("", f, err);
}

/* ------------------------------------------------------------------ host lists */

int tern_env_first_host(const char *list, char *to, size_t size)
{
    size_t n = 0;

    for (const char *c = list; *c && *c != ','; c++) {
        if (*c == '[') { /* its first number: up to '-', ',' or ']' */
            const char *end = strchr(c, ']');
            if (!end)
                return -1;
            for (c++; isdigit((unsigned char)*c) && n + 1 < size; c++)
                to[n++] = *c;
            if (!strchr("-,]", *c))
                return -1;
            c = end;
            continue;
        }
        if ((!isalnum((unsigned char)*c) && !strchr("._-:", *c)) || n + 1 >= size) {
            to[0] = '\0';
            return -1;
        }
        to[n++] = *c;
    }
    to[n] = '\0';
    /* A name that begins with a dash would be taken for an option. */
    if (n == 0 || to[0] == '-') {
        to[0] = '\0';
        return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------ assumptions */

int tern_env_facts_instance(struct tern_env_facts *f, const char *type, struct tern_err *err)
{
    const struct tern_layout_instance *i = instance(type);

    if (!i) {
        const char *near = tern_layout_instance_near(type);
        return tern_err_set(err, TERN_USAGE, "instance type '%s' is not known%s%s%s", type,
                            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    snprintf(f->instance, sizeof f->instance, "%s", i->name);
    f->cpus = f->node_cpus = tern_layout_vcpus(i);
    f->cores = i->sockets * i->cores;
    f->neuron_devices = f->neuron_chips = i->chips;
    f->neuron_cores = neuron_cores(i);
    f->efa_devices = i->efa;
    return 0;
}

/* The facts that are numbers. */
static int assume_number(struct tern_env_facts *f, const char *name, const char *value,
                         struct tern_err *err)
{
    const struct {
        const char *name;
        int *to, low, high;
    } all[] = {
        {"nodes", &f->nodes, 1, MAX_NODES},
        {"node", &f->node, 0, MAX_NODES},
        {"tasks", &f->tasks_per_node, 1, MAX_TASKS},
        {"task", &f->task, 0, MAX_TASKS},
        {"workers", &f->workers, 1, MAX_TASKS},
        {"cpus", &f->cpus, 1, MAX_TASKS},
        {"cores", &f->cores, 1, MAX_TASKS},
        {"node_cpus", &f->node_cpus, 1, MAX_TASKS},
        {"cpus_per_task", &f->cpus_per_task, 0, MAX_TASKS},
        {"omp_threads", &f->omp_threads, 0, MAX_TASKS},
        {"efa", &f->efa_devices, 0, MAX_DEVICES},
        {"pipeline", &f->pipeline, 0, MAX_NODES},
        {"tensor", &f->tensor, 0, MAX_TASKS},
    };
    int64_t n;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) != 0)
            continue;
        if (tern_str_int(value, all[i].low, all[i].high, &n) < 0)
            return tern_err_set(err, TERN_USAGE, "%s=%s: wanted a whole number from %d to %d", name,
                                value, all[i].low, all[i].high);
        *all[i].to = (int)n;
        return 0;
    }
    return 1;
}

static int assume_text(struct tern_env_facts *f, const char *name, const char *value,
                       struct tern_err *err)
{
    const struct {
        const char *name;
        char *to;
        size_t size;
    } all[] = {
        {"kernel", f->kernel, sizeof f->kernel},
        {"sdk", f->sdk, sizeof f->sdk},
        {"precision", f->precision, sizeof f->precision},
        {"cache", f->cache, sizeof f->cache},
        {"reserved_ports", f->ports, sizeof f->ports},
        {"interface", f->interface, sizeof f->interface},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) != 0)
            continue;
        if (strlen(value) >= all[i].size)
            return tern_err_set(err, TERN_USAGE, "%s: more than %zu bytes", name, all[i].size - 1);
        snprintf(all[i].to, all[i].size, "%s", value);
        return 0;
    }
    return 1;
}

int tern_env_facts_assume(struct tern_env_facts *f, const char *assignment, struct tern_err *err)
{
    const char *eq = strchr(assignment, '='), *value = eq ? eq + 1 : "";
    char name[32];
    int64_t n;

    if (!eq || eq == assignment || (size_t)(eq - assignment) >= sizeof name)
        return tern_err_set(err, TERN_USAGE, "'%s': wanted FACT=VALUE, for example nodes=16",
                            assignment);
    snprintf(name, sizeof name, "%.*s", (int)(eq - assignment), assignment);
    if (strcmp(name, "instance") == 0)
        return tern_env_facts_instance(f, value, err);
    if (strcmp(name, "master") == 0)
        return tern_env_first_host(value, f->master, sizeof f->master) == 0
                   ? 0
                   : tern_err_set(err, TERN_USAGE, "master=%s: no host name", value);
    if (strcmp(name, "job") == 0) {
        if (tern_str_int(value, 0, INT32_MAX, &n) < 0)
            return tern_err_set(err, TERN_USAGE, "job=%s: no id of a job", value);
        f->job = (uint32_t)n;
        f->forked = f->forked && !n;
        return 0;
    }
    if (strcmp(name, "parameters") == 0)
        return tern_str_real(value, 0, 1e15, &f->parameters) == 0
                   ? 0
                   : tern_err_set(err, TERN_USAGE, "parameters=%s: no number", value);
    if (strcmp(name, "container") == 0) {
        if (tern_str_int(value, 0, 1, &n) < 0)
            return tern_err_set(err, TERN_USAGE, "%s=%s: wanted 0 or 1", name, value);
        f->container = n;
        return 0;
    }
    int rc = assume_number(f, name, value, err);
    if (rc > 0)
        rc = assume_text(f, name, value, err);
    if (rc > 0)
        return tern_err_set(
            err, TERN_USAGE,
            "'%s' is no fact (known: nodes, node, tasks, task, workers, cpus, "
            "cores, node_cpus, cpus_per_task, omp_threads, efa, pipeline, tensor, "
            "instance, kernel, sdk, precision, cache, reserved_ports, interface, master, job, "
            "parameters, container)",
            name);
    return rc;
}
