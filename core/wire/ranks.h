/* The ranks of the world, and how this rank reaches each of them. */
#ifndef TERN_WIRE_RANKS_H
#define TERN_WIRE_RANKS_H

#include "core/wire/shm/shm.h"
#include "core/wire/wire.h"

struct tern_wire_rank {
    char node_name[64];
    int node, local;
    struct tern_wire_shm_peer shm; /* .head is NULL when its memory cannot be reached */
};

struct tern_wire_ranks {
    int rank, size;
    int node, nodes, local, local_size;
    struct tern_wire_rank *peers; /* [size] */
    struct tern_wire_shm own;
    struct tern_wire_transport *transport; /* NULL when all ranks share memory */
    bool *spoke;                           /* [size] messages went between us */
};

/* The shared segment of world rank `r`; NULL: not in this node. */
static inline struct tern_wire_shm_head *tern_wire_head(const struct tern_wire_ranks *w, int r)
{
    return r == w->rank ? w->own.head : w->peers[r].shm.head;
}

/* Zeroed memory that the ranks of this node can reach, known to the transport.  `huge`: all of it
 * will be used; else its pages are taken as they are.  NULL with `err`. */
void *tern_wire_alloc(struct tern_wire_ranks *w, size_t bytes, bool huge, struct tern_err *err);
/* `p` from tern_wire_alloc, or NULL. */
void tern_wire_free(struct tern_wire_ranks *w, void *p);

/* A control message to rank `r`, which shares no memory; best effort. */
static inline void tern_wire_send_control(const struct tern_wire_ranks *w, int r,
                                          const struct tern_wire_control *m)
{
    w->transport->ops->release(w->transport, w->transport->ops->tell(w->transport, r, m));
}

#endif
