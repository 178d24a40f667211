#include "core/base/vars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct tern_var tern_vars[] = {
    {"TERN_BLAS", "",
     "The OpenBLAS to compute with, a path or a library's name; else its OpenMP build, under the "
     "names that Debian, Fedora and SUSE give it, or what there is."},
    {"TERN_CLUSTER_HOME", "$XDG_STATE_HOME/tern/cluster",
     "Where virtual clusters keep their state, one folder a cluster."},
    {"TERN_COMPILE_CACHE", "",
     "Set by `tern run`: the folder of graphs compiled for this recipe and layout."},
    {"TERN_CONFIG", "/etc/tern/tern.yaml", "Site settings: `tern help site`."},
    {"TERN_DEADLINE", "60",
     "Seconds after which a wait for another rank is an error; longer for one that shows life and "
     "evaluates, reads or writes."},
    {"TERN_EXEC_PATH", "", "Where `tern` looks for tern-<name> before its own folder."},
    {"TERN_FABRIC", "",
     "ofi or mpi: what carries messages between nodes; before launch.fabric, from which `tern run` "
     "sets it."},
    {"TERN_FABRIC_ALGORITHM", "",
     "How nodes combine, where it can be so: doubling, tree, halving, direct, ring or bruck; to "
     "compare."},
    {"TERN_FABRIC_CACHE", "",
     "Bytes of the largest cache that a node's ranks share, where it is not as /sys tells: what a "
     "collective inside the node reads and writes beyond it is written past the caches."},
    {"TERN_FABRIC_DUMP", "",
     "Set by `tern run`: folder for the operations that each rank called last, written when one "
     "fails "
     "and on SIGUSR2; `tern fabric flight-report` reads it."},
    {"TERN_FABRIC_MODE", "auto",
     "How libfabric is used: rma (short messages sent, long ones written to where they belong), "
     "tagged (the provider matches), or auto: rma where it is there and the faster."},
    {"TERN_FABRIC_MPI_PLUGIN", "",
     "The plugin for MPI; else tern_fabric_mpi.so beside the programs' folder."},
    {"TERN_FABRIC_PROVIDER", "tcp",
     "libfabric provider used between nodes; tcp: its own endpoints (net in libfabric 1.16 and "
     "1.17) where there are any, else tcp;ofi_rxm."},
    {"TERN_FABRIC_RAILS", "all",
     "Networks between nodes: all that lead to every rank (each must go on working), any (one that "
     "fails is "
     "done "
     "without), or interfaces' names with commas between; before launch.rails."},
    {"TERN_FABRIC_SHARE", "",
     "Ranks that share memory on a node at most, for tests: 1 sends everything by libfabric."},
    {"TERN_HEALTH", "", "Set by the plugin: --tern-health; before launch.health."},
    {"TERN_HEALTH_COLLECT", "", "Set for a node's checks: where their rows are collected."},
    {"TERN_HEALTH_EXPECT", "", "What `tern health` expects of this machine: neuron=N,efa=N,..."},
    {"TERN_HEALTH_ROOT", "", "Where `tern health` looks for /sys, /dev and /proc, for tests."},
    {"TERN_HEALTH_SKIP", "", "Checks that `tern health` leaves out, with commas between."},
    {"TERN_LEDGER", "", "The ledger's folder, for `tern ledger` and `tern metric`."},
    {"TERN_LIVENESS", "5",
     "Seconds without a sign of life after which a rank that others wait for counts as stopped or "
     "frozen; 0: only the deadline counts."},
    {"TERN_LOG_BYTES", "64M",
     "Bytes of a rank's log in one attempt (a run keeps four times that); 0: none."},
    {"TERN_LOG_LEVEL", "info", "error, warn, info or debug."},
    {"TERN_METRIC_FD", "",
     "Set by tern-task: descriptor that takes lines like 'step=7 loss=2.31'."},
    {"TERN_METRIC_FILE", "", "Set by tern-task: the same as a file to open for writing."},
    {"TERN_PRECOMPILE_STEPS", "",
     "Set by `tern run`: steps whose graphs workload.precompile.command is to compile."},
    {"TERN_PROFILE", "", "Set by the plugin: --tern-profile; before launch.profile."},
    {"TERN_PROFILE_SET", "",
     "Set with a profile's variables: their names and their values' hashes, so that they are told "
     "from yours."},
    {"TERN_RECEIPT", "",
     "Set by the plugin on the node: tells the trainer that --tern arrived there."},
    {"TERN_RECIPE", "", "Set by the plugin on the node: the recipe of `sbatch --tern=RECIPE`."},
    {"TERN_RESTARTS", "",
     "Set by the plugin: --tern-restarts, attempts after the first; before launch.restarts."},
    {"TERN_RUN_BEACON", "",
     "Set by `tern run`: where the ranks' nodes ask whether the supervisor's still runs."},
    {"TERN_RUN_LOGS", "", "Set by `tern run`: the folder of this attempt's logs."},
    {"TERN_RUN_METRICS", "", "Set by `tern run`: the recipe's workload.metrics for tern-task."},
    {"TERN_RUN_SPOOL", "", "Set by `tern run`: the spool folder that this attempt's writers use."},
    {"TERN_RUN_SOCKET", "", "Set by `tern run`: host:port where ranks meet without PMIx."},
    {"TERN_RUN_TENSOR", "1",
     "Set by `tern run`: ranks of a tensor group, which get neighbouring NeuronCores."},
    {"TERN_RUN_WARN", "120",
     "Set by `tern submit`: seconds between the warning and the job's time limit."},
    {"TERN_RUN_WORKERS", "1", "Set by `tern run`: ranks that each of its tasks starts itself."},
    {"TERN_SLURM", "",
     "The prefix of the Slurm that `tern cluster up` runs, as /opt/slurm; else the one whose "
     "library tern uses."},
    {"TERN_TRAIN_PROFILE", "",
     "Where `tern train` writes a Chrome trace of one step: its --profile, also under `tern run`."},
    {"TERN_WIREUP", "supervisor",
     "supervisor or pmix: how the ranks that `tern run` starts by srun find each other; more than "
     "512 use PMIx."},
    {NULL, NULL, NULL},
};

const char *tern_var(const char *name)
{
    for (const struct tern_var *v = tern_vars; v->name; v++) {
        if (strcmp(v->name, name) == 0) {
            const char *s = getenv(name);
            return s && *s ? s : NULL;
        }
    }
    fprintf(stderr, "tern: bug: %s is not declared in core/base/vars.c\n", name);
    abort();
}
