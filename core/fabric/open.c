/* Joining the other ranks, and leaving them. */
#include "core/fabric/state.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/wire/wireup.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Exchanged at wire-up: TERN_WIRE_BLOB bytes at most. */
enum { HELLO_VERSION = 5, CPUS = 2048, OWN_FILES = 256 /* open, of the program */ };
struct hello {
    uint32_t version;
    int32_t pid, fd;
    uint8_t token[16];
    char node_name[64];
    uint64_t machine;         /* the same for all virtual nodes of one */
    uint64_t cpus[CPUS / 64]; /* that I may run on */
    struct liveness_card liveness;
};
struct mapping {
    int32_t leader, mapped; /* lowest rank whose memory I reach, myself included; how many */
    double load;            /* ranks a core, as far as I see */
};
_Static_assert(sizeof(struct hello) <= TERN_WIRE_BLOB && TERN_WIRE_BLOB - TERN_WIRE_ADDRESS >= 0,
               "blobs fit");

/* ---------------------------------------------------------------- the environment */

static int env_int(const char *name, int otherwise)
{
    const char *s = getenv(name);
    int64_t v;

    return s && tern_str_int(s, 0, INT32_MAX, &v) == 0 ? (int)v : otherwise;
}

static int start_socket(struct tern_wire_up *w, const struct tern_fabric_options *o,
                        const char *socket, struct tern_err *err)
{
    w->rank = o->size > 0 ? o->rank : env_int("SLURM_PROCID", -1);
    w->size = o->size > 0 ? o->size : env_int("SLURM_NTASKS", -1);
    if (!socket)
        return tern_err_set(err, TERN_USAGE, "TERN_RUN_SOCKET is not set: start under `tern run`");
    if (w->rank < 0 || w->size < 1 || w->rank >= w->size)
        return tern_err_set(err, TERN_USAGE,
                            "rank %d of %d: SLURM_PROCID and SLURM_NTASKS are not set as srun sets "
                            "them",
                            w->rank, w->size);
    return tern_wire_up_socket(w, socket, err);
}

static int choose_transport(struct tern_fabric_options *o, struct tern_err *err)
{
    const char *asked = tern_var("TERN_FABRIC");

    if (asked && strcmp(asked, "ofi") != 0 && strcmp(asked, "mpi") != 0)
        return tern_err_set(err, TERN_USAGE, "TERN_FABRIC: '%s' is neither ofi nor mpi", asked);
    o->transport = asked ? asked : o->transport ? o->transport : "ofi";
    return 0;
}

/* TERN_FABRIC_SHARE: at most this many ranks are taken for a node. */
static int read_share(int *share, struct tern_err *err)
{
    const char *s = tern_var("TERN_FABRIC_SHARE");
    int64_t v = INT32_MAX;

    if (s && tern_str_int(s, 1, INT32_MAX, &v) < 0)
        return tern_err_set(err, TERN_USAGE,
                            "TERN_FABRIC_SHARE: '%s' is not a number of ranks from 1", s);
    *share = (int)v;
    return 0;
}

/* TERN_DEADLINE, where the options have none. */
static int read_deadline(struct tern_fabric_options *o, bool *ret_set, struct tern_err *err)
{
    const char *s = tern_var("TERN_DEADLINE");

    *ret_set = s || o->deadline_s > 0;
    if (o->deadline_s > 0)
        return 0;
    if (s && tern_str_real(s, 0.1, 1e6, &o->deadline_s) < 0)
        return tern_err_set(err, TERN_USAGE,
                            "TERN_DEADLINE: '%s' is not a number of seconds from 0.1", s);
    if (!s)
        o->deadline_s = 60;
    return 0;
}

static int read_liveness(int64_t *ns, struct tern_err *err)
{
    const char *s = tern_var("TERN_LIVENESS");
    double seconds = 5;

    if (s && tern_str_real(s, 0, 1e6, &seconds) < 0)
        return tern_err_set(err, TERN_USAGE, "TERN_LIVENESS: '%s' is not a number of seconds", s);
    *ns = (int64_t)(seconds * 1e9);
    return 0;
}

static bool by_mpi(const struct tern_fabric_options *o)
{
    return strcmp(o->transport, "mpi") == 0;
}

static int start_wireup(struct tern_wire_up *w, const struct tern_fabric_options *o,
                        struct tern_err *err)
{
    const char *socket = o->socket ? o->socket : tern_var("TERN_RUN_SOCKET");
    enum tern_fabric_wireup kind = o->wireup;
    int tasks = env_int("SLURM_STEP_NUM_TASKS", env_int("OMPI_COMM_WORLD_SIZE", 1));

