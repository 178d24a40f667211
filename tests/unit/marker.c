/* core/task/marker, beacon: what the plugin left for the task, and who speaks for its node. */
#include "core/base/clock.h"
#include "core/base/datagram.h"
#include "core/base/str.h"
#include "core/task/beacon.h"
#include "core/task/marker.h"
#include "tests/unit/tap.h"

static int check(const char *marker, struct tern_err *err)
{
    *err = (struct tern_err){0};
    setenv("TERN_RECEIPT", marker, 1);
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
       "another job's marker is refused");
    ok(check(step, &err) < 0, "another step's marker is refused");
    ok(check("4711.0", &err) < 0, "half a marker is refused");
    ok(check(newer, &err) < 0 && strstr(err.text, "does not work with this tern"),
       "a plugin of another major version is refused: %s", err.text);
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
    struct tern_task_beacon_asker a;

    tern_task_beacon_open(&b, NULL, 0);
    tern_task_beacon_report(2, &lost, "n1", 1);
    tern_task_beacon_report(2, &lost, "n1", 1); /* again, as it was not answered */
    tern_task_beacon_report(5, &lost, "n2", 1);
    if (tern_task_beacon_find(&a)) {
        ok(a.node[0] == '\0', "a supervisor that is not watched over has no node");
        tern_task_beacon_ask(&a);
        a.key[3] ^= 4;
        for (int i = 0; i < 1000 && b.n_losses < 2; i++) {
            tern_task_beacon_answer(&b);
            tern_clock_sleep_ns(10000000);
        }
        tern_task_beacon_drop(&a);
    }
    ok(b.n_losses == 2 && b.losses[0].rank == 2 && b.losses[0].lost.n == 4 &&
           b.losses[0].lost.first == 3 && b.losses[0].lost.last == 6 && b.losses[1].rank == 5,
       "each rank's report is kept once (%zu)", b.n_losses);
    is(b.n_losses ? b.losses[0].node : "", "n1", "with its node");
    tern_task_beacon_close(&b);
}

static void test_beacon(void)
{
    struct tern_task_beacon b;
    struct tern_task_beacon_asker a;

    tern_task_beacon_open(&b, "n1", 3);
    if (!tern_task_beacon_find(&a)) {
        tap_skip("no address to speak to");
        return;
    }
    tern_task_beacon_ask(&a);
    for (int i = 0; i < 100; i++) {
        tern_task_beacon_answer(&b);
        tern_clock_sleep_ns(1000000);
    }
    ok(tern_task_beacon_heard(&a), "the node's supervisor answers");
    /* A stranger answers to the same place, and does not know the key. */
    struct tern_task_beacon stranger = b;
    tern_task_beacon_ask(&a);
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

int main(void)
{
    test_marker();
    test_beacon();
    return tap_done();
}
