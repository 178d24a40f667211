/* Which rank a flight report names, by dumps of four ranks that are made here. */
#include "core/flight/report.h"
#include "core/flight/flight.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "tests/unit/tap.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/tern-flight-XXXXXX";

enum { RANKS = 4, NO_RANK = -1, ABSENT = -2, KILLED = -3 };

struct called {
    uint64_t op;
    enum tern_call call;
    enum tern_flight_state state;
};

/* Rank `rank` in the `n` operations of the communicator `mark`, waiting for rank `waits_for`; -1:
 * for no rank just then.  Rank `writer` wrote its dump. */
static void dump_in(int rank, int waits_for, int writer, uint32_t mark, const struct called *c,
                    int n)
{
    struct tern_flight_head h = {.magic = TERN_FLIGHT_MAGIC,
                                 .head_bytes = sizeof h,
                                 .rank = rank,
                                 .size = RANKS,
                                 .pid = 100 + rank,
                                 .written_by = writer,
                                 .blamed = -1,
                                 .boot_ns = 2000000000,
                                 .wall_ns = 2000000000,
                                 .begun = 1,
                                 .n_names = 1,
                                 .n_comms = 1,
                                 .n_records = (uint32_t)n};
    struct tern_flight_name name = {.count = RANKS, .node = "node"};
    struct tern_flight_comm comm = {.serial = 1, .mark = mark, .size = RANKS, .n_runs = 1};
    struct tern_flight_run run = {.first = 0, .stride = 1, .count = RANKS};
    char *path = tern_strf("%s/fabric-rank-%05d.tfr", dir, rank);
    FILE *f = fopen(path, "w");

    if (f) {
        fwrite(&h, sizeof h, 1, f);
        fwrite(&name, sizeof name, 1, f);
        fwrite(&comm, offsetof(struct tern_flight_comm, runs), 1, f);
        fwrite(&run, sizeof run, 1, f);
        for (int i = 0; i < n; i++) {
            struct tern_flight_record r = {
                .seq = 1 + (uint64_t)i,
                .op = c[i].op,
                .desc = tern_call_pack(c[i].call, TERN_F32, TERN_SUM, 0, 100),
                .begin_ns = 1000000000,
                .end_ns = 1500000000,
                .comm = 1,
                .waits_for = waits_for,
                .state = c[i].state};
            fwrite(&r, sizeof r, 1, f);
        }
        fclose(f);
    }
    free(path);
}

static void dump_of(int rank, int waits_for, int writer, uint32_t mark)
{
    dump_in(rank, waits_for, writer, mark,
            &(struct called){21, TERN_CALL_ALL_REDUCE, TERN_FLIGHT_FAILED}, 1);
}

/* The report on what lies there now; the caller frees it. */
static char *report(void)
{
    struct tern_err err = {0};
    struct tern_buf text = {0};
    struct tern_flight_report *a = tern_flight_report_read(dir, &err);

    if (a)
        tern_flight_report_text(a, &text);
    tern_flight_report_free(a);
    return text.data ? text.data : tern_strdup(err.text);
}

/* Its first line. */
static void first_line(const char *expect)
{
    char *text = report();
    const size_t n = strlen(expect);
    bool same = strncmp(text, expect, n) == 0 && text[n] == '\n';

    ok(same, "%s", expect);
    if (!same)
        printf("# %s\n", text);
    free(text);
}

/* Rank 1 heard of the end before it had finished the operation before. */
static void different_calls(void)
{
    const struct called both = {21, TERN_CALL_ALL_REDUCE, TERN_FLIGHT_FAILED},
                        before = {20, TERN_CALL_ALL_REDUCE, TERN_FLIGHT_FAILED},
                        other = {21, TERN_CALL_ALL_GATHER, TERN_FLIGHT_FAILED};

    dump_in(0, 3, 0, 77, &both, 1);
    dump_in(1, NO_RANK, 1, 77, &before, 1);
    dump_in(2, 3, 2, 77, &both, 1);
    dump_in(3, NO_RANK, 3, 77, &other, 1);
    first_line("rank 3 (node) called all_gather f32 100 #21 where ranks 0,2 called all_reduce f32 "
               "sum 100 on communicator 0");
    char *text = report();
    has(text, "rank 1 (node) was in all_reduce f32 sum 100 #20 and never called #21\n",
        "a rank that failed one operation earlier is reported so");
    has(text, "communicator 0 (ranks 0-3): all that left a dump finished #19\n",
        "the last operation that all finished is the one before that");
    free(text);

    /* Several operations under way: those before the difference are not finished. */
    for (int r = 0; r < RANKS; r++)
        dump_in(r, NO_RANK, r, 77, (struct called[]){before, r == 3 ? other : both}, 2);
    first_line("rank 3 (node) called all_gather f32 100 #21 where ranks 0-2 called all_reduce f32 "
               "sum 100 on communicator 0");
    text = report();
    has(text, "communicator 0 (ranks 0-3): all that left a dump finished #19\n",
        "operations that are under way before the one called differently are not finished");
    free(text);
}

