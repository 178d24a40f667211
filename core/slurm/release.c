#include "core/slurm/release.h"

#include <slurm/slurm_version.h>

#define SINCE(year, month) (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(year, month, 0))

/* 25.11 names jobs and steps by one struct in some calls, 26.05 in more. */
#if SINCE(25, 11)
static slurm_step_id_t name_of(uint32_t job, uint32_t step)
{
    slurm_step_id_t id = SLURM_STEP_ID_INITIALIZER;

    id.job_id = job;
    id.step_id = step;
    return id;
}
#endif

/* SHOW_LOCAL: jobs of this cluster alone are asked about. Without it another question precedes each
 * one: whether the cluster is part of a federation. */
int tern_slurm_release_job_load(uint32_t job, job_info_msg_t **ret_msg)
{
#if SINCE(26, 5)
    return slurm_load_job(ret_msg, name_of(job, NO_VAL), SHOW_LOCAL);
#else
    return slurm_load_job(ret_msg, job, SHOW_LOCAL);
#endif
}

int tern_slurm_release_job_requeue(uint32_t job, uint32_t flags)
{
#if SINCE(26, 5)
    return slurm_requeue(name_of(job, NO_VAL), flags);
#else
    return slurm_requeue(job, flags);
#endif
}

int tern_slurm_release_job_kill(uint32_t job, int sig)
{
#if SINCE(26, 5)
    return slurm_kill_job(name_of(job, NO_VAL), (uint16_t)sig, /* flags= */ 0);
#else
    return slurm_kill_job(job, (uint16_t)sig, /* flags= */ 0);
#endif
}

int tern_slurm_release_steps_load(uint32_t job, uint32_t step,
                                  job_step_info_response_msg_t **ret_msg)
{
#if SINCE(25, 11)
    slurm_step_id_t id = name_of(job, step);
    return slurm_get_job_steps(&id, ret_msg, SHOW_ALL | SHOW_LOCAL);
#else
    return slurm_get_job_steps(/* update_time= */ 0, job, step, ret_msg, SHOW_ALL | SHOW_LOCAL);
#endif
}

/* Since 23.11 by way of slurmctld. The topology's plugin finds the way straight to the nodes, and
 * cannot be loaded here (see print_topology in topology.c). */
int tern_slurm_release_step_signal(uint32_t job, uint32_t step, int sig)
{
#if SINCE(25, 11)
    slurm_step_id_t id = name_of(job, step);
    return slurm_kill_job_step(&id, (uint16_t)sig, /* flags= */ 0);
#elif SINCE(23, 11)
    return slurm_kill_job_step(job, step, (uint16_t)sig, /* flags= */ 0);
#else
    return slurm_signal_job_step(job, step, (uint32_t)sig);
#endif
}

void tern_slurm_release_desc_set_job(job_desc_msg_t *desc, uint32_t job)
{
#if SINCE(25, 11)
    desc->step_id.job_id = job;
#else
    desc->job_id = job;
#endif
}

void tern_slurm_release_node_set_user(update_node_msg_t *msg, uid_t uid)
{
#if SINCE(26, 5)
    (void)msg, (void)uid;
#else
    msg->reason_uid = uid;
#endif
}

void tern_slurm_release_conf_free(slurm_conf_t *conf)
{
#if SINCE(26, 5)
    slurm_free_conf(conf);
#else
    slurm_free_ctl_conf(conf);
#endif
}

/* Since 23.11 slurmctld starts anew for it, beside the one that runs, which goes on where the new
 * one cannot.  Earlier ones compare the names, and end. */
bool tern_slurm_release_takes_nodes(int release)
{
    return release >= 2311;
}
