/* A changed configuration: is it one, which jobs it would meet, and its way to the controller. */
#include "core/slurm/slurm.h"

#include "core/base/again.h"
#include "core/base/str.h"
#include "core/slurm/release.h"
#include "core/slurm/start.h"

#include <errno.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int tern_slurm_reconfigure(struct tern_err *err)
{
    if (tern_slurm_start(err) < 0)
        return -1;
    return slurm_reconfigure() == SLURM_SUCCESS
               ? 0
               : tern_slurm_fail(err, "have slurmctld read its configuration", 0);
}

bool tern_slurm_reconfigure_takes_nodes(const char *version)
{
    int year, month;

    return sscanf(version, "%2d.%2d", &year, &month) == 2 &&
           tern_slurm_release_takes_nodes(year * 100 + month);
}

/* ------------------------------------------------------------------ trying a file */

/* All that comes from `fd`, as one line. */
static void read_words(int fd, char *to, size_t size)
{
    size_t len = 0;
    char rest[512];

    for (;;) {
        const bool room = len + 1 < size;
        ssize_t n =
            TERN_AGAIN(read(fd, room ? to + len : rest, room ? size - len - 1 : sizeof rest));
        if (n <= 0)
            break;
        len += room ? (size_t)n : 0;
    }
    while (len && to[len - 1] == '\n')
        len--;
    to[len] = '\0';
    for (char *s = to; (s = strchr(s, '\n'));)
        *s = ';';
    tern_str_mask(to);
}

int tern_slurm_conf_try(const char *path, struct tern_err *err)
{
    char said[600];
    int out[2], status;

    if (pipe2(out, O_CLOEXEC) < 0)
        return tern_err_sys(err, "cannot make a pipe");
    pid_t pid = tern_again_fork();
    if (pid == 0) {
        if (dup2(out[1], STDERR_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0)
            _exit(1);
        unsetenv("SLURM_CONF");
        slurm_init(path); /* ends the process where it cannot */
        _exit(0);
    }
    close(out[1]);
    if (pid < 0) {
        close(out[0]);
        return tern_err_sys(err, "cannot start a process");
    }
    read_words(out[0], said, sizeof said);
    close(out[0]);
    if (TERN_AGAIN(waitpid(pid, &status, 0)) == pid && status == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE, "Slurm does not take that configuration: %s",
                        *said ? said : "it says nothing of the reason");
}

/* ------------------------------------------------------------------ jobs */

static bool is_one(const char *name, size_t len, char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return true;
    return false;
}

/* Has the job, which waits in one partition or in several ("a,b"), one of these? */
static bool in_partition(const char *list, char *const *names, size_t n)
{
    for (const char *s = list ? list : ""; *s; s += strspn(s, ",")) {
        const size_t len = strcspn(s, ",");
        if (is_one(s, len, names, n))
            return true;
        s += len;
    }
    return false;
}

static bool on_node(const char *list, char *const *names, size_t n)
{
    char **hosts = NULL;
    size_t n_hosts = 0;
    bool any = false;

    if (!n || !list || tern_slurm_hosts_expand(list, &hosts, &n_hosts, NULL) < 0)
        return false;
    for (size_t i = 0; i < n_hosts && !any; i++)
        any = is_one(hosts[i], strlen(hosts[i]), names, n);
    tern_slurm_hosts_free(hosts);
    return any;
}

int tern_slurm_jobs_describe(char *const *nodes, size_t n_nodes, char *const *partitions,
                             size_t n_partitions, struct tern_buf *to, size_t *ret_n,
                             struct tern_err *err)
{
    enum { SHOWN = 5 };
    job_info_msg_t *msg = NULL;
    size_t n = 0;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (slurm_load_jobs(/* update_time= */ 0, &msg, SHOW_ALL | SHOW_LOCAL) != SLURM_SUCCESS)
        return tern_slurm_fail(err, "ask Slurm for its jobs", 0);
    for (uint32_t i = 0; i < msg->record_count; i++) {
        const slurm_job_info_t *j = &msg->job_array[i];
        const uint32_t base = j->job_state & JOB_STATE_BASE;
        const bool waits = base == JOB_PENDING && !(j->job_state & JOB_COMPLETING);
        const bool runs =
            base == JOB_RUNNING || base == JOB_SUSPENDED || (j->job_state & JOB_COMPLETING);
        if (!((waits || runs) && in_partition(j->partition, partitions, n_partitions)) &&
            !(runs && on_node(j->nodes, nodes, n_nodes)))
            continue;
        if (n++ < SHOWN)
            tern_buf_printf(to, "%s%u (%s %s%s)", n > 1 ? ", " : "", j->job_id,
                            waits ? "waits" : "runs", waits ? "in " : "on ",
                            waits      ? j->partition
                            : j->nodes ? j->nodes
                                       : "");
    }
    if (n > SHOWN)
        tern_buf_printf(to, ", and %zu more", n - SHOWN);
    slurm_free_job_info_msg(msg);
    *ret_n = n;
    return 0;
}
