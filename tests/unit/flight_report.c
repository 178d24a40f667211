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

/* Rank `rank` in operation `op` of the communicator `mark`, waiting for rank `waits_for`; -1: for
 * no rank just then.  Rank `writer` wrote its dump. */
static void dump_in(int rank, int waits_for, int writer, uint32_t mark, uint64_t op,
                    enum tern_call call)
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
                                 .n_records = 1};
    struct tern_flight_name name = {.count = RANKS, .node = "node"};
    struct tern_flight_comm comm = {.serial = 1, .mark = mark, .size = RANKS, .n_runs = 1};
    struct tern_flight_run run = {.first = 0, .stride = 1, .count = RANKS};
    struct tern_flight_record r = {.seq = 1,
                                   .op = op,
                                   .desc = tern_call_pack(call, TERN_F32, TERN_SUM, 0, 100),
                                   .begin_ns = 1000000000,
                                   .end_ns = 1500000000,
                                   .comm = 1,
                                   .waits_for = waits_for,
                                   .state = TERN_FLIGHT_FAILED};
    char *path = tern_strf("%s/fabric-rank-%05d.tfr", dir, rank);
    FILE *f = fopen(path, "w");

    if (f) {
        fwrite(&h, sizeof h, 1, f);
        fwrite(&name, sizeof name, 1, f);
        fwrite(&comm, offsetof(struct tern_flight_comm, runs), 1, f);
        fwrite(&run, sizeof run, 1, f);
        fwrite(&r, sizeof r, 1, f);
        fclose(f);
    }
    free(path);
}

static void dump_of(int rank, int waits_for, int writer, uint32_t mark)
{
    dump_in(rank, waits_for, writer, mark, 21, TERN_CALL_ALL_REDUCE);
}

/* The first line of the report on what lies there now. */
static void first_line(const char *expect)
{
    struct tern_err err = {0};
    struct tern_buf text = {0};
    struct tern_flight_report *a = tern_flight_report_read(dir, &err);

    if (a)
        tern_flight_report_text(a, &text);
    char *line = text.data ? strndup(text.data, strcspn(text.data, "\n")) : NULL;
    ok(line && strcmp(line, expect) == 0, "%s", expect);
    if (!line || strcmp(line, expect) != 0)
        printf("# %s\n", text.data ? text.data : err.text);
    free(line);
    tern_buf_free(&text);
    tern_flight_report_free(a);
}

/* Rank 1 heard of the end before it had finished the operation before. */
static void different_calls(void)
{
    dump_in(0, 3, 0, 77, 21, TERN_CALL_ALL_REDUCE);
    dump_in(1, NO_RANK, 1, 77, 20, TERN_CALL_ALL_REDUCE);
    dump_in(2, 3, 2, 77, 21, TERN_CALL_ALL_REDUCE);
    dump_in(3, NO_RANK, 3, 77, 21, TERN_CALL_ALL_GATHER);
    first_line("rank 3 (node) called all_gather f32 100 #21 where ranks 0,2 called all_reduce f32 "
               "sum 100 on communicator 0");
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
    for (int r = 0; r < RANKS; r++) {
        char *path = tern_strf("%s/fabric-rank-%05d.tfr", dir, r);
        unlink(path);
        free(path);
    }
    rmdir(dir);
    return tap_done();
}
