/* core/run/srun_hang, pace: when an srun that stays is ended, and what a step and a save take. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ledger/ledger.h"
#include "core/logs/logs.h"
#include "core/run/pace.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Its answers are its own words: the file is this test's. */
#include "core/run/srun_hang.c"

#include "tests/unit/tap.h"

static char work[] = "/tmp/tern-srun-hang-XXXXXX";

/* A look ended and found `what`. */
static void found(struct tern_run_srun_hang *s, struct tern_run_ranks *r, int what)
{
    s->pid = 7;
    if (!tern_run_srun_hang_reaped(s, r, 7, what << 8))
        abort();
}

static void test_looks(void)
{
    struct tern_run_srun_hang s = {0};
    struct tern_run_ranks r = {0};

    found(&s, &r, OVER);
    found(&s, &r, THERE);
    ok(s.over_at == 0, "srun whose ranks run again after all is not ended");
    found(&s, &r, GONE);
    found(&s, &r, GONE);
    ok(s.gone == 2, "looks that find no step are counted");
    found(&s, &r, NOT_KNOWN);
    ok(s.gone == 0, "one that is not known ends the row");
    found(&s, &r, LOST);
    ok(s.lost, "ranks of a job that lost a node are ended");
}

/* `rank` has ended well, says its log in `dir`. */
static void end_rank_at(const char *dir, const char *rank, int64_t wall_ns)
{
    struct tern_logs_file *f = tern_logs_file_open(dir, rank, "node", 1 << 20, NULL);

    tern_logs_file_add_end(f, wall_ns, 0, /* told= */ false);
    tern_logs_file_close(f);
}

static void end_rank(const char *dir, const char *rank)
{
    end_rank_at(dir, rank, 1);
}

/* A rank that stays is ended after ten minutes of looks in a row. */
static void test_stays(void)
{
    struct tern_run_srun_hang s = {.logs = tern_fs_join(work, "stays"), .ranks = 2};
    struct tern_run_ranks r = {0};

    end_rank(s.logs, "0");

    for (int i = 1; i < LEFT_LOOKS; i++)
        found(&s, &r, STAYS);
    ok(!s.left[0], "a rank that stays for less than ten minutes is waited for");
    found(&s, &r, THERE);
    found(&s, &r, STAYS);
    ok(s.stay == 1 && !s.left[0], "looks that find a rank that stays count in a row only");
    for (int i = 1; i < LEFT_LOOKS; i++)
        found(&s, &r, STAYS);
    ok(strstr(s.left, "rank 1 has not ended, though all others have"),
       "after ten minutes it is ended");
    s.left[0] = '\0';
    end_rank(s.logs, "1");
    found(&s, &r, STAYS);
    ok(!s.left[0], "one that has ended since the look is not");
    tern_run_srun_hang_free(&s);
}

static pid_t sleeper(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        setpgid(0, 0);
        sleep(90);
        _exit(0);
    }
    setpgid(pid, pid);
    return pid;
}

/* A look finds that the last rank ended `ago` seconds before, and the supervisor was not stopped in
 * the last `awake` seconds.  Is srun to be ended `left` seconds from now? */
static bool ends_in(int64_t ago, int64_t awake, int64_t left)
{
    const int64_t now = tern_clock_boot_ns(), at = now + left * second;
    struct tern_run_srun_hang s = {.logs = tern_fs_join(work, "ago"), .ranks = 1};
    struct tern_run_ranks r = {0};

    s.awake = now - awake * second;
    end_rank_at(s.logs, "0", tern_clock_wall_ns() - ago * second);
    found(&s, &r, OVER);
    /* The log's way to the disk and back takes its time, and this process may be stopped. */
    const int64_t off = tern_clock_boot_ns() - now + second / 10;
    const bool is = s.over_at >= at - off && s.over_at <= at + off;
    const int64_t before = s.over_at;
    found(&s, &r, OVER);
    tern_run_srun_hang_free(&s);
    return is && s.over_at == before;
}

/* An srun whose ranks have all ended, at a tick when its time is up. */
static bool ended(int64_t over_at, bool stopped)
{
    pid_t srun = sleeper();
    struct tern_run_ranks r = {.n = 1, .pid = &srun, .job = 1};
    struct tern_run_srun_hang s = {
        .logs = tern_fs_join(work, "logs"), .ranks = 1, .over_at = over_at, .next = INT64_MAX};
    int status;

    s.ticked = stopped ? 1 : INT64_MAX; /* else without a gap */
    tern_run_srun_hang_tick(&s, &r);
    bool is = s.ended && s.known;
    tern_run_srun_hang_free(&s);
    kill(srun, SIGKILL);
    waitpid(srun, &status, 0);
    return is;
}

