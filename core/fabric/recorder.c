#include "core/fabric/recorder.h"
#include "core/fabric/state.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/vars.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------- recording */

static uint32_t mix(uint32_t h, uint64_t v)
{
    v = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(v >> 32) ^ (uint32_t)v;
}

static void add_members(struct record_comm *e, const int *world, int size)
{
    for (int i = 0; i < size;) {
        struct record_run run = {world[i], 1, 1};
        if (e->n_runs == RECORDER_RUNS) {
            e->cut = 1;
            return;
        }
        if (i + 1 < size)
            run.stride = world[i + 1] - world[i];
        while (i + run.count < size &&
               world[i + run.count] == world[i + run.count - 1] + run.stride)
            run.count++;
        e->runs[e->n_runs++] = run;
        i += run.count;
    }
}

/* A free entry, else the one that ended and began first; live ones never fill the table. */
static struct record_comm *entry(struct recorder *r)
{
    struct record_comm *e = NULL;

    for (int i = 0; i < RECORDER_COMMS; i++) {
        struct record_comm *x = &r->comms[i];
        if (!x->serial)
            return x;
        if (x->ended && (!e || x->serial < e->serial))
            e = x;
    }
    return e;
}

void tern_fabric_record_comm(struct recorder *r, struct tern_comm *c)
{
    struct record_comm *e = entry(r);

    c->mark = mix(mix(0, (uint64_t)c->id), c->phase);
    for (int i = 0; i < c->size; i++)
        c->mark = mix(c->mark, (uint64_t)c->world[i]);
    c->mark = c->mark ? c->mark : 1;
    c->serial = ++r->serial;
    *e = (struct record_comm){
        .serial = 0, .id = c->id, .phase = c->phase, .mark = c->mark, .size = c->size};
    add_members(e, c->world, c->size);
    atomic_signal_fence(memory_order_release);
    e->serial = c->serial;
}

void tern_fabric_record_comm_end(struct recorder *r, const struct tern_comm *c)
{
    for (int i = 0; c->serial && i < RECORDER_COMMS; i++)
        if (r->comms[i].serial == c->serial)
            r->comms[i].ended = 1;
}

uint64_t tern_fabric_record_begin(struct recorder *r, uint32_t serial, uint64_t op, uint64_t desc,
                                  enum record_state state)
{
    uint64_t seq = atomic_load_explicit(&r->begun, memory_order_relaxed) + 1;
    struct record *e = &r->ring[seq % RECORDER_RING];

    atomic_store_explicit(&e->seq, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    e->op = op;
    e->desc = desc;
    e->begin_ns = tern_clock_boot_ns();
    e->end_ns = 0;
    e->wire_bytes = 0;
    e->comm = serial;
    e->waits_for = -1;
    e->state = state;
    atomic_store_explicit(&e->seq, seq, memory_order_release);
    atomic_store_explicit(&r->begun, seq, memory_order_release);
    return seq;
}

/* NULL when it was overwritten meanwhile. */
static struct record *record_of(struct recorder *r, uint64_t seq)
{
    struct record *e = &r->ring[seq % RECORDER_RING];

    return seq && atomic_load_explicit(&e->seq, memory_order_relaxed) == seq ? e : NULL;
}

void tern_fabric_record_state(struct recorder *r, uint64_t record, enum record_state state,
                              int waits_for)
{
    struct record *e = record_of(r, record);

    if (!e)
        return;
    e->waits_for = waits_for;
    e->state = state;
}

void tern_fabric_record_wire(struct recorder *r, uint64_t record, size_t bytes)
{
    struct record *e = record_of(r, record);

    if (e)
        e->wire_bytes += bytes;
}

/* Whom a failed operation waited for stays. */
void tern_fabric_record_end(struct recorder *r, uint64_t record, bool good)
{
    struct record *e = record_of(r, record);

    if (!e)
        return;
    e->end_ns = tern_clock_boot_ns();
    e->state = good ? RECORD_DONE : RECORD_FAILED;
    if (good)
        e->waits_for = -1;
}

uint64_t tern_fabric_record_called(const struct recorder *r, uint32_t mark, uint64_t op)
{
    uint64_t begun = atomic_load_explicit(&r->begun, memory_order_acquire);
    uint32_t serial = 0;

    for (int i = 0; i < RECORDER_COMMS; i++)
        if (r->comms[i].mark == mark && r->comms[i].serial)
            serial = r->comms[i].serial;
    for (uint64_t seq = begun; serial && seq > 0 && begun - seq < RECORDER_RING; seq--) {
        const struct record *e = &r->ring[seq % RECORDER_RING];
        if (atomic_load_explicit(&e->seq, memory_order_acquire) != seq)
            continue;
        bool same = e->comm == serial && e->op == op, past = e->comm == serial && e->op < op;
        uint64_t desc = e->desc;
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&e->seq, memory_order_relaxed) != seq)
            continue;
        if (same)
            return desc;
        if (past) /* a communicator's numbers only rise */
            return 0;
    }
    return 0;
}

