/* core/run/requeue: which ends are Slurm's, and after which the job is queued again. */
/* Slurm, the folder of checkpoints, and the ledger are this test's. */
#define tern_slurm_job_load fake_job
#define tern_slurm_job_find_reservation fake_reservation
#define tern_slurm_job_requeue fake_requeue
#define tern_slurm_job_free fake_free
#define tern_slurm_job_signal_load fake_signal
#define tern_clock_sleep_ns sleep_ns
#define tern_ckpt_latest ckpt_latest
#define tern_run_history_read history_read
#define tern_run_attempt_add_event add_event
#include "core/run/requeue.c"

#include "tests/unit/tap.h"

static struct {
    int silent; /* queries without an answer */
    enum tern_code code;
    time_t reserved;
    struct tern_slurm_job job;
    int64_t newest; /* step of the newest checkpoint; -1: none */
    bool in_ledger; /* the ledger has one of this attempt */
    int requeued, slept;
    int64_t signal; /* seconds of --signal in the job's script; -1: none; -2: it cannot be read */
} now;

int fake_job(uint32_t id, struct tern_slurm_job **job, struct tern_err *err)
{
    if (now.silent-- > 0)
        return tern_err_set(err, now.code, "job %u: Slurm is silent", id);
    *job = &now.job;
    return 0;
}

int fake_reservation(const struct tern_slurm_job *job, const char *nodes, time_t *ret_when,
                     struct tern_err *err)
{
    (void)job, (void)nodes, (void)err;
    *ret_when = now.reserved;
    return 0;
}

int fake_requeue(uint32_t id, bool hold, struct tern_err *err)
{
    (void)id, (void)hold, (void)err;
    now.requeued++;
    return 0;
}

void fake_free(struct tern_slurm_job *job)
{
    (void)job;
}

int fake_signal(uint32_t id, int64_t *ret_seconds, struct tern_err *err)
{
    *ret_seconds = now.signal < 0 ? -1 : now.signal;
    return now.signal == -2 ? tern_err_set(err, TERN_FAILED, "job %u: no script", id) : 0;
}

void sleep_ns(int64_t ns)
{
    (void)ns;
    now.slept++;
}

int ckpt_latest(const char *dir, char **path, uint64_t *step, struct tern_err *err)
{
    (void)dir, (void)err;
    *path = now.newest < 0 ? NULL : strdup("step");
    *step = (uint64_t)now.newest;
    return 0;
}

int history_read(struct tern_run_history *h, const char *ledger_dir, const char *run_id,
                 uint32_t job, const char *kind, struct tern_err *err)
{
    (void)ledger_dir, (void)run_id, (void)job, (void)kind, (void)err;
    *h = (struct tern_run_history){.newest_left = now.in_ledger};
    return 0;
}

void add_event(struct tern_run_attempt *a, const char *kind, const char *severity, const char *node,
               const char *said)
{
    (void)a, (void)kind, (void)severity, (void)node, (void)said;
}

static struct tern_recipe recipe;
static const struct tern_run_options options = {.recipe = &recipe};
static char *command[] = {(char *)"train", NULL};

/* A job with an hour left, whose ranks were asked to stop and did, from step 3 at step 5. */
static struct tern_run_attempt stopped(bool trainer, struct tern_run_result *r)
{
    const time_t t = time(NULL);

    memset(&now, 0, sizeof now);
    now.code = TERN_TEMPFAIL;
    now.signal = -1;
    now.job = (struct tern_slurm_job){.id = 7,
                                      .state = TERN_SLURM_JOB_RUNNING,
                                      .word = "RUNNING",
                                      .start = t - 100,
                                      .end = t + 3600,
                                      .requeue = true,
                                      .reservation = (char *)""};
    now.newest = 5;
    *r = (struct tern_run_result){.outcome = "stopped", .status = TERN_CONTINUED};
    return (struct tern_run_attempt){.o = &options,
                                     .place.slurm = true,
                                     .place.job = 7,
                                     .kind = "train",
                                     .command = trainer ? NULL : command,
                                     .resumed_step = 3,
                                     .asked = SIGUSR1};
}

static bool ended(const char *outcome, int requeued, const struct tern_run_result *r)
{
    const bool is_so = strcmp(r->outcome, outcome) == 0 && now.requeued == requeued;

    if (!is_so)
        printf("# %s, queued again %d times: %s\n", r->outcome, now.requeued, r->why);
    return is_so;
}

