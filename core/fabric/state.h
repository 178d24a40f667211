/* What a fabric and a communicator are made of, for the files of this room. */
#ifndef TERN_FABRIC_STATE_H
#define TERN_FABRIC_STATE_H

#include "core/fabric/fabric.h"
#include "core/fabric/ofi.h"
#include "core/fabric/shm.h"

enum {
    /* Up to here every rank combines the whole vector itself: one meeting instead of two beats the
     * saved work. */
    SMALL_BYTES = 8 << 10,
    /* Received, and partly combined, data between nodes; bounds how much is on the wire at once. */
    WIRE_BYTES = 4 << 20,
};

struct peer { /* a rank of the world */
    char node_name[64];
    int node, local;
    struct shm_peer shm; /* .head is NULL when its memory cannot be reached */
};

struct tern_fabric {
    int rank, size;
    int node, nodes, local, local_size;
    struct peer *peers; /* [size] */
    int64_t deadline_ns;
    unsigned spins; /* polls before giving the core away */
    struct shm own;
    struct ofi *ofi;          /* NULL when all ranks share memory */
    char *wire_in, *wire_out; /* [WIRE_BYTES] each, inside one tern_fabric_alloc buffer */
    uint64_t high_phase;      /* highest phase of any communicator so far */
    struct tern_comm *comms[SHM_COMMS];
    bool broken;
    struct tern_err why;  /* when broken */
    int64_t *heard_ns;    /* [size] when a remote rank last said that it is waiting itself */
    struct ofi_req *ping; /* the last question whether a silent peer lives */
    char about[256];
};

/* One collective, as its members must agree on it. */
enum call {
    CALL_NONE,
    CALL_ALL_REDUCE,
    CALL_REDUCE_SCATTER,
    CALL_ALL_GATHER,
    CALL_BROADCAST,
    CALL_BARRIER
};

struct tern_comm {
    struct tern_fabric *f;
    int id; /* below SHM_COMMS */
    int rank, size;
    int *world;              /* [size] world rank of a member */
    int *node_of, *local_of; /* [size] */
    int nodes, node;
    int *node_size;   /* [nodes] */
    int **node_ranks; /* [nodes][node_size] members in order */
    int p, local;     /* members in my node, my place among them */
    int *mates;       /* [p] members in my node: node_ranks[node] */
    bool mixed;       /* several nodes, some with several members */
    uint64_t phase;   /* meetings so far inside the node; never falls */
    uint64_t ops;     /* operations so far: the sequence number in messages */
    unsigned half;    /* which half of the stage is next */
    uint32_t wire_seq;
    uint64_t desc;         /* the running call, packed by tern_fabric_call_pack */
    const void **views;    /* [size] scratch of the running operation */
    void **targets;        /* [size] */
    struct ofi_req **reqs; /* scratch: requests of the running stage */
    size_t n_reqs, max_reqs;
};

/* "all_reduce f32 sum 4096" and the other way round. */
uint64_t tern_fabric_call_pack(enum call call, enum tern_type type, enum tern_op op, int root,
                               size_t count);
char *tern_fabric_call_text(char *to, size_t n, uint64_t desc);

/* ---- coll.c: arguments are checked, the call is announced */
int tern_fabric_coll_all_reduce(struct tern_comm *c, void *buf, size_t count, enum tern_type type,
                                enum tern_op op, struct tern_err *err);
int tern_fabric_coll_reduce_scatter(struct tern_comm *c, const void *in, void *out, size_t count,
                                    enum tern_type type, enum tern_op op, struct tern_err *err);
int tern_fabric_coll_all_gather(struct tern_comm *c, const void *in, void *out, size_t count,
                                enum tern_type type, struct tern_err *err);
int tern_fabric_coll_broadcast(struct tern_comm *c, void *buf, size_t bytes, int root,
                               struct tern_err *err);
int tern_fabric_coll_barrier(struct tern_comm *c, struct tern_err *err);

/* ---- meet.c: inside the node */

/* Wait until every member in the node has come here, checking that all do the same thing.  `buf` is
 * offered to the others; NULL for none. */
int tern_fabric_meet(struct tern_comm *c, const void *buf, size_t bytes, struct tern_err *err);
/* After a meeting: the places where the members' offered buffers can be reached, [p], or false if
 * any of them cannot. */
int tern_fabric_meet_views(struct tern_comm *c, size_t bytes, void **views, bool *all,
                           struct tern_err *err);
/* Member `local`'s half of the stage that is now in use; SHM_STAGE bytes. */
char *tern_fabric_stage_of(struct tern_comm *c, int local);

/* ---- wire.c: between nodes; `to` and `from` are members */
void tern_fabric_wire_begin(struct tern_comm *c);
int tern_fabric_wire_send(struct tern_comm *c, int to, const void *buf, size_t bytes,
                          struct tern_err *err);
int tern_fabric_wire_recv(struct tern_comm *c, int from, void *buf, size_t bytes,
                          struct tern_err *err);
/* Until all posted since tern_fabric_wire_begin is done. */
int tern_fabric_wire_end(struct tern_comm *c, struct tern_err *err);

/* ---- wait.c: the one place where a rank is idle */
struct waiter {
    struct tern_comm *c;
    unsigned polls;
    int64_t start, looked, pinged;
    int seen_dead; /* world rank + 1 whose end was noticed at the last look */
};
void tern_fabric_wait_begin(struct waiter *w, struct tern_comm *c);
/* Called between polls while `member` has not come; -1 when there is no more hope. */
int tern_fabric_wait_idle(struct waiter *w, int member, struct tern_err *err);
/* Declare the fabric broken because of `world_rank`, tell everybody, fill `err`; returns -1. */
int tern_fabric_wait_blame(struct tern_comm *c, int world_rank, const char *what,
                           struct tern_err *err);
/* A control message arrived. */
void tern_fabric_wait_control(void *fabric, const struct ofi_control *m);

/* ---- comm.c */
struct tern_comm *tern_fabric_comm_new(struct tern_fabric *f, int id, int size, const int *world,
                                       uint64_t phase, struct tern_err *err);
void tern_fabric_comm_delete(struct tern_comm *c);

#endif
