/* core/slurm/reserve.c: when a reservation takes a job's nodes. */
#include "tests/unit/tap.h"

/* The judgement is the file's own. */
#include "core/slurm/reserve.c"

static time_t when(uint64_t flags, const char *name, const char *nodes, const char *of_job,
                   uint16_t over_run)
{
    const reserve_info_t r = {.name = (char *)name,
                              .node_list = (char *)nodes,
                              .start_time = 1000,
                              .end_time = 5000,
                              .flags = flags};
    const struct tern_slurm_job job = {.start = 500, .reservation = (char *)of_job};
    char *hosts[] = {(char *)"n1", (char *)"n2", NULL};

    return takes(&r, &job, hosts, over_run);
}

int main(void)
{
    ok(when(0, "mine", "n[1-2]", "mine", 0) == 5000, "a job ends with its own reservation");
    ok(when(0, "other", "n[1-2]", "mine", 0) == 0, "a job does not end with another reservation");
    ok(when(RESERVE_FLAG_FLEX, "mine", "n[1-2]", "mine", 0) == 0,
       "a job in a reservation with FLEX goes on after its end");
    ok(when(RESERVE_FLAG_FLEX | RESERVE_FLAG_MAINT, "mine", "n[1-2]", "mine", 0) == 0,
       "whatever other flags there are");
    ok(when(0, "mine", "n[1-2]", "mine", 10) == 5600, "ResvOverRun gives it so many minutes more");
    ok(when(0, "mine", "n[1-2]", "mine", INFINITE16) == 0, "or all of them");
    ok(when(RESERVE_FLAG_MAINT, "works", "n[2-9]", "", 0) == 1000,
       "a maintenance takes a node of the job when it begins");
    ok(when(RESERVE_FLAG_MAINT, "works", "n[3-9]", "", 0) == 0, "not one of other nodes");
    ok(when(0, "class", "n[1-2]", "", 0) == 0, "a reservation that is no maintenance takes none");
    return tap_done();
}