    if (kind == TERN_WIREUP_AUTO && by_mpi(o) && tern_wire_up_mpi_launched())
        kind = TERN_WIREUP_MPI;
    if (kind == TERN_WIREUP_AUTO)
        kind = getenv("PMIX_RANK") && getenv("PMIX_NAMESPACE") ? TERN_WIREUP_PMIX
               : socket                                        ? TERN_WIREUP_SOCKET
                                                               : TERN_WIREUP_ALONE;
    if (kind == TERN_WIREUP_ALONE && o->wireup == TERN_WIREUP_AUTO && tasks > 1)
        return tern_err_set(err, TERN_USAGE,
                            "this step has %d tasks, but they cannot find each other: use "
                            "srun --mpi=pmix",
                            tasks);
    if (kind == TERN_WIREUP_PMIX)
        return tern_wire_up_pmix(w, err);
    if (kind == TERN_WIREUP_MPI)
        return tern_wire_up_mpi(w, err);
    if (kind == TERN_WIREUP_SOCKET)
        return start_socket(w, o, socket, err);
    w->name = "alone";
    w->size = 1;
    return 0;
}

static int exchange(struct tern_wire_up *w, const void *mine, size_t n, uint8_t *all,
                    struct tern_err *err)
{
    uint8_t blob[TERN_WIRE_BLOB] = {0};

    memcpy(blob, mine, n);
    if (w->exchange)
        return w->exchange(w, blob, all, err);
    memcpy(all, blob, TERN_WIRE_BLOB);
    return 0;
}

/* ---------------------------------------------------------------- nodes: ranks that share memory
 */

/* Since when this machine runs: nodes of a virtual cluster have it in common. */
static uint64_t machine(void)
{
    char id[64] = "";
    uint64_t h = 0;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (f && fgets(id, sizeof id, f))
        for (const char *p = id; *p; p++)
            h = h * 0x100000001b3 + (unsigned char)*p;
    if (f)
        fclose(f);
    return h;
}

static void own_cpus(uint64_t cpus[CPUS / 64])
{
    if (sched_getaffinity(0, CPUS / 8, (cpu_set_t *)cpus) == 0)
        return;
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* the kernel knows more than fit: then all of them */
    memset(cpus, 0, CPUS / 8);
    for (long i = 0; i < CPUS && (i < n || i == 0); i++)
        cpus[i / 64] |= 1ull << i % 64;
}

static int count_cpus(const uint64_t cpus[CPUS / 64])
{
    int n = 0;

    for (int i = 0; i < CPUS / 64; i++)
        n += __builtin_popcountll(cpus[i]);
    return n;
}

/* Ranks a core on this machine: all ranks on all cores that any of them has.  Where that is more,
 * it is those that can run on no core but mine on mine.  No rank knows this of the others, which
 * may be bound elsewhere: the most that any rank has seen holds for all. */
static double load_of_node(const struct hello *mine, const uint8_t *all, int size)
{
    uint64_t any[CPUS / 64] = {0};
    int here = 0, inside = 0;
    struct hello h;

    for (int r = 0; r < size; r++) {
        memcpy(&h, all + (size_t)r * TERN_WIRE_BLOB, sizeof h);
        if (h.machine != mine->machine)
            continue;
        bool within = true;
        for (int i = 0; i < CPUS / 64; i++) {
            any[i] |= h.cpus[i];
            within = within && !(h.cpus[i] & ~mine->cpus[i]);
        }
        here++;
        inside += within;
    }
    double apart = (double)inside / count_cpus(mine->cpus), whole = (double)here / count_cpus(any);
    return apart > whole ? apart : whole;
}

static int meet_peers(struct tern_fabric *f, struct tern_wire_up *w, uint8_t *all,
                      struct tern_err *err)
{
    struct hello mine = {.version = HELLO_VERSION,
                         .pid = getpid(),
                         .fd = f->wire.own.fd,
                         .machine = machine()},
                 h;
    struct mapping m = {f->wire.rank, 1, 0};
    const char *name = getenv("SLURMD_NODENAME");

