/* When a reservation takes nodes from a job. */
#include "core/slurm/slurm.h"

#include "core/base/str.h"
#include "core/slurm/release.h"
#include "core/slurm/start.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <string.h>

/* Does `list`, a reservation's, name one of the hosts? */
static bool has_one(const char *list, char *const *hosts)
{
    char **theirs = NULL;
    size_t n = 0;
    bool any = false;

    if (!list || tern_slurm_hosts_expand(list, &theirs, &n, NULL) < 0)
        return false;
    for (size_t i = 0; i < n && !any; i++)
        for (size_t j = 0; hosts[j] && !any; j++)
            any = strcmp(theirs[i], hosts[j]) == 0;
    tern_slurm_hosts_free(theirs);
    return any;
}

/* Minutes for which jobs may go on after the end of their reservation (ResvOverRun), INFINITE16 for
 * as long as they want. */
static int load_over_run(uint16_t *ret_minutes, struct tern_err *err)
{
    slurm_conf_t *conf = NULL;

    if (slurm_load_ctl_conf(/* update_time= */ 0, &conf) != SLURM_SUCCESS)
        return tern_slurm_fail(err, "ask Slurm for its configuration", 0);
    *ret_minutes = conf->resv_over_run;
    tern_slurm_release_conf_free(conf);
    return 0;
}

/* When the job's own reservation ends it; 0: never.  One with FLEX lets jobs go on. */
static time_t ends(const reserve_info_t *r, uint16_t over_run)
{
    if ((r->flags & RESERVE_FLAG_FLEX) || over_run == INFINITE16)
        return 0;
    return r->end_time + (time_t)over_run * 60;
}

/* When `r` takes a node from the job; 0: it does not. */
static time_t takes(const reserve_info_t *r, const struct tern_slurm_job *job, char *const *hosts,
                    uint16_t over_run)
{
    if (*job->reservation)
        return r->name && strcmp(r->name, job->reservation) == 0 ? ends(r, over_run) : 0;
    /* A reservation that began before the job has let the job start. */
    const bool maintenance = (r->flags & RESERVE_FLAG_MAINT) || r->max_start_delay;
    return maintenance && r->start_time > job->start && has_one(r->node_list, hosts) ? r->start_time
                                                                                     : 0;
}

int tern_slurm_job_find_reservation(const struct tern_slurm_job *job, const char *nodes,
                                    time_t *ret_when, struct tern_err *err)
{
    reserve_info_msg_t *msg = NULL;
    char **hosts = NULL;
    uint16_t over_run = 0;
    time_t first = 0;
    size_t n;

    if (tern_slurm_start(err) < 0 || (*job->reservation && load_over_run(&over_run, err) < 0) ||
        tern_slurm_hosts_expand(nodes, &hosts, &n, err) < 0)
        return -1;
    if (slurm_load_reservations(/* update_time= */ 0, &msg) != SLURM_SUCCESS) {
        tern_slurm_hosts_free(hosts);
        return tern_err_set(err, TERN_TEMPFAIL, "cannot ask Slurm for its reservations: %s",
                            slurm_strerror(errno));
    }
    for (uint32_t i = 0; i < msg->record_count; i++) {
        const time_t when = takes(&msg->reservation_array[i], job, hosts, over_run);
        if (when && (!first || when < first))
            first = when;
    }
    slurm_free_reservation_info_msg(msg);
    tern_slurm_hosts_free(hosts);
    *ret_when = first;
    return 0;
}
