/* core/env: what each profile says of each node. */
#include "tests/unit/env.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* The value of `name` under `profile`, or "unset: <why>", or "none"; good until the next call. */
static const char *value(const char *profile, const struct tern_env_facts *f, char *const *env,
                         const char *name)
{
    static char text[1200];
    struct tern_env_rows rows;

    if (tern_env_build(profile, f, env, &rows, &e) < 0)
        return e.text;
    const struct tern_env_row *r = row(&rows, name);
    if (!r)
        snprintf(text, sizeof text, "none");
    else if (r->value)
        snprintf(text, sizeof text, "%s", r->value);
    else
        snprintf(text, sizeof text, "unset: %s", r->why);
    tern_env_rows_free(&rows);
    return text;
}
#define VALUE(profile, name, ...)                                                                  \
    ({                                                                                             \
        const char *const set_[] = {__VA_ARGS__, NULL};                                            \
        struct tern_env_facts f_ = facts(set_);                                                    \
        value(profile, &f_, nothing, name);                                                        \
    })

/* ------------------------------------------------------------------ hosts, facts */

static void test_hosts(void)
{
    static const struct {
        const char *list, *first;
    } cases[] = {{"a", "a"},
                 {"a,b", "a"},
                 {"trn1-st-cr-[1-4]", "trn1-st-cr-1"},
                 {"n[003-010,44],z", "n003"},
                 {"r[1-2]n[05-06]-x", "r1n05-x"},
                 {"10.0.0.1", "10.0.0.1"},
                 {"", NULL},
                 {"a[1-", NULL},
                 {"a[x]", NULL},
                 {"$(id)", NULL},
                 {"-rf", NULL},
                 {"a b", NULL},
                 {"a;b", NULL}};
    char to[16];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = tern_env_first_host(cases[i].list, to, sizeof to);
        if (cases[i].first)
            is(rc == 0 ? to : "refused", cases[i].first, "first host of '%s'", cases[i].list);
        else
            ok(rc < 0, "'%s' has no first host", cases[i].list);
    }
    ok(tern_env_first_host("a-name-too-long-for-16", to, sizeof to) < 0,
       "a first host that is too long is refused");
}

static void file(const char *root, const char *path, const char *text)
{
    char *full = tern_strf("%s%s", root, path), *dir = tern_fs_dirname(full);

    tern_fs_mkdirs(dir, 0755, NULL);
    tern_fs_replace(full, text, strlen(text), 0644, NULL);
    free(dir);
    free(full);
}