    own_cpus(mine.cpus);
    if (f->wait.liveness_ns && f->wire.size > 1)
        f->wait.liveness = tern_fabric_liveness_open(f->wire.rank, f->wire.size, &mine.liveness);
    memcpy(mine.token, f->wire.own.head->token, sizeof mine.token);
    if (name && *name)
        snprintf(mine.node_name, sizeof mine.node_name, "%s", name);
    else
        gethostname(mine.node_name, sizeof mine.node_name - 1);
    if (exchange(w, &mine, sizeof mine, all, err) < 0)
        return -1;
    for (int r = 0; r < f->wire.size; r++) {
        memcpy(&h, all + (size_t)r * TERN_WIRE_BLOB, sizeof h);
        if (h.version != HELLO_VERSION)
            return tern_err_set(err, TERN_FAILED, "rank %d runs another version of tern", r);
        h.node_name[sizeof h.node_name - 1] = '\0';
        memcpy(f->wire.peers[r].node_name, h.node_name, sizeof h.node_name);
        f->wire.peers[r].shm.process = TERN_PROCESS_NONE;
        if (r == f->wire.rank)
            continue;
        tern_fabric_liveness_meet(f->wait.liveness, r, &h.liveness);
        tern_wire_shm_map_peer(&f->wire.peers[r].shm, h.pid, h.fd, h.token);
        m.mapped += f->wire.peers[r].shm.head != NULL;
        if (f->wire.peers[r].shm.head && r < m.leader)
            m.leader = r;
    }
    tern_fabric_liveness_start(f->wait.liveness);
    m.load = load_of_node(&mine, all, f->wire.size);
    return exchange(w, &m, sizeof m, all, err);
}

struct led { /* by the rank that leads */
    int members, mapped, placed, node;
    bool split; /* its ranks do not all see each other */
};

/* Ranks with the same leader are a node if every one of them reached all the others; otherwise each
 * of them is one. */
static int form_nodes(struct tern_fabric *f, const uint8_t *all, struct tern_err *err)
{
    struct led *led = tern_alloc((size_t)f->wire.size, sizeof *led, "the nodes", err);
    struct mapping m;

    if (!led)
        return -1;
    f->coll.model.load = 1;
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < f->wire.size; r++) {
            memcpy(&m, all + (size_t)r * TERN_WIRE_BLOB, sizeof m);
            struct led *l = &led[m.leader >= 0 && m.leader <= r ? m.leader : r];
            if (pass == 0) {
                l->split |= l->members++ && l->mapped != m.mapped;
                l->mapped = m.mapped;
                f->coll.model.load = m.load > f->coll.model.load ? m.load : f->coll.model.load;
                continue;
            }
            int local = l->split || l->mapped != l->members ? 0 : l->placed++ % f->share;
            if (local == 0)
                l->node = f->wire.nodes++;
            f->wire.peers[r].node = l->node;
            f->wire.peers[r].local = local;
        }
    }
    free(led);
    f->wire.node = f->wire.peers[f->wire.rank].node;
    f->wire.local = f->wire.peers[f->wire.rank].local;
    for (int r = 0; r < f->wire.size; r++) {
        if (f->wire.peers[r].node == f->wire.node)
            f->wire.local_size++;
        else
            tern_wire_shm_unmap_peer(&f->wire.peers[r].shm);
    }
    return 0;
}

struct telling { /* an exchange while the wire goes on */
    struct tern_wire_up *w;
    const uint8_t *mine;
    uint8_t *all;
    struct tern_err err;
    int rc;
    _Atomic bool over;
};

static void *tell_all(void *arg)
{
    struct telling *t = arg;

    t->rc = t->w->exchange(t->w, t->mine, t->all, &t->err);
    atomic_store_explicit(&t->over, true, memory_order_release);
    return NULL;
}

/* The ranks settle which ways to each other work. A rank that waits here answers those that still
 * try. */
static int settle_wire(struct tern_fabric *f, struct tern_wire_up *w, struct tern_err *err)
{
    const struct tern_wire_ops *ops = f->wire.transport->ops;
    uint8_t mine[TERN_WIRE_BLOB] = {0};
    struct telling t = {.w = w, .mine = mine};
    pthread_t thread;

    if (!ops->vote || !w->exchange || !ops->vote(f->wire.transport, mine))
        return 0;
    if (!(t.all = tern_alloc((size_t)f->wire.size, TERN_WIRE_BLOB, "the wire-up", err)))
        return -1;
    if (pthread_create(&thread, NULL, tell_all, &t) == 0) {
        while (!atomic_load_explicit(&t.over, memory_order_acquire)) {
            ops->progress(f->wire.transport);
            tern_clock_sleep_ns(50000);
        }
        pthread_join(thread, NULL);
    } else {
        tell_all(&t);
    }
    if (t.rc < 0)
        *err = t.err;
    int rc = t.rc < 0 ? -1 : ops->settle(f->wire.transport, t.all, TERN_WIRE_BLOB, err);
    free(t.all);
    return rc;
}

