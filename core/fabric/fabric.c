#include "core/fabric/state.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/fabric/wireup.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What ranks tell each other at wire-up: WIREUP_BLOB bytes at most. */
struct hello {
    uint32_t version;
    int32_t pid, fd;
    uint8_t token[16];
    char node_name[64];
};
struct mapping {
    int32_t leader, mapped; /* lowest rank whose memory I reach, myself included; how many */
};
enum { HELLO_VERSION = 1 };
_Static_assert(sizeof(struct hello) <= WIREUP_BLOB && OFI_ADDRESS <= WIREUP_BLOB, "blobs fit");

/* ---------------------------------------------------------------- the environment */

static int env_int(const char *name, int otherwise)
{
    const char *s = getenv(name);
    int64_t v;

    return s && tern_str_int(s, 0, INT32_MAX, &v) == 0 ? (int)v : otherwise;
}

static int start_socket(struct wireup *w, const struct tern_fabric_options *o, const char *socket,
                        struct tern_err *err)
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
    return tern_fabric_wireup_socket(w, socket, err);
}

static int start_wireup(struct wireup *w, const struct tern_fabric_options *o, struct tern_err *err)
{
    const char *socket = o->socket ? o->socket : tern_var("TERN_RUN_SOCKET");
    enum tern_fabric_wireup kind = o->wireup;
    int tasks = env_int("SLURM_STEP_NUM_TASKS", env_int("OMPI_COMM_WORLD_SIZE", 1));

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
        return tern_fabric_wireup_pmix(w, err);
    if (kind == TERN_WIREUP_SOCKET)
        return start_socket(w, o, socket, err);
    w->name = "alone";
    w->size = 1;
    return 0;
}

static int exchange(struct wireup *w, const void *mine, size_t n, uint8_t *all,
                    struct tern_err *err)
{
    uint8_t blob[WIREUP_BLOB] = {0};

    memcpy(blob, mine, n);
    if (w->exchange)
        return w->exchange(w, blob, all, err);
    memcpy(all, blob, WIREUP_BLOB);
    return 0;
}

/* ---------------------------------------------------------------- who shares memory */

/* At most this many ranks are taken for a node. */
static int share_limit(int size)
{
    const char *s = tern_var("TERN_FABRIC_SHARE");
    int64_t v;

    return s && tern_str_int(s, 1, INT32_MAX, &v) == 0 ? (int)v : size;
}

static int meet_peers(struct tern_fabric *f, struct wireup *w, uint8_t *all, struct tern_err *err)
{
    struct hello h = {HELLO_VERSION, getpid(), f->own.fd, {0}, ""};
    struct mapping m = {f->rank, 1};
    const char *name = getenv("SLURMD_NODENAME");

    memcpy(h.token, f->own.head->token, sizeof h.token);
    if (name && *name)
        snprintf(h.node_name, sizeof h.node_name, "%s", name);
    else
        gethostname(h.node_name, sizeof h.node_name - 1);
    if (exchange(w, &h, sizeof h, all, err) < 0)
        return -1;
    for (int r = 0; r < f->size; r++) {
        memcpy(&h, all + (size_t)r * WIREUP_BLOB, sizeof h);
        if (h.version != HELLO_VERSION)
            return tern_err_set(err, TERN_FAILED, "rank %d runs another version of tern", r);
        h.node_name[sizeof h.node_name - 1] = '\0';
        memcpy(f->peers[r].node_name, h.node_name, sizeof h.node_name);
        f->peers[r].shm.pidfd = -1;
        if (r == f->rank)
            continue;
        tern_fabric_shm_map_peer(&f->peers[r].shm, h.pid, h.fd, h.token);
        m.mapped += f->peers[r].shm.head != NULL;
        if (f->peers[r].shm.head && r < m.leader)
            m.leader = r;
    }
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
    struct led *led = tern_alloc((size_t)f->size, sizeof *led, "the nodes", err);
    int limit = share_limit(f->size);
    struct mapping m;

    if (!led)
        return -1;
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < f->size; r++) {
            memcpy(&m, all + (size_t)r * WIREUP_BLOB, sizeof m);
            struct led *l = &led[m.leader >= 0 && m.leader <= r ? m.leader : r];
            if (pass == 0) {
                l->split |= l->members++ && l->mapped != m.mapped;
                l->mapped = m.mapped;
                continue;
            }
            int local = l->split || l->mapped != l->members ? 0 : l->placed++ % limit;
            if (local == 0)
                l->node = f->nodes++;
            f->peers[r].node = l->node;
            f->peers[r].local = local;
        }
    }
    free(led);
    f->node = f->peers[f->rank].node;
    f->local = f->peers[f->rank].local;
    for (int r = 0; r < f->size; r++) {
        if (f->peers[r].node == f->node)
            f->local_size++;
        else
            tern_fabric_shm_unmap_peer(&f->peers[r].shm);
    }
    return 0;
}

static int open_wire(struct tern_fabric *f, struct wireup *w, const char *provider, uint8_t *all,
                     struct tern_err *err)
{
    uint8_t address[OFI_ADDRESS];
    char *buffers;
    bool far = false;

    if (f->nodes == 1)
        return 0;
    for (int r = 0; r < f->size; r++)
        far |= strcmp(f->peers[r].node_name, f->peers[f->rank].node_name) != 0;
    f->ofi =
        tern_fabric_ofi_open(provider, f->rank, f->size, far, tern_fabric_wait_control, f, err);
    if (!f->ofi)
        return -1;
    if (!tern_fabric_ofi_address(f->ofi, address))
        return tern_err_set(err, TERN_FAILED, "%s: the endpoint has no address",
                            tern_fabric_ofi_about(f->ofi));
    if (exchange(w, address, sizeof address, all, err) < 0 ||
        tern_fabric_ofi_connect(f->ofi, all, WIREUP_BLOB, err) < 0)
        return -1;
    buffers = tern_fabric_alloc(f, 2 * WIRE_BYTES, err);
    f->wire_in = buffers;
    f->wire_out = buffers ? buffers + WIRE_BYTES : NULL;
    return buffers ? 0 : -1;
}

