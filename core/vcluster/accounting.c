#include "core/vcluster/accounting.h"

#include "core/base/fs.h"
#include "core/vcluster/node.h"
#include "core/vcluster/rootfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DATA "--datadir=" TERN_VCLUSTER_ROOT_STATE "/db"

char *tern_vcluster_accounting_conf(const struct tern_vcluster_plan *p)
{
    return tern_strf("AuthType=auth/munge\nAuthInfo=socket=%s\nDbdHost=head\nSlurmUser=%s\n"
                     "StorageType=accounting_storage/mysql\nStorageHost=localhost\n"
                     "StorageUser=root\nStorageLoc=slurm_acct_db\n"
                     "LogFile=%s/log/slurmdbd.log\nPidFile=/run/slurmdbd.pid\n",
                     TERN_VCLUSTER_ROOT_MUNGE, p->user, TERN_VCLUSTER_ROOT_STATE);
}

/* Its end must be a good one. */
static int run(const struct tern_vcluster_plan *p, char *const *argv, struct tern_err *err)
{
    pid_t pid = tern_vcluster_node_spawn(p, argv, err), got;
    int status = 0;

    if (pid < 0)
        return -1;
    do
        got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    if (got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return tern_err_set(err, TERN_FAILED, "%s failed (status %#x); its words are in %s", argv[0],
                        (unsigned)status, "log/supervisor.log");
}

pid_t tern_vcluster_accounting_start_database(const struct tern_vcluster_plan *p,
                                              struct tern_err *err)
{
    /* mariadbd refuses to run as root unless an option allows it. */
    char *user = tern_strf("--user=%s", p->user);
    char *const make[] = {
        p->install_db, "--no-defaults",  DATA, "--auth-root-authentication-method=normal",
        user,          "--skip-test-db", NULL};
    char *const serve[] = {p->mariadbd,
                           "--no-defaults",
                           DATA,
                           user,
                           "--socket=" TERN_VCLUSTER_ACCOUNTING_SOCKET,
                           "--pid-file=/run/mysqld/mariadbd.pid",
                           "--log-error=" TERN_VCLUSTER_ROOT_STATE "/log/mariadbd.log",
                           "--skip-networking",
                           "--skip-log-bin",
                           "--innodb-buffer-pool-size=32M",
                           "--innodb-lock-wait-timeout=900", /* slurmdbd's documentation */
                           "--innodb-flush-log-at-trx-commit=0",
                           NULL};
    pid_t pid = -1;

    if (tern_fs_mkdirs("/run/mysqld", 0755, err) == 0 &&
        tern_fs_mkdirs(TERN_VCLUSTER_ROOT_STATE "/db", 0700, err) == 0 && run(p, make, err) == 0)
        pid = tern_vcluster_node_spawn(p, serve, err);
    free(user);
    return pid;
}

pid_t tern_vcluster_accounting_start_slurmdbd(const struct tern_vcluster_plan *p,
                                              struct tern_err *err)
{
    char *const argv[] = {p->slurmdbd, "-D", NULL};

    return tern_vcluster_node_spawn(p, argv, err);
}

int tern_vcluster_accounting_add_cluster(const struct tern_vcluster_plan *p, struct tern_err *err)
{
    char *sacctmgr = tern_strf("%s/sacctmgr", p->bin);
    char *const argv[] = {sacctmgr, "-i", "add", "cluster", p->name, NULL};
    int rc = run(p, argv, err);

    free(sacctmgr);
    return rc;
}