static void test_facts(void)
{
    char root[] = "/tmp/tern-env-XXXXXX", path[64], link[128];
    struct tern_env_facts f;

    if (!mkdtemp(root))
        return;
    ok(tern_env_facts_under(root, &f, &e) == 0 && f.neuron_devices == 0 && f.cpus > 0 &&
           !f.sdk[0] && !f.instance[0] && !f.port_low,
       "facts of a machine without /proc, /sys and /dev");
    for (int i = 0; i < 16; i++) {
        snprintf(path, sizeof path, "/dev/neuron%d", i);
        file(root, path, "");
    }
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "/dev/infiniband/uverbs%d", i);
        file(root, path, "");
    }
    file(root, "/proc/net/route",
         "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
         "ens6\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
         "ens5\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n");
    file(root, "/proc/sys/net/ipv4/ip_local_reserved_ports", "44000,48620\n");
    file(root, "/proc/sys/net/ipv4/ip_local_port_range", "1024\t65535\n");
    file(root, "/var/lib/dpkg/info/aws-neuronx-runtime-lib.list", "/opt/aws/neuron/lib\n");
    file(
        root, "/var/lib/dpkg/status",
        "Package: aws-neuronx-tools\nVersion: 2.17.1.0\n\nPackage: aws-neuronx-runtime-lib\n"
        "Status: install ok installed\nVersion: 2.24.53.0-f239092cc\n\nPackage: zsh\nVersion: 9\n");
    tern_env_facts_under(root, &f, &e);
    ok(f.neuron_devices == 16 && f.neuron_cores == 32 && f.efa_devices == 8,
       "16 Neuron devices of 2 cores, 8 EFA devices");
    is(f.interface, "ens5", "the default route's interface");
    is(f.ports, "44000,48620", "the reserved ports");
    ok(f.port_low == 1024 && f.port_high == 65535, "the ephemeral ports");
    is(f.sdk, "2.22", "the SDK by Debian's list of packages");
    file(root, "/opt/aws/neuron/lib/libnrt.so.2.33.10.0", "");
    snprintf(link, sizeof link, "%s/opt/aws/neuron/lib/libnrt.so.1", root);
    ok(symlink("libnrt.so.2.33.10.0", link) == 0, "set up: a link to the runtime library");
    tern_env_facts_under(root, &f, &e);
    is(f.sdk, "2.31", "the SDK by the runtime library's name");
    has(f.sdk_from, "2.33.10.0", "the file that has the SDK's version is named");
    file(root, "/sys/devices/virtual/dmi/id/product_name", "trn1.32xlarge\n");
    tern_env_facts_under(root, &f, &e);
    is(f.instance, "trn1.32xlarge", "the instance type by the firmware");
    file(root, "/sys/devices/virtual/dmi/id/product_name", "Standard PC; rm -rf /\n");
    tern_env_facts_under(root, &f, &e);
    is(f.instance, "", "firmware without an instance type gives none");
    tern_fs_remove_tree(root, NULL);
}

static void test_job(void)
{
    struct tern_env_facts f;

    setenv("SLURM_JOB_ID", "4242", 1);
    setenv("SLURM_JOB_NODELIST", "n[5-8]", 1);
    setenv("SLURM_STEP_NODELIST", "n[6-8]", 1);
    setenv("SLURM_JOB_NUM_NODES", "4", 1);
    setenv("SLURM_STEP_NUM_NODES", "3", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "4(x2),2", 1);
    setenv("SLURM_NODEID", "2", 1);
    setenv("SLURM_LOCALID", "1", 1);
    tern_env_facts_gather(&f, &e);
    is(f.master, "n6", "rank 0 is on the step's first node, not the job's");
    ok(f.job == 4242 && f.nodes == 3 && f.node == 2 && f.tasks_per_node == 2 && f.task == 1,
       "job, nodes, tasks of this node, local rank");
    unsetenv("SLURM_STEP_TASKS_PER_NODE");
    setenv("SLURM_NTASKS_PER_NODE", "4", 1);
    setenv("SLURM_TASKS_PER_NODE", "4(x4)", 1);
    tern_env_facts_gather(&f, &e);
    ok(f.tasks_per_node == 1 && f.tasks_to_come == 4, "a batch script is one process");
    struct tern_env_rows rows;
    if (tern_env_build("cpu", &f, nothing, &rows, &e) == 0) {
        has(rows.n_advice ? rows.advice[0] : "", "srun tern env -- COMMAND",
            "a batch script gets advice to use srun");
        tern_env_rows_free(&rows);
    }
    setenv("SLURM_HET_JOB_ID", "4200", 1);
    setenv("SLURM_HET_SIZE", "2", 1);
    setenv("SLURM_JOB_NODELIST_HET_GROUP_0", "head1", 1);
    setenv("SLURM_JOB_NUM_NODES_HET_GROUP_0", "1", 1);
    setenv("SLURM_JOB_NUM_NODES_HET_GROUP_1", "4", 1);
    tern_env_facts_gather(&f, &e);
    is(f.master, "head1", "a heterogeneous job meets at its first component");
    ok(f.job == 4200 && f.nodes == 5, "a heterogeneous job has its leader's id and all nodes");
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "8", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "7", 1);
    tern_env_facts_gather(&f, &e);
    ok(f.tasks_per_node == 8 && f.task == 7, "mpirun's variables win over its daemon's");
    setenv("SLURM_HET_JOB_ID", "$(id)", 1);
    setenv("SLURM_JOB_ID", "-1", 1);
    tern_env_facts_gather(&f, &e);
    ok(f.job == 0 && !f.master[0], "an id that is no number counts as none");
    static const char *const set[] = {"SLURM_JOB_ID",
                                      "SLURM_JOB_NODELIST",
                                      "SLURM_STEP_NODELIST",
                                      "SLURM_JOB_NUM_NODES",
                                      "SLURM_STEP_NUM_NODES",
                                      "SLURM_NTASKS_PER_NODE",
                                      "SLURM_TASKS_PER_NODE",
                                      "SLURM_NODEID",
                                      "SLURM_LOCALID",
                                      "SLURM_HET_JOB_ID",
                                      "SLURM_HET_SIZE",
                                      "SLURM_JOB_NODELIST_HET_GROUP_0",
                                      "SLURM_JOB_NUM_NODES_HET_GROUP_0",
                                      "SLURM_JOB_NUM_NODES_HET_GROUP_1",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      NULL};
    for (int i = 0; set[i]; i++)
        unsetenv(set[i]);
}

