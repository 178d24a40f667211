/* Profile trn1: Trainium 1 with the Neuron SDK's XLA trainers (NeuronX Distributed, Optimum
 * Neuron).
 *
 * The values are those that AWS's and others' published workflows use, or differ from them for a
 * reason that stands beside the value. tests/golden/env-workflows.tsv holds them against each
 * other.
 */
#include "core/env/profile.h"

#include "core/base/str.h"
#include "core/layout/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ EFA */

static const char no_efa[] = "this node has no EFA device (/dev/infiniband/uverbs*)";

static void provider(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (f->efa_devices) {
        tern_env_let(a, "efa");
        return;
    }
    tern_env_let(a, "tcp");
    tern_env_say(a, "%s: asking for efa would find no endpoint", no_efa);
}

static void device_rdma(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (!f->efa_devices)
        tern_env_say(a, "%s", no_efa);
    else if (f->nodes == 1)
        tern_env_say(a, "one node: NeuronLink carries everything");
    else
        tern_env_let(a, "1");
}

/* Before 5.15 the kernel does not keep registered memory apart when a process forks. */
static void fork_safe(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    int major = 0, minor = 0;

    if (!f->efa_devices)
        tern_env_say(a, "%s", no_efa);
    else if (sscanf(f->kernel, "%d.%d", &major, &minor) != 2)
        tern_env_say(a, "the kernel's version is not known");
    else if (major > 5 || (major == 5 && minor >= 15))
        tern_env_say(a, "kernel %d.%d handles fork itself (from 5.15), and it costs huge pages",
                     major, minor);
    else {
        tern_env_let(a, "1");
        tern_env_say(a,
                     "kernel %d.%d is older than 5.15: after fork() registered memory would "
                     "change under the device",
                     major, minor);
    }
}

static void socket_interface(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (!f->container || !f->interface[0])
        return;
    tern_env_let(a, "%s", f->interface);
    tern_env_say(a, "in a container the runtime may take a bridge for the way out; this is the "
                    "default route's interface");
}

/* ------------------------------------------------------------------ NeuronCores */

/* Cores of each task, or 0 with the reason. */
static int cores_of_task(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (f->neuron_cores < 1)
        tern_env_say(a, "this node has no Neuron device (/dev/neuron*)");
    else if (f->neuron_cores % f->tasks_per_node)
        tern_env_say(a,
                     "%d tasks cannot share %d NeuronCores evenly. Use a number of tasks that "
                     "divides it.",
                     f->tasks_per_node, f->neuron_cores);
    else
        return f->neuron_cores / f->tasks_per_node;
    return 0;
}

static void num_cores(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    int n = cores_of_task(f, a);

    if (!n)
        return;
    tern_env_let(a, "%d", n);
    if (f->workers > 1)
        tern_env_say(a,
                     "cores for the %d workers of a task; scripts compute their degree of data "
                     "parallelism from it",
                     f->workers);
    else if (f->tasks_per_node > 1)
        tern_env_say(a, "as many as NEURON_RT_VISIBLE_CORES lists");
}

/* A virtual node has devices, but no name of a machine. */
static const struct tern_layout_instance *machine(const struct tern_env_facts *f)
{
    const char *name = tern_str_starts(f->instance, "ml.") ? f->instance + 3 : f->instance;
    const struct tern_layout_instance *t = tern_layout_instance(name);

    if (!t && f->neuron_devices == 16 && f->neuron_cores == 32)
        t = tern_layout_instance("trn1.32xlarge");
    return t && t->chips && t->visible_cores == f->neuron_cores ? t : NULL;
}

/* The task's first core; a tensor group's follow the links between the chips. */
static int first_core(const struct tern_env_facts *f, int n, bool *along)
{
    const struct tern_layout_instance *t = machine(f);
    int group = f->tensor < f->tasks_per_node ? f->tensor : f->tasks_per_node, first = n * f->task;

    *along = false;
    if (!t || f->workers > 1)
        return first;
    for (int i = 0; i < f->tasks_per_node; i++)
        *along = *along || tern_layout_first_core(t, f->tasks_per_node, i, group) != i * n;
    return tern_layout_first_core(t, f->tasks_per_node, f->task, group);
}

/* torchrun's workers take the core of their LOCAL_RANK, but keep a list that is there already. */
static void visible_cores(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    int n = cores_of_task(f, a), first;
    bool along;

    if (!n)
        return;
    if (f->tasks_per_node == 1) {
        tern_env_say(a, f->workers > 1 ? "each of torchrun's workers takes the core of its "
                                         "LOCAL_RANK, but would keep a list that is there already"
                                       : "one process: all cores are its own");
        return;
    }
    first = first_core(f, n, &along);
    if (n == 1)
        tern_env_let(a, "%d", first);
    else
        tern_env_let(a, "%d-%d", first, first + n - 1);
    tern_env_say(a, "local rank %d of %d; a core serves one process%s", f->task, f->tasks_per_node,
                 along ? ". The tensor group's ranks follow the links of the torus "
                         "(launch.mapping: block keeps them in the order of the cores)"
                       : "");
}