/* ---------------------------------------------------------------- writing dumps */

/* Only what a signal handler may call from here on. */

enum { FABRICS = 16 }; /* open at once in a process, for tern_fabric_dump */
static struct tern_fabric *_Atomic fabrics[FABRICS];

struct out {
    int fd;
    bool bad;
    size_t n;
    char bytes[4096];
};

static void flush(struct out *o)
{
    for (size_t at = 0; at < o->n && !o->bad;) {
        ssize_t k = write(o->fd, o->bytes + at, o->n - at);
        if (k < 0 && errno != EINTR)
            o->bad = true;
        at += k > 0 ? (size_t)k : 0;
    }
    o->n = 0;
}

static void put(struct out *o, const void *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t k = len - at < sizeof o->bytes - o->n ? len - at : sizeof o->bytes - o->n;
        memcpy(o->bytes + o->n, (const char *)data + at, k);
        o->n += k;
        at += k;
        if (o->n == sizeof o->bytes)
            flush(o);
    }
}

/* Consecutive ranks of one node in one go; counts them when `o` is NULL. */
static uint32_t put_names(struct out *o, const struct tern_fabric *f)
{
    uint32_t n = 0;

    for (int r = 0; r < f->size; n++) {
        struct record_name name = {0};
        memcpy(name.node, f->peers[r].node_name, sizeof name.node);
        while (r < f->size && strcmp(f->peers[r].node_name, name.node) == 0) {
            name.count++;
            r++;
        }
        if (o)
            put(o, &name, sizeof name);
    }
    return n;
}

static void put_all(struct out *o, const struct tern_fabric *f, int rank, const struct recorder *r)
{
    struct timespec t = {0};
    uint64_t begun = atomic_load_explicit(&r->begun, memory_order_acquire);
    struct record_head h = {
        .head_bytes = sizeof h,
        .rank = rank,
        .size = f->size,
        .pid = rank == f->rank ? getpid() : f->peers[rank].shm.pid,
        .written_by = f->rank,
        .blamed = r->blamed,
        .boot_ns = tern_clock_boot_ns(),
        .begun = begun,
        .n_names = put_names(NULL, f),
        .n_records = begun < RECORDER_RING ? (uint32_t)begun : RECORDER_RING,
    };

    clock_gettime(CLOCK_REALTIME, &t);
    h.wall_ns = t.tv_sec * 1000000000ll + t.tv_nsec;
    memcpy(h.magic, RECORDER_MAGIC, sizeof h.magic);
    memcpy(h.why, r->why, sizeof h.why);
    for (int i = 0; i < RECORDER_COMMS; i++)
        h.n_comms += r->comms[i].serial != 0;
    put(o, &h, sizeof h);
    put_names(o, f);
    for (int i = 0; i < RECORDER_COMMS; i++) {
        const struct record_comm *c = &r->comms[i];
        uint32_t runs = c->n_runs < RECORDER_RUNS ? c->n_runs : RECORDER_RUNS;
        if (c->serial)
            put(o, c, offsetof(struct record_comm, runs) + runs * sizeof *c->runs);
    }
    /* The ring's place 0 is the last to be filled: record 1 lies in 1. */
    for (uint32_t i = 1; i <= h.n_records; i++)
        put(o, &r->ring[i % RECORDER_RING], sizeof *r->ring);
}

