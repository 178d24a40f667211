/* Collectives between the ranks of a job: shared memory inside a node, libfabric between nodes.
 *
 *     struct tern_fabric *f = tern_fabric_open(NULL, &err);         every rank, together
 *     struct tern_comm *world = tern_fabric_world(f);
 *     float *g = tern_fabric_alloc(f, n * sizeof *g, &err);         optional: saves copies
 *     tern_fabric_all_reduce(world, g, n, TERN_F32, TERN_SUM, &err);  every rank, same order
 *     tern_fabric_free(f, g);
 *     tern_fabric_close(f);
 *
 * Rules that hold everywhere:
 *
 * - Every member of a communicator calls the same operations in the same order with the same
 *   counts.  Different calls are an error that says who called what (at once inside a node, within
 *   a second between nodes); so are ranks in calls on several communicators that wait for each
 *   other crosswise, up to 24 of them, as soon as the last one has come there (of more, and with
 *   TERN_FABRIC_MODE=tagged over plain tcp, which holds up whatever comes behind a message that is
 *   not asked for, it is told after four deadlines).
 * - Results are the same bits on every rank and in every run: values are combined pairwise in a
 *   binary tree over the ranks, ((0+1)+(2+3))+..., whatever the timing.  The tree is first taken
 *   over the ranks of each node and then over the nodes, so the result is also independent of how
 *   ranks are spread over nodes when each node holds one aligned block of 2^k ranks.  TERN_BF16 is
 *   summed in fp32 and rounded once.  Of a sum that is a NaN, that it is one is all that is
 * promised: which NaN (sign, payload) depends on the processor.
 * - No wait is longer than the deadline after the last sign of life of whom it is for, which ranks
 *   give while they wait themselves (as the stages of a pipeline that fills), and than four
 *   deadlines in all; so no rank may compute for longer than a deadline.  A rank that died, stopped
 *   or is cut off ends the operation on every other rank with an error (TERN_TEMPFAIL) that names
 *   it, its node, the operation and its sequence number; so does one that cannot go on by itself
 *   (no memory, no descriptors).  After an error the fabric is broken: every further call fails
 *   with the same words; tern_fabric_close still works and needs no peer.  Who never waits, but
 *   asks (tern_fabric_test), learns all that too while it goes on asking, ten times a second or
 * more: longer pauses do not count towards the deadline.
 * - What is refused before it begins breaks nothing, and nobody else is told: arguments that cannot
 *   be ("bug: ..."), a count over the limit, one communicator or tern_fabric_alloc too many.
 * - Calls belong to one thread at a time.  Once the largest operation of each kind has been made,
 *   they allocate nothing except where a provider wants a private buffer registered (use
 *   tern_fabric_alloc).
 * - Operations of one communicator run in the order in which they are begun, those of several
 *   communicators at once, and only while this rank is inside a call: tern_fabric_progress and
 *   tern_fabric_test are cheap ones for between computations.
 * - Contents of the output buffers after an error are undefined, and a device or a rank of this
 * node may still read and write the buffers of operations that were under way: neither free nor use
 *   them before tern_fabric_close.
 */
#ifndef TERN_FABRIC_FABRIC_H
#define TERN_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/call.h"
#include "core/base/err.h"
#include "core/base/str.h"

struct tern_fabric;
struct tern_comm;

/* ---------------------------------------------------------------- opening */

enum tern_fabric_wireup {
    TERN_WIREUP_AUTO,   /* PMIx when a launcher offers it (MPI when that is the transport), else
                           the socket if named, else alone */
    TERN_WIREUP_PMIX,   /* srun --mpi=pmix, mpirun */
    TERN_WIREUP_SOCKET, /* a tern_wire_rendezvous, as `tern run` keeps one */
    TERN_WIREUP_ALONE,  /* one rank */
    TERN_WIREUP_MPI,    /* the same launchers as PMIx, by way of MPI */
};

/* Zeroed: everything from the environment. */
struct tern_fabric_options {
    enum tern_fabric_wireup wireup;
    const char *socket; /* "host:port/key" (tern_wire_rendezvous_address); NULL: TERN_RUN_SOCKET */
    const char *provider; /* libfabric provider; NULL: TERN_FABRIC_PROVIDER, else what FI_PROVIDER
                             names first, else efa where there is one, else tcp */
    /* Between nodes: "ofi" (libfabric) or "mpi" (a plugin loaded at run time); TERN_FABRIC comes
     * before it; NULL: ofi. */
    const char *transport;
    double deadline_s; /* 0: TERN_DEADLINE */
    int rank, size;    /* for the socket; size 0: SLURM_PROCID and SLURM_NTASKS */
};