/* ------------------------------------------------------------------ profiles */

static const char *resolved(const char *profile, const char *const *assume, char *why)
{
    struct tern_env_facts f = facts(assume);
    const char *name = tern_env_resolve(profile, &f, why, 400, &e);

    return name ? name : e.text;
}

static void test_choice(void)
{
    static const char *const cpu[] = {NULL};
    static const char *const trn1[] = {"instance=trn1.32xlarge", "sdk=2.25", NULL};
    static const char *const bare[] = {"instance=trn1.32xlarge", NULL};
    static const char *const next[] = {"instance=trn1.32xlarge", "sdk=2.33", NULL};
    static const char *const old[] = {"instance=trn1.32xlarge", "sdk=2.9", NULL};
    char why[400] = "";

    struct tern_env_facts own = facts(trn1);
    own.neuron_devices = 0;
    is(tern_env_resolve(NULL, &own, why, sizeof why, &e), "trn1-2.25",
       "an instance type that should have devices is trn1");
    has(why, "is the driver loaded", "an instance type without its devices: the reason says so");
    own = facts(trn1);
    own.trainer = true;
    is(tern_env_resolve(NULL, &own, why, sizeof why, &e), "cpu",
       "tern's own trainer has profile cpu");
    is(resolved(NULL, cpu, why), "cpu", "a node without devices has profile cpu");
    has(why, "no Neuron device", "profile cpu: the reason is no device");
    is(resolved("auto", trn1, why), "trn1-2.25", "Neuron devices and SDK 2.25");
    has(why, "16 Neuron devices", "reason: the devices");
    is(resolved("trn1", bare, why), "trn1-2.31", "without an SDK: the newest known profile");
    has(why, "newest known", "without an SDK: the reason says newest known");
    is(resolved("trn1", next, why), "trn1-2.31", "a newer SDK: the newest known profile");
    has(why, "2.33 (as given) is newer", "a newer SDK: the reason says so");
    is(resolved("trn1", old, why), "trn1-2.18", "an older SDK: the oldest profile");
    is(resolved("trn1-2.20", next, why), "trn1-2.20", "a named profile wins over the SDK");
    has(resolved("trn1-2.20x", next, why), "there is no profile 'trn1-2.20x'",
        "an unknown profile is an error");
    has(resolved("cpus", cpu, why), "did you mean 'cpu'",
        "an unknown profile: the nearest is named");
    size_t n = 0;
    while (tern_env_profile(n))
        n++;
    ok(n == 17, "auto, cpu, trn1 and 14 generations");
}

#define NODE "instance=trn1.32xlarge"