/* `to` = dir/name + five digits + tail, without printf. */
static void path_of(char to[RECORDER_PATH], const char *dir, int rank, const char *tail)
{
    static const char name[] = "/fabric-rank-";
    size_t n = strlen(dir);
    char digits[] = "00000";

    for (int i = 4; i >= 0; i--, rank /= 10)
        digits[i] = (char)('0' + rank % 10);
    memcpy(to, dir, n);
    memcpy(to + n, name, sizeof name - 1);
    n += sizeof name - 1;
    memcpy(to + n, digits, 5);
    memcpy(to + n + 5, tail, strlen(tail) + 1);
}

/* As a whole or not at all, without waiting for the disk.  Writers of one rank's dump at the same
 * time have names of their own. */
static void write_dump(const struct tern_fabric *f, int rank, const struct recorder *r)
{
    char path[RECORDER_PATH], temp[RECORDER_PATH], by[] = ".00000.new";
    struct out o = {.fd = -1};
    int writer = f->rank;

    for (int i = 5; i > 0; i--, writer /= 10)
        by[i] = (char)('0' + writer % 10);
    path_of(path, f->dump_dir, rank, ".tfr");
    path_of(temp, f->dump_dir, rank, by);
    o.fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (o.fd < 0)
        return;
    put_all(&o, f, rank, r);
    flush(&o);
    close(o.fd);
    if (o.bad || rename(temp, path) < 0)
        unlink(temp);
}

/* To end, as by SIGTERM: a wait that begins or goes on after that may be for a rank that is gone.
 */
static atomic_bool asked;

static bool is_waiting(const struct recorder *r)
{
    for (int i = 0; i < RECORDER_RING; i++)
        if (r->ring[i].state == RECORD_WAITING)
            return true;
    return false;
}

void tern_fabric_dump(bool waiting)
{
    int saved = errno;

    if (waiting)
        atomic_store(&asked, true);

    for (int i = 0; i < FABRICS; i++) {
        const struct tern_fabric *f = atomic_load(&fabrics[i]);
        if (f && (!waiting || is_waiting(f->recorder)))
            write_dump(f, f->rank, f->recorder);
    }
    errno = saved;
}

/* ---------------------------------------------------------------- when */

void tern_fabric_record_waits(const struct tern_fabric *f, int64_t waited_ns)
{
    enum { LONG_NS = 50000000 };

    if (waited_ns > LONG_NS && f->dump_dir[0] && atomic_exchange(&asked, false))
        write_dump(f, f->rank, f->recorder);
}

int tern_fabric_record_open(struct tern_fabric *f, struct tern_err *err)
{
    const char *dir = tern_var("TERN_FABRIC_DUMP");

    if (!dir)
        return 0;
    if (strlen(dir) > RECORDER_PATH - 64)
        return tern_err_set(err, TERN_USAGE, "TERN_FABRIC_DUMP: the path is too long");
    if (tern_fs_mkdirs(dir, 0755, err) < 0)
        return tern_err_prefix(err, "TERN_FABRIC_DUMP");
    snprintf(f->dump_dir, sizeof f->dump_dir, "%s", dir);
    for (int i = 0; i < FABRICS; i++) {
        struct tern_fabric *none = NULL;
        if (atomic_compare_exchange_strong(&fabrics[i], &none, f))
            break;
    }
    return 0;
}

void tern_fabric_record_close(struct tern_fabric *f)
{
    for (int i = 0; i < FABRICS; i++) {
        struct tern_fabric *here = f;
        atomic_compare_exchange_strong(&fabrics[i], &here, NULL);
    }
}

static bool has_ended(const struct shm_peer *p)
{
    return tern_process_ended(&p->process, 0);
}

/* Another rank of the node may have been quicker. */
static bool just_written(const struct tern_fabric *f, int rank)
{
    char path[RECORDER_PATH];
    struct stat st;

    path_of(path, f->dump_dir, rank, ".tfr");
    return stat(path, &st) == 0 && time(NULL) - st.st_mtime < 2;
}

void tern_fabric_record_failed(struct tern_fabric *f)
{
    struct recorder *r = f->recorder;

    if (f->dumped || !f->dump_dir[0])
        return;
    f->dumped = true;
    snprintf(r->why, sizeof r->why, "%s", f->why.text);
    write_dump(f, f->rank, r);
    for (int i = 0; i < f->size; i++) {
        const struct shm_peer *p = &f->peers[i].shm;
        if (p->head && (i == r->blamed || has_ended(p)) && !just_written(f, i))
            write_dump(f, i, shm_recorder(p->head));
    }
}
