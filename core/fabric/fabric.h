/* Collectives between the ranks of a job: shared memory inside a node, libfabric between nodes.
 *
 *     struct tern_fabric *f = tern_fabric_open(NULL, &err);         every rank, together
 *     struct tern_comm *world = tern_fabric_world(f);
 *     float *g = tern_fabric_alloc(f, n * sizeof *g, &err);         optional: saves copies
 *     tern_comm_all_reduce(world, g, n, TERN_F32, TERN_SUM, &err);  every rank, same order
 *     tern_fabric_free(f, g);
 *     tern_fabric_close(f);
 *
 * Rules that hold everywhere:
 *
 * - Every member of a communicator calls the same operations in the same order with the same
 *   counts.  Different calls are an error that says who called what (at once inside a node, within
 *   the deadline between nodes).
 * - Results are the same bits on every rank and in every run: values are combined pairwise in a
 *   binary tree over the ranks, ((0+1)+(2+3))+..., whatever the timing.  The tree is first taken
 *   over the ranks of each node and then over the nodes, so the result is also independent of how
 *   ranks are spread over nodes when each node holds one aligned block of 2^k ranks.  TERN_BF16 is
 *   summed in fp32 and rounded once.
 * - No wait is longer than the deadline.  A rank that died, stopped or is cut off ends the
 *   operation on every other rank with an error (TERN_TEMPFAIL) that names it, its node, the
 *   operation and its sequence number.  After an error the fabric is broken: every further call
 *   fails with the same words; tern_fabric_close still works and needs no peer.
 * - Calls block and belong to one thread at a time.  After open, operations allocate nothing
 *   except where a provider wants a private buffer registered (use tern_fabric_alloc).
 * - Contents of the output buffers after an error are undefined.
 */
#ifndef TERN_FABRIC_FABRIC_H
#define TERN_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_fabric;
struct tern_comm;

enum tern_type { TERN_F32, TERN_F64, TERN_BF16, TERN_I32, TERN_I64, TERN_U8 };
/* Integer sums wrap; an integer average is cut towards zero; NaN wins MAX and MIN. */
enum tern_op { TERN_SUM, TERN_AVG, TERN_MAX, TERN_MIN };

size_t tern_type_bytes(enum tern_type type);
const char *tern_type_name(enum tern_type type); /* "f32", ... */
const char *tern_op_name(enum tern_op op);       /* "sum", ... */

/* ---------------------------------------------------------------- opening */

enum tern_fabric_wireup {
    TERN_WIREUP_AUTO,   /* PMIx when a launcher offers it, else the socket if named, else alone */
    TERN_WIREUP_PMIX,   /* srun --mpi=pmix, mpirun */
    TERN_WIREUP_SOCKET, /* a tern_rendezvous, as `tern run` keeps one */
    TERN_WIREUP_ALONE,  /* one rank */
};

/* Zeroed: everything from the environment. */
struct tern_fabric_options {
    enum tern_fabric_wireup wireup;
    const char *socket;   /* "host:port/key" (tern_rendezvous_address); NULL: TERN_RUN_SOCKET */
    const char *provider; /* libfabric provider; NULL: TERN_FABRIC_PROVIDER */
    double deadline_s;    /* 0: TERN_DEADLINE */
    int rank, size;       /* for the socket; size 0: SLURM_PROCID and SLURM_NTASKS */
};

/* Joins the other ranks.  `options` may be NULL.  PMIx is finalized before this returns: an
 * unfinalized client that dies would take the whole Slurm step with it.  NULL with `err` on
 * failure. */
struct tern_fabric *tern_fabric_open(const struct tern_fabric_options *options,
                                     struct tern_err *err);
/* Leaves, without waiting for anybody.  Frees every communicator and tern_fabric_alloc buffer that
 * is left.  NULL is fine.  Keeps errno. */
void tern_fabric_close(struct tern_fabric *f);

int tern_fabric_rank(const struct tern_fabric *f);
int tern_fabric_size(const struct tern_fabric *f);
/* Ranks that can map each other's memory form a node, however their hosts are named.  Nodes are
 * numbered by their lowest rank; the local rank is the place in one's node by rank. */
int tern_fabric_node(const struct tern_fabric *f);
int tern_fabric_nodes(const struct tern_fabric *f);
int tern_fabric_local_rank(const struct tern_fabric *f);
int tern_fabric_local_size(const struct tern_fabric *f);
/* SLURMD_NODENAME of that rank, else its host name.  Lives as long as `f`. */
const char *tern_fabric_node_name(const struct tern_fabric *f, int rank);
/* One line for people: wire-up, provider, who shares memory.  Lives as long as `f`. */
const char *tern_fabric_about(const struct tern_fabric *f);

