/* core/run: which nodes watch the supervisor's. */
#include "tests/unit/tap.h"

#include "core/run/watchers.h"

static void test_watchers(void)
{
    char *hosts[] = {"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"};
    size_t which[TERN_RUN_WATCHERS];

    ok(tern_run_watchers_choose(hosts, 1, "n1", which) == 0, "no other node: none watches");
    ok(tern_run_watchers_choose(hosts, 2, "n1", which) == 1 && which[0] == 1,
       "of two nodes the other one watches");
    ok(tern_run_watchers_choose(hosts, 3, "n2", which) == 2 && which[0] == 0 && which[1] == 2,
       "of three both others");
    ok(tern_run_watchers_choose(hosts, 9, "n1", which) == 4 && which[0] == 1 && which[3] == 8,
       "of nine four that are far from each other: the first and the last are among them");
}

int main(void)
{
    test_watchers();
    return tap_done();
}