static void test_trn1(void)
{
    static const char p[] = "trn1-2.31", old[] = "trn1-2.30";

    is(VALUE(p, "FI_PROVIDER", NODE), "efa", "FI_PROVIDER is efa on a node with EFA");
    is(VALUE(p, "FI_PROVIDER", NODE, "efa=0"), "tcp", "FI_PROVIDER is tcp without EFA");
    is(VALUE(p, "FI_EFA_USE_DEVICE_RDMA", NODE, "nodes=2"), "1", "device RDMA between nodes");
    has(VALUE(p, "FI_EFA_USE_DEVICE_RDMA", NODE), "unset: one node", "no device RDMA on one node");
    is(VALUE(p, "FI_EFA_FORK_SAFE", NODE, "kernel=5.10.220-209.amzn2"), "1", "fork: kernel 5.10");
    is(VALUE(p, "FI_EFA_FORK_SAFE", NODE, "kernel=4.14.1"), "1", "fork: kernel 4.14");
    has(VALUE(p, "FI_EFA_FORK_SAFE", NODE, "kernel=5.15.0-aws"),
        "unset:", "fork: unset with kernel 5.15");
    has(VALUE(p, "FI_EFA_FORK_SAFE", NODE, "kernel=6.8.0"),
        "unset:", "fork: unset with kernel 6.8");

    is(VALUE(old, "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS", NODE), "3", "requests in flight");
    is(VALUE(old, "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS", NODE, "pipeline=8"), "7",
       "more requests in flight with a pipeline");
    has(VALUE(p, "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS", NODE), "unset: removed",
        "requests in flight: unset with 2.31");
    is(VALUE("trn1-2.22", "XLA_DOWNCAST_BF16", NODE, "precision=mixed"), "1", "bf16 by XLA");
    is(VALUE("trn1-2.22", "XLA_USE_BF16", NODE, "precision=bf16"), "1", "bf16 by XLA, all of it");
    has(VALUE("trn1-2.22", "XLA_USE_BF16", NODE), "unset: the recipe does not tell",
        "bf16 by XLA: unset without the recipe's precision");
    has(VALUE("trn1-2.23", "XLA_USE_BF16", NODE, "precision=bf16"), "unset: deprecated",
        "bf16 by XLA: unset from 2.23");
}

/* Which cores a task sees, by its rank and the tensor group. */
static void test_cores(void)
{
    static const char p[] = "trn1-2.31";

    is(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "tasks=32", "task=0"), "0", "rank 0 of 32");
    is(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "tasks=32", "task=31"), "31", "rank 31 of 32");
    is(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "tasks=4", "task=3"), "24-31", "rank 3 of 4");
    is(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "tasks=32", "task=8", "tensor=32"), "14",
       "a tensor group of four rows takes the second one backwards");
    is(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "tasks=16", "task=8", "tensor=8"), "24-25",
       "a second tensor group of two rows begins with the last row");
    is(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "tasks=32", "task=8", "tensor=8"), "8",
       "a tensor group of one row keeps the core numbers");
    is(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "tasks=4", "task=1", "tensor=4"), "8-15",
       "ranks of several chips keep the core numbers");
    has(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "workers=32", "tensor=32"), "unset: each of",
        "torchrun's workers are not renumbered");
    has(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "workers=32"), "unset: each of torchrun's",
        "torchrun's workers choose their cores themselves");
    is(VALUE(p, "NEURON_RT_NUM_CORES", NODE, "workers=32"), "32",
       "torchrun's workers share the node's 32 cores");
    is(VALUE(p, "NEURON_RT_NUM_CORES", NODE, "tasks=4"), "8",
       "NUM_CORES is the number of visible cores");
    has(VALUE(p, "NEURON_RT_VISIBLE_CORES", NODE, "tasks=5"), "unset: 5 tasks cannot share 32",
        "5 tasks on 32 cores: the reason of no share");
    is(VALUE(p, "NEURON_RT_VISIBLE_CORES", "instance=trn1.2xlarge", "tasks=2", "task=1"), "1",
       "trn1.2xlarge has two cores");
}

