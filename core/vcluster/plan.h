/* The plan that `up` makes and the supervisor carries out, and the cluster's folder. */
#ifndef TERN_VCLUSTER_PLAN_H
#define TERN_VCLUSTER_PLAN_H

#include <sys/types.h>

#include "core/vcluster/vcluster.h"

struct tern_vcluster_plan_node {
    char name[80]; /* two names of 25, "-st-", and a number */
    int chips;     /* Neuron devices */
    pid_t pid;     /* its init (plain: its slurmd), as the supervisor sees it; 0: off */
    bool fleet;    /* off until Slurm wants it */
    enum tern_vcluster_trouble trouble;
    pid_t brake;                        /* of a slow node: the process that holds it up, or 0 */
    struct tern_vcluster_stop *stopped; /* by freeze or slow; NULL: never yet */
};

struct tern_vcluster_plan {
    const struct tern_layout *layout;
    char *name, *dir;
    char host[65]; /* plain: the host name of slurmctld and the slurmds */
    enum tern_vcluster_mode mode;
    bool user_namespace;
    int port;                               /* plain: the first of n_nodes + 1 free ones */
    char **share;                           /* NULL-ended, absolute */
    char *user;                             /* SlurmUser; set when it is written down */
    char *plugin;                           /* or NULL */
    char *munged, *slurmctld, *slurmd;      /* absolute */
    char *slurmdbd, *mariadbd, *install_db; /* likewise; NULL without accounting */
    char *bin;                              /* the folder of srun and the others, likewise */
    size_t n_nodes, n_fleet;                /* those of the fleet among them */
    int64_t deadline_ns;                    /* of `up`, by tern_clock_boot_ns */
    struct tern_vcluster_plan_node *nodes;
};

enum { TERN_VCLUSTER_CTLD_PORT = 6817 /* Slurm's default */ };

/* Everything but the mode; touches nothing on disk. */
int tern_vcluster_plan_make(struct tern_vcluster_plan *p, const struct tern_layout *l,
                            const struct tern_vcluster_options *o, struct tern_err *err);
void tern_vcluster_plan_free(struct tern_vcluster_plan *p);
/* Fill the folder for the mode in `p`: configuration, key, the nodes' folders. */
int tern_vcluster_plan_write(struct tern_vcluster_plan *p, struct tern_err *err);

/* malloc'ed: $TERN_CLUSTER_HOME or its default. */
char *tern_vcluster_plan_home(struct tern_err *err);
/* malloc'ed folder of cluster `name`; NULL where that is not a valid name. */
char *tern_vcluster_plan_dir(const char *name, struct tern_err *err);
/* Make the folder, take its lock, and remove the files of a former cluster.  The locked descriptor,
 * or -1: TERN_USAGE when the cluster is up (or coming up). */
int tern_vcluster_plan_lock(const char *dir, const char *name, struct tern_err *err);
/* Is the lock of `dir` held? */
bool tern_vcluster_plan_locked(const char *dir);
/* Remove the folder with all in it. */
int tern_vcluster_plan_remove(const char *dir, struct tern_err *err);

#endif
