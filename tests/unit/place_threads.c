/* core/place: SLURM_THREADS_PER_CORE, which the ranks' srun takes for a setting, is that of the job
 * itself. */
#include "core/slurm/slurm.h"

#include "tests/unit/tap.h"

static int threads; /* of the job, as the controller says */

static int fake_load(uint32_t id, struct tern_slurm_job **job, struct tern_err *err)
{
    (void)err;
    *job = calloc(1, sizeof **job);
    (*job)->id = id;
    (*job)->threads_per_core = threads;
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

/* The variable of the ranks, where the environment has `is` (NULL: nothing), the job `own` (0:
 * no limit). */
static const char *set(const char *is, int own, bool in_step)
{
    const struct tern_place p = {.job = 7, .in_step = in_step};

    threads = own;
    unsetenv("SLURM_THREADS_PER_CORE");
    if (is)
        setenv("SLURM_THREADS_PER_CORE", is, 1);
    set_threads(&p);
    is = getenv("SLURM_THREADS_PER_CORE");
    return is ? is : "not set";
}

int main(void)
{
    is(set("1", 1, false), "1", "a job's own threads a core stay");
    is(set("1", 2, false), "2", "another number is replaced by the job's own");
    is(set("1", 0, false), "not set", "a job without such a limit: another job's is left out");
    is(set(NULL, 2, false), "not set", "without the variable srun asks the controller itself");
    is(set(NULL, 2, true), "2", "inside a step, whose variables were left out, it is the job's");
    is(set(NULL, 0, true), "not set", "inside a step of a job without such a limit it is not set");
    return tap_done();
}