static void test_tick(void)
{
    char *dir = tern_fs_join(work, "logs");

    end_rank(dir, "0");
    ok(ended(1, false), "srun is ended when its ranks have been over for its seconds");
    ok(!ended(INT64_MAX, false), "srun is not ended before its seconds are over");
    ok(!ended(1, true), "a pause of the supervisor does not count");
    free(dir);
    ok(ends_in(4, 100, OVER_S - 4), "srun is ended ten seconds after the end of the last rank");
    ok(ends_in(100, 100, 0), "at once when the look comes later than that");
    ok(ends_in(100, 3, OVER_S - 3), "seconds in which the supervisor was stopped do not count");
    ok(ends_in(-100, 100, OVER_S), "a rank's node whose clock is ahead ends srun no later");
}

/* An srun of two ranks on two nodes, whose last signs came `ago_s` seconds ago: both have ended, or
 * one of them. */
static bool ended_by_signs(int64_t ago_s, bool both)
{
    const int64_t heard = tern_clock_boot_ns() - ago_s * second;
    struct tern_task_beacon_rank rank[2] = {{heard, true}, {heard, both}};
    struct tern_task_beacon b = {.rank = rank, .n = 2, .failed = 9};
    pid_t srun = sleeper();
    struct tern_run_ranks r = {.n = 1, .pid = &srun, .job = 1, .nodes = 2};
    struct tern_run_srun_hang s = {.ranks = 2, .beacon = &b, .next = INT64_MAX};
    int status;

    tern_run_srun_hang_tick(&s, &r);
    const bool is = s.ended && s.known && s.status == 9;
    tern_run_srun_hang_free(&s);
    kill(srun, SIGKILL);
    waitpid(srun, &status, 0);
    return is;
}

static void test_signs(void)
{
    ok(ended_by_signs(3600, true),
       "srun is ended, with the status of a rank that failed, when all ranks said that they ended");
    ok(!ended_by_signs(0, true), "srun gets time to end by itself");
    ok(!ended_by_signs(3600, false),
       "srun is not ended while a rank that is silent may be continued");
}

static void steps(struct tern_ledger_spool *s, const double *seconds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tern_ledger_spool_step(s, (int64_t)i + 1,
                               &(struct tern_ledger_value){"step_seconds", seconds[i]}, 1, NULL);
}

/* Another attempt on `world` ranks, with one step and, if `save` is not 0, one save. */
static void more(const char *ledger, const char *run, unsigned attempt, int64_t world, double step,
                 double save)
{
    struct tern_ledger_spool *s = tern_ledger_spool_open(ledger, run, attempt, "run", NULL);

    tern_ledger_spool_attempt_begin(
        s, &(struct tern_ledger_attempt){.kind = "train", .world = world}, NULL);
    tern_ledger_spool_step(s, 10 * attempt, &(struct tern_ledger_value){"step_seconds", step}, 1,
                           NULL);
    if (save > 0)
        tern_ledger_spool_step(s, 10 * attempt,
                               &(struct tern_ledger_value){"checkpoint_write_seconds", save}, 1,
                               NULL);
    tern_ledger_spool_close(s, NULL);
}

static void test_pace(void)
{
    char run[TERN_ULID_SIZE], *ledger = tern_fs_join(work, "ledger");
    struct tern_recipe r = {.steps = 100};
    struct tern_run_pace p;
    struct tern_err err = {0};

    r.ledger.dir = ledger;
    tern_ledger_ulid_new(run);
    for (unsigned attempt = 1; attempt <= 2; attempt++) {
        struct tern_ledger_spool *s = tern_ledger_spool_open(ledger, run, attempt, "run", &err);
        tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "pace"}, NULL);
        tern_ledger_spool_attempt_begin(
            s, &(struct tern_ledger_attempt){.kind = "train", .world = attempt == 1 ? 4 : 8}, NULL);
        steps(s, attempt == 1 ? (const double[]){1, 2, 30} : (const double[]){5, 6, 7}, 3);
        tern_ledger_spool_close(s, NULL);
    }
    int rc = tern_run_pace_read(&p, &r, run, 4, &err);
    ok(rc == 0 && p.attempt == 1 && p.step_seconds > 1.5 && p.step_seconds < 2.5,
       "on 4 ranks a step takes the median of the attempt on 4 ranks: %g s, attempt %u",
       p.step_seconds, p.attempt);
    ok(tern_run_pace_read(&p, &r, run, 16, &err) == 0 && p.step_seconds <= 0,
       "on 16 ranks nothing was measured");
    ok(tern_run_pace_read(&p, &r, run, 8, &err) == 0 && p.save_seconds <= 0,
       "on 8 ranks no save was measured");
    more(ledger, run, 3, 4, 9, 40);
    more(ledger, run, 4, 4, 8, 0);
    more(ledger, run, 5, 8, 7, 3);
    rc = tern_run_pace_read(&p, &r, run, 4, &err);
    ok(rc == 0 && p.attempt == 4 && p.step_seconds == 8 && p.save_seconds == 40,
       "an attempt that goes on and has not saved yet knows what a save took before it: %g s",
       p.save_seconds);
    more(ledger, run, 6, 4, 8, 30);
    ok(tern_run_pace_read(&p, &r, run, 4, &err) == 0 && p.save_seconds == 30,
       "the newest attempt with a save counts");
    free(ledger);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_looks();
    test_stays();
    test_tick();
    test_signs();
    test_pace();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
