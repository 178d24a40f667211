/* core/run/outcome.h: the judgement of an attempt's end. */
#include "tests/unit/tap.h"

#include "core/run/outcome.h"

#include <signal.h>

#define EXITED(n) ((n) << 8)
#define KILLED(n) (n)

static const struct {
    const char *what;
    struct tern_run_facts f;
    const char *outcome;
    int status, sig;
    const char *why;
} outcomes_of[] = {
    {"the trainer is done",
     {0, -1, 0, "RUNNING", "", 10, 10, "", false, "", -1, "", ""},
     "done",
     0,
     0,
     ""},
    {"killed for memory",
     {KILLED(9), 1, 0, "RUNNING", "", 0, -1, "", false, "", -1,
      "rank 1 on n2 was killed for memory", ""},
     "killed",
     75,
     9,
     "rank 1 on n2 was killed for memory"},
    {"a worker of a workload is killed for memory",
     {EXITED(1), -1, 0, "RUNNING", "", 0, -1, "", false, "", -1,
      "rank 1 on n2 ended with status 1 after a kill for memory", ""},
     "killed",
     75,
     0,
     "rank 1 on n2 ended with status 1 after a kill for memory"},
    {"a process of the trainer is killed for memory",
     {EXITED(75), 0, 0, NULL, "", 10, 3, "", false, "a rank is gone", -1, "rank 0 on n1 was", ""},
     "killed",
     75,
     0,
     "rank 0 on n1 was"},
    {"Slurm says that memory ended a workload",
     {EXITED(1), -1, 0, "OUT_OF_MEMORY", "", 0, -1, "", false, "", -1, "", ""},
     "killed",
     75,
     0,
     "OUT_OF_MEMORY"},
    {"the trainer refuses its input beside a kill for memory",
     {EXITED(2), 1, 0, NULL, "", 10, -1, "", false, "no such key", -1, "rank 1 on n2", ""},
     "refused",
     2,
     0,
     "no such key"},
    {"stopped with a checkpoint beside a kill for memory",
     {EXITED(76), -1, 0, NULL, "", 10, 3, "", false, "", -1, "rank 1 on n2", ""},
     "stopped",
     76,
     0,
     "continued"},
    {"a rank was stopped, and its tern-task ended it",
     {EXITED(75), 0, 0, NULL, "", 10, 4, "", false, "", -1, "", "rank 0 on n1 was stopped"},
     "fault",
     75,
     0,
     "rank 0 on n1 was stopped"},
    {"likewise under srun, which gives the others' status",
     {EXITED(143), -1, 0, "RUNNING", "", 10, 4, "", false, "", -1, "", "rank 3 on n2 was stopped"},
     "fault",
     75,
     0,
     "rank 3 on n2 was stopped"},
    {"a rank was stopped on a node that went down",
     {EXITED(75), 0, 0, "RUNNING", "n2", 10, 4, "", false, "", -1, "", "rank 0 was stopped"},
     "node_fail",
     75,
     0,
     "n2"},
    {"a workload is done",
     {0, -1, 0, NULL, "", 0, -1, "", false, "", -1, "", ""},
     "done",
     0,
     0,
     ""},
    {"the trainer is done early",
     {0, -1, 0, NULL, "", 10, 7, "a has not got better", false, "", -1, "", ""},
     "done",
     0,
     0,
     "a has not got better"},
    {"over before it began",
     {0, -1, 0, NULL, "", 10, 7, "", false, "a has not got better", 7, "", ""},
     "done",
     0,
     0,
     "a has not got better"},
    {"the run is over, says a rank whose checkpoint was lost with a node",
     {0, -1, 0, "RUNNING", "n2", 10, 7, "", false, "a has not got better", 3, "", ""},
     "node_fail",
     75,
     0,
     "n2"},
    {"the run is over, says a rank, and srun had to be ended",
     {0, -1, 0, NULL, "", 10, 7, "", true, "a has not got better", 3, "", ""},
     "fault",
     75,
     0,
     "how the ranks ended is not known"},
    {"the run is over, says a rank, without any checkpoint",
     {0, -1, 0, NULL, "", 10, -1, "", false, "a has not got better", -1, "", ""},
     "failed",
     1,
     0,
     "no checkpoint"},
    {"the trainer says why it failed",
     {EXITED(1), 0, 0, NULL, "", 10, 7, "", false, "no update in 5 steps", 7, "", ""},
     "failed",
     1,
     0,
     "rank 0 ended with status 1: no update in 5 steps"},
    {"0 without the last checkpoint",
     {0, -1, 0, "RUNNING", "", 10, 7, "", false, "", -1, "", ""},
     "failed",
     1,
     0,
     "newest checkpoint is of step 7, not 10"},
    {"0 without any checkpoint",
     {0, -1, 0, NULL, "", 10, -1, "", false, "", -1, "", ""},
     "failed",
     1,
     0,
     "no checkpoint"},
    {"0 from srun after losing a node",
     {0, -1, 0, "RUNNING", "n2", 10, 7, "", false, "", -1, "", ""},
     "node_fail",
     75,
     0,
     "n2"},
    {"bad input",
     {EXITED(2), 1, 0, NULL, "", 10, -1, "", false, "", -1, "", ""},
     "refused",
     2,
     0,
     "rank 1"},
    {"the trainer failed",
     {EXITED(1), -1, 0, "RUNNING", "", 10, 3, "", false, "", -1, "", ""},
     "failed",
     1,
     0,
     "status 1"},
    {"a reason outside",
     {EXITED(75), -1, 0, "RUNNING", "", 10, 3, "", false, "", -1, "", ""},
     "fault",
     75,
     0,
     "outside"},
    {"a reason outside, known",
     {EXITED(75), -1, 0, "RUNNING", "n3", 10, 3, "", false, "", -1, "", ""},
     "node_fail",
     75,
     0,
     "n3 is down"},
    {"stopped",
     {EXITED(76), -1, 0, NULL, "", 10, 3, "", false, "", -1, "", ""},
     "stopped",
     76,
     0,
     "continued"},
    {"stopped by the time limit",
     {EXITED(76), -1, 0, "TIMEOUT", "", 10, 3, "", false, "", -1, "", ""},
     "time_limit",
     76,
     0,
     ""},
    {"stopped by preemption",
     {EXITED(76), -1, 0, "PREEMPTED", "", 10, 3, "", false, "", -1, "", ""},
     "preempted",
     76,
     0,
     ""},
    {"halted",
     {EXITED(77), -1, 0, NULL, "", 10, 3, "", false, "", -1, "", ""},
     "halted",
     77,
     0,
     "halted"},
    {"a rank was killed",
     {KILLED(9), 1, 0, NULL, "", 10, 3, "", false, "", -1, "", ""},
     "killed",
     75,
     9,
     "rank 1 ended by signal 9"},
    {"srun's word for it",
     {EXITED(137), -1, 0, "RUNNING", "", 10, 3, "", false, "", -1, "", ""},
     "killed",
     75,
     9,
     "signal 9"},
    {"killed with its node",
     {EXITED(137), -1, 0, "RUNNING", "n4", 10, 3, "", false, "", -1, "", ""},
     "node_fail",
     75,
     9,
     "n4"},
    {"killed, with srun's status of the other ranks",
     {EXITED(143), -1, 0, "RUNNING", "", 0, -1, "", false, "", -1, "", ""},
     "killed",
     75,
     15,
     "srun ended the others"},
    {"ended by a signal that was passed on",
     {EXITED(143), -1, 15, "RUNNING", "", 0, -1, "", false, "", -1, "", ""},
     "stopped",
     75,
     15,
     "signal 15 (Terminated), passed on"},
    {"scancel",
     {EXITED(143), -1, 0, "CANCELLED", "", 0, -1, "", false, "", -1, "", ""},
     "cancelled",
     75,
     15,
     "CANCELLED"},
    {"requeued",
     {EXITED(143), -1, 15, "PENDING", "", 0, -1, "", false, "", -1, "", ""},
     "requeued",
     75,
     15,
     "PENDING"},
    {"a workload's own status",
     {EXITED(3), 0, 0, NULL, "", 0, -1, "", false, "", -1, "", ""},
     "failed",
     3,
     0,
     "status 3"},
    {"a status that the trainer does not use",
     {EXITED(127), 0, 0, NULL, "", 10, -1, "", false, "", -1, "", ""},
     "failed",
     1,
     0,
     "127"},
};