static void test_addresses(void)
{
    static const char p[] = "trn1-2.31";

    is(VALUE(p, "MASTER_ADDR", NODE, "master=n[4-9]"), "n4", "MASTER_ADDR is the first node's");
    is(VALUE(p, "MASTER_PORT", NODE, "job=4001"), "20002", "the master's port by the job's id");
    is(VALUE(p, "NEURON_RT_ROOT_COMM_ID", NODE, "job=4001", "master=n4"), "n4:20003",
       "the collectives' root has the next port");
    is(VALUE(p, "NEURON_RT_ROOT_COMM_ID", NODE,
             "master=n4.a-domain-with-a-very-long-name.of-many-parts.compute.internal.example.org"),
       "n4:20001", "the collectives' root has a name that the runtime takes");
    is(VALUE(p, "CCOM_SOCKET_IFNAME", NODE, "container=1", "interface=eth0"), "eth0",
       "in a container the interface is the given one");
    has(VALUE(p, "CCOM_SOCKET_IFNAME", NODE, "interface=eth0"),
        "unset:", "without a container the interface stays unset");
    is(VALUE(p, "NEURON_COMPILE_CACHE_URL", NODE, "cache=/fsx/cache"), "/fsx/cache",
       "the compile cache is the workload's");
    has(VALUE(p, "NEURON_COMPILE_CACHE_URL", NODE), "unset: no workload",
        "without a workload the cache stays unset");
    is(VALUE(p, "MALLOC_ARENA_MAX", NODE, "parameters=7e10"), "128", "arenas of a 70B model");
}

static void test_cpu(void)
{
    static const char p[] = "cpu";

    is(VALUE(p, "OMP_NUM_THREADS", "cpus=8", "cores=4"), "4", "a thread a core");
    is(VALUE(p, "OMP_NUM_THREADS", "cpus=8", "cores=8", "node_cpus=8", "tasks=2"), "4",
       "two ranks that share all CPUs");
    is(VALUE(p, "OMP_NUM_THREADS", "cpus=4", "cores=4", "node_cpus=8", "tasks=2"), "4",
       "two ranks that Slurm has bound");
    is(VALUE(p, "OMP_NUM_THREADS", "cpus=2", "cores=2", "node_cpus=2", "tasks=2",
             "cpus_per_task=64"),
       "1", "cpus_per_task cannot add CPUs");
    is(VALUE(p, "OMP_NUM_THREADS", "cpus=8", "cores=8", "cpus_per_task=3"), "3",
       "cpus_per_task lowers the threads");
    is(VALUE(p, "OMP_NUM_THREADS", "cpus=8", "cores=8", "workers=4"), "2",
       "torchrun's workers lower OMP_NUM_THREADS");
    is(VALUE(p, "OMP_NUM_THREADS", "cpus=2", "cores=2", "workers=32"), "1", "at least one");
    is(VALUE(p, "OMP_PROC_BIND", "cpus=4", "cores=4", "node_cpus=8", "tasks=2"), "close",
       "threads are bound inside the rank's own CPUs");
    is(VALUE(p, "OMP_PLACES", "cpus=4", "cores=4", "node_cpus=8", "tasks=2"), "cores",
       "threads are bound by core");
    has(VALUE(p, "OMP_PROC_BIND", "cpus=8", "cores=8", "omp_threads=1"), "unset: one thread",
        "one thread is not bound: virtual nodes share their cores");
    is(VALUE(p, "OMP_PROC_BIND", "cpus=8", "cores=8", "omp_threads=4"), "close",
       "four threads are bound");
    has(VALUE(p, "OMP_PROC_BIND", "cpus=8", "cores=8", "node_cpus=8", "tasks=2"),
        "unset: the 2 ranks", "threads are not bound in CPUs that ranks share");
    has(VALUE(p, "OMP_PROC_BIND", "cpus=2", "cores=2", "node_cpus=2", "tasks=4"),
        "unset: more processes than CPUs", "threads are not bound when oversubscribed");
    has(VALUE(p, "OMP_PROC_BIND", "cpus=8", "cores=8", "workers=2"), "unset: each task starts",
        "threads of a task's workers are not bound");
    is(VALUE(p, "OMPI_MCA_mpi_yield_when_idle", "cpus=2", "node_cpus=2", "tasks=4"), "1",
       "waiting ranks yield when oversubscribed");
    has(VALUE(p, "OMPI_MCA_mpi_yield_when_idle", "cpus=4", "node_cpus=4", "tasks=4"),
        "unset:", "waiting ranks spin when not oversubscribed");
    is(VALUE(p, "FI_PROVIDER", "efa=0"), "tcp", "tcp between nodes");
    has(VALUE(p, "FI_PROVIDER", "efa=1"), "unset: EFA is here",
        "profile cpu: FI_PROVIDER is unset with EFA");

    struct tern_env_facts forked =
        facts((const char *[]){"cpus=4", "cores=4", "node_cpus=64", NULL});
    forked.tasks_per_node = 4;
    forked.forked = true; /* `taskset -c 0-3 tern run --ranks 4` */
    is(value(p, &forked, nothing, "OMP_NUM_THREADS"), "1", "unbound tasks share a mask");
    has(value(p, &forked, nothing, "OMP_PROC_BIND"),
        "unset: ", "unbound tasks are not put on the first cores");

    struct tern_env_facts f = facts(NULL);
    strcpy(f.provider, "verbs");
    has(value(p, &f, nothing, "FI_PROVIDER"), "TERN_FABRIC_PROVIDER=verbs",
        "FI_PROVIDER is unset with TERN_FABRIC_PROVIDER");
    has(value(p, &f, nothing, "OPENBLAS_CORETYPE"),
        "unset:", "OPENBLAS_CORETYPE is unset on a known CPU");
    strcpy(f.blas, "SkylakeX");
    strcpy(f.blas_why, "OpenBLAS takes this CPU for a Prescott");
    is(value(p, &f, nothing, "OPENBLAS_CORETYPE"), "SkylakeX",
       "OPENBLAS_CORETYPE is set on a CPU that OpenBLAS misjudges");
}

