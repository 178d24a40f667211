/* Accounting of a virtual cluster: MariaDB and slurmdbd on its head, so that sacct and sacctmgr
 * work.  In namespaces only: both use their usual socket and port. */
#ifndef TERN_VCLUSTER_ACCOUNTING_H
#define TERN_VCLUSTER_ACCOUNTING_H

#include "core/vcluster/plan.h"

/* MariaDB's socket, where its clients look for it by themselves. */
#define TERN_VCLUSTER_ACCOUNTING_SOCKET "/run/mysqld/mysqld.sock"
enum { TERN_VCLUSTER_ACCOUNTING_PORT = 6819 /* slurmdbd's default */ };

/* slurmdbd.conf; malloc'ed. */
char *tern_vcluster_accounting_conf(const struct tern_vcluster_plan *p);

/* In the head: a new database, and its server; it listens at the socket a little later.  The
 * server's pid, or -1. */
pid_t tern_vcluster_accounting_start_database(const struct tern_vcluster_plan *p,
                                              struct tern_err *err);
/* slurmdbd, when the database listens; the pid, or -1. */
pid_t tern_vcluster_accounting_start_slurmdbd(const struct tern_vcluster_plan *p,
                                              struct tern_err *err);
/* When slurmdbd listens: enter the cluster's name, without which slurmctld is not accepted. */
int tern_vcluster_accounting_add_cluster(const struct tern_vcluster_plan *p, struct tern_err *err);

#endif
