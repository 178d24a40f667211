/* core/train/patience: how long other ranks may wait for one; core/base/clock: time that a process
 * lost while it was stopped. */
#include "core/base/clock.h"
#include "core/train/state.h"

#include "tests/unit/tap.h"

#define S 1000000000ll

static bool is_near(double a, double b)
{
    return a > b - 1e-6 && a < b + 1e-6;
}

/* Steps of a second each, ticks between them. */
static double steps(struct train_patience *p, struct tern_clock_gaps *g, int64_t *now, int n)
{
    double seconds = 0;

    for (int i = 0; i < n; i++) {
        seconds = tern_train_patience_turn(p, TERN_FABRIC_COMPUTES, *now,
                                           tern_clock_gaps_lost_ns(g, *now));
        for (int k = 0; k < 2; k++, *now += S / 2)
            tern_clock_gaps_tick(g, *now);
    }
    return seconds;
}

static void test_gaps(void)
{
    struct tern_clock_gaps g = {0};

    ok(tern_clock_gaps_lost_ns(&g, 100 * S) == 0, "without a tick no time is known to be lost");
    tern_clock_gaps_tick(&g, 100 * S);
    tern_clock_gaps_tick(&g, 101 * S);
    ok(tern_clock_gaps_lost_ns(&g, 102 * S) == 0, "ticks that are late by a second lose no time");
    ok(tern_clock_gaps_lost_ns(&g, 221 * S) == 120 * S,
       "a pause counts before the thread that ticks has noted it");
    tern_clock_gaps_tick(&g, 221 * S);
    ok(tern_clock_gaps_lost_ns(&g, 222 * S) == 120 * S,
       "a pause counts once when the thread has noted it");
    tern_clock_gaps_tick(&g, 231 * S);
    ok(tern_clock_gaps_lost_ns(&g, 231 * S) == 130 * S, "pauses add up");
}

static void test_paused_step(void)
{
    struct tern_clock_gaps g = {0};
    struct train_patience p = {0};
    int64_t now = 1000 * S;

    ok(is_near(steps(&p, &g, &now, 5), 10), "others allow ten times the longest step");
    now += 120 * S;
    ok(steps(&p, &g, &now, 1) < 20, "a pause of 120 s within a step is not learned");
    ok(steps(&p, &g, &now, 5) < 20, "a pause of 120 s is not learned later either");
    p.since_ns = now;
    now += 30 * S;
    ok(is_near(tern_train_patience_turn(&p, TERN_FABRIC_COMPUTES, now, p.lost_ns), 300),
       "a step in which the process ran for 30 s is");
}

static void test_paused_save(void)
{
    struct train_patience p = {0};

    tern_train_patience_save(&p, 200, 150 * S);
    ok(is_near(p.longest[TERN_FABRIC_SAVES], 50),
       "of a save of 200 s in a pause of 150 s, 50 s count");
    tern_train_patience_save(&p, 90, 150 * S);
    ok(is_near(p.longest[TERN_FABRIC_SAVES], 90),
       "a later save is not shortened by an earlier pause");
}

static void test_floors(void)
{
    struct train_patience p = {0};
    int64_t now = 1000 * S;
    double first = tern_train_patience_turn(&p, TERN_FABRIC_COMPUTES, now, 0);

    ok(is_near(first, TERN_FABRIC_STORAGE_S), "the first step may wait for storage");
    now += 90 * S;
    ok(is_near(tern_train_patience_turn(&p, TERN_FABRIC_READS, now, 0), TERN_FABRIC_STORAGE_S),
       "data always may");
    ok(is_near(tern_train_patience_turn(&p, TERN_FABRIC_COMPUTES, now, 0), TERN_FABRIC_STORAGE_S),
       "the second step is not measured by the first, which may have been of another length");
    now += S / 10;
    tern_train_patience_turn(&p, TERN_FABRIC_RECORDS, now, 0);
    ok(is_near(tern_train_patience_turn(&p, TERN_FABRIC_COMPUTES, now, 0), 5),
       "steps of a tenth of a second: others allow five seconds");
    ok(is_near(tern_train_patience_turn(&p, TERN_FABRIC_RECORDS, now, 0), TERN_FABRIC_STORAGE_S),
       "records go to storage");
}

int main(void)
{
    test_gaps();
    test_floors();
    test_paused_step();
    test_paused_save();
    return tap_done();
}
