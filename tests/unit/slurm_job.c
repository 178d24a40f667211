/* core/slurm/job: what becomes of Slurm's words on a job. */
#include "core/slurm/job.c"

#include "tests/unit/tap.h"

static void test_state(void)
{
    ok(job_state(JOB_PENDING) == TERN_SLURM_JOB_PENDING, "a job that waits");
    ok(job_state(JOB_RUNNING) == TERN_SLURM_JOB_RUNNING &&
           job_state(JOB_SUSPENDED) == TERN_SLURM_JOB_RUNNING,
       "a suspended job has its nodes, as one that runs");
    ok(job_state(JOB_RUNNING | JOB_COMPLETING) == TERN_SLURM_JOB_COMPLETING &&
           job_state(JOB_COMPLETE | JOB_COMPLETING) == TERN_SLURM_JOB_COMPLETING,
       "a job whose nodes are being cleared has not ended");
    ok(job_state(JOB_COMPLETE) == TERN_SLURM_JOB_ENDED &&
           job_state(JOB_FAILED) == TERN_SLURM_JOB_ENDED,
       "jobs that have ended");
}

static int64_t off(time_t start, time_t pre, time_t last)
{
    const slurm_job_info_t j = {.start_time = start, .pre_sus_time = pre, .suspend_time = last};

    return suspended(&j);
}

static void test_suspended(void)
{
    ok(off(1000, 0, 0) == 0, "a job that was never suspended has lost no time");
    /* From 1000 it ran for 60 s, was suspended then, and resumed at 1100. */
    ok(off(1000, 60, 1100) == 40, "of a job that was resumed, the time between");
    ok(off(1000, 200, 1100) == 0, "clocks that differ give no time below zero");
}

static struct tern_slurm_found find(slurm_job_info_t *jobs, size_t n)
{
    static const char id[][TERN_SLURM_ID] = {"01J00000000000000000000001"};
    struct tern_slurm_found f = {0};

    for (size_t i = 0; i < n; i++)
        note_found(&jobs[i], id, 1, &f);
    return f;
}

static void test_found(void)
{
    slurm_job_info_t jobs[] = {
        {.job_id = 12,
         .comment = (char *)"01J00000000000000000000001 tern",
         .array_task_id = NO_VAL},
        {.job_id = 11,
         .comment = (char *)"01J00000000000000000000001 tern",
         .array_task_id = NO_VAL},
        {.job_id = 13,
         .comment = (char *)"01J00000000000000000000002 tern",
         .array_task_id = NO_VAL},
    };
    struct tern_slurm_found f = find(jobs, 3);

    ok(f.job == 12 && f.whole == 12, "of a run's jobs the newest, and none of another run");
    is(f.name, "12", "a job has squeue's name");
    jobs[0].array_job_id = 9;
    jobs[0].array_task_id = 3;
    f = find(jobs, 3);
    is(f.name, "9_3", "a member of an array has squeue's name");
    ok(f.job == 12 && f.whole == 9, "a job that depends on it waits for the whole array");
}

static void test_node(void)
{
    slurm_job_info_t j = {.job_state = JOB_RUNNING, .nodes = (char *)"n[1-3]"};

    ok(has_node(&j, "n2") && !has_node(&j, "n4"), "a running job's nodes");
    j.job_state = JOB_COMPLETE;
    ok(!has_node(&j, "n2"), "a job that has ended has none");
    j = (slurm_job_info_t){.job_state = JOB_PENDING};
    ok(!has_node(&j, "n2"), "a job that waits has no node");
}

int main(void)
{
    test_state();
    test_suspended();
    test_found();
    test_node();
    return tap_done();
}