/* An IPv4 address or a short name: the runtime fails on more than 63 characters. */
static void root_comm(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    const char *host = tern_env_master(f);
    size_t len = strlen(host);

    if (len > 63)
        len = strcspn(host, ".");
    if (len > 63) {
        tern_env_say(a, "the name of the job's first node has more than 63 characters, which the "
                        "runtime refuses");
        return;
    }
    tern_env_let(a, "%.*s:%d", (int)len, host, tern_env_port(f) + 1);
}

static void inflight(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    bool pipeline = f->pipeline > 1;

    tern_env_let(a, "%d", pipeline ? 7 : 3);
    if (pipeline)
        tern_env_say(a, "as NxD runs its pipelines: a stage queues several micro-batches while it "
                        "waits");
    else
        tern_env_say(a, "as NxD runs tensor parallelism with ZeRO-1: more only costs memory%s",
                     f->pipeline ? "" : " (no pipeline is known of)");
}

/* ------------------------------------------------------------------ numbers */

static const char no_precision[] =
    "the recipe does not tell the trainer's precision, and this would change its numbers";

static void rounding(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (!f->precision[0]) {
        tern_env_say(a, "%s", no_precision);
    } else if (strcmp(f->precision, "bf16") == 0) {
        tern_env_let(a, "1");
        tern_env_say(a, "all of it in bf16: small updates would round away");
    } else {
        tern_env_let(a, "0");
        tern_env_say(
            a, "an fp32 master copy keeps small updates: use round-to-nearest, the usual mode");
    }
}

static void rounding_seed(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (strcmp(f->precision, "bf16") == 0)
        tern_env_let(a, "0");
}

static void use_bf16(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (!f->precision[0])
        tern_env_say(a, "%s", no_precision);
    else if (strcmp(f->precision, "bf16") == 0)
        tern_env_let(a, "1");
    else
        tern_env_say(a, "it would make bf16 of the fp32 master copy, too: XLA_DOWNCAST_BF16 keeps "
                        "that as double");
}

static void downcast_bf16(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (!f->precision[0])
        tern_env_say(a, "%s", no_precision);
    else if (strcmp(f->precision, "mixed") == 0)
        tern_env_let(a, "1");
    else
        tern_env_say(a, "XLA_USE_BF16 says it");
}

/* ------------------------------------------------------------------ compiler, host */

static void cache(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (!f->cache[0])
        return;
    tern_env_let(a, "%s", f->cache);
    tern_env_say(a, "workload.precompile.cache, in the folder of this recipe and layout");
}

static void arenas(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    bool large = f->parameters > 3e10;

    tern_env_let(a, "%d", large ? 128 : 64);
    tern_env_say(a, "glibc's arenas of 32 workers with many threads outgrow the node's memory; %s",
                 large ? "128 for models above 30 billion parameters"
                       : "64 for models up to 30 billion parameters");
}

static void interop_threads(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    if (f->nodes > 1)
        tern_env_let(a, "8192");
    else
        tern_env_say(a, "one node: the default is enough");
}

#define SDK "aws-neuron-sdk "
#define SAMPLES "aws-neuron-samples "

