/* Collectives as lists of steps, and the engine that runs them.
 *
 *     tern_coll_choose      which algorithm costs least for a task
 *     tern_coll_plan        the list of steps that it makes, in words
 *     tern_coll_begin       queues a task on a communicator
 *     tern_coll_turn        runs what can run
 *
 * An algorithm knows a shape (which member is on which node) and a task, and writes a list of
 * steps.  Of core/wire it needs sizes and no transport, so lists are tested without one.  The
 * engine goes through the lists: it posts messages, meets the node in shared memory, copies and
 * combines.  It never waits and blames no rank: where a step fails, tern_coll.trouble says why, and
 * the caller (core/fabric) finds the rank at fault. */
#ifndef TERN_COLL_COLL_H
#define TERN_COLL_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/call.h"
#include "core/base/err.h"
#include "core/base/str.h"
#include "core/flight/flight.h"
#include "core/wire/wire.h"
#include "core/wire/ranks.h"

enum {
    /* Of a communicator that spans nodes: its space for data from and to other nodes, which bounds
     * how much is on the wire at once. */
    TERN_COLL_WORK_BYTES = 16 << 20,
    TERN_COLL_QUEUE = 64, /* operations of a communicator that may be begun and not finished */
};

/* ---------------------------------------------------------------- shapes, tasks, algorithms */

/* Which member of a communicator is where.  Nodes are numbered by their lowest member. */
struct tern_coll_shape {
    int rank, size;
    int *node_of, *local_of; /* [size] */
    int nodes, node;
    int *node_size;                 /* [nodes] */
    int **node_ranks;               /* [nodes][node_size] members in order */
    int p, local;                   /* members in this rank's node, its place among them */
    int *peers;                     /* [p] members in this rank's node: node_ranks[node] */
    bool mixed;                     /* several nodes, some with several members */
    bool even;                      /* all nodes have as many members */
    struct tern_coll_spot *scratch; /* [2 size] for the algorithms */
};

/* The cost of an operation between nodes: seconds a round, a byte on the wire, a byte combined. */
struct tern_coll_model {
    double round, wire, combine;
    double load; /* ranks a core where they are most, at least 1: the same on all ranks */
    bool measured;
};

enum tern_coll_algorithm {
    TERN_COLL_NONE,     /* memory alone, in one node; and broadcast and barrier */
    TERN_COLL_DOUBLING, /* whole vectors, each round with twice as distant nodes */
    TERN_COLL_TREE,     /* whole vectors up and down a binomial tree */
    TERN_COLL_HALVING,  /* Rabenseifner: halves of halves there, doubled back */
    TERN_COLL_DIRECT,   /* slices straight to their owners, and from them */
    TERN_COLL_RING,     /* slices from neighbour to neighbour */
    TERN_COLL_BRUCK,    /* gathered in ever larger blocks */
    TERN_COLL_ALGORITHMS
};

struct tern_coll_task {
    enum tern_call call;
    enum tern_type type;
    enum tern_op op;
    int root;
    size_t count; /* as the caller counts: all_gather and reduce_scatter a rank; never 0 */
    const void *in;
    void *out;
    uint64_t desc;   /* of the call, by tern_call_pack */
    uint64_t record; /* of the flight recorder */
    /* settled when it starts */
    enum tern_coll_algorithm algorithm;
    bool direct; /* all node peers have offered their buffers */
    bool past;   /* the caches cannot hold what the node peers read and write (copy.h) */
    bool pushes; /* all_gather: each writes into all node peers' results instead of reading their
                  * inputs
                  */
};

/* Rank `rank` of `size` in a cluster where member i is on node node_of[i].  -1 with `err` without
 * memory; to be freed in either case. */
int tern_coll_shape_make(struct tern_coll_shape *s, int size, int rank, const int *node_of,
                         struct tern_err *err);
void tern_coll_shape_free(struct tern_coll_shape *s);

const char *tern_coll_algorithm_name(enum tern_coll_algorithm a); /* "doubling" */
/* Is TERN_FABRIC_ALGORITHM, if it is set, the name of one? */
int tern_coll_algorithm_check(struct tern_err *err);
/* The bytes of the largest cache of a core, or what TERN_FABRIC_CACHE takes them for. */
int tern_coll_cache_bytes(size_t *ret_bytes, struct tern_err *err);
/* Numbers of a machine that was not measured. */
struct tern_coll_model tern_coll_model_typical(void);
enum tern_coll_algorithm tern_coll_choose(const struct tern_coll_shape *s,
                                          const struct tern_coll_task *t,
                                          const struct tern_coll_model *m);
/* The time that the chosen algorithm should take, in seconds; 0 in one node. */
double tern_coll_cost(const struct tern_coll_shape *s, const struct tern_coll_task *t,
                      const struct tern_coll_model *m);

/* ---------------------------------------------------------------- in words */

/* A cluster to plan for: `rank` of `ranks`, `per_node` of them on a node, the last one filled as
 * far as they go. */
