/* The flight recorder: what it keeps, what others find in it, what it costs, and its dumps. */
#include "core/fabric/state.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "tests/unit/tap.h"

#include <signal.h>
#include <unistd.h>

static struct tern_err err;
static char dir[] = "/tmp/tern-recorder-XXXXXX";

static struct recorder *new_recorder(void)
{
    struct recorder *r = aligned_alloc(64, sizeof *r);

    memset(r, 0, sizeof *r);
    r->blamed = -1;
    return r;
}

static struct tern_comm group(int id, int size, int *world, uint64_t phase)
{
    return (struct tern_comm){.id = id, .size = size, .world = world, .phase = phase};
}

static void keeps_the_newest(void)
{
    struct recorder *r = new_recorder();
    int world[4] = {0, 1, 2, 3};
    struct tern_comm c = group(0, 4, world, 0), other = group(1, 2, world, 7);
    uint64_t desc = tern_fabric_call_pack(CALL_ALL_REDUCE, TERN_F32, TERN_SUM, 0, 100);

    tern_fabric_record_comm(r, &c);
    tern_fabric_record_comm(r, &other);
    ok(c.mark && other.mark && c.mark != other.mark, "communicators are told apart");
    for (uint64_t op = 1; op <= 5000; op++) {
        uint64_t h = tern_fabric_record_begin(r, c.serial, op, desc + op, RECORD_RUNNING);
        tern_fabric_record_end(r, h, true);
    }
    ok(tern_fabric_record_called(r, c.mark, 5000) == desc + 5000, "the newest is found");
    ok(tern_fabric_record_called(r, c.mark, 5000 - RECORDER_RING + 2) ==
           desc + 5000 - RECORDER_RING + 2,
       "and so are those before it");
    ok(tern_fabric_record_called(r, c.mark, 500) == 0, "the oldest are forgotten");
    ok(tern_fabric_record_called(r, c.mark, 5001) == 0, "what was not called yet is not there");
    ok(tern_fabric_record_called(r, other.mark, 5000) == 0, "another communicator has its own");
    /* A record whose place was taken by a later one must not be changed through its old number. */
    uint64_t old = tern_fabric_record_begin(r, other.serial, 1, desc, RECORD_RUNNING);
    for (int i = 0; i < RECORDER_RING; i++)
        tern_fabric_record_begin(r, c.serial, 5001 + (uint64_t)i, desc, RECORD_RUNNING);
    tern_fabric_record_end(r, old, false);
    tern_fabric_record_state(r, old, RECORD_WAITING, 3);
    int touched = 0;
    for (int i = 0; i < RECORDER_RING; i++)
        touched += r->ring[i].state != RECORD_RUNNING;
    ok(touched == 0, "a long operation's record may be overwritten meanwhile");
    free(r);
}

static void communicators_come_and_go(void)
{
    struct recorder *r = new_recorder();
    int world[4] = {0, 2, 4, 6}, odd[300];
    struct tern_comm c = group(0, 4, world, 0);

    tern_fabric_record_comm(r, &c);
    ok(r->comms[0].n_runs == 1 && r->comms[0].runs[0].stride == 2 && r->comms[0].runs[0].count == 4,
       "a group of a layout is one run");
    for (int i = 0; i < 300; i++)
        odd[i] = i % 2 ? 1000 - i * i % 97 : i * 3;
    for (int i = 1; i < 300; i++) {
        struct tern_comm some = group(1, i % 2 ? 2 : 300, odd, (uint64_t)i);
        tern_fabric_record_comm(r, &some);
        tern_fabric_record_comm_end(r, &some);
    }
    ok(r->comms[0].serial == c.serial && !r->comms[0].ended,
       "hundreds of short-lived communicators leave the living one's entry alone");
    int cut = 0;
    for (int i = 0; i < RECORDER_COMMS; i++)
        cut += r->comms[i].cut && r->comms[i].n_runs == RECORDER_RUNS;
    ok(cut > 0, "members that do not fit are marked as cut");
    free(r);
}

static void costs_little(void)
{
    struct recorder *r = new_recorder();
    int world[1] = {0};
    struct tern_comm c = group(0, 1, world, 0);
    double best = 1e9;

    tern_fabric_record_comm(r, &c);
    for (int round = 0; round < 5; round++) {
        int64_t start = tern_clock_boot_ns();
        for (uint64_t op = 1; op <= 20000; op++)
            tern_fabric_record_end(r, tern_fabric_record_begin(r, c.serial, op, 1, RECORD_RUNNING),
                                   true);
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
    tern_fabric_dump(false);
}

static void dumps(void)
{
    setenv("TERN_FABRIC_DUMP", dir, 1);
    const struct tern_fabric_options o = {.wireup = TERN_WIREUP_ALONE};
    struct tern_fabric *f = tern_fabric_open(&o, &err);
    struct record_head h;
    char *path = tern_strf("%s/fabric-rank-00000.tfr", dir), *data = NULL;
    size_t len = 0;

    ok(f != NULL, "a fabric of one rank opens");
    for (int i = 0; i < 3; i++)
        tern_comm_barrier(tern_fabric_world(f), &err);
    ok(!tern_fs_exists(path), "nothing is written while all is well");
    signal(SIGUSR2, on_signal);
    raise(SIGUSR2);
    ok(tern_fs_read(path, 1 << 20, &data, &len, &err) == 0, "a signal handler writes the dump");
    memset(&h, 0, sizeof h);
    memcpy(&h, data ? data : "", len < sizeof h ? len : sizeof h);
    ok(memcmp(h.magic, RECORDER_MAGIC, 8) == 0 && h.n_records == 3 && h.n_comms == 1 &&
           h.pid == getpid(),
       "with its records and its communicator");
    ok(len == sizeof h + sizeof(struct record_name) + offsetof(struct record_comm, runs) +
                  sizeof(struct record_run) + 3 * sizeof(struct record),
       "and nothing besides (%zu bytes)", len);
    unlink(path);
    tern_fabric_dump(true);
    ok(!tern_fs_exists(path), "nothing when only who waits is asked, and nobody does");
    tern_fabric_close(f);
    tern_fabric_dump(false);
    ok(!tern_fs_exists(path), "a closed fabric is not dumped");
    free(data);
    free(path);
    unsetenv("TERN_FABRIC_DUMP");
}

static void names_ranks(void)
{
    char text[64], small[40];
    int some[6] = {0, 1, 2, 5, 8, 9}, many[40];

    is(tern_fabric_ranks_text(text, sizeof text, some, 6), "0-2,5,8-9", "ranges of ranks");
    is(tern_fabric_ranks_text(text, sizeof text, some, 0), "", "none");
    for (int i = 0; i < 40; i++)
        many[i] = i * 100;
    has(tern_fabric_ranks_text(small, sizeof small, many, 40), ",...", "a long list is cut");
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
