/* The configuration, and the start of libslurm. */
#include "core/slurm/slurm.h"

#include "core/base/again.h"
#include "core/base/str.h"
#include "core/slurm/start.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *tern_slurm_conf(void)
{
    static const char *const usual[] = {
        "/etc/slurm/slurm.conf",
        "/run/slurm/conf/slurm.conf", /* where slurmd puts it in a configless cluster */
        "/etc/slurm-llnl/slurm.conf",
        "/opt/slurm/etc/slurm.conf", /* ParallelCluster */
        "/usr/local/etc/slurm.conf",
    };
    const char *given = getenv("SLURM_CONF");

    if (given && *given)
        return TERN_AGAIN(access(given, R_OK)) == 0 ? given : NULL;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (TERN_AGAIN(access(usual[i], R_OK)) == 0)
            return usual[i];
    return NULL;
}

/* The controller that serves the configuration to a login node of a configless cluster. */
static const char *conf_server(void)
{
    const char *server = getenv("SLURM_CONF_SERVER");

    return !getenv("SLURM_CONF") && server && *server ? server : NULL;
}

bool tern_slurm_available(void)
{
    return tern_slurm_conf() || conf_server();
}

/* libslurm ends the process when that controller does not answer: a child tries it first. */
static int try_server(const char *server, struct tern_err *err)
{
    pid_t pid = tern_again_fork();
    int status;

    if (pid == 0) {
        slurm_init(NULL);
        _exit(0);
    }
    if (pid < 0)
        return tern_err_sys(err, "cannot start a process");
    if (TERN_AGAIN(waitpid(pid, &status, 0)) == pid && status == 0)
        return 0;
    return tern_err_set(err, TERN_TEMPFAIL,
                        "no Slurm configuration from SLURM_CONF_SERVER (%s). Does slurmctld run "
                        "there, with SlurmctldParameters=enable_configless?",
                        server);
}

int tern_slurm_start(struct tern_err *err)
{
    static bool started;
    const char *conf = tern_slurm_conf(), *server = conf ? NULL : conf_server();

    if (started)
        return 0;
    if (!conf && !server)
        return tern_err_set(err, TERN_FAILED,
                            "no Slurm configuration here (%s%s). Set SLURM_CONF, or run this on a "
                            "machine of the cluster.",
                            getenv("SLURM_CONF") ? "SLURM_CONF: cannot read "
                                                 : "looked in /etc/slurm",
                            getenv("SLURM_CONF") ? getenv("SLURM_CONF") : "");
    if (server && try_server(server, err) < 0)
        return -1;
    slurm_init(conf);
    started = true;
    return 0;
}

int tern_slurm_fail(struct tern_err *err, const char *what, uint32_t id)
{
    int e = errno;
    bool refused = e == ESLURM_INVALID_JOB_ID || e == ESLURM_USER_ID_MISSING ||
                   e == ESLURM_ACCESS_DENIED || e == ESLURM_ALREADY_DONE ||
                   e == ESLURM_NOT_SUPPORTED || e == ESLURM_DISABLED ||
                   e == ESLURM_JOB_NOT_RUNNING || e == ESLURM_BATCH_ONLY;
    enum tern_code code = refused ? TERN_FAILED : TERN_TEMPFAIL;

    if (id)
        return tern_err_set(err, code, "job %u: cannot %s: %s", id, what, slurm_strerror(e));
    return tern_err_set(err, code, "cannot %s: %s", what, slurm_strerror(e));
}

char *tern_slurm_text(const char *s)
{
    return tern_strdup(s ? s : "");
}
