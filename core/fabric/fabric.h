/* Collectives between the ranks of a job: shared memory inside a node, libfabric between nodes.
 *
 *     struct tern_fabric *f = tern_fabric_open(NULL, &err);           every rank, together
 *     struct tern_comm *world = tern_fabric_world(f);
 *     float *g = tern_fabric_alloc(f, n * sizeof *g, &err);           optional: saves copies
 *     tern_fabric_all_reduce(world, g, n, TERN_F32, TERN_SUM, &err);  every rank, same order
 *     tern_fabric_free(f, g);
 *     tern_fabric_close(f);
 *
 * The contract:
 *
 *  1. Every member of a communicator calls the same operations in the same order with the same
 *     counts.
 *  2. A result has the same bits on every rank and in every run, whatever the timing.  Values are
 *     combined pairwise in a binary tree over the ranks, ((0+1)+(2+3))+...: first over the ranks of
 *     each node, then over the nodes.  So the result does not depend on how ranks are spread over
 *     nodes, when each node holds one aligned block of 2^k ranks.
 *  3. TERN_BF16 is summed in fp32 and rounded once.  Where a sum is a NaN, its sign and payload
 *     depend on the processor.
 *  4. Operations of one communicator run in the order in which they are begun, operations of
 *     several communicators at once.  They run only while this rank is inside a call:
 *     tern_fabric_progress and tern_fabric_test are cheap calls for between computations.
 *  5. One thread at a time calls.
 *  6. Once the largest operation of each kind has been made, calls allocate nothing, except where a
 *     provider wants a private buffer registered (use tern_fabric_alloc).
 *  7. A call that is refused before it begins breaks nothing, and the other ranks do not hear of
 *     it: arguments that cannot be ("bug: ..."), a count over the limit, one communicator or
 *     tern_fabric_alloc too many.
 *  8. Any other error breaks the fabric on all ranks: every further call fails with the same words.
 *     tern_fabric_close still works and needs no peer.
 *  9. After an error the output buffers are undefined.  A device or a rank of this node may still
 *     read and write the buffers of operations that were under way: neither free nor use them
 *     before tern_fabric_close.
 *
 * Deadlines and errors:
 *
 * 10. A wait ends at the deadline after the last sign of life of the rank that it is for, and after
 *     four deadlines in all.  A rank gives signs of life while it waits itself, as the stages of a
 *     pipeline that fills; so no rank may compute for longer than a deadline (but see
 *     tern_fabric_set_activity).
 * 11. A rank that died, stopped or is cut off ends the operation on every other rank with
 *     TERN_TEMPFAIL.  The error names the rank, its node, the operation and its number.  So does
 *     the error of a rank that cannot go on by itself (no memory, no descriptors).
 * 12. A mismatch, ranks in different calls, is an error that names the ranks and their calls: at
 *     once inside a node, within a second between nodes.
 * 13. A deadlock, up to 24 ranks that wait for each other in calls on several communicators, is an
 *     error as soon as the last of them has come there.  A deadlock of more ranks is an error after
 *     four deadlines.  So is any with TERN_FABRIC_MODE=tagged over plain tcp, where a message that
 *     has no receive yet holds up those behind it.
 * 14. A rank that never waits but tests (tern_fabric_test) gets all these errors too, if it tests
 *     ten times a second or more: longer pauses do not count towards the deadline.
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
    TERN_WIREUP_SOCKET, /* a rendezvous (core/wire/rendezvous.h), as `tern run` keeps one */
    TERN_WIREUP_ALONE,  /* one rank */
    TERN_WIREUP_MPI,    /* the same launchers as PMIx, by way of MPI */
};

/* Zeroed: everything from the environment. */
struct tern_fabric_options {
    enum tern_fabric_wireup wireup;
    const char *socket; /* "host:port/key" (tern_wire_rendezvous_address); NULL: TERN_RUN_SOCKET */
    const char *provider; /* libfabric provider; NULL: TERN_FABRIC_PROVIDER, else the first of
                             FI_PROVIDER, else efa where there is one, else tcp */
    /* Between nodes: "ofi" (libfabric) or "mpi" (a plugin loaded at run time); TERN_FABRIC comes
     * before it; NULL: ofi. */
    const char *transport;
    double deadline_s; /* 0: TERN_DEADLINE */
    double wireup_s;   /* the longest wait for other ranks to open theirs; 0: the deadline */
    int rank, size;    /* for the socket; size 0: SLURM_PROCID and SLURM_NTASKS */
};