static int open_wire(struct tern_fabric *f, struct tern_wire_up *w,
                     const struct tern_fabric_options *o, uint8_t *all, struct tern_err *err)
{
    uint8_t address[TERN_WIRE_ADDRESS];
    bool far = false;

    if (f->wire.nodes == 1)
        return 0;
    for (int r = 0; r < f->wire.size; r++)
        far |= strcmp(f->wire.peers[r].node_name, f->wire.peers[f->wire.rank].node_name) != 0;
    const struct tern_wire_options options = {
        .carrier = o->transport,
        .provider = o->provider,
        .rank = f->wire.rank,
        .size = f->wire.size,
        .far = far,
        .owner = {f, tern_fabric_wait_control, tern_fabric_wait_patient},
        .deadline_ns = f->wait.deadline_ns,
        .machine = machine()};
    f->wire.transport = tern_wire_open(&options, err);
    if (!f->wire.transport)
        return -1;
    if (!f->wire.transport->ops->address(f->wire.transport, address))
        return tern_err_set(err, TERN_FAILED, "%s: this rank has no address",
                            f->wire.transport->ops->about(f->wire.transport));
    if (exchange(w, address, sizeof address, all, err) < 0 ||
        f->wire.transport->ops->connect(f->wire.transport, all, TERN_WIRE_BLOB, err) < 0)
        return -1;
    return settle_wire(f, w, err);
}

/* ---------------------------------------------------------------- open, close */

static int open_own(struct tern_fabric *f, struct tern_err *err)
{
    if (tern_wire_shm_open_own(&f->wire.own, err) < 0)
        return -1;
    f->flight.recorder = f->coll.recorder = tern_wire_shm_recorder(f->wire.own.head);
    f->coll.wire = &f->wire;
    f->coll.owner = f;
    f->flight.recorder->blamed = -1;
    return 0;
}

static int open_flight(struct tern_fabric *f, struct tern_err *err)
{
    for (int r = 0; r < f->wire.size; r++) {
        const struct tern_wire_rank *p = &f->wire.peers[r];
        f->flight_ranks[r] = (struct tern_flight_rank){
            .node_name = p->node_name,
            .recorder = p->shm.head ? tern_wire_shm_recorder(p->shm.head) : NULL,
            .process = &p->shm.process,
            .pid = p->shm.pid,
        };
    }
    f->flight.rank = f->wire.rank;
    f->flight.size = f->wire.size;
    f->flight.ranks = f->flight_ranks;
    return tern_flight_open(&f->flight, err);
}

/* The wire-up is over, so a rank that fails here must tell the others: they go on. */
static int start(struct tern_fabric *f, const struct tern_wire_up *w, struct tern_err *err)
{
    int *world = tern_alloc((size_t)f->wire.size, sizeof *world, "the world", err), rc = -1;

    if (!world)
        return -1;
    /* More ranks than cores: a rank that polls keeps another from working.  A poll of the wire is
     * some system calls, beside which a yield is cheap. */
    f->wait.spins = f->wire.nodes > 1 ? 2 : f->coll.model.load > 1 ? 20 : 2000;
    for (int r = 0; r < f->wire.size; r++)
        world[r] = r;
    if (tern_coll_comm_new(&f->coll, 0, f->wire.size, world, 0, err) &&
        tern_fabric_measure(f, err) == 0 && open_flight(f, err) == 0)
        rc = 0;
    snprintf(f->about, sizeof f->about, "%d rank%s in %d node%s; wire-up: %s; %s", f->wire.size,
             f->wire.size > 1 ? "s" : "", f->wire.nodes, f->wire.nodes > 1 ? "s" : "", w->name,
             f->wire.transport ? f->wire.transport->ops->about(f->wire.transport)
                               : "shared memory");
    free(world);
    return rc;
}