struct tern_coll_cluster {
    int ranks, per_node, rank;
};
/* The steps of one operation on that rank, a line each, after a line that names the algorithm.
 * `call`: "all_reduce", "reduce_scatter", "all_gather", "broadcast" or "barrier"; `count` as of the
 * operation.  TERN_USAGE when there is no such call, cluster or count. */
int tern_coll_plan(const struct tern_coll_cluster *in, const char *call, enum tern_type type,
                   size_t count, struct tern_buf *to, struct tern_err *err);
/* Which algorithm for which bytes of f32, a line a change: by typical numbers, or those of `m`. */
int tern_coll_plan_choices(const struct tern_coll_cluster *in, struct tern_buf *to,
                           struct tern_err *err);
void tern_coll_choices(const struct tern_coll_shape *s, const struct tern_coll_model *m,
                       struct tern_buf *to);

/* ---------------------------------------------------------------- running */

/* Why a step failed. */
enum tern_coll_trouble_kind {
    TERN_COLL_OWN,      /* a thing of this rank's: `err` says it */
    TERN_COLL_MISMATCH, /* `rank`, of this node, is in the call `desc` */
    TERN_COLL_MESSAGE,  /* `message` failed */
    TERN_COLL_BUFFER,   /* the buffer of `rank` cannot be mapped: `err` says it */
    TERN_COLL_LEFT,     /* the root `rank` left the communicator while its buffer was read */
};
struct tern_coll_trouble {
    enum tern_coll_trouble_kind kind;
    int rank; /* of the world */
    uint64_t desc;
    const struct tern_wire_message *message; /* until the communicator goes */
};

/* The engine of a rank: what its communicators share. */
struct tern_coll {
    void *owner; /* the caller's, which finds it again from a communicator */
    struct tern_wire_ranks *wire;
    struct tern_flight_recorder *recorder;
    struct tern_coll_model model;
    size_t cache;          /* bytes that the node's ranks share */
    uint64_t staged_bytes; /* copied to a stage so far */
    uint64_t busy;         /* a bit for each communicator with an operation under way */
    uint64_t high_phase;   /* highest phase of any communicator so far */
    struct tern_comm *comms[TERN_WIRE_SHM_COMMS];
    struct tern_coll_trouble trouble; /* of the last step that failed */
};

struct tern_coll_program;

/* A communicator. */
struct tern_comm {
    struct tern_coll *coll;
    int id;     /* below TERN_WIRE_SHM_COMMS */
    int *world; /* [shape.size] world rank of a member */
    struct tern_coll_shape shape;
    uint64_t phase; /* meetings so far inside the node; never falls */
    unsigned half;  /* which half of the stage is in use */
    char *work;     /* [TERN_COLL_WORK_BYTES], shared memory; NULL in one node */

    struct tern_coll_task queue[TERN_COLL_QUEUE];
    uint64_t begun, finished; /* operations so far: [finished % QUEUE] is the running one */

    /* the running one */
    uint64_t ops, desc;    /* its number, and what it is */
    uint64_t record;       /* of the flight recorder */
    uint32_t serial, mark; /* the flight recorder's names for this communicator */
    bool begun_one;        /* it has a program */
    size_t at;             /* elements of it that programs were made for */
    struct tern_coll_program *program;
    size_t pc;          /* the program's step */
    uint32_t slot;      /* after the last step: messages that are over */
    uint32_t part;      /* programs so far: what messages are matched by */
    bool announced;     /* the node peers see that this rank is here */
    bool owes;          /* ...at a meeting that was left before they came */
    int met;            /* node peers that were seen here */
    int waits_for;      /* member, when blocked... */
    int64_t waits_slot; /* ...for this message; -1: at a meeting */

    struct tern_wire_message **slots; /* [max_slots] messages of the program */
    size_t max_slots;
    uint32_t *sent, *received; /* [size] messages of the program to and from a member */
    void **views;              /* [size] the node peers' buffers */
    void **dst;                /* [size] scratch of a step */
    const void **src;          /* [size] */
};

/* Member i is world[i], this rank among them.  `id` is free here and no other communicator of any
 * member has it.  `phase` is above every one that a member has shown (high_phase).  Both are the
 * same for all members.  Sends nothing.  NULL with `err` without memory. */
struct tern_comm *tern_coll_comm_new(struct tern_coll *e, int id, int size, const int *world,
                                     uint64_t phase, struct tern_err *err);
void tern_coll_comm_delete(struct tern_comm *c);
/* The member that is `world_rank`, which is one. */
int tern_coll_comm_member(const struct tern_comm *c, int world_rank);

/* Queue a task, which is checked and for which there is room: it becomes number c->begun. */
void tern_coll_begin(struct tern_comm *c, const struct tern_coll_task *t);
/* Every busy communicator a turn.  1 when `mine` moved, 0 when it did not; -1 when a step of
 * *ret_failed failed, with e->trouble and perhaps `err`. */
int tern_coll_turn(struct tern_coll *e, const struct tern_comm *mine,
                   const struct tern_comm **ret_failed, struct tern_err *err);
/* Is `c` blocked until the member c->waits_for itself does something in this operation, as to come
 * to a meeting or to send? */
bool tern_coll_blocked_by_call(const struct tern_comm *c);

#endif
