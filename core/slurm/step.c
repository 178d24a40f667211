/* Steps of a job. */
#include "core/slurm/slurm.h"

#include "core/base/str.h"
#include "core/slurm/release.h"
#include "core/slurm/start.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <string.h>

/* The steps of `job` (all where `step` is NO_VAL), to be freed with
 * slurm_free_job_step_info_response_msg; NULL with `err`. */
static job_step_info_response_msg_t *load(uint32_t job, uint32_t step, struct tern_err *err)
{
    job_step_info_response_msg_t *msg = NULL;

    if (tern_slurm_start(err) < 0)
        return NULL;
    if (tern_slurm_release_steps_load(job, step, &msg) == SLURM_SUCCESS)
        return msg;
    tern_slurm_fail(err, "ask Slurm for its steps", job);
    return NULL;
}

/* Is it srun's and running: not waiting for nodes, nor the batch script's? */
static bool is_there(const job_step_info_t *s)
{
    return s->step_id.step_id < SLURM_INTERACTIVE_STEP;
}

/* The newest of the job's steps of that name; NO_VAL when there is none. */
static int find_step(uint32_t job, const char *name, uint32_t *step, struct tern_err *err)
{
    job_step_info_response_msg_t *msg = load(job, NO_VAL, err);

    *step = NO_VAL;
    if (!msg)
        return -1;
    for (uint32_t i = 0; i < msg->job_step_count; i++) {
        const job_step_info_t *s = &msg->job_steps[i];
        if (s->name && strcmp(s->name, name) == 0 && is_there(s) &&
            (*step == NO_VAL || s->step_id.step_id > *step))
            *step = s->step_id.step_id;
    }
    slurm_free_job_step_info_response_msg(msg);
    return 0;
}

int tern_slurm_step_exists(uint32_t job, const char *name, bool *there, struct tern_err *err)
{
    uint32_t step;

    if (find_step(job, name, &step, err) < 0)
        return -1;
    *there = step != NO_VAL;
    return 0;
}

int tern_slurm_steps_describe(uint32_t job, const char *except, struct tern_buf *to,
                              struct tern_err *err)
{
    enum { MOST = 4 }; /* named; a job may have thousands */
    job_step_info_response_msg_t *msg = load(job, NO_VAL, err);
    size_t n = 0;

    if (!msg)
        return -1;
    for (uint32_t i = 0; i < msg->job_step_count; i++) {
        const job_step_info_t *s = &msg->job_steps[i];
        if (!is_there(s) || (s->name && tern_str_starts(s->name, except)) || ++n > MOST)
            continue;
        tern_buf_printf(to, "%s%u.%u (%s%s%s)", to->len ? ", " : "", job, s->step_id.step_id,
                        s->name ? s->name : "?", s->nodes ? " on " : "", s->nodes ? s->nodes : "");
    }
    if (n > MOST)
        tern_buf_printf(to, " and %zu more", n - MOST);
    slurm_free_job_step_info_response_msg(msg);
    return 0;
}

int tern_slurm_step_signal(uint32_t job, const char *name, int sig, struct tern_err *err)
{
    uint32_t step;

    if (find_step(job, name, &step, err) < 0)
        return -1;
    if (step == NO_VAL)
        return tern_err_set(err, TERN_FAILED, "job %u: it has no step '%s'", job, name);
    int rc = tern_slurm_release_step_signal(job, step, sig);
    if (rc == SLURM_SUCCESS || errno == ESLURM_ALREADY_DONE)
        return 0;
    return tern_slurm_fail(err, "signal its ranks", job);
}

int tern_slurm_step_load_line(uint32_t job, uint32_t step, char **ret_line, struct tern_err *err)
{
    job_step_info_response_msg_t *msg = load(job, step, err);
    char *line = NULL;

    if (!msg)
        return -1;
    for (uint32_t i = 0; i < msg->job_step_count && !line; i++)
        if (msg->job_steps[i].step_id.step_id == step && msg->job_steps[i].submit_line)
            line = tern_strdup(msg->job_steps[i].submit_line);
    slurm_free_job_step_info_response_msg(msg);
    if (!line)
        return tern_err_set(err, TERN_FAILED, "step %u.%u: Slurm does not know its command line",
                            job, step);
    *ret_line = line;
    return 0;
}

int tern_slurm_step_get_end(uint32_t job, uint32_t step, time_t *end, struct tern_err *err)
{
    struct tern_slurm_job *j = NULL;

    if (tern_slurm_job_load(job, &j, err) < 0)
        return -1;
    *end = j->end;
    tern_slurm_job_free(j);
    job_step_info_response_msg_t *msg = load(job, step, err);
    if (!msg)
        return -1;
    for (uint32_t i = 0; i < msg->job_step_count; i++) {
        const job_step_info_t *s = &msg->job_steps[i];
        if (s->step_id.step_id != step || s->time_limit == NO_VAL || s->time_limit == INFINITE)
            continue;
        time_t own = s->start_time + (time_t)s->time_limit * 60;
        if (*end == 0 || own < *end)
            *end = own;
    }
    slurm_free_job_step_info_response_msg(msg);
    return 0;
}
