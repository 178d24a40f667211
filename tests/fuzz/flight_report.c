/* Dumps of any program: each is refused in words or reported; nothing is read that is not there.
 * FUZZ_RUNS: how many sets of dumps. */
#include "core/flight/report.h"
#include "core/flight/flight.h"

#include "core/base/fs.h"
#include "core/base/rand.h"
#include "tests/unit/tap.h"

#include <unistd.h>

enum { RANKS = 4, CHANGES = 8 };
static char dir[] = "/tmp/tern-fuzz-flight-XXXXXX";
static char *seeds[RANKS];
static size_t lengths[RANKS];

static char *path_of(int rank)
{
    return tern_strf("%s/fabric-rank-%05d.tfr", dir, rank);
}

/* Three ranks wait for the last, which is elsewhere, in one of three ways. */
static void make_seed(int rank, int way)
{
    struct tern_flight_recorder *r = aligned_alloc(64, sizeof *r);
    char names[RANKS][TERN_FLIGHT_NAME] = {0};
    struct tern_flight_rank ranks[RANKS] = {0};
    struct tern_flight f = {.rank = rank, .size = RANKS, .recorder = r, .ranks = ranks};
    int world[RANKS] = {0, 1, 2, 3}, odd[2] = {1, 3};
    uint32_t mark, some = 0;

    memset(r, 0, sizeof *r);
    r->blamed = way == 1 ? 3 : -1;
    for (int i = 0; i < RANKS; i++) {
        snprintf(names[i], sizeof names[i], "node-%d", i / 2);
        ranks[i].node_name = names[i];
    }
    snprintf(f.dir, sizeof f.dir, "%s", dir);
    uint32_t all = tern_flight_comm_begin(r, 0, 0, world, RANKS, &mark);
    if (rank % 2)
        some = tern_flight_comm_begin(r, 1, 9, odd, 2, &mark);
    uint64_t sum = tern_call_pack(TERN_CALL_ALL_REDUCE, TERN_F32, TERN_SUM, 0, 64);
    uint64_t gather = tern_call_pack(TERN_CALL_ALL_GATHER, TERN_F32, TERN_SUM, 0, 64);
    for (uint64_t op = 1; op <= 6; op++) {
        if (rank == 3 && op == 6 && way == 0)
            break;
        uint64_t h = tern_flight_begin(r, all, op, rank == 3 && op == 6 && way == 2 ? gather : sum,
                                       TERN_FLIGHT_RUNNING);
        if (op < 6)
            tern_flight_end(r, h, true);
        else
            tern_flight_set_state(r, h, TERN_FLIGHT_WAITING, (rank + 1) % RANKS);
    }
    if (rank % 2)
        tern_flight_begin(r, some, 1, gather, TERN_FLIGHT_RUNNING);
    tern_flight_write_failed(&f, "rank 3 has ended");
    free(r);
    char *path = path_of(rank);
    free(seeds[rank]);
    if (tern_fs_read(path, 1 << 20, &seeds[rank], &lengths[rank], NULL) < 0)
        ok(0, "a dump is written");
    free(path);
}

static void put_changed(uint64_t round, int rank)
{
    size_t len = lengths[rank];
    char *data = malloc(len), *path = path_of(rank);
    uint64_t n = tern_rand_below(1, round, (uint64_t)rank, CHANGES);

    memcpy(data, seeds[rank], len);
    for (uint64_t k = 0; k < n; k++) {
        uint64_t draw = tern_rand_u64(2, round * RANKS + (uint64_t)rank, k);
        size_t at = draw % len / 4 * 4;
        static const uint32_t odd[] = {0, 1,          0xffffffff, 0x7fffffff, 0x80000000,
                                       3, 0x20000000, 5,          4096,       0xffff};
        uint32_t value = draw >> 60 ? odd[(draw >> 32) % 10] : (uint32_t)(draw >> 20);
        memcpy(data + at, &value, 4 < len - at ? 4 : len - at);
    }
    if (tern_rand_below(3, round, (uint64_t)rank, 8) == 0)
        len = tern_rand_below(4, round, (uint64_t)rank, len);
    if (tern_rand_below(5, round, (uint64_t)rank, 8) == 0)
        unlink(path);
    else
        tern_fs_replace(path, data, len, 0600, NULL);
    free(data);
    free(path);
}

int main(void)
{
    const char *runs = getenv("FUZZ_RUNS");
    int n = runs ? atoi(runs) : tap_long() ? 60000 : 3000, told = 0;

    if (!mkdtemp(dir))
        return 1;
    for (int i = 0; i < n; i++) {
        struct tern_err err = {0};
        struct tern_buf text = {0};
        for (int r = 0; r < RANKS && i % 1000 < 3; r++)
            make_seed(r, i % 1000);
        for (int r = 0; r < RANKS; r++)
            put_changed((uint64_t)i, r);
        struct tern_flight_report *a = tern_flight_report_read(dir, &err);
        if (a) {
            tern_flight_report_text(a, &text);
            json_t *j = tern_flight_report_json(a);
            char *dumped = json_dumps(j, 0);
            told += dumped && text.len > 0;
            free(dumped);
            json_decref(j);
        } else if (!err.text[0]) {
            ok(0, "round %d: refused in words", i);
        }
        tern_flight_report_free(a);
        tern_buf_free(&text);
    }
    ok(told > n / 2, "%d sets of dumps, %d reported", n, told);
    for (int r = 0; r < RANKS; r++)
        free(seeds[r]);
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
