#include "core/base/vars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct tern_var tern_vars[] = {
    {"TERN_CLUSTER_HOME", "$XDG_STATE_HOME/tern/cluster",
     "Where virtual clusters keep their state, one folder a cluster."},
    {"TERN_CONFIG", "/etc/tern/tern.yaml", "Site settings."},
    {"TERN_DEADLINE", "60", "Seconds after which a wait for another rank is an error."},
    {"TERN_EXEC_PATH", "", "Where `tern` looks for tern-<name> before its own folder."},
    {"TERN_FABRIC_PROVIDER", "tcp", "libfabric provider used between nodes."},
    {"TERN_FABRIC_MPI_PLUGIN", "",
     "The plugin for MPI; else tern_fabric_mpi.so beside the programs' folder."},
    {"TERN_FABRIC_SHARE", "",
     "Ranks that share memory on a node at most, for tests: 1 sends everything by libfabric."},
    {"TERN_LEDGER", "", "The ledger's folder, for `tern ledger` and `tern metric`."},
    {"TERN_LOG_LEVEL", "info", "error, warn, info or debug."},
    {"TERN_RECEIPT", "",
     "Set by the plugin on the node: tells the trainer that --tern arrived there."},
    {"TERN_RECIPE", "", "Set by the plugin on the node: the recipe of `sbatch --tern=RECIPE`."},
    {"TERN_RUN_SPOOL", "", "Set by `tern run`: the spool folder that this attempt's writers use."},
    {"TERN_RUN_SOCKET", "", "Set by `tern run`: host:port where ranks meet without PMIx."},
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