/* Joins the other ranks.  `options` may be NULL.  PMIx is finalized before this returns: an
 * unfinalized client that dies would take the whole Slurm step with it.  With the transport "mpi"
 * that cannot be: MPI keeps its own PMIx client until the fabric is closed, the death of a rank is
 * then the launcher's to deal with, closing waits up to the deadline for the other ranks to close
 * too, and a process opens such a fabric once.  The process's soft limit of open files is raised to
 * what so many ranks may need, as far as the hard one allows.  NULL with `err` on failure. */
struct tern_fabric *tern_fabric_open(const struct tern_fabric_options *options,
                                     struct tern_err *err);
/* Leaves.  Ranks elsewhere that messages were exchanged with are waited for, a second at most, and
 * not at all after an error: what they are still to get would be lost.  Frees every communicator
 * and tern_fabric_alloc buffer that is left.  NULL is fine.  Keeps errno. */
void tern_fabric_close(struct tern_fabric *f);

int tern_fabric_rank(const struct tern_fabric *f);
int tern_fabric_size(const struct tern_fabric *f);
/* Ranks a core of the machine where they are most, at least 1: the same on all ranks. */
double tern_fabric_load(const struct tern_fabric *f);
/* Bytes of the cache that a node's ranks share: /sys says so, or TERN_FABRIC_CACHE. */
size_t tern_fabric_cache(const struct tern_fabric *f);
/* Ranks that can map each other's memory form a node, however their hosts are named.  Nodes are
 * numbered by their lowest rank; the local rank is the place in one's node by rank. */
int tern_fabric_node(const struct tern_fabric *f);
int tern_fabric_nodes(const struct tern_fabric *f);
int tern_fabric_local_rank(const struct tern_fabric *f);
int tern_fabric_local_size(const struct tern_fabric *f);
/* Is that rank in one's node?  One is one's own mate. */
bool tern_fabric_is_mate(const struct tern_fabric *f, int rank);
/* SLURMD_NODENAME of that rank, else its host name.  Lives as long as `f`. */
const char *tern_fabric_node_name(const struct tern_fabric *f, int rank);
/* One line for people: wire-up, provider, who shares memory.  Lives as long as `f`. */
const char *tern_fabric_about(const struct tern_fabric *f);

/* What this rank is at between two operations. */
enum tern_fabric_doing {
    TERN_FABRIC_COMPUTES,
    TERN_FABRIC_STARTS, /* reads the model and what else a run begins with */
    TERN_FABRIC_READS,  /* waits for its data */
    TERN_FABRIC_EVALUATES,
    TERN_FABRIC_SAVES,
    TERN_FABRIC_DOINGS
};
enum { TERN_FABRIC_STORAGE_S = 600 }; /* a file system that hangs, and comes back */
/* Until the next call the others wait for this rank for so many seconds, or for the deadline, which
 * is longer, as long as it shows life: a thread of the fabric's answers them while this one
 * computes.  A rank that shows none for TERN_LIVENESS seconds, though it did, was stopped or frozen
 * and is named at once; of a node that is silent as a whole, which may be the network's fault, that
 * takes three times as long.  Time in which the waiting rank was stopped itself does not count. */
void tern_fabric_doing(struct tern_fabric *f, enum tern_fabric_doing doing, double seconds);

/* Zeroed memory, page aligned, that the ranks of one's node can reach directly: operations on it
 * copy nothing inside the node, and it is registered with the provider once.  From 2 MiB on it
 * begins at a multiple of that and is made of huge pages where the kernel has them, all at once, so
 * computing on it is as fast as on any memory.  A rank has 256 such buffers at most: allocate one
 * block and cut it; any part of it may be given to an operation.  Any rank may call it alone.  NULL
 * with `err` when there is no room. */
void *tern_fabric_alloc(struct tern_fabric *f, size_t bytes, struct tern_err *err);
/* `p` from tern_fabric_alloc, or NULL. */
void tern_fabric_free(struct tern_fabric *f, void *p);

/* How much of the memory that the kernel counts as this process's (VmRSS, ru_maxrss) is its mates':
 * pages of their buffers that operations have read or written here, which are theirs as well.  It
 * only grows, but for buffers that are freed.  Told by the kernel's count of shared pages less what
 * this rank's own segments hold, so that shared memory of others than tern is in it, too; 0 where
 * there are no mates.  Some 20 us. */
uint64_t tern_fabric_mates_bytes(const struct tern_fabric *f);
/* How much operations have copied so far to where mates can read it, since it did not lie there
 * (tern_fabric_alloc).  Short vectors always are. */
uint64_t tern_fabric_staged_bytes(const struct tern_fabric *f);

/* ---------------------------------------------------------------- communicators */

/* All ranks; belongs to `f`. */
struct tern_comm *tern_fabric_world(struct tern_fabric *f);

