/* Jobs: load, find, change. */
#include "core/slurm/slurm.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/slurm/release.h"
#include "core/slurm/start.h"

#include <errno.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *job_word(uint32_t state)
{
    static const char *const words[] = {
        [JOB_PENDING] = "PENDING",     [JOB_RUNNING] = "RUNNING",     [JOB_SUSPENDED] = "SUSPENDED",
        [JOB_COMPLETE] = "COMPLETED",  [JOB_CANCELLED] = "CANCELLED", [JOB_FAILED] = "FAILED",
        [JOB_TIMEOUT] = "TIMEOUT",     [JOB_NODE_FAIL] = "NODE_FAIL", [JOB_PREEMPTED] = "PREEMPTED",
        [JOB_BOOT_FAIL] = "BOOT_FAIL", [JOB_DEADLINE] = "DEADLINE",   [JOB_OOM] = "OUT_OF_MEMORY",
    };
    uint32_t base = state & JOB_STATE_BASE;

    return base < sizeof words / sizeof *words ? words[base] : "UNKNOWN";
}

static enum tern_slurm_job_state job_state(uint32_t state)
{
    uint32_t base = state & JOB_STATE_BASE;

    if (state & JOB_COMPLETING)
        return TERN_SLURM_JOB_COMPLETING;
    if (base == JOB_PENDING)
        return TERN_SLURM_JOB_PENDING;
    return base == JOB_RUNNING || base == JOB_SUSPENDED ? TERN_SLURM_JOB_RUNNING
                                                        : TERN_SLURM_JOB_ENDED;
}

/* suspend_time is when it was suspended or resumed last, pre_sus_time how long it had run by then.
 */
static int64_t suspended(const slurm_job_info_t *j)
{
    const int64_t n = (int64_t)(j->suspend_time - j->start_time - j->pre_sus_time);

    return j->suspend_time && n > 0 ? n : 0;
}

/* Slurm's words; libslurm's function for them has another name in each release. */
static char *pending_reason(const slurm_job_info_t *j)
{
    static const struct {
        uint32_t reason;
        const char *word;
    } words[] = {
        {WAIT_NO_REASON, "None"},
        {WAIT_PRIORITY, "Priority"},
        {WAIT_DEPENDENCY, "Dependency"},
        {WAIT_RESOURCES, "Resources"},
        {WAIT_PART_NODE_LIMIT, "PartitionNodeLimit"},
        {WAIT_PART_TIME_LIMIT, "PartitionTimeLimit"},
        {WAIT_PART_DOWN, "PartitionDown"},
        {WAIT_PART_INACTIVE, "PartitionInactive"},
        {WAIT_HELD, "JobHeldAdmin"},
        {WAIT_TIME, "BeginTime"},
        {WAIT_LICENSES, "Licenses"},
        {WAIT_ASSOC_JOB_LIMIT, "AssociationJobLimit"},
        {WAIT_RESERVATION, "Reservation"},
        {WAIT_NODE_NOT_AVAIL, "ReqNodeNotAvail"},
        {WAIT_HELD_USER, "JobHeldUser"},
    };

    if ((j->job_state & JOB_STATE_BASE) != JOB_PENDING)
        return tern_strdup("");
    if (j->state_desc && *j->state_desc)
        return tern_strdup(j->state_desc);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].reason == j->state_reason)
            return tern_strdup(words[i].word);
    return tern_strf("reason %u of slurm.h", (unsigned)j->state_reason);
}