/* Joins the other ranks.  `options` may be NULL.  NULL with `err` on failure.
 *
 * PMIx is finalized before this returns: an unfinalized client that dies would take the whole Slurm
 * step with it.  The transport "mpi" cannot do so, because MPI keeps its own PMIx client until the
 * fabric is closed.  Then the launcher handles the death of a rank, and closing waits up to the
 * deadline for the other ranks to close too.  A process can open only one such fabric.
 *
 * The process's soft limit of open files is raised to the number that so many ranks may need, as
 * far as the hard limit allows. */
struct tern_fabric *tern_fabric_open(const struct tern_fabric_options *options,
                                     struct tern_err *err);
/* Leaves.  Waits a second at most for ranks of other nodes that exchanged messages with this one,
 * since messages on their way would be lost.  Does not wait after an error.  Frees every
 * communicator and tern_fabric_alloc buffer that is left.  NULL is fine.  Keeps errno. */
void tern_fabric_close(struct tern_fabric *f);

int tern_fabric_rank(const struct tern_fabric *f);
int tern_fabric_size(const struct tern_fabric *f);
/* Ranks a core of the machine where they are most, at least 1: the same on all ranks. */
double tern_fabric_load(const struct tern_fabric *f);
/* Bytes of the cache that a node's ranks share: /sys says so, or TERN_FABRIC_CACHE. */
size_t tern_fabric_cache(const struct tern_fabric *f);
/* Ranks that can map each other's memory form a node, however their hosts are named.  Nodes are
 * numbered by their lowest rank.  The local rank is this rank's place among those of its node. */
int tern_fabric_node(const struct tern_fabric *f);
int tern_fabric_nodes(const struct tern_fabric *f);
int tern_fabric_local_rank(const struct tern_fabric *f);
int tern_fabric_local_size(const struct tern_fabric *f);
/* Is that rank on this node?  This rank itself is. */
bool tern_fabric_is_peer(const struct tern_fabric *f, int rank);
/* SLURMD_NODENAME of that rank, else its host name.  Lives as long as `f`. */
const char *tern_fabric_node_name(const struct tern_fabric *f, int rank);
/* One line for people: wire-up, provider, shared memory.  Lives as long as `f`. */
const char *tern_fabric_about(const struct tern_fabric *f);

/* The work of this rank between two operations. */
enum tern_fabric_activity {
    TERN_FABRIC_COMPUTES,
    TERN_FABRIC_STARTS, /* reads the model and other inputs */
    TERN_FABRIC_READS,  /* waits for its data */
    TERN_FABRIC_EVALUATES,
    TERN_FABRIC_SAVES,
    TERN_FABRIC_RECORDS, /* writes values and logs */
    TERN_FABRIC_DOINGS
};
/* A file system that hangs, and comes back: the failover of a server of Lustre or NFS takes
 * minutes. It is a floor that measurements do not lower. */
enum { TERN_FABRIC_STORAGE_S = 600 };
/* Until the next call, the other ranks wait for this rank for so many seconds from this call on, as
 * long as it shows life.  A thread of the fabric answers them while this one computes.  They wait
 * for the deadline with 0 seconds, and at least for the deadline if a user has set it.  A rank that
 * has shown life, and then none for TERN_LIVENESS seconds, was stopped or frozen, and an error
 * names it at once.  For a node that is silent as a whole, perhaps through a fault of the network,
 * that takes three times as long.  Time in which the waiting rank was stopped itself does not
 * count. */
void tern_fabric_set_activity(struct tern_fabric *f, enum tern_fabric_activity doing,
                              double seconds);
/* Nanoseconds, until `now_ns` of the boot clock, in which this rank was stopped: it or its machine
 * was suspended.  The difference of two answers says what a span of time has lost; 0 where it is
 * not known. */
int64_t tern_fabric_lost_ns(const struct tern_fabric *f, int64_t now_ns);
/* Nanoseconds that this rank has slept so far in waits for others: it did no work of its own. */
int64_t tern_fabric_slept_ns(const struct tern_fabric *f);

