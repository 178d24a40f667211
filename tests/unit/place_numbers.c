/* core/place: variables that the ranks' srun takes for settings, and tern for the job's options,
 * have the numbers of the job itself. */
#include "core/slurm/slurm.h"

#include "tests/unit/tap.h"

/* Of the job, as the controller says. */
static struct {
    int threads, cpus, tasks, per_node;
} the_job;

static int fake_load(uint32_t id, struct tern_slurm_job **job, struct tern_err *err)
{
    (void)err;
    *job = calloc(1, sizeof **job);
    (*job)->id = id;
    (*job)->threads_per_core = the_job.threads;
    (*job)->cpus_per_task = the_job.cpus;
    (*job)->tasks_per_node = the_job.per_node;
    (*job)->n_tasks = the_job.tasks;
    return 0;
}
static void fake_free(struct tern_slurm_job *job)
{
    free(job);
}

#define tern_slurm_available() true
#define tern_slurm_job_load fake_load
#define tern_slurm_job_free fake_free
#include "core/place/place.c"

/* Variable `name`, where the environment has `is` (NULL: nothing) and the job has `groups`. */
static const char *left(const char *name, const char *is, int groups, bool in_step)
{
    const struct tern_place p = {.job = 7, .in_step = in_step, .groups = groups};

    unsetenv("SLURM_THREADS_PER_CORE");
    unsetenv("SLURM_CPUS_PER_TASK");
    unsetenv("SLURM_NTASKS");
    unsetenv("SLURM_NTASKS_PER_NODE");
    if (is)
        setenv(name, is, 1);
    set_numbers(&p);
    is = getenv(name);
    return is ? is : "not set";
}

/* The threads a core of the ranks, where the job has `number` (0: no limit). */
static const char *set(const char *is, int number, bool in_step)
{
    the_job.threads = number;
    return left("SLURM_THREADS_PER_CORE", is, 1, in_step);
}

static void other_numbers(void)
{
    static const char cpus_name[] = "SLURM_CPUS_PER_TASK", all[] = "SLURM_NTASKS";
    static const char tasks_name[] = "SLURM_NTASKS_PER_NODE";

    the_job.threads = 0, the_job.cpus = 1, the_job.tasks = 1, the_job.per_node = 0;
    is(left(cpus_name, "3", 1, false), "not set", "--cpus-per-task of another job is left out");
    is(left(tasks_name, "4", 1, false), "not set", "--ntasks-per-node of another job is left out");
    is(left(all, "4", 1, false), "not set", "--ntasks of another job is left out");
    is(left(cpus_name, "1", 1, false), "1", "a job's own --cpus-per-task=1 stays");
    the_job.cpus = 2, the_job.tasks = 12, the_job.per_node = 6;
    is(left(cpus_name, "2", 1, false), "2", "a job's own --cpus-per-task stays");
    is(left(cpus_name, "3", 1, false), "2", "--cpus-per-task is the job's own number");
    is(left(all, "12", 1, false), "12", "a job's own --ntasks stays");
    is(left(tasks_name, "6", 1, false), "6", "a job's own --ntasks-per-node stays");
    is(left(tasks_name, "4", 1, false), "6", "--ntasks-per-node is the job's own number");
    is(left(tasks_name, NULL, 1, false), "not set",
       "a variable that Slurm did not set is not made");
    is(left(cpus_name, "3", 2, false), "3", "numbers of a heterogeneous job's groups stay");
}

int main(void)
{
    is(set("1", 1, false), "1", "a job's own threads a core stay");
    is(set("1", 2, false), "2", "another number is replaced by the job's own");
    is(set("1", 0, false), "not set", "a job without such a limit: another job's is left out");
    is(set(NULL, 2, false), "not set", "without the variable srun asks the controller itself");
    is(set(NULL, 2, true), "2", "inside a step, whose variables were left out, it is the job's");
    is(set(NULL, 0, true), "not set", "inside a step of a job without such a limit it is not set");
    other_numbers();
    return tap_done();
}
