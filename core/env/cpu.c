/* Profile cpu: threads, pinning and libfabric on nodes that compute with their CPUs. */
#include "core/env/profile.h"

#include <stdio.h>

/* Processes of the job that share this process's CPUs, its workers counted. */
static int sharers(const struct tern_env_facts *f)
{
    /* A mask smaller than the node is this task's own when a launcher that binds has made it.  One
     * that `tern run` came with (taskset, a container's) its tasks share. */
    bool own = f->tasks_per_node == 1 || (f->cpus < f->node_cpus && !f->forked);

    return (own ? 1 : f->tasks_per_node) * f->workers;
}

static int cpus_each(const struct tern_env_facts *f)
{
    int cpus = f->cores > 0 ? f->cores : f->cpus > 0 ? f->cpus : 1;
    int threads = f->cores > 0 && f->cpus > f->cores ? f->cpus / f->cores : 1;
    int n = cpus / sharers(f);
    int given = f->cpus_per_task / threads / f->workers;

    if (given > 0 && given < n)
        n = given;
    return n < 1 ? 1 : n;
}

static bool oversubscribed(const struct tern_env_facts *f)
{
    return sharers(f) > (f->cpus > 0 ? f->cpus : 1);
}

static void omp_threads(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    int n = cpus_each(f);

    tern_env_let(a, "%d", n);
    if (oversubscribed(f))
        tern_env_say(a, "%d processes share %d CPUs", sharers(f), f->cpus);
    else
        tern_env_say(a, "a thread for each core of %d CPUs, shared by %d process%s", f->cpus,
                     sharers(f), sharers(f) == 1 ? "" : "es");
}

/* Threads bound inside a mask that ranks share would all be on its first cores. */
static bool may_bind(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (oversubscribed(f))
        tern_env_say(a, "more processes than CPUs: the kernel shares them out better");
    else if (f->workers > 1)
        tern_env_say(a, "each task starts %d workers itself: they would all bind to the same cores",
                     f->workers);
    else if (sharers(f) > 1)
        tern_env_say(a,
                     "the %d ranks of the node are not bound to CPUs of their own (srun "
                     "--cpu-bind): they would all bind to the same cores",
                     f->tasks_per_node);
    else if ((f->omp_threads > 0 ? f->omp_threads : cpus_each(f)) < 2)
        tern_env_say(a, "one thread: bound, it could not leave its first core to others");
    else
        return true;
    return false;
}

static void omp_bind(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (may_bind(f, a))
        tern_env_let(a, "close");
}

static void omp_places(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (may_bind(f, a))
        tern_env_let(a, "cores");
}

static void blas_core(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (!f->blas[0])
        return;
    tern_env_let(a, "%s", f->blas);
    tern_env_say(a, "%s", f->blas_why);
}

static void yield_when_idle(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (!oversubscribed(f)) {
        tern_env_say(a, "every process has a CPU: spinning while it waits is faster");
        return;
    }
    tern_env_let(a, "1");
    tern_env_say(a,
                 "%d processes share %d CPUs: a rank that spins keeps the one it waits for from "
                 "running",
                 sharers(f), f->cpus);
}

static void fabric(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (f->provider[0])
        tern_env_say(a, "TERN_FABRIC_PROVIDER=%s says what is to be used", f->provider);
    else if (f->efa_devices)
        tern_env_say(a, "EFA is here, and is taken by itself");
    else
        tern_env_let(a, "tcp");
}

const struct tern_env_var tern_env_cpu[] = {
    {.name = "OMP_NUM_THREADS",
     .scope = TERN_ENV_RANK,
     .rule = omp_threads,
     .origin = "OpenMP specification, environment variables"},
    {.name = "OMP_PROC_BIND",
     .scope = TERN_ENV_RANK,
     .why = "threads stay where their memory is",
     .rule = omp_bind,
     .origin = "OpenMP specification, environment variables"},
    {.name = "OMP_PLACES",
     .scope = TERN_ENV_RANK,
     .why = "one thread a core, not two on one core's hardware threads",
     .rule = omp_places,
     .origin = "OpenMP specification, environment variables"},
    {.name = "OPENBLAS_CORETYPE",
     .scope = TERN_ENV_NODE,
     .why = "OpenBLAS knows this CPU",
     .rule = blas_core,
     .origin = "OpenBLAS driver/others/dynamic.c"},
    {.name = "OMPI_MCA_mpi_yield_when_idle",
     .scope = TERN_ENV_RANK,
     .rule = yield_when_idle,
     .origin = "open-mpi.org FAQ: oversubscribing nodes"},
    {.name = "FI_PROVIDER",
     .scope = TERN_ENV_NODE,
     .why = "sockets between nodes, and no search through providers that are not here",
     .rule = fabric,
     .origin = "libfabric fi_provider(7)"},
    {.name = "MASTER_ADDR",
     .scope = TERN_ENV_JOB,
     .rule = tern_env_rule_master,
     .origin = "PyTorch torch.distributed, environment variable initialization"},
    {.name = "MASTER_PORT",
     .scope = TERN_ENV_JOB,
     .rule = tern_env_rule_port,
     .origin = "Linux Documentation/networking/ip-sysctl.rst"},
    {0},
};