/* Ranks that still run, one operation behind: one line, whether they wait just then or not. */
static void behind(void)
{
    const struct called next = {21, TERN_CALL_ALL_REDUCE, TERN_FLIGHT_WAITING},
                        waits = {20, TERN_CALL_ALL_REDUCE, TERN_FLIGHT_WAITING},
                        runs = {20, TERN_CALL_ALL_REDUCE, TERN_FLIGHT_RUNNING},
                        other = {21, TERN_CALL_ALL_GATHER, TERN_FLIGHT_WAITING};

    dump_in(0, 1, 0, 77, &next, 1);
    dump_in(1, NO_RANK, 1, 77, &runs, 1);
    dump_in(2, NO_RANK, 2, 77, &waits, 1);
    dump_in(3, 1, 3, 77, &other, 1);
    char *text = report();
    has(text, "ranks 1-2 are in all_reduce f32 sum 100 #20 and have not called #21\n",
        "ranks that still run are told in the present, together");
    free(text);
}

/* The ranks wait as `waits_for` says; ABSENT ones have no dump, KILLED ones have one of rank 0.  In
 * `comms` each waits in a communicator of its own. */
static void verdict_in(bool comms, const int waits_for[RANKS], const char *expect)
{
    for (int r = 0; r < RANKS; r++) {
        char *path = tern_strf("%s/fabric-rank-%05d.tfr", dir, r);
        unlink(path);
        free(path);
        if (waits_for[r] != ABSENT)
            dump_of(r, waits_for[r] == KILLED ? NO_RANK : waits_for[r],
                    waits_for[r] == KILLED ? 0 : r, comms ? 77 + (uint32_t)r : 77);
    }
    first_line(expect);
}

static void verdict(const int waits_for[RANKS], const char *expect)
{
    verdict_in(false, waits_for, expect);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    verdict((int[]){2, 2, ABSENT, 2},
            "3 ranks wait, directly or through others, for rank 2 (node), which has no dump: it "
            "died or was cut off");
    verdict((int[]){1, 2, ABSENT, 0},
            "3 ranks wait, directly or through others, for rank 2 (node), which has no dump: it "
            "died or was cut off (rank 3 waits for 0, which waits for 1, which waits for 2)");
    /* Ranks that heard of the failure between two waits wait for rank 2 all the same. */
    verdict((int[]){NO_RANK, 2, ABSENT, NO_RANK},
            "3 ranks wait, directly or through others, for rank 2 (node), which has no dump: it "
            "died or was cut off");
    verdict((int[]){NO_RANK, 0, 0, 0},
            "3 ranks wait, directly or through others, for rank 0 (node), which was in an "
            "operation and waited for no rank");
    verdict_in(true, (int[]){1, 0, 0, 0},
               "3 ranks wait, directly or through others, for rank 0 (node), which waits for one "
               "of them: a circle (rank 2 waits for 0, which waits for 1, which waits for 0)");
    verdict_in(true, (int[]){1, 0, KILLED, 2},
               "1 rank waits, directly or through others, for rank 2 (node), which wrote no dump "
               "itself (rank 0 (node) wrote it): it was killed or hung");
    /* One communicator's operations come in one order: such a circle is one of two moments. */
    verdict((int[]){1, 0, 0, 0},
            "4 ranks wait, directly or through others, for rank 0 (node), which waits for one of "
            "them: the dumps are of different moments (rank 2 waits for 0, which waits for 1, "
            "which waits for 0)");
    verdict((int[]){1, 0, KILLED, 2},
            "3 ranks wait, directly or through others, for rank 2 (node), which wrote no dump "
            "itself (rank 0 (node) wrote it): it was killed or hung");
    verdict((int[]){1, 0, ABSENT, 2},
            "3 ranks wait, directly or through others, for rank 2 (node), which has no dump: it "
            "died or was cut off");
    different_calls();
    behind();
    for (int r = 0; r < RANKS; r++) {
        char *path = tern_strf("%s/fabric-rank-%05d.tfr", dir, r);
        unlink(path);
        free(path);
    }
    rmdir(dir);
    return tap_done();
}