int tern_slurm_job_load(uint32_t id, struct tern_slurm_job **job, struct tern_err *err)
{
    job_info_msg_t *msg = NULL;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (tern_slurm_release_job_load(id, &msg) != SLURM_SUCCESS)
        return tern_slurm_fail(err, "ask Slurm for it", id);
    if (msg->record_count == 0) {
        slurm_free_job_info_msg(msg);
        return tern_err_set(err, TERN_FAILED, "job %u: Slurm does not know it", id);
    }
    const slurm_job_info_t *from = &msg->job_array[0];
    struct tern_slurm_job *j = tern_alloc(1, sizeof *j, "a job", err);
    if (j) {
        *j = (struct tern_slurm_job){
            .id = from->job_id,
            .state = job_state(from->job_state),
            .word = job_word(from->job_state),
            .restarts = from->restart_cnt,
            .n_nodes = from->num_nodes,
            .uid = from->user_id,
            .array_job = from->array_job_id == NO_VAL ? 0 : from->array_job_id,
            .cpus_per_task = from->cpus_per_task == NO_VAL16 ? 1 : from->cpus_per_task,
            .n_tasks = from->num_tasks == NO_VAL ? 0 : (int)from->num_tasks,
            .tasks_per_node = from->ntasks_per_node < INFINITE16 - 1 ? from->ntasks_per_node : 0,
            .threads_per_core =
                from->threads_per_core < INFINITE16 - 1 ? from->threads_per_core : 0,
            .exit_status = (int)from->exit_code,
            .start = from->start_time,
            .end = from->time_limit == INFINITE ? 0 : from->end_time,
            .suspended = suspended(from),
            .preempt = from->preempt_time,
            .requeue = from->requeue != 0,
            .batch = from->batch_flag != 0,
            .reservation = tern_slurm_text(from->resv_name),
            .reason = pending_reason(from),
            .name = tern_slurm_text(from->name),
            .partition = tern_slurm_text(from->partition),
            .nodes = tern_slurm_text(from->nodes),
            .comment = tern_slurm_text(from->comment),
            .admin_comment = tern_slurm_text(from->admin_comment),
        };
        *job = j;
    }
    slurm_free_job_info_msg(msg);
    return j ? 0 : -1;
}

/* The comment whose beginning is the job's. */
static void note_found(const slurm_job_info_t *j, const char (*id)[TERN_SLURM_ID], size_t n,
                       struct tern_slurm_found *ret)
{
    for (size_t i = 0; i < n; i++) {
        if (strncmp(j->comment, id[i], strlen(id[i])) != 0 || j->job_id <= ret[i].job)
            continue;
        const bool member = j->array_job_id && j->array_task_id != NO_VAL;
        ret[i].job = j->job_id;
        ret[i].whole = j->array_job_id ? j->array_job_id : j->job_id;
        snprintf(ret[i].word, sizeof ret[i].word, "%s", job_word(j->job_state));
        if (member)
            snprintf(ret[i].name, sizeof ret[i].name, "%u_%u", j->array_job_id, j->array_task_id);
        else
            snprintf(ret[i].name, sizeof ret[i].name, "%u", ret[i].whole);
    }
}

int tern_slurm_jobs_find(const char (*id)[TERN_SLURM_ID], size_t n, struct tern_slurm_found *ret,
                         struct tern_err *err)
{
    job_info_msg_t *msg = NULL;

    memset(ret, 0, n * sizeof *ret);
    if (tern_slurm_start(err) < 0)
        return -1;
    if (slurm_load_job_user(&msg, getuid(), 0) != SLURM_SUCCESS)
        return errno == ESLURM_INVALID_JOB_ID || errno == SLURM_NO_CHANGE_IN_DATA
                   ? 0
                   : tern_slurm_fail(err, "ask Slurm for one's jobs", 0);
    for (uint32_t i = 0; i < msg->record_count; i++) {
        const slurm_job_info_t *j = &msg->job_array[i];
        enum tern_slurm_job_state state = job_state(j->job_state);
        if (j->comment && (state == TERN_SLURM_JOB_PENDING || state == TERN_SLURM_JOB_RUNNING))
            note_found(j, id, n, ret);
    }
    slurm_free_job_info_msg(msg);
    return 0;
}

