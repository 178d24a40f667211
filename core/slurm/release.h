/* Differences between releases of Slurm (22.05 to 26.05), all of them in release.c. */
#ifndef TERN_SLURM_RELEASE_H
#define TERN_SLURM_RELEASE_H

#include <slurm/slurm.h>
#include <stdbool.h>

/* Return values as of the functions of libslurm behind them: SLURM_SUCCESS, or another value and
 * errno.  The caller frees loaded messages by libslurm's functions, and by release_conf_free(). */
int tern_slurm_release_job_load(uint32_t job, job_info_msg_t **ret_msg);
int tern_slurm_release_job_requeue(uint32_t job, uint32_t flags);
int tern_slurm_release_job_kill(uint32_t job, int sig);
/* Every step of `job` where `step` is NO_VAL. */
int tern_slurm_release_steps_load(uint32_t job, uint32_t step,
                                  job_step_info_response_msg_t **ret_msg);
int tern_slurm_release_step_signal(uint32_t job, uint32_t step, int sig);

/* The job that `desc` is about. */
void tern_slurm_release_desc_set_job(job_desc_msg_t *desc, uint32_t job);
/* The user on whose behalf a node's reason is set; newer releases take it from the credential. */
void tern_slurm_release_node_set_user(update_node_msg_t *msg, uid_t uid);
void tern_slurm_release_conf_free(slurm_conf_t *conf); /* or NULL */
/* Of a controller, by its release as 100 * year + month: see tern_slurm_reconfigure_takes_nodes. */
bool tern_slurm_release_takes_nodes(int release);

#endif