/* Zeroed, page-aligned memory that the ranks of this node can reach directly.  Operations on it
 * copy nothing inside the node, and it is registered with the provider once.  A buffer of 2 MiB or
 * more begins at a multiple of 2 MiB.  It is made of huge pages where the kernel has them, all at
 * once.  So computing on it is as fast as on any memory.  A rank has 256 such buffers at most:
 * allocate one block and cut it; an operation takes any part of it.  Not collective.  NULL with
 * `err` when there is no room. */
void *tern_fabric_alloc(struct tern_fabric *f, size_t bytes, struct tern_err *err);
/* `p` from tern_fabric_alloc, or NULL. */
void tern_fabric_free(struct tern_fabric *f, void *p);

/* How much of the memory that the kernel counts as this process's (VmRSS, ru_maxrss) belongs to its
 * node peers.  These are pages of their buffers that operations have read or written here.  It only
 * grows, except when buffers are freed.  It is the kernel's count of shared pages less those of
 * this rank's own segments.  So shared memory of other software is in it too; 0 without node peers.
 * Takes some 20 us. */
uint64_t tern_fabric_peers_bytes(const struct tern_fabric *f);
/* Bytes that operations have copied so far to memory that node peers can read, because they were
 * not there (tern_fabric_alloc).  Short vectors always are copied. */
uint64_t tern_fabric_staged_bytes(const struct tern_fabric *f);

/* ---------------------------------------------------------------- communicators */

/* All ranks; belongs to `f`. */
struct tern_comm *tern_fabric_world(struct tern_fabric *f);

/* Collective over `c`: ranks that give the same colour (>= 0) form a new communicator, ordered by
 * (key, rank in c).  A rank that gives colour -1 takes part, and *out becomes NULL.  At most 64
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
/* Not collective: each member calls it when its last operation has returned.  Once a member has
 * freed it, a split may give its number to another communicator.  So all members must have returned
 * from their last operation on it before a split that not all of them take part in.  A barrier
 * proves that.  NULL is fine; not for the world. */
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
/* in[size * count_per_rank] -> out[count_per_rank]: rank r gets the combination of all ranks' r-th
 * block.  `out` may be in + own block; otherwise they must not overlap. */
int tern_fabric_reduce_scatter(struct tern_comm *c, const void *in, void *out,
                               size_t count_per_rank, enum tern_type type, enum tern_op op,
                               struct tern_err *err);
/* in[count_per_rank] -> out[size * count_per_rank], in rank order.  `in` may be out + own block;
 * otherwise they must not overlap. */
int tern_fabric_all_gather(struct tern_comm *c, const void *in, void *out, size_t count_per_rank,
                           enum tern_type type, struct tern_err *err);
/* buf[count] of `root` is copied to all members. */
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
struct tern_fabric_scatter { /* the arguments of tern_fabric_reduce_scatter */
    const void *in;
    void *out;
    size_t count_per_rank;
    enum tern_type type;
    enum tern_op op;
};
int tern_fabric_reduce_scatter_begin(struct tern_comm *c, const struct tern_fabric_scatter *s,
                                     struct tern_pending *p, struct tern_err *err);
int tern_fabric_all_gather_begin(struct tern_comm *c, const void *in, void *out,
                                 size_t count_per_rank, enum tern_type type, struct tern_pending *p,
                                 struct tern_err *err);
int tern_fabric_broadcast_begin(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                                int root, struct tern_pending *p, struct tern_err *err);
int tern_fabric_barrier_begin(struct tern_comm *c, struct tern_pending *p, struct tern_err *err);
/* Waits until it is finished.  A second call for the same operation returns the same. */
int tern_fabric_wait(struct tern_pending *p, struct tern_err *err);
/* Moves everything on that can be moved; *done: is this one finished? */
int tern_fabric_test(struct tern_pending *p, bool *done, struct tern_err *err);
/* Moves on what can be moved, for no operation in particular. */
int tern_fabric_progress(struct tern_fabric *f, struct tern_err *err);

/* ---------------------------------------------------------------- looking */

/* Every choice and its reason, a line each, for people. They are ranks and nodes, shared memory,
 * the transport between nodes, deadline, polling, and the TERN_* variables that were read. The
 * transport is there also when all ranks share memory: it is opened to look. */
void tern_fabric_explain(const struct tern_fabric *f, struct tern_buf *to);
/* Which algorithm serves which bytes of f32, a line a change, by the numbers that the ranks
 * measured when they met. */
void tern_fabric_choices(const struct tern_fabric *f, struct tern_buf *to);

#endif