void tern_slurm_job_free(struct tern_slurm_job *job)
{
    if (!job)
        return;
    free(job->reservation);
    free(job->reason);
    free(job->name);
    free(job->partition);
    free(job->nodes);
    free(job->comment);
    free(job->admin_comment);
    free(job);
}

/* ESLURM_JOB_SETTING_DB_INX, which is not in 24.11's list any more. */
enum { SETTING_DB_INX = 2103 };

int tern_slurm_job_set_comment(uint32_t id, const char *comment, struct tern_err *err)
{
    job_desc_msg_t desc;

    if (tern_slurm_start(err) < 0)
        return -1;
    slurm_init_job_desc_msg(&desc);
    tern_slurm_release_desc_set_job(&desc, id);
    desc.comment = (char *)comment;
    int rc = slurm_update_job(&desc);
    /* Accounting is still making the job's row, for a second after its start. */
    for (int i = 0; rc != SLURM_SUCCESS && errno == SETTING_DB_INX && i < 10; i++) {
        tern_clock_sleep_ns(200000000);
        rc = slurm_update_job(&desc);
    }
    return rc == SLURM_SUCCESS ? 0 : tern_slurm_fail(err, "set its Comment", id);
}

static bool has_node(const slurm_job_info_t *j, const char *node)
{
    char **hosts = NULL;
    size_t n = 0;
    bool has = false;

    if (job_state(j->job_state) != TERN_SLURM_JOB_RUNNING || !j->nodes ||
        tern_slurm_hosts_expand(j->nodes, &hosts, &n, NULL) < 0)
        return false;
    for (size_t i = 0; i < n && !has; i++)
        has = strcmp(hosts[i], node) == 0;
    tern_slurm_hosts_free(hosts);
    return has;
}

int tern_slurm_jobs_set_admin_comment(const char *node, const char *text, struct tern_err *err)
{
    job_info_msg_t *msg = NULL;
    int rc = 0;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (slurm_load_jobs(/* update_time= */ 0, &msg, SHOW_ALL | SHOW_LOCAL) != SLURM_SUCCESS)
        return tern_slurm_fail(err, "ask Slurm for its jobs", 0);
    for (uint32_t i = 0; i < msg->record_count && rc == 0; i++) {
        job_desc_msg_t desc;
        if (!has_node(&msg->job_array[i], node))
            continue;
        slurm_init_job_desc_msg(&desc);
        tern_slurm_release_desc_set_job(&desc, msg->job_array[i].job_id);
        desc.admin_comment = (char *)text;
        if (slurm_update_job(&desc) != SLURM_SUCCESS)
            rc = tern_slurm_fail(err, "set its AdminComment", msg->job_array[i].job_id);
    }
    slurm_free_job_info_msg(msg);
    return rc;
}

int tern_slurm_job_requeue(uint32_t id, bool hold, struct tern_err *err)
{
    if (tern_slurm_start(err) < 0)
        return -1;
    if (tern_slurm_release_job_requeue(id, hold ? JOB_REQUEUE_HOLD : 0) != SLURM_SUCCESS)
        return tern_slurm_fail(err, "requeue it", id);
    return 0;
}

int tern_slurm_job_set_begin(uint32_t id, time_t when, struct tern_err *err)
{
    job_desc_msg_t desc;

    if (tern_slurm_start(err) < 0)
        return -1;
    slurm_init_job_desc_msg(&desc);
    tern_slurm_release_desc_set_job(&desc, id);
    desc.begin_time = when;
    return slurm_update_job(&desc) == SLURM_SUCCESS ? 0 : tern_slurm_fail(err, "set its begin", id);
}

int tern_slurm_job_cancel(uint32_t id, struct tern_err *err)
{
    if (tern_slurm_start(err) < 0)
        return -1;
    return tern_slurm_release_job_kill(id, SIGKILL) == SLURM_SUCCESS
               ? 0
               : tern_slurm_fail(err, "end it", id);
}
