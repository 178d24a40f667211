/* Writing dumps.  tern_flight_write runs in signal handlers: what it reaches calls nothing that
 * they may not. */
#include "core/flight/flight.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/vars.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FABRICS = 16 }; /* open at once in a process */
static struct tern_flight *_Atomic open_ones[FABRICS];

struct out {
    int fd;
    bool bad;
    off_t bytes_written;
    size_t n;
    char bytes[4096];
};

/* In place of assertions, which print: a dump with another size than its records is given up. */
static void flush(struct out *o)
{
    o->bad |= o->n > sizeof o->bytes || lseek(o->fd, 0, SEEK_CUR) != o->bytes_written;
    for (size_t at = 0; at < o->n && !o->bad;) {
        ssize_t k = write(o->fd, o->bytes + at, o->n - at);
        if (k < 0 && errno != EINTR)
            o->bad = true;
        at += k > 0 ? (size_t)k : 0;
        o->bytes_written += k > 0 ? k : 0;
    }
    o->bad |= lseek(o->fd, 0, SEEK_CUR) != o->bytes_written;
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
static uint32_t put_names(struct out *o, const struct tern_flight *f)
{
    uint32_t n = 0;

    for (int r = 0; r < f->size; n++) {
        struct tern_flight_name name = {0};
        memcpy(name.node, f->ranks[r].node_name, sizeof name.node);
        while (r < f->size && strcmp(f->ranks[r].node_name, name.node) == 0) {
            name.count++;
            r++;
        }
        if (o)
            put(o, &name, sizeof name);
    }
    return n;
}

static void put_all(struct out *o, const struct tern_flight *f, int rank,
                    const struct tern_flight_recorder *r)
{
    struct timespec t = {0};
    uint64_t begun = atomic_load_explicit(&r->begun, memory_order_acquire);
    struct tern_flight_head h = {
        .head_bytes = sizeof h,
        .rank = rank,
        .size = f->size,
        .pid = rank == f->rank ? getpid() : f->ranks[rank].pid,
        .written_by = f->rank,
        .blamed = r->blamed,
        .boot_ns = tern_clock_boot_ns(),
        .begun = begun,
        .n_names = put_names(NULL, f),
        .n_records = begun < TERN_FLIGHT_RING ? (uint32_t)begun : TERN_FLIGHT_RING,
    };

    clock_gettime(CLOCK_REALTIME, &t);
    h.wall_ns = t.tv_sec * 1000000000ll + t.tv_nsec;
    memcpy(h.magic, TERN_FLIGHT_MAGIC, sizeof h.magic);
    memcpy(h.why, r->why, sizeof h.why);
    for (int i = 0; i < TERN_FLIGHT_COMMS; i++)
        h.n_comms += r->comms[i].serial != 0;
    put(o, &h, sizeof h);
    put_names(o, f);
    for (int i = 0; i < TERN_FLIGHT_COMMS; i++) {
        const struct tern_flight_comm *c = &r->comms[i];
        uint32_t runs = c->n_runs < TERN_FLIGHT_RUNS ? c->n_runs : TERN_FLIGHT_RUNS;
        if (c->serial)
            put(o, c, offsetof(struct tern_flight_comm, runs) + runs * sizeof *c->runs);
    }
    /* The ring's place 0 is the last to be filled: record 1 lies in 1. */
    for (uint32_t i = 1; i <= h.n_records; i++)
        put(o, &r->ring[i % TERN_FLIGHT_RING], sizeof *r->ring);
}

/* `to` = dir/name + five digits + tail, without printf. */
static void path_of(char to[TERN_FLIGHT_PATH], const char *dir, int rank, const char *tail)
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
static void write_dump(const struct tern_flight *f, int rank, const struct tern_flight_recorder *r)
{
    char path[TERN_FLIGHT_PATH], temp[TERN_FLIGHT_PATH], by[] = ".00000.new";
    struct out o = {.fd = -1};
    int writer = f->rank;

    for (int i = 5; i > 0; i--, writer /= 10)
        by[i] = (char)('0' + writer % 10);
    path_of(path, f->dir, rank, ".tfr");
    path_of(temp, f->dir, rank, by);
    o.fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (o.fd < 0)
        return;
    put_all(&o, f, rank, r);
    flush(&o);
    close(o.fd);
    if (o.bad || rename(temp, path) < 0)
        unlink(temp);
}

/* The process is to end, as by SIGTERM: a wait that begins or goes on after that may be for a rank
 * that is gone. */
static atomic_bool end_wanted;

static bool is_waiting(const struct tern_flight_recorder *r)
{
    for (int i = 0; i < TERN_FLIGHT_RING; i++)
        if (r->ring[i].state == TERN_FLIGHT_WAITING)
            return true;
    return false;
}

void tern_flight_write(bool waiting)
{
    int saved = errno;

    if (waiting)
        atomic_store(&end_wanted, true);

    for (int i = 0; i < FABRICS; i++) {
        const struct tern_flight *f = atomic_load(&open_ones[i]);
        if (f && (!waiting || is_waiting(f->recorder)))
            write_dump(f, f->rank, f->recorder);
    }
    errno = saved;
}

/* ---------------------------------------------------------------- when */

void tern_flight_write_waiting(const struct tern_flight *f, int64_t waited_ns)
{
    enum { LONG_NS = 50000000 };

    if (waited_ns > LONG_NS && f->dir[0] && atomic_exchange(&end_wanted, false))
        write_dump(f, f->rank, f->recorder);
}

int tern_flight_open(struct tern_flight *f, struct tern_err *err)
{
    const char *dir = tern_var("TERN_FABRIC_DUMP");

    if (!dir)
        return 0;
    if (strlen(dir) > TERN_FLIGHT_PATH - 64)
        return tern_err_set(err, TERN_USAGE, "TERN_FABRIC_DUMP: the path is too long");
    if (tern_fs_mkdirs(dir, 0755, err) < 0)
        return tern_err_prefix(err, "TERN_FABRIC_DUMP");
    snprintf(f->dir, sizeof f->dir, "%s", dir);
    for (int i = 0; i < FABRICS; i++) {
        struct tern_flight *none = NULL;
        if (atomic_compare_exchange_strong(&open_ones[i], &none, f))
            break;
    }
    return 0;
}

void tern_flight_close(struct tern_flight *f)
{
    for (int i = 0; i < FABRICS; i++) {
        struct tern_flight *here = f;
        atomic_compare_exchange_strong(&open_ones[i], &here, NULL);
    }
}

/* Another rank of the node may have been quicker. */
static bool just_written(const struct tern_flight *f, int rank)
{
    char path[TERN_FLIGHT_PATH];
    struct stat st;

    path_of(path, f->dir, rank, ".tfr");
    return stat(path, &st) == 0 && time(NULL) - st.st_mtime < 2;
}

void tern_flight_write_failed(struct tern_flight *f, const char *why)
{
    struct tern_flight_recorder *r = f->recorder;

    if (f->dumped || !f->dir[0])
        return;
    f->dumped = true;
    snprintf(r->why, sizeof r->why, "%s", why);
    write_dump(f, f->rank, r);
    for (int i = 0; i < f->size; i++) {
        const struct tern_flight_rank *x = &f->ranks[i];
        if (i != f->rank && x->recorder &&
            (i == r->blamed || tern_process_ended(x->process, /* wait_ms= */ 0)) &&
            !just_written(f, i))
            write_dump(f, i, x->recorder);
    }
}