/* ------------------------------------------------------------------ whose value */

static void test_user(void)
{
    static const char *const trn1[] = {NODE, "nodes=2", NULL};
    char *own[] = {"FI_PROVIDER=tcp",   "NEURON_CC_FLAGS=-O1 'x' \"$(id)\"",
                   "MALLOC_ARENA_MAX=", "FI_EFA_FORK_SAFE=1",
                   "FI_PROVIDERS=no",   NULL};
    struct tern_env_facts f = facts(trn1);
    struct tern_env_rows rows;

    strcpy(f.kernel, "6.8.0");
    ok(tern_env_build("trn1-2.31", &f, own, &rows, &e) == 0,
       "rows are built beside values of the user");
    const struct tern_env_row *r = row(&rows, "FI_PROVIDER");
    ok(r->by == TERN_ENV_USER, "the user's value is marked as the user's");
    is(r->value, "tcp", "the user's value stays");
    is(r->would, "efa", "the user's row has the profile's value, too");
    r = row(&rows, "MALLOC_ARENA_MAX");
    ok(r->by == TERN_ENV_USER && !*r->value, "an empty value is a value");
    r = row(&rows, "FI_EFA_FORK_SAFE");
    ok(r->by == TERN_ENV_USER && !r->would,
       "a user's value of a variable that the profile leaves unset");
    is(row(&rows, "NEURON_CC_FLAGS")->value, "-O1 'x' \"$(id)\"",
       "a user's value stays byte for byte");
    tern_env_rows_free(&rows);
    e.text[0] = 0;
    ok(tern_env_build("nonsense", &f, own, &rows, &e) < 0 && e.code == TERN_USAGE,
       "a wrong profile is refused");
}

