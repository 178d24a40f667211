#include "core/base/vars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct tern_var tern_vars[] = {
    {"TERN_ANY_PARTITION", "",
     "Set by the plugin for its check of a recipe: the job's partition is not known there, and the "
     "largest node of any counts."},
    {"TERN_BF16_UNIT", "",
     "The unit that multiplies numbers of bf16: avx512_bf16, or fp32, which every CPU has; else "
     "the faster one of this CPU, by a table (`tern help precision`). Each has its own bits."},
    {"TERN_BLAS", "",
     "The OpenBLAS to compute with, a path or a library's name. Else its OpenMP build under its "
     "name in Debian, Fedora or SUSE, or any other build."},
    {"TERN_CACHE", "$XDG_CACHE_HOME/tern",
     "The folder for blocks of objects that were read from s3:// and https://."},
    {"TERN_CACHE_BYTES", "16G",
     "Bytes that the folder TERN_CACHE may hold; the blocks not read for longest go first. 0: "
     "nothing is kept."},
    {"TERN_CLUSTER_HOME", "$XDG_STATE_HOME/tern/cluster",
     "The folder that holds a folder for each virtual cluster."},
    {"TERN_COMPILE_CACHE", "",
     "Set by `tern run`: the folder of graphs compiled for this recipe and layout."},
    {"TERN_CONFIG", "/etc/tern/tern.yaml", "Site settings: `tern help site`."},
    {"TERN_DEADLINE", "60",
     "Seconds after which a wait for another rank is an error. A rank of tern's own trainer that "
     "is alive has longer to read, write and evaluate (ten minutes at least). For a step it has "
     "ten times its longest so far (5 s at least). If this is set, no rank has less."},
    {"TERN_EXEC_PATH", "", "The folder in which `tern` looks for tern-<name> before its own."},
    {"TERN_FABRIC", "",
     "The carrier of messages between nodes, ofi or mpi; wins over launch.fabric, from which "
     "`tern run` sets it."},
    {"TERN_FABRIC_ALGORITHM", "",
     "The algorithm between nodes, if it can do the call: doubling, tree, halving, direct, ring "
     "or bruck; for comparisons."},
    {"TERN_FABRIC_CACHE", "",
     "Bytes of the largest cache that a node's ranks share, if /sys is wrong. A collective "
     "inside the node that moves more than that writes past the caches."},
    {"TERN_FABRIC_DUMP", "",
     "Set by `tern run`: folder for the operations that each rank called last, written when one "
     "fails "
     "and on SIGUSR2; `tern fabric flight-report` reads it."},
    {"TERN_FABRIC_MODE", "auto",
     "How libfabric is used: rma (short messages sent, long ones written to their place), tagged "
     "(the provider matches), or auto. auto is rma where the provider has it and it is faster."},
    {"TERN_FABRIC_MPI_PLUGIN", "",
     "The plugin for MPI; else tern_fabric_mpi.so beside the programs' folder."},
    {"TERN_FABRIC_PROVIDER", "tcp",
     "The libfabric provider between nodes. tcp: its own endpoints (net in libfabric 1.16 and "
     "1.17), else tcp;ofi_rxm."},
    {"TERN_FABRIC_RAILS", "all",
     "Networks between nodes: all (those that lead to every rank; each must go on working), any (a "
     "failed one is left out), or interfaces with commas between. Wins over launch.rails."},
    {"TERN_FABRIC_SHARE", "",
     "For tests: most ranks of a node that share memory; 1 sends everything by libfabric."},
    {"TERN_HEALTH", "", "Set by the plugin: --tern-health; wins over launch.health."},
    {"TERN_HEALTH_COLLECT", "", "Set for a node's checks: the address that collects their rows."},
    {"TERN_HEALTH_EXPECT", "", "Expectations of `tern health` on this machine: neuron=N,efa=N,..."},
    {"TERN_HEALTH_PATIENCE", "1",
     "For tests: the factor by which the limits of `tern health` on its checks are longer."},
    {"TERN_HEALTH_ROOT", "",
     "For tests: the folder in which tern looks for /sys, /dev, /proc and HyperPod's folder."},
    {"TERN_HEALTH_SKIP", "", "Checks that `tern health` leaves out, with commas between."},
    {"TERN_LEDGER", "",
     "The ledger's folder, for `tern ledger` and `tern metric`; else that of the site settings, "
     "else for reading the folder ledger here."},
    {"TERN_LIVENESS", "5",
     "Seconds without a sign of life after which an awaited rank counts as stopped or frozen; 0: "
     "only TERN_DEADLINE counts."},
    {"TERN_LOG_BYTES", "64M",
     "Bytes of a rank's log in one attempt (a run keeps four times that); 0: no log."},
    {"TERN_LOG_LEVEL", "info", "error, warn, info or debug."},
    {"TERN_MARKER", "",
     "Set by the plugin on the node: proves to the trainer that --tern arrived there."},
    {"TERN_METRIC_FD", "",
     "Set by tern-task: the descriptor that takes lines like 'step=7 loss=2.31'."},
    {"TERN_METRIC_FILE", "",
     "Set by tern-task: the same as TERN_METRIC_FD, as a file to open for writing."},
    {"TERN_PRECOMPILE_STEPS", "",
     "Set by `tern run`: steps whose graphs workload.precompile.command is to compile."},
    {"TERN_PROFILE", "", "Set by the plugin: --tern-profile; wins over launch.profile."},
    {"TERN_PROFILE_SET", "",
     "Set with a profile's variables: their names and hashes of their values, by which tern "
     "distinguishes them from your own."},
    {"TERN_PROGRESS_MS", "",
     "For tests: milliseconds before the first line of progress, and between lines."},
    {"TERN_RECEIPT", "", "The name of TERN_MARKER until 0.4; it goes with 0.5."},
    {"TERN_RECIPE", "", "Set by the plugin on the node: the recipe of `sbatch --tern=RECIPE`."},
    {"TERN_RESTARTS", "",
     "Set by the plugin: --tern-restarts, attempts after the first; wins over launch.restarts."},
    {"TERN_RUN_BEACON", "",
     "Set by `tern run`: the address at which nodes ask whether the supervisor still runs. There "
     "ranks report values that their storage did not take."},
    {"TERN_RUN_LOGS", "", "Set by `tern run`: the folder of this attempt's logs."},
    {"TERN_RUN_METRICS", "", "Set by `tern run`: the recipe's workload.metrics for tern-task."},
    {"TERN_RUN_SPOOL", "", "Set by `tern run`: the spool folder that this attempt's writers use."},
    {"TERN_RUN_SOCKET", "", "Set by `tern run`: host:port of the rendezvous without PMIx."},
    {"TERN_RUN_TENSOR", "1",
     "Set by `tern run`: the size of a tensor group, whose ranks get neighbouring NeuronCores."},
    {"TERN_RUN_WARN", "120",
     "Set by `tern submit`: seconds between the warning and the job's time limit."},
    {"TERN_RUN_WORKERS", "1", "Set by `tern run`: ranks that each task starts itself."},
    {"TERN_S3_ANONYMOUS", "", "1: requests to s3:// are not signed, for public buckets."},
    {"TERN_SLURM", "",
     "The prefix of the Slurm that `tern cluster up` runs, such as /opt/slurm; else that of tern's "
     "libslurm."},
    {"TERN_STORE_DEADLINE", "600",
     "Seconds that one request to object storage may take, retries included."},
    {"TERN_TRAIN_PROFILE", "",
     "The file to which `tern train` writes a Chrome trace of one step, as by --profile; also "
     "under "
     "`tern run`."},
    {"TERN_WIREUP", "supervisor",
     "supervisor or pmix: the rendezvous of ranks that `tern run` starts by srun; more than 512 "
     "ranks use PMIx."},
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
