/* core/run/limit: when the ranks get the request to stop, and which answers of Slurm count for
 * that. */
#include "core/base/clock.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Slurm is this test's, and the answers are the file's own struct. */
#define tern_slurm_job_load fake_job
#define tern_slurm_job_find_reservation fake_reservation
#include "core/run/limit.c"

#include "tests/unit/tap.h"

static struct {
    bool answers, answers_reservations;
    const char *word;
    time_t end, reserved;
    int64_t start, suspended; /* seconds ago, seconds */
} slurm = {.start = 10000};

int fake_job(uint32_t id, struct tern_slurm_job **job, struct tern_err *err)
{
    static struct tern_slurm_job it;

    (void)err;
    if (!slurm.answers)
        return -1;
    it = (struct tern_slurm_job){.id = id,
                                 .state = TERN_SLURM_JOB_RUNNING,
                                 .word = slurm.word ? slurm.word : "RUNNING",
                                 .start = time(NULL) - slurm.start,
                                 .suspended = slurm.suspended,
                                 .end = slurm.end};
    *job = &it;
    return 0;
}

int fake_reservation(const struct tern_slurm_job *job, const char *nodes, time_t *ret_when,
                     struct tern_err *err)
{
    (void)job, (void)nodes, (void)err;
    if (!slurm.answers_reservations)
        return -1;
    *ret_when = slurm.reserved;
    return 0;
}

static struct tern_recipe recipe = {.ledger.dir = (char *)"/nonexistent"};
static const struct tern_run_options options = {.recipe = &recipe};
static const struct tern_run_attempt attempt = {
    .o = &options, .place.job = 1, .place.nodes = 1, .place.ranks_per_node = 1};
static char text[300];

/* A limit that knows of an end in `left` seconds, for which a stop needs 50. */
static struct tern_run_limit known(int64_t left)
{
    return (struct tern_run_limit){
        .a = &attempt, .next = INT64_MAX, .end = time(NULL) + left, .need = 50, .measured = true};
}

static bool tick(struct tern_run_limit *l)
{
    return tern_run_limit_tick(l, text, sizeof text);
}

/* The last tick was so long ago. */
static void pass(struct tern_run_limit *l, int64_t seconds)
{
    l->seen = tern_clock_boot_ns() - seconds * second;
}

/* The child that queries ends. */
static void reap(struct tern_run_limit *l)
{
    const pid_t pid = l->pid;

    if (pid && (waitpid(pid, NULL, 0) != pid || !tern_run_limit_reaped(l, pid)))
        abort();
}

static void stops(void)
{
    struct tern_run_limit l = known(100);

    ok(!tick(&l), "100 s before the end 50 are enough");
    l.need = 200;
    ok(tick(&l) && strcmp(l.reason, "time_limit") == 0,
       "ranks get the request to stop as long before the end as a stop takes");
    ok(!tick(&l), "ranks get the stop request once");
}

static void answers(void)
{
    struct answer to = {.end = 5, .need = 7, .measured = true};

    slurm.answers = slurm.answers_reservations = false;
    look(&attempt, &to);
    ok(!to.known && to.end == 5 && to.need == 7, "a controller that is silent tells no end");
    slurm.answers = true;
    slurm.word = "SUSPENDED";
    slurm.end = time(NULL) + 1000;
    look(&attempt, &to);
    ok(!to.known, "the end of a suspended job is not known");
    slurm.word = NULL;
    look(&attempt, &to);
    ok(to.known && to.end == slurm.end && !to.reserved, "a running job's end is its time limit");
    ok(to.need == 120 && !to.measured, "a stop has two minutes without measurements");
    slurm.answers_reservations = true;
    slurm.reserved = slurm.end - 1;
    look(&attempt, &to);
    ok(to.known && to.end == slurm.reserved && to.reserved, "or a reservation that comes first");
    slurm.answers_reservations = to.known = false;
    look(&attempt, &to);
    ok(!to.known && to.end == slurm.reserved && to.reserved,
       "a reservation is not forgotten when Slurm tells none");
    slurm.answers_reservations = true;
    slurm.reserved = slurm.end + 1;
    look(&attempt, &to);
    ok(to.known && to.end == slurm.end && !to.reserved, "a reservation after the end is none");
    slurm.reserved = 0;
    slurm.end = time(NULL) + 100;
    slurm.start = slurm.suspended = 1000;
    look(&attempt, &to);
    ok(to.need > 30 && to.need <= 50, "a job of 100 s keeps half of them when it was suspended");
    slurm.start = 10000, slurm.suspended = 0;
    slurm.end = 0;
    look(&attempt, &to);
    ok(to.known && to.end == 0, "a job may have no end");
}