static void test_cache(void)
{
    static const char *const trn1[] = {NODE, "cache=/fsx/c/1a2b", NULL};
    char *recipes[] = {"NEURON_COMPILE_CACHE_URL=/fsx/c/1a2b", NULL};
    char *own[] = {"NEURON_COMPILE_CACHE_URL=/home/me/cache", NULL};
    struct tern_env_facts f = facts(trn1);
    struct tern_env_rows rows;

    tern_env_build("trn1-2.31", &f, recipes, &rows, &e);
    ok(row(&rows, "NEURON_COMPILE_CACHE_URL")->by == TERN_ENV_PROFILE,
       "the recipe's cache in the environment is not the user's");
    tern_env_rows_free(&rows);
    tern_env_build("trn1-2.31", &f, own, &rows, &e);
    ok(row(&rows, "NEURON_COMPILE_CACHE_URL")->by == TERN_ENV_USER,
       "another cache folder in the environment is the user's");
    tern_env_rows_free(&rows);
}

static void test_marks(void)
{
    static const char *const first[] = {NODE, "pipeline=8", "tasks=32", "task=3", NULL};
    struct tern_env_facts f = facts(first);
    struct tern_env_rows rows;

    clearenv();
    setenv("FI_PROVIDER", "tcp", 1);
    tern_env_build("trn1-2.30", &f, environ, &rows, &e);
    ok(tern_env_apply(&rows, &e) == 0, "rows are applied");
    tern_env_rows_free(&rows);
    is(getenv("NEURON_RT_VISIBLE_CORES"), "3", "an applied row is in the environment");
    is(getenv("FI_PROVIDER"), "tcp", "the user's value is not overwritten");
    setenv("NEURON_FUSE_SOFTMAX", "0", 1); /* the user changes one afterwards */

    f.task = 5;
    f.pipeline = 0;
    f.launched = true;
    tern_env_build("trn1-2.30", &f, environ, &rows, &e);
    const struct tern_env_row *r = row(&rows, "NEURON_RT_VISIBLE_CORES");
    ok(r->by == TERN_ENV_PROFILE && strcmp(r->value, "5") == 0,
       "a rank's variable is set anew in another task");
    r = row(&rows, "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS");
    ok(r->by == TERN_ENV_PROFILE && strcmp(r->value, "7") == 0,
       "a variable of the whole job stays as its launcher set it");
    ok(row(&rows, "FI_PROVIDER")->by == TERN_ENV_USER,
       "the user's value is the user's in an inner call");
    ok(row(&rows, "NEURON_FUSE_SOFTMAX")->by == TERN_ENV_USER,
       "a profile's value that the user changed is the user's");
    tern_env_rows_free(&rows);

    f.launched = false;
    tern_env_build("trn1-2.30", &f, environ, &rows, &e);
    is(row(&rows, "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS")->value, "3",
       "a variable of the whole job is set anew outside `tern run`");
    tern_env_rows_free(&rows);
    tern_env_build("trn1-2.31", &f, environ, &rows, &e);
    tern_env_apply(&rows, &e);
    tern_env_rows_free(&rows);
    ok(!getenv("NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS"),
       "another profile unsets variables that it lacks");

    tern_env_forget();
    ok(!getenv("NEURON_RT_VISIBLE_CORES") && !getenv("MASTER_ADDR") && !getenv("TERN_PROFILE_SET"),
       "tern_env_forget unsets the profile's variables");
    is(getenv("FI_PROVIDER"), "tcp", "tern_env_forget keeps the user's value");
    is(getenv("NEURON_FUSE_SOFTMAX"), "0", "tern_env_forget keeps a value that the user changed");
    setenv("TERN_PROFILE_SET", "= == FI_PROVIDER FI_PROVIDER= =12345678 FI_PROVIDER=zz", 1);
    tern_env_forget();
    is(getenv("FI_PROVIDER"), "tcp", "tern_env_forget ignores a malformed list");
}