const struct tern_env_var tern_env_trn1[] = {
    {.name = "FI_PROVIDER",
     .scope = TERN_ENV_NODE,
     .why = "EFA or an error: without it libfabric falls back to TCP and says nothing",
     .rule = provider,
     .origin = SDK "setup-trn1-multi-node-execution"},
    {.name = "FI_EFA_USE_DEVICE_RDMA",
     .scope = TERN_ENV_NODE,
     .why = "the devices read and write each other's memory, past the host",
     .rule = device_rdma,
     .origin = SDK "setup-trn1-multi-node-execution"},
    {.name = "FI_EFA_FORK_SAFE",
     .scope = TERN_ENV_NODE,
     .rule = fork_safe,
     .origin = SDK "nrt-troubleshoot; aws-ofi-nccl src/platform-aws.cpp"},
    {.name = "CCOM_SOCKET_IFNAME",
     .scope = TERN_ENV_NODE,
     .why = "the runtime chooses; set it when the log names an interface that leads nowhere",
     .rule = socket_interface,
     .origin = SAMPLES "aws-batch/llama2"},
    {.name = "NEURON_RT_ROOT_COMM_ID",
     .scope = TERN_ENV_JOB,
     .why = "where the collectives of all nodes meet; 'localhost' makes every node its own root",
     .rule = root_comm,
     .origin = SDK "nccom-test; Neuron Collectives 2.22 notes"},
    {.name = "NEURON_RT_NUM_CORES",
     .scope = TERN_ENV_RANK,
     .why = "one process: all cores are its own",
     .rule = num_cores,
     .origin = SDK "runtime configuration guide"},
    {.name = "NEURON_RT_VISIBLE_CORES",
     .scope = TERN_ENV_RANK,
     .rule = visible_cores,
     .origin = SDK "runtime configuration guide"},
    {.name = "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS",
     .scope = TERN_ENV_JOB,
     .last = 30,
     .gone = "removed from the runtime with 2.31: it does nothing but warn",
     .rule = inflight,
     .origin =
         SDK "announce-no-support-implicit-async-mode; neuronx-distributed examples/training"},
    {.name = "NEURON_RT_EXEC_TIMEOUT",
     .scope = TERN_ENV_JOB,
     .why = "the runtime's 30 s hold for one graph; raise it when the log says 'execution timeout' "
            "and the device is well",
     .origin = SDK "runtime configuration guide"},
    {.name = "NEURON_RT_STOCHASTIC_ROUNDING_EN",
     .scope = TERN_ENV_JOB,
     .rule = rounding,
     .origin = SDK "neuronx-cc mixed precision guide"},
    {.name = "NEURON_RT_STOCHASTIC_ROUNDING_SEED",
     .scope = TERN_ENV_JOB,
     .why = "rounding that can be repeated, where it is stochastic",
     .rule = rounding_seed,
     .origin = SDK "neuronx-cc mixed precision guide"},
    {.name = "NEURON_FUSE_SOFTMAX",
     .scope = TERN_ENV_JOB,
     .value = "1",
     .why = "the compiler's own softmax: faster, and it needs less memory",
     .origin = "neuronx-distributed examples/training/llama"},
    {.name = "NEURON_CC_FLAGS",
     .scope = TERN_ENV_JOB,
     .value = "--model-type transformer --distribution-strategy=llm-training",
     .why = "what the compiler does for large transformers; your own value replaces it as a whole, "
            "and every change compiles anew",
     .origin = "neuronx-distributed examples/training/llama"},
    {.name = "NEURON_COMPILE_CACHE_URL",
     .scope = TERN_ENV_JOB,
     .recipes = true,
     .why =
         "no workload.precompile.cache: compiled graphs stay in /var/tmp/neuron-compile-cache of "
         "each node",
     .rule = cache,
     .origin = SDK "Neuron Persistent Cache guide"},
    {.name = "XLA_USE_BF16",
     .scope = TERN_ENV_JOB,
     .last = 22,
     .gone = "deprecated since 2.23: cast the model (model.to(torch.bfloat16)) or use autocast",
     .why = "the trainer's fp32 and double become bf16",
     .rule = use_bf16,
     .origin = SDK "release notes of torch-neuronx; migration_from_xla_downcast_bf16"},
    {.name = "XLA_DOWNCAST_BF16",
     .scope = TERN_ENV_JOB,
     .last = 22,
     .gone = "deprecated since 2.23: cast the model (model.to(torch.bfloat16)) or use autocast",
     .why = "fp32 becomes bf16 and double fp32, which is where NxD keeps the master copy",
     .rule = downcast_bf16,
     .origin = SDK "release notes of torch-neuronx; migration_from_xla_downcast_bf16"},
    {.name = "MALLOC_ARENA_MAX",
     .scope = TERN_ENV_JOB,
     .rule = arenas,
     .origin = "neuronx-distributed examples/training/llama; glibc mallopt(3)"},
    {.name = "TF_NUM_INTEROP_THREADS",
     .scope = TERN_ENV_JOB,
     .why = "collectives of many workers wait on host threads, and hang when there are too few",
     .rule = interop_threads,
     .origin = SAMPLES "aws-batch/llama2; neuronx-nemo-megatron"},
    {.name = "OMP_NUM_THREADS",
     .scope = TERN_ENV_NODE,
     .value = "1",
     .why = "the devices compute; torchrun sets the same for its workers",
     .origin = "awsome-distributed-training optimum-neuron/llama3; PyTorch torchrun"},
    {.name = "MASTER_ADDR",
     .scope = TERN_ENV_JOB,
     .rule = tern_env_rule_master,
     .origin = "PyTorch torch.distributed, environment variable initialization"},
    {.name = "MASTER_PORT",
     .scope = TERN_ENV_JOB,
     .rule = tern_env_rule_port,
     .origin = "Linux Documentation/networking/ip-sysctl.rst"},
    {.name = "LD_PRELOAD",
     .scope = TERN_ENV_JOB,
     .why = "some preload tcmalloc against a host that runs out of memory; MALLOC_ARENA_MAX does "
            "without a library that must lie in the same place on every node",
     .origin = "awslabs/HLAT"},
    {0},
};