static int set_up(struct tern_fabric *f, struct tern_wire_up *w,
                  const struct tern_fabric_options *o, struct tern_err *err)
{
    uint8_t *all = tern_alloc((size_t)w->size, TERN_WIRE_BLOB, "the wire-up", err);
    struct tern_err why = {0};
    int rc = -1;

    f->wire.rank = w->rank;
    f->wire.size = w->size;
    /* One for each node peer, and as many as two connections with a remote rank that is spoken to.
     * Where fewer are allowed, they may do: most operations are with a few ranks. */
    tern_fs_allow_open(OWN_FILES + 2 * (size_t)f->wire.size, NULL);
    f->wire.peers = tern_alloc((size_t)f->wire.size, sizeof *f->wire.peers, "the peers", err);
    f->wire.spoke = tern_alloc((size_t)f->wire.size, sizeof *f->wire.spoke, "the peers", err);
    f->wait.left = tern_alloc((size_t)f->wire.size, sizeof *f->wait.left, "the peers", err);
    f->wait.heard_ns = tern_alloc((size_t)f->wire.size, sizeof *f->wait.heard_ns, "the peers", err);
    f->mismatch.called =
        tern_alloc((size_t)f->wire.size, sizeof *f->mismatch.called, "the peers", err);
    f->mismatch.sorted =
        tern_alloc((size_t)f->wire.size, sizeof *f->mismatch.sorted, "the peers", err);
    f->flight_ranks = tern_alloc((size_t)f->wire.size, sizeof *f->flight_ranks, "the peers", err);
    if (!all || !f->wire.peers || !f->wire.spoke || !f->wait.left || !f->wait.heard_ns ||
        !f->mismatch.called || !f->mismatch.sorted || !f->flight_ranks || open_own(f, err) < 0 ||
        meet_peers(f, w, all, err) < 0 || form_nodes(f, all, err) < 0 ||
        open_wire(f, w, o, all, err) < 0)
        goto out;
    rc = start(f, w, &why);
    if (rc < 0)
        tern_fabric_progress_fail(f, &why, err);
out:
    free(all);
    return rc;
}

struct tern_fabric *tern_fabric_open(const struct tern_fabric_options *options,
                                     struct tern_err *err)
{
    struct tern_fabric_options o = options ? *options : (struct tern_fabric_options){0};
    struct tern_fabric *f = tern_alloc(1, sizeof *f, "the fabric", err);
    struct tern_wire_up w = {0};

    if (!f)
        return NULL;
    f->wire.own.fd = -1;
    int rc = read_deadline(&o, &f->wait.deadline_set, err);
    if (rc == 0)
        rc = choose_transport(&o, err);
    if (rc == 0)
        rc = read_liveness(&f->wait.liveness_ns, err);
    if (rc == 0)
        rc = read_share(&f->share, err);
    if (rc == 0)
        rc = tern_coll_cache_bytes(&f->coll.cache, err);
    if (rc == 0)
        rc = tern_coll_algorithm_check(err);
    f->wait.deadline_ns = (int64_t)(o.deadline_s * 1e9);
    w.deadline_ns = o.wireup_s > 0 ? (int64_t)(o.wireup_s * 1e9) : f->wait.deadline_ns;
    if (rc == 0)
        rc = start_wireup(&w, &o, err);
    if (rc == 0)
        rc = set_up(f, &w, &o, err);
    if (w.close)
        w.close(&w);
    if (rc < 0) {
        tern_fabric_close(f);
        return NULL;
    }
    return f;
}

void tern_fabric_close(struct tern_fabric *f)
{
    int saved = errno;

    if (!f)
        return;
    tern_fabric_wait_leave(f);
    tern_flight_close(&f->flight);
    tern_fabric_liveness_close(f->wait.liveness);
    for (int i = 0; i < TERN_WIRE_SHM_COMMS; i++)
        tern_coll_comm_delete(f->coll.comms[i]);
    for (int i = 0; i < f->wire.own.n_buffers; i++)
        if (f->wire.own.buffers[i].base && f->wire.own.buffers[i].mr)
            f->wire.transport->ops->dismiss(f->wire.transport, f->wire.own.buffers[i].mr);
    if (f->wire.transport)
        f->wire.transport->ops->close(f->wire.transport);
    for (int r = 0; f->wire.peers && r < f->wire.size; r++)
        tern_wire_shm_unmap_peer(&f->wire.peers[r].shm);
    tern_wire_shm_close_own(&f->wire.own);
    free(f->wire.peers);
    free(f->wire.spoke);
    free(f->wait.left);
    free(f->wait.heard_ns);
    free(f->mismatch.called);
    free(f->mismatch.sorted);
    free(f->flight_ranks);
    free(f);
    errno = saved;
}