/* Collective over `c`: ranks that give the same colour (>= 0) form a new communicator, ordered by
 * (key, rank in c).  With colour -1 a rank takes part and *out becomes NULL.  At most 64
 * communicators live at once on a rank, world included. */
int tern_fabric_comm_split(struct tern_comm *c, int color, int key, struct tern_comm **out,
                           struct tern_err *err);
/* Several at once, in the time of one: each `out` becomes what tern_fabric_comm_split would make
 * it. Collective over `c`, with the same n (64 at most) everywhere. */
struct tern_comm_part {
    int color, key;
    struct tern_comm **out;
};
int tern_fabric_comm_splits(struct tern_comm *c, const struct tern_comm_part *parts, size_t n,
                            struct tern_err *err);
/* Not collective: each member when its last operation has returned.  Once a member has freed it, a
 * split may give its number to others: before a split that not all its members take part in, all
 * of them must have returned from their last operation on it (a barrier tells).  NULL is fine; not
 * world. */
void tern_fabric_comm_free(struct tern_comm *c);
int tern_fabric_comm_rank(const struct tern_comm *c);
int tern_fabric_comm_size(const struct tern_comm *c);
/* The rank in world of member `rank`. */
int tern_fabric_comm_world_rank(const struct tern_comm *c, int rank);

/* ---------------------------------------------------------------- operations */

/* Counts are elements of `type`; 0 is allowed and still synchronises.  An operation is over less
 * than 2^40 bytes: those of `buf`, or, where a count is a rank's, of all ranks together. */

/* buf[count] becomes the combination over all ranks, in place. */
int tern_fabric_all_reduce(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                           enum tern_op op, struct tern_err *err);
/* in[size * count_per_rank] -> out[count_per_rank]: rank r gets the combination of everyone's r-th
 * block.  `out` may be in + own block; otherwise they must not overlap. */
int tern_fabric_reduce_scatter(struct tern_comm *c, const void *in, void *out,
                               size_t count_per_rank, enum tern_type type, enum tern_op op,
                               struct tern_err *err);
/* in[count_per_rank] -> out[size * count_per_rank], in rank order.  `in` may be out + own block;
 * otherwise they must not overlap. */
int tern_fabric_all_gather(struct tern_comm *c, const void *in, void *out, size_t count_per_rank,
                           enum tern_type type, struct tern_err *err);
/* buf[count] of `root` reaches everybody. */
int tern_fabric_broadcast(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                          int root, struct tern_err *err);
/* Returns when every member has called it. */
int tern_fabric_barrier(struct tern_comm *c, struct tern_err *err);

/* The same without waiting.  Buffers belong to the operation until tern_fabric_wait has returned 0
 * or tern_fabric_test said done; `p` is filled.  At most 64 operations of a communicator are under
 * way: a further one waits for the first. */
struct tern_pending {
    struct tern_comm *comm;
    uint64_t number;
};
int tern_fabric_all_reduce_begin(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                                 enum tern_op op, struct tern_pending *p, struct tern_err *err);
int tern_fabric_reduce_scatter_begin(struct tern_comm *c, const void *in, void *out,
                                     size_t count_per_rank, enum tern_type type, enum tern_op op,
                                     struct tern_pending *p, struct tern_err *err);
int tern_fabric_all_gather_begin(struct tern_comm *c, const void *in, void *out,
                                 size_t count_per_rank, enum tern_type type, struct tern_pending *p,
                                 struct tern_err *err);
int tern_fabric_broadcast_begin(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                                int root, struct tern_pending *p, struct tern_err *err);
int tern_fabric_barrier_begin(struct tern_comm *c, struct tern_pending *p, struct tern_err *err);
/* Until it is finished.  Waiting again for the same is fine, and says the same: 0, or the error. */
int tern_fabric_wait(struct tern_pending *p, struct tern_err *err);
/* Moves everything on that can be moved; *done: is this one finished? */
int tern_fabric_test(struct tern_pending *p, bool *done, struct tern_err *err);
/* The same for nobody in particular. */
int tern_fabric_progress(struct tern_fabric *f, struct tern_err *err);

/* ---------------------------------------------------------------- looking */

/* Everything that was chosen and why, a line each, for people: ranks and nodes, who shares memory,
 * the transport between nodes (also when all ranks share memory: it is opened to look), deadline,
 * polling, and the TERN_* variables that were read. */
void tern_fabric_explain(const struct tern_fabric *f, struct tern_buf *to);
/* Which algorithm serves which bytes of f32, a line a change, by the numbers that the ranks
 * measured when they met. */
void tern_fabric_choices(const struct tern_fabric *f, struct tern_buf *to);

#endif