/* Zeroed memory, page aligned, that the ranks of one's node can reach directly: operations on it
 * copy nothing inside the node, and it is registered with the provider once.  Any rank may call it
 * alone.  NULL with `err` when there is no room. */
void *tern_fabric_alloc(struct tern_fabric *f, size_t bytes, struct tern_err *err);
/* `p` from tern_fabric_alloc, or NULL. */
void tern_fabric_free(struct tern_fabric *f, void *p);

/* ---------------------------------------------------------------- communicators */

/* All ranks; belongs to `f`. */
struct tern_comm *tern_fabric_world(struct tern_fabric *f);

/* Collective over `c`: ranks that give the same colour (>= 0) form a new communicator, ordered by
 * (key, rank in c).  With colour -1 a rank takes part and *out becomes NULL.  At most 64
 * communicators live at once on a rank, world included. */
int tern_comm_split(struct tern_comm *c, int color, int key, struct tern_comm **out,
                    struct tern_err *err);
/* Not collective: each member when its last operation has returned.  NULL is fine; not world. */
void tern_comm_free(struct tern_comm *c);
int tern_comm_rank(const struct tern_comm *c);
int tern_comm_size(const struct tern_comm *c);
/* The rank in world of member `rank`. */
int tern_comm_world_rank(const struct tern_comm *c, int rank);

/* ---------------------------------------------------------------- operations */

/* Counts are elements of `type`; 0 is allowed and still synchronises.  A count is at most 2^40
 * bytes' worth. */

/* buf[count] becomes the combination over all ranks, in place. */
int tern_comm_all_reduce(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                         enum tern_op op, struct tern_err *err);
/* in[size * count_per_rank] -> out[count_per_rank]: rank r gets the combination of everyone's r-th
 * block.  `out` may be in + own block; otherwise they must not overlap. */
int tern_comm_reduce_scatter(struct tern_comm *c, const void *in, void *out, size_t count_per_rank,
                             enum tern_type type, enum tern_op op, struct tern_err *err);
/* in[count_per_rank] -> out[size * count_per_rank], in rank order.  `in` may be out + own block;
 * otherwise they must not overlap. */
int tern_comm_all_gather(struct tern_comm *c, const void *in, void *out, size_t count_per_rank,
                         enum tern_type type, struct tern_err *err);
/* buf[count] of `root` reaches everybody. */
int tern_comm_broadcast(struct tern_comm *c, void *buf, size_t count, enum tern_type type, int root,
                        struct tern_err *err);
/* Returns when every member has called it. */
int tern_comm_barrier(struct tern_comm *c, struct tern_err *err);

/* ---------------------------------------------------------------- the meeting point */

/* Where ranks meet without PMIx: a supervisor opens it, hands its address to the ranks in
 * TERN_RUN_SOCKET, and serves it from its own event loop.  It collects one blob from each rank and
 * gives all blobs to everyone, as often as the ranks ask (a barrier is an empty exchange).  Ranks
 * of a further attempt may meet at the same address once the earlier ones have left.
 *
 * It listens where strangers can reach it: whoever does not know the key in the address is dropped
 * at the first message, sizes are checked before memory is taken, and silent strangers are dropped
 * after ten seconds. */
struct tern_rendezvous;

/* Listen for `size` ranks on `host` ("127.0.0.1", "0.0.0.0"; NULL: every address). */
struct tern_rendezvous *tern_rendezvous_open(const char *host, int size, struct tern_err *err);
void tern_rendezvous_close(struct tern_rendezvous *r);
/* What to put into TERN_RUN_SOCKET: "host:port/key".  The host is `host` as given, or this
 * machine's name. */
const char *tern_rendezvous_address(const struct tern_rendezvous *r);
/* Readable when tern_rendezvous_step has something to do (an epoll descriptor). */
int tern_rendezvous_fd(const struct tern_rendezvous *r);
/* Handle what is ready and return; never blocks.  Call it also once a second or so, for timeouts.
 * Fails only when the machine does (no descriptors, no memory); ranks that disagree or leave are
 * told to the ranks. */
int tern_rendezvous_step(struct tern_rendezvous *r, struct tern_err *err);

#endif