/* ---------------------------------------------------------------- open, close */

static int set_up(struct tern_fabric *f, struct wireup *w, const struct tern_fabric_options *o,
                  struct tern_err *err)
{
    const char *provider = o->provider ? o->provider : tern_var("TERN_FABRIC_PROVIDER");
    uint8_t *all = tern_alloc((size_t)w->size, WIREUP_BLOB, "the wire-up", err);
    int *world = tern_alloc((size_t)w->size, sizeof *world, "the wire-up", err), rc = -1;
    cpu_set_t cpus;

    f->rank = w->rank;
    f->size = w->size;
    f->peers = tern_alloc((size_t)f->size, sizeof *f->peers, "the peers", err);
    f->heard_ns = tern_alloc((size_t)f->size, sizeof *f->heard_ns, "the peers", err);
    if (!all || !world || !f->peers || !f->heard_ns || tern_fabric_shm_open_own(&f->own, err) < 0 ||
        meet_peers(f, w, all, err) < 0 || form_nodes(f, all, err) < 0 ||
        open_wire(f, w, provider ? provider : "tcp", all, err) < 0)
        goto out;
    /* More ranks than cores: whoever polls keeps another from working. */
    bool crowded =
        sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) < f->local_size;
    f->spins = crowded || f->nodes > 1 ? 20 : 2000;
    for (int r = 0; r < f->size; r++)
        world[r] = r;
    if (!tern_fabric_comm_new(f, 0, f->size, world, 0, err))
        goto out;
    snprintf(f->about, sizeof f->about, "%d rank%s in %d node%s, met by %s; %s", f->size,
             f->size > 1 ? "s" : "", f->nodes, f->nodes > 1 ? "s" : "", w->name,
             f->ofi ? tern_fabric_ofi_about(f->ofi) : "shared memory");
    rc = 0;
out:
    free(all);
    free(world);
    return rc;
}

struct tern_fabric *tern_fabric_open(const struct tern_fabric_options *options,
                                     struct tern_err *err)
{
    struct tern_fabric_options o = options ? *options : (struct tern_fabric_options){0};
    const char *deadline = tern_var("TERN_DEADLINE");
    struct tern_fabric *f = tern_alloc(1, sizeof *f, "the fabric", err);
    struct wireup w = {0};

    if (!f)
        return NULL;
    f->own.fd = -1;
    if (o.deadline_s <= 0 && (!deadline || tern_str_real(deadline, 0.1, 1e6, &o.deadline_s) < 0)) {
        o.deadline_s = 60;
        if (deadline) {
            tern_err_set(err, TERN_USAGE, "TERN_DEADLINE: '%s' is not a number of seconds from 0.1",
                         deadline);
            free(f);
            return NULL;
        }
    }
    f->deadline_ns = w.deadline_ns = (int64_t)(o.deadline_s * 1e9);
    int rc = start_wireup(&w, &o, err);
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
    for (int i = 0; i < SHM_COMMS; i++)
        tern_fabric_comm_delete(f->comms[i]);
    for (int i = 0; i < f->own.n_buffers; i++)
        if (f->own.buffers[i].base && f->own.buffers[i].mr)
            tern_fabric_ofi_unregister(f->own.buffers[i].mr);
    tern_fabric_ofi_close(f->ofi);
    for (int r = 0; f->peers && r < f->size; r++)
        tern_fabric_shm_unmap_peer(&f->peers[r].shm);
    tern_fabric_shm_close_own(&f->own);
    free(f->peers);
    free(f->heard_ns);
    free(f);
    errno = saved;
}

int tern_fabric_rank(const struct tern_fabric *f)
{
    return f->rank;
}
int tern_fabric_size(const struct tern_fabric *f)
{
    return f->size;
}
int tern_fabric_node(const struct tern_fabric *f)
{
    return f->node;
}
int tern_fabric_nodes(const struct tern_fabric *f)
{
    return f->nodes;
}
int tern_fabric_local_rank(const struct tern_fabric *f)
{
    return f->local;
}
int tern_fabric_local_size(const struct tern_fabric *f)
{
    return f->local_size;
}
const char *tern_fabric_node_name(const struct tern_fabric *f, int rank)
{
    return f->peers[rank].node_name;
}
const char *tern_fabric_about(const struct tern_fabric *f)
{
    return f->about;
}

void *tern_fabric_alloc(struct tern_fabric *f, size_t bytes, struct tern_err *err)
{
    int i = tern_fabric_shm_buffer_new(&f->own, bytes, err);

    if (i < 0)
        return NULL;
    struct shm_buffer *b = &f->own.buffers[i];
    if (f->ofi && tern_fabric_ofi_register(f->ofi, b->base, b->bytes, &b->mr, err) < 0) {
        tern_fabric_shm_buffer_delete(&f->own, i);
        return NULL;
    }
    return b->base;
}

void tern_fabric_free(struct tern_fabric *f, void *p)
{
    int i = p ? tern_fabric_shm_buffer_find(&f->own, p, 1) : -1;

    if (i < 0)
        return;
    tern_fabric_ofi_unregister(f->own.buffers[i].mr);
    tern_fabric_shm_buffer_delete(&f->own, i);
}