static void limits(void)
{
    struct tern_run_result r;
    struct tern_run_attempt a = stopped(true, &r);

    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("stopped", 0, &r), "a stop request far from the end is a user's");
    a = stopped(true, &r);
    now.job.end = time(NULL) + 60;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 1, &r), "a job near its end is queued again");
    a = stopped(true, &r);
    a.limit = "time_limit";
    a.limit_end = now.job.end - 30;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 1, &r) && !a.goes_on, "so is one that was stopped in time");
    a = stopped(true, &r);
    now.job.end = time(NULL) + 60;
    now.newest = 3;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 0, &r) && strstr(r.why, "left no checkpoint"),
       "a job that got no further ends at its limit");
    a = stopped(false, &r);
    now.job.end = time(NULL) + 60;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 0, &r), "a workload without a checkpoint, too");
    a = stopped(false, &r);
    now.job.end = time(NULL) + 60;
    now.in_ledger = true;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 1, &r), "a workload with a checkpoint in the ledger is queued again");
}

/* The end of a stop `left` seconds before the end of a batch job of `minutes`, whose script has
 * --signal=@`script` and whose environment SBATCH_SIGNAL=`inherited`. */
static bool ends_by_limit(int minutes, int left, int64_t script, const char *inherited)
{
    struct tern_run_result r;
    struct tern_run_attempt a = stopped(true, &r);

    now.job.batch = true;
    now.job.end = time(NULL) + left;
    now.job.start = now.job.end - 60 * minutes;
    now.signal = script;
    if (inherited)
        setenv("SBATCH_SIGNAL", inherited, 1);
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    unsetenv("SBATCH_SIGNAL");
    return strcmp(r.outcome, "time_limit") == 0 && now.requeued == 1;
}

/* A job may ask for its warning as early as it likes. */
static void early_warnings(void)
{
    ok(ends_by_limit(60, 595, 600, NULL),
       "--signal=@600 of one hour: its warning is no person's stop");
    ok(ends_by_limit(60, 655, 600, NULL), "Slurm's warning may come a minute early");
    ok(ends_by_limit(120, 1795, 1800, NULL), "so is the warning of --signal=@1800 of two hours");
    ok(ends_by_limit(20, 295, 300, NULL), "so is the warning of --signal=@300 of 20 minutes");
    ok(ends_by_limit(60, 595, -1, "B:USR1@600"),
       "SBATCH_SIGNAL is known where the script has none");
    ok(ends_by_limit(60, 595, 120, "USR1@600"), "SBATCH_SIGNAL wins over the script's --signal");
    ok(!ends_by_limit(60, 700, 600, NULL), "a stop long before the job's warning is a person's");
    ok(!ends_by_limit(600, 1800, 60, NULL),
       "a script's late warning does not reach a tenth of the job");
    ok(ends_by_limit(600, 1800, -1, NULL), "without a known warning the last tenth counts");
    ok(ends_by_limit(60, 100, -2, NULL), "a script that cannot be read does not hide the limit");
    setenv("TERN_RUN_WARN", "900", 1);
    ok(ends_by_limit(60, 890, 120, "USR1@60"), "TERN_RUN_WARN wins over both");
    unsetenv("TERN_RUN_WARN");
}

static void checkpoints(void)
{
    struct tern_run_result r;
    struct tern_run_attempt a = stopped(true, &r);

    now.job.end = time(NULL) + 60;
    now.in_ledger = false;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 1, &r),
       "a checkpoint in the folder counts when the ledger could not be written");
    a = stopped(true, &r);
    now.job.end = time(NULL) + 60;
    now.newest = -1;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 0, &r), "a run without any checkpoint ends at its limit");
    a = stopped(true, &r);
    now.job.end = time(NULL) + 60;
    now.newest = 0;
    a.resumed_step = -1;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 1, &r), "a new run's first checkpoint counts");
}