static void outcomes(void)
{
    for (size_t i = 0; i < sizeof outcomes_of / sizeof *outcomes_of; i++) {
        struct tern_run_result r = {0};
        int sig = -1;
        tern_run_judge(&outcomes_of[i].f, &r, &sig);
        is(r.outcome, outcomes_of[i].outcome, "%s: outcome", outcomes_of[i].what);
        ok(r.status == outcomes_of[i].status && sig == outcomes_of[i].sig,
           "%s: status %d, signal %d", outcomes_of[i].what, r.status, sig);
        has(r.why, outcomes_of[i].why, "%s: why", outcomes_of[i].what);
    }
}

/* An srun that stayed when its ranks were gone, and was ended. */
static void stayed(void)
{
    const struct {
        const char *what;
        struct tern_run_facts f;
        const char *outcome;
        int status;
        const char *why;
    } cases[] = {
        {"work done", {.job_word = "RUNNING", .steps = 10, .newest = 10}, "done", 0, ""},
        {"done before the last step",
         {.job_word = "RUNNING", .steps = 10, .newest = 7, .ended = "nothing is learnt"},
         "done",
         0,
         "nothing is learnt"},
        {"work not done",
         {.job_word = "RUNNING", .steps = 10, .newest = 7},
         "fault",
         75,
         "how the ranks ended is not known"},
        {"workload",
         {.job_word = "RUNNING", .newest = -1},
         "fault",
         75,
         "how the ranks ended is not known"},
        {"node lost",
         {.job_word = "RUNNING", .steps = 10, .newest = 7, .lost_node = "n3"},
         "node_fail",
         75,
         "node n3 is down"},
        {"job cancelled",
         {.job_word = "CANCELLED", .asked = 15, .steps = 10, .newest = 7},
         "cancelled",
         75,
         "not known"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tern_run_facts f = cases[i].f;
        struct tern_run_result r = {0};
        int sig = -1;
        f.status = SIGKILL;
        f.rank = -1;
        f.srun_hang = true;
        tern_run_judge(&f, &r, &sig);
        is(r.outcome, cases[i].outcome, "srun stayed, %s: outcome", cases[i].what);
        ok(r.status == cases[i].status && sig == 0, "srun stayed, %s: status %d, signal %d",
           cases[i].what, r.status, sig);
        has(r.why, cases[i].why, "srun stayed, %s: why", cases[i].what);
    }
}

int main(void)
{
    outcomes();
    stayed();
    return tap_done();
}
