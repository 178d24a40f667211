/* core/task/marker, beacon: the marker that the plugin left for the task, and the process that
 * speaks for its node. */
#include "core/base/clock.h"
#include "core/base/datagram.h"
#include "core/base/str.h"
#include "core/task/beacon.h"
#include "core/task/marker.h"
#include "tests/unit/tap.h"

enum { MANY = 100000 }; /* looks at what is to come: they end a hang */

static int check(const char *marker, struct tern_err *err)
{
    *err = (struct tern_err){0};
    setenv("TERN_MARKER", marker, 1);
    return tern_task_check_marker(false, err);
}

static void test_marker(void)
{
    char *own = tern_strf("4711.0.%d.%d", TERN_TASK_MARKER_MAJOR, TERN_TASK_MARKER_MINOR);
    char *other = tern_strf("4712.0.%d.%d", TERN_TASK_MARKER_MAJOR, TERN_TASK_MARKER_MINOR);
    char *step = tern_strf("4711.1.%d.%d", TERN_TASK_MARKER_MAJOR, TERN_TASK_MARKER_MINOR);
    char *newer = tern_strf("4711.0.%d.0", TERN_TASK_MARKER_MAJOR + 1);
    struct tern_err err;

    setenv("SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern", "run.yaml", 1);
    setenv("SLURMD_NODENAME", "n1", 1);
    setenv("SLURM_JOB_ID", "4711", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    ok(check(own, &err) == 0, "the marker of this job and step is taken: %s", err.text);
    ok(check(other, &err) < 0 && strstr(err.text, "did not run on node n1"),
       "the marker of another job is refused");
    ok(check(step, &err) < 0, "the marker of another step is refused");
    ok(check("4711.0", &err) < 0, "half a marker is refused");
    ok(check(newer, &err) < 0 && strstr(err.text, "does not work with this tern"),
       "a plugin of another major version is refused: %s", err.text);
    setenv("TERN_RECEIPT", own, 1);
    ok(check(other, &err) == 0,
       "a plugin before 0.4 sets TERN_RECEIPT beside an inherited marker: %s", err.text);
    setenv("TERN_RECEIPT", other, 1);
    ok(check(own, &err) == 0,
       "an inherited TERN_RECEIPT beside the task's own marker is no error: %s", err.text);
    free(own);
    free(other);
    free(step);
    free(newer);
}

/* Ranks whose storage hangs report what is not in the ledger. */
static void test_reports(void)
{
    const struct tern_ledger_lost lost = {4, 3, 6};
    struct tern_task_beacon b;
    struct tern_task_beacon_client a;

    tern_task_beacon_open(&b, NULL, 0);
    tern_task_beacon_report(2, &lost, "n1", 1);
    tern_task_beacon_report(2, &lost, "n1", 1); /* again, as it was not answered */
    tern_task_beacon_report(5, &lost, "n2", 1);
    if (tern_task_beacon_find(&a)) {
        ok(a.node[0] == '\0', "a supervisor that is not watched over has no node");
        tern_task_beacon_request(&a);
        a.key[3] ^= 4;
        for (int i = 0; i < MANY && b.n_losses < 2; i++) {
            tern_task_beacon_answer(&b);
            tern_clock_sleep_ns(10000000);
        }
        tern_task_beacon_drop(&a);
    }
    ok(b.n_losses == 2 && b.losses[0].rank == 2 && b.losses[0].lost.n == 4 &&
           b.losses[0].lost.first == 3 && b.losses[0].lost.last == 6 && b.losses[1].rank == 5,
       "each rank's report is kept once (%zu)", b.n_losses);
    is(b.n_losses ? b.losses[0].node : "", "n1", "a report of lost records has its node");
    tern_task_beacon_close(&b);
}

static void test_beacon(void)
{
    struct tern_task_beacon b;
    struct tern_task_beacon_client a;

    tern_task_beacon_open(&b, "n1", 3);
    if (!tern_task_beacon_find(&a)) {
        tap_skip("no address to speak to");
        return;
    }
    tern_task_beacon_request(&a);
    bool heard = false;
    for (int i = 0; i < MANY && !heard; i++) {
        tern_task_beacon_answer(&b);
        tern_clock_sleep_ns(1000000);
        heard = tern_task_beacon_heard(&a);
    }
    ok(heard, "the node's supervisor answers");
    /* A stranger answers to the same place, and does not know the key. */
    struct tern_task_beacon stranger = b;
    tern_task_beacon_request(&a);
    tern_clock_sleep_ns(20000000);
    a.key[0] ^= 1;
    tern_task_beacon_answer(&stranger);
    tern_clock_sleep_ns(20000000);
    ok(!tern_task_beacon_heard(&a), "an answer with another key does not count");
    tern_task_beacon_drop(&a);
    tern_task_beacon_close(&b);
    test_reports();
    ok(tern_task_beacon_turn(0) == 0 && tern_task_beacon_turn(3) == 3 &&
           tern_task_beacon_turn(4) == 4 && tern_task_beacon_turn(5) == -1 &&
           tern_task_beacon_turn(8) == 5,
       "of many nodes few ask at once");
}

/* What two ranks' signs say at `s` seconds on the boot clock; a rank's is heard at `s0`, `s1`: 0
 * for never.  `ended` has a bit for each. */
static enum tern_task_beacon_life judged(int s, int s0, int s1, int ended)
{
    const int64_t second = 1000000000;
    struct tern_task_beacon_rank ranks[2] = {{s0 * second, ended & 1}, {s1 * second, ended & 2}};
    struct tern_task_beacon b = {.rank = ranks, .n = 2, .judged_ns = s * second - second};

    return tern_task_beacon_judge(&b, s * second);
}

static void test_signs(void)
{
    struct tern_task_beacon b;
    struct tern_task_beacon_client a;
    const int64_t second = 1000000000;

    ok(judged(100, 99, 60, 0) == TERN_TASK_BEACON_LIVES, "a rank that was heard just now lives");
    ok(judged(100, 60, 0, 1) == TERN_TASK_BEACON_LIVES, "so does one that was never heard");
    ok(judged(100, 60, 60, 3) == TERN_TASK_BEACON_ENDED, "both have ended");
    ok(judged(100, 60, 90, 3) == TERN_TASK_BEACON_ENDED &&
           judged(100, 60, 91, 3) == TERN_TASK_BEACON_LIVES,
       "srun has ten seconds from the end of the last rank");
    ok(judged(100, 60, 60, 1) == TERN_TASK_BEACON_GONE, "one has ended, the other one is silent");
    ok(judged(100, 60, 60, 0) == TERN_TASK_BEACON_SILENT,
       "two ranks that say nothing are known as silent");
    struct tern_task_beacon_rank rank = {.heard_ns = 60 * second};
    struct tern_task_beacon stopped = {.rank = &rank, .n = 1, .judged_ns = 61 * second};
    ok(tern_task_beacon_judge(&stopped, 100 * second) == TERN_TASK_BEACON_LIVES,
       "while the supervisor was stopped no rank was silent");
    ok(tern_task_beacon_every_ns(2) == 5 * second &&
           tern_task_beacon_every_ns(5000) == 100 * second,
       "ranks of a large job send fewer signs");

    tern_task_beacon_open(&b, /* node= */ NULL, 0);
    tern_task_beacon_expect(&b, 2);
    if (!tern_task_beacon_find(&a)) {
        tap_skip("no address to speak to");
        return;
    }
    tern_task_beacon_sign(&a, 0, /* ended= */ false, 0);
    tern_task_beacon_sign(&a, 1, /* ended= */ true, 3 << 8);
    tern_task_beacon_sign(&a, 2, /* ended= */ true, 4 << 8); /* there is no such rank */
    for (int i = 0; i < MANY && (!b.rank[0].heard_ns || !b.rank[1].ended); i++) {
        tern_task_beacon_answer(&b);
        tern_clock_sleep_ns(1000000);
    }
    ok(b.rank[0].heard_ns && !b.rank[0].ended, "a rank's sign of life arrives");
    ok(b.rank[1].ended && b.failed == 3 << 8, "a rank's end arrives with its status");
    tern_task_beacon_drop(&a);
    tern_task_beacon_close(&b);
}

int main(void)
{
    test_marker();
    test_beacon();
    test_signs();
    return tap_done();
}