static void moved_ends(void)
{
    struct tern_run_result r;
    struct tern_run_attempt a = stopped(true, &r);

    a.limit = "time_limit";
    a.limit_end = time(NULL) + 60;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("stopped", 0, &r) && a.goes_on, "a job that got more time meanwhile goes on");
    a = stopped(true, &r);
    a.limit = "time_limit";
    a.limit_end = time(NULL) + 60;
    a.asked = SIGINT;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(!a.goes_on, "unless a user stopped it as well");
    a = stopped(true, &r);
    a.limit = "reservation";
    a.limit_end = now.reserved = time(NULL) + 60;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("reservation", 1, &r) && !a.goes_on, "a reservation still takes the nodes");
    a = stopped(true, &r);
    a.limit = "reservation";
    a.limit_end = time(NULL) + 60;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("stopped", 0, &r) && a.goes_on, "a job whose reservation was deleted goes on");
    a = stopped(true, &r);
    now.job.end = 0;
    a.limit = "time_limit";
    a.limit_end = time(NULL) + 60;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(a.goes_on, "a job whose limit was taken away goes on");
}

static void silence(void)
{
    struct tern_run_result r;
    struct tern_run_attempt a = stopped(true, &r);

    now.silent = 3;
    now.job.end = a.limit_end = time(NULL) + 60;
    a.limit = "time_limit";
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 1, &r) && now.slept == 3,
       "a controller that is silent is asked again after a stop in time");
    a = stopped(true, &r);
    now.silent = 1;
    now.code = TERN_FAILED;
    a.limit = "time_limit";
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("time_limit", 0, &r) && strstr(r.why, "Slurm is silent"),
       "the cause of a stop in time stays when the job cannot be queued again");
    a = stopped(true, &r);
    now.silent = 1;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("stopped", 0, &r) && !now.slept,
       "after a user's stop the supervisor does not wait for Slurm");
}

static void preemptions(void)
{
    struct tern_run_result r;
    struct tern_run_attempt a = stopped(true, &r);

    now.job.preempt = time(NULL) - 1;
    now.newest = 3;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("preempted", 1, &r), "a preempted job is queued again without a new checkpoint");
    a = stopped(false, &r);
    now.job.preempt = time(NULL) - 1;
    r.status = TERN_TEMPFAIL, r.signal = SIGTERM;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("preempted", 1, &r), "a preempted workload is queued again");
    a = stopped(true, &r);
    now.job.preempt = time(NULL) - 1;
    r.status = TERN_TEMPFAIL;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("preempted", 1, &r), "a preempted job without started ranks is queued again");
    a = stopped(true, &r);
    now.job.end = time(NULL) + 60;
    r.status = TERN_TEMPFAIL;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("stopped", 0, &r), "which a time limit does not repeat");
    a = stopped(true, &r);
    now.job.preempt = time(NULL) - 1;
    r.status = TERN_FAILED;
    r.outcome = "failed";
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("failed", 0, &r), "a trainer that failed is not repeated because of a preemption");
    a = stopped(true, &r);
    now.job.preempt = time(NULL) - 1;
    now.job.word = "PENDING";
    now.job.state = TERN_SLURM_JOB_COMPLETING;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("preempted", 0, &r) && strstr(r.why, "the job is queued again"),
       "a job that Slurm has queued again is not queued twice");
    a = stopped(true, &r);
    now.job.preempt = time(NULL) - 1;
    now.job.requeue = false;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("preempted", 0, &r), "a preempted job that may not be requeued is not");
    a = stopped(true, &r);
    now.job.preempt = time(NULL) - 1;
    recipe.launch.at_time_limit = TERN_AT_LIMIT_STOP;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("preempted", 0, &r), "launch.at_time_limit: stop queues no preempted job again");
    recipe.launch.at_time_limit = 0;
}

static void reservations(void)
{
    struct tern_run_result r;
    struct tern_run_attempt a = stopped(true, &r);

    now.reserved = time(NULL) + 60;
    now.newest = 3;
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("reservation", 1, &r),
       "a job that makes room for a maintenance is queued again without a new checkpoint");
    a = stopped(true, &r);
    now.reserved = time(NULL) + 60;
    now.newest = 3;
    now.job.reservation = (char *)"mine";
    tern_run_requeue_if_ended_by_slurm(&a, &r);
    ok(ended("reservation", 0, &r), "at the end of its own reservation it is not");
}

int main(void)
{
    limits();
    early_warnings();
    checkpoints();
    moved_ends();
    silence();
    preemptions();
    reservations();
    return tap_done();
}