static void test_advice(void)
{
    struct tern_env_rows rows;
    struct tern_env_facts f = facts(NULL);

    f.job = 1;
    f.port_low = 1024;
    f.port_high = 65535;
    tern_env_build("cpu", &f, nothing, &rows, &e);
    ok(rows.n_advice == 1, "a port among the ephemeral ones: advice");
    has(rows.n_advice ? rows.advice[0] : "", "ip_local_reserved_ports=20000-27999",
        "a port among the ephemeral ones: the admin's setting");
    tern_env_rows_free(&rows);
    strcpy(f.ports, "44000,20000-27999");
    tern_env_build("cpu", &f, nothing, &rows, &e);
    ok(rows.n_advice == 0, "a reserved port: no advice");
    tern_env_rows_free(&rows);
    strcpy(f.ports, "");
    f.port_low = 32768;
    tern_env_build("cpu", &f, nothing, &rows, &e);
    ok(rows.n_advice == 0, "a port below the ephemeral range: no advice");
    tern_env_rows_free(&rows);
}

/* ------------------------------------------------------------------ a step around it */

/* What becomes of one of `variables`: "left out", "stays", "not srun's". */
static const char *fate(char *const *variables, const char *name)
{
    struct tern_env_step s;
    const char *is = "not srun's";

    tern_env_step_look(&s, variables);
    for (size_t i = 0; i < s.n; i++)
        if (strcmp(s.left[i].name, name) == 0)
            is = s.left[i].stays ? "stays" : "left out";
    tern_env_step_free(&s);
    return is;
}

/* Variables that srun writes for a step and reads as options: of 22.05 and of 25.11. */
static void test_step(void)
{
    static const char *const both[] = {"SLURM_THREADS_PER_CORE=1",
                                       "SLURM_CPUS_PER_TASK=2",
                                       "SLURM_TRES_PER_TASK=cpu=2",
                                       "SLURM_NTASKS_PER_CORE=1",
                                       "SLURM_NTASKS_PER_GPU=1",
                                       "SLURM_NTASKS_PER_NODE=1",
                                       "SLURM_CPU_FREQ_REQ=low",
                                       "SLURM_NTASKS_PER_SOCKET=1",
                                       "SLURM_DISTRIBUTION=cyclic",
                                       "SLURM_OVERCOMMIT=1",
                                       "SLURM_GPUS=2",
                                       "SLURM_GPUS_PER_TASK=1",
                                       "SLURM_GPUS_PER_NODE=2",
                                       "SLURM_GPU_BIND=closest",
                                       "SLURM_GPU_FREQ=low",
                                       "SLURM_CPUS_PER_GPU=2",
                                       "SLURM_MEM_PER_GPU=1G",
                                       "SLURM_OOM_KILL_STEP=1",
                                       "SLURM_LABELIO=1",
                                       "SLURM_UMASK=0022"};
    char *v[4] = {"SLURM_JOB_ID=7", NULL, "SLURM_STEP_ID=3", NULL};
    char name[64];

    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        v[1] = (char *)both[i];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(both[i], "="), both[i]);
        v[2] = "SLURM_STEP_ID=3";
        is(fate(v, name), "left out", "%s: in a step it is the step's", name);
        v[2] = NULL;
        is(fate(v, name), "not srun's", "%s: in a batch script it is the job's", name);
    }
    v[1] = "SLURM_MPI_TYPE=pmi2";
    is(fate(v, "SLURM_MPI_TYPE"), "not srun's", "an --mpi that a batch script exports stays");
    v[2] = "SLURM_STEP_ID=3";
    is(fate(v, "SLURM_MPI_TYPE"), "left out", "in a step it is the step's");
    v[1] = "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0=4";
    is(fate(v, "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0"), "left out",
       "a variable that srun adds is left out");
    v[1] = "SLURM_JOB_CPUS_PER_NODE=4";
    is(fate(v, "SLURM_JOB_CPUS_PER_NODE"), "not srun's", "the job's own number of CPUs stays");
}

int main(void)
{
    test_hosts();
    test_facts();
    test_job();
    test_choice();
    test_trn1();
    test_cores();
    test_addresses();
    test_cpu();
    test_user();
    test_cache();
    test_advice();
    test_step();
    test_marks(); /* clears the environment */
    return tap_done();
}
