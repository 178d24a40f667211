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
