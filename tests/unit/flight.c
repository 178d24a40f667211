/* The flight recorder: what it keeps, what others find in it, what it costs, and its dumps. */
#include "core/fabric/fabric.h"
#include "core/flight/flight.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "tests/unit/tap.h"

#include <signal.h>
#include <unistd.h>

static struct tern_err err;
static char dir[] = "/tmp/tern-flight-XXXXXX";

static struct tern_flight_recorder *new_recorder(void)
{
    struct tern_flight_recorder *r = aligned_alloc(64, sizeof *r);

    memset(r, 0, sizeof *r);
    r->blamed = -1;
    return r;
}

struct group {
    uint32_t serial, mark;
};

static struct group begin(struct tern_flight_recorder *r, int id, int size, const int *world,
                          uint64_t phase)
{
    struct group g;

    g.serial = tern_flight_comm_begin(r, id, phase, world, size, &g.mark);
    return g;
}

static void keeps_the_newest(void)
{
    struct tern_flight_recorder *r = new_recorder();
    int world[4] = {0, 1, 2, 3};
    struct group c = begin(r, 0, 4, world, 0), other = begin(r, 1, 2, world, 7);
    uint64_t desc = tern_call_pack(TERN_CALL_ALL_REDUCE, TERN_F32, TERN_SUM, 0, 100);

    ok(c.mark && other.mark && c.mark != other.mark, "two communicators have different marks");
    for (uint64_t op = 1; op <= 5000; op++) {
        uint64_t h = tern_flight_begin(r, c.serial, op, desc + op, TERN_FLIGHT_RUNNING);
        tern_flight_end(r, h, true);
    }
    ok(tern_flight_find_call(r, c.mark, 5000) == desc + 5000, "the newest call is found");
    ok(tern_flight_find_call(r, c.mark, 5000 - TERN_FLIGHT_RING + 2) ==
           desc + 5000 - TERN_FLIGHT_RING + 2,
       "a call 4094 before the newest is found");
    ok(tern_flight_find_call(r, c.mark, 500) == 0, "calls older than the ring are not found");
    ok(tern_flight_find_call(r, c.mark, 5001) == 0, "a call that was not made yet is not found");
    ok(tern_flight_find_call(r, other.mark, 5000) == 0,
       "a call of another communicator is not found");
    /* A record whose place was taken by a later one must not be changed through its old number. */
    uint64_t old = tern_flight_begin(r, other.serial, 1, desc, TERN_FLIGHT_RUNNING);
    for (int i = 0; i < TERN_FLIGHT_RING; i++)
        tern_flight_begin(r, c.serial, 5001 + (uint64_t)i, desc, TERN_FLIGHT_RUNNING);
    tern_flight_end(r, old, false);
    tern_flight_set_state(r, old, TERN_FLIGHT_WAITING, 3);
    int touched = 0;
    for (int i = 0; i < TERN_FLIGHT_RING; i++)
        touched += r->ring[i].state != TERN_FLIGHT_RUNNING;
    ok(touched == 0, "a long operation's record may be overwritten meanwhile");
    free(r);
}

static void communicators_come_and_go(void)
{
    struct tern_flight_recorder *r = new_recorder();
    int world[4] = {0, 2, 4, 6}, odd[300];
    struct group c = begin(r, 0, 4, world, 0);

    ok(r->comms[0].n_runs == 1 && r->comms[0].runs[0].stride == 2 && r->comms[0].runs[0].count == 4,
       "a group of a layout is one run");
    for (int i = 0; i < 300; i++)
        odd[i] = i % 2 ? 1000 - i * i % 97 : i * 3;
    for (int i = 1; i < 300; i++) {
        struct group some = begin(r, 1, i % 2 ? 2 : 300, odd, (uint64_t)i);
        tern_flight_comm_end(r, some.serial);
    }
    ok(r->comms[0].serial == c.serial && !r->comms[0].ended,
       "hundreds of short-lived communicators leave the living one's entry alone");
    int cut = 0;
    for (int i = 0; i < TERN_FLIGHT_COMMS; i++)
        cut += r->comms[i].cut && r->comms[i].n_runs == TERN_FLIGHT_RUNS;
    ok(cut > 0, "members that do not fit are marked as cut");
    free(r);
}

static void costs_little(void)
{
    struct tern_flight_recorder *r = new_recorder();
    int world[1] = {0};
    struct group c = begin(r, 0, 1, world, 0);
    double best = 1e9;

    for (int round = 0; round < 5; round++) {
        int64_t start = tern_clock_boot_ns();
        for (uint64_t op = 1; op <= 20000; op++)
            tern_flight_end(r, tern_flight_begin(r, c.serial, op, 1, TERN_FLIGHT_RUNNING), true);
        double ns = (double)(tern_clock_boot_ns() - start) / 20000;
        best = ns < best ? ns : best;
    }
    /* Two looks at the clock are most of it; generous, for slow clocks and sanitizers. */
    bound(best, 3000, "nanoseconds of a record");
    free(r);
}

static void on_signal(int sig)
{
    (void)sig;
    tern_flight_write(false);
}

static void dumps(void)
{
    setenv("TERN_FABRIC_DUMP", dir, 1);
    const struct tern_fabric_options o = {.wireup = TERN_WIREUP_ALONE};
    struct tern_fabric *f = tern_fabric_open(&o, &err);
    struct tern_flight_head h;
    char *path = tern_strf("%s/fabric-rank-00000.tfr", dir), *data = NULL;
    size_t len = 0;

    ok(f != NULL, "a fabric of one rank opens");
    for (int i = 0; i < 3; i++)
        tern_fabric_barrier(tern_fabric_world(f), &err);
    ok(!tern_fs_exists(path), "no dump is written while all is well");
    signal(SIGUSR2, on_signal);
    raise(SIGUSR2);
    ok(tern_fs_read(path, 1 << 20, &data, &len, &err) == 0, "a signal handler writes the dump");
    memset(&h, 0, sizeof h);
    memcpy(&h, data ? data : "", len < sizeof h ? len : sizeof h);
    ok(memcmp(h.magic, TERN_FLIGHT_MAGIC, 8) == 0 && h.n_records == 3 && h.n_comms == 1 &&
           h.pid == getpid(),
       "the dump has the three records and the communicator");
    ok(len == sizeof h + sizeof(struct tern_flight_name) + offsetof(struct tern_flight_comm, runs) +
                  sizeof(struct tern_flight_run) + 3 * sizeof(struct tern_flight_record),
       "the dump has nothing else (%zu bytes)", len);
    unlink(path);
    tern_flight_write(true);
    ok(!tern_fs_exists(path),
       "a dump of waiting ranks only is not written by a rank that does not wait");
    tern_fabric_close(f);
    tern_flight_write(false);
    ok(!tern_fs_exists(path), "a closed fabric is not dumped");
    free(data);
    free(path);
    unsetenv("TERN_FABRIC_DUMP");
}

static void names_ranks(void)
{
    char text[64], small[40];
    int some[6] = {0, 1, 2, 5, 8, 9}, many[40];

    is(tern_flight_ranks_text(text, sizeof text, some, 6), "0-2,5,8-9",
       "ranks are printed as ranges");
    is(tern_flight_ranks_text(text, sizeof text, some, 0), "", "no ranks are an empty text");
    for (int i = 0; i < 40; i++)
        many[i] = i * 100;
    has(tern_flight_ranks_text(small, sizeof small, many, 40), ",...",
        "a long list of ranks is cut");
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    keeps_the_newest();
    communicators_come_and_go();
    costs_little();
    dumps();
    names_ranks();
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
