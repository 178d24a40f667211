/* The Slurm that a virtual cluster runs: its daemons, its commands. */
#ifndef TERN_VCLUSTER_PROGRAMS_H
#define TERN_VCLUSTER_PROGRAMS_H

#include "core/vcluster/plan.h"

/* Fill munged, slurmctld, slurmd and bin of `p`; with `accounting` slurmdbd and MariaDB, too. They
 * come from `prefix`; with NULL from beside the libslurm in use, from PATH, or from the usual
 * places. TERN_USAGE when one is missing or of another release. */
int tern_vcluster_programs_find(struct tern_vcluster_plan *p, const char *prefix, bool accounting,
                                struct tern_err *err);

/* `path`, with `bin` in front unless its first srun is the one in there; malloc'ed. */
char *tern_vcluster_programs_path(const char *path, const char *bin);
/* Is the Slurm with commands in `bin` not the system's?  (The system's looks into /etc/slurm.) */
bool tern_vcluster_programs_non_system(const char *bin);
/* Where nodes see the cluster's configuration: at /etc/slurm where this machine has one, else (a
 * Slurm in /opt/slurm) at TERN_VCLUSTER_ROOT_CONF. */
const char *tern_vcluster_programs_conf_dir(void);
/* slurm.conf in there, for a Slurm that would look elsewhere by itself; else NULL. */
const char *tern_vcluster_programs_conf(const char *bin);
/* PATH of daemons and logins. */
#define TERN_VCLUSTER_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#endif