static void silence(void)
{
    struct tern_run_limit l = known(60);
    const time_t end = l.end;

    slurm.answers = false;
    l.next = 1;
    ok(!tick(&l) && l.pid, "the end is near and Slurm is queried");
    const int64_t next = l.next - tern_clock_boot_ns();
    reap(&l);
    ok(l.end == end && l.need == 50 && l.measured, "a query without an answer forgets no end");
    ok(next <= NEAR_S * second, "the next query comes as soon as it does near an end");
    l.need = 60;
    ok(tick(&l), "ranks get the request to stop for the end that was known");
    slurm.answers = true;
    slurm.answers_reservations = false;
    slurm.end = time(NULL) + 3600;
    l = known(60);
    l.reserved = true;
    l.next = 1;
    tick(&l);
    reap(&l);
    ok(l.reserved && l.end < slurm.end,
       "an answer with the time limit alone does not hide the reservation");
    slurm.answers_reservations = true;
    slurm.end = 0;
    l = known(60);
    l.next = 1;
    tick(&l);
    reap(&l);
    ok(!l.end, "an answer that there is no end counts");
    tern_run_limit_free(&l);
}

static void suspension(void)
{
    struct tern_run_limit l = known(69);

    slurm.answers = slurm.answers_reservations = true;
    slurm.end = time(NULL) + 163;
    l.need = 90;
    pass(&l, 94);
    ok(!tick(&l), "after 94 s of suspension the end that was known does not count");
    ok(l.pid, "Slurm is queried at once");
    ok(!tick(&l), "the old end does not count until Slurm has answered");
    reap(&l);
    ok(l.end == slurm.end && !tick(&l), "a resumed job has the time that its new end gives");
    slurm.end = time(NULL) + 100;
    pass(&l, 94);
    tick(&l);
    reap(&l);
    ok(tick(&l) && strcmp(l.reason, "time_limit") == 0,
       "ranks get the request to stop when the new end is near, too");
}

/* A child whose answer, of before a suspension, lies in the pipe. */
static void ask(struct tern_run_limit *l)
{
    struct answer old = {.known = true, .end = 1, .need = 50};
    int ends[2];

    if (pipe(ends) < 0 || write(ends[1], &old, sizeof old) != (ssize_t)sizeof old)
        abort();
    close(ends[1]);
    l->fd = ends[0];
    l->pid = fork();
    if (l->pid == 0) {
        pause();
        _exit(0);
    }
}

static void answers_from_before(void)
{
    struct tern_run_limit l = known(69);
    const time_t end = l.end;

    slurm.answers = false;
    l.need = 90;
    ask(&l);
    pass(&l, 94);
    ok(!tick(&l), "a query that was under way when the job was suspended is not waited for");
    reap(&l);
    ok(l.end == end && l.wait && !l.old, "the answer of the old query does not count");
    ok(!tick(&l) && l.pid, "another query begins after it");
    reap(&l);
    for (int i = 0; i < WAIT_S / 3 - 1; i++, reap(&l)) {
        pass(&l, 3);
        if (tick(&l))
            break;
    }
    ok(!l.reason, "an answer is waited for");
    pass(&l, 4);
    ok(tick(&l), "but not for ever: then the end that was known counts");
}

static void time_slices(void)
{
    struct tern_run_limit l = known(10);
    int i = 0;

    slurm.answers = false;
    for (; i < 100 && !l.reason; i++) {
        pass(&l, 3600);
        tick(&l);
        reap(&l);
    }
    ok(l.reason && i <= 1 + WAIT_S / GAP_S,
       "a process that is stopped again and again does not wait for ever");
    l = known(10);
    pass(&l, GAP_S - 1);
    ok(tick(&l), "a tick that is some seconds late is no suspension");
}

int main(void)
{
    stops();
    answers();
    silence();
    suspension();
    answers_from_before();
    time_slices();
    return tap_done();
}
