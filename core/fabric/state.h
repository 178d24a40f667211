/* What a fabric and a communicator are made of, for the files of this room. */
#ifndef TERN_FABRIC_STATE_H
#define TERN_FABRIC_STATE_H

#include "core/fabric/fabric.h"
#include "core/fabric/liveness.h"
#include "core/flight/flight.h"
#include "core/wire/wire.h"
#include "core/wire/shm/shm.h"

enum {
    /* Up to here every rank of a node combines the whole vector itself: one meeting instead of two
     * beats the saved work. */
    SMALL_BYTES = 8 << 10,
    /* Of a communicator that spans nodes: what comes from other nodes and goes there; bounds how
     * much is on the wire at once. */
    WORK_BYTES = 16 << 20,
    QUEUE = 64, /* operations of a communicator that may be begun and not finished */
};

struct peer { /* a rank of the world */
    char node_name[64];
    int node, local;
    struct tern_wire_shm_peer shm; /* .head is NULL when its memory cannot be reached */
};

/* A call that somebody else may know as another one. */
struct suspect {
    uint32_t mark; /* of the communicator; 0: nothing */
    uint64_t op, desc;
    int rank; /* who said so */
};

/* What an operation between nodes costs: seconds a round, a byte on the wire, a byte combined. */
struct model {
    double round, wire, combine;
    double load; /* ranks a core where they are most, at least 1: the same on all ranks */
    bool measured;
};

/* How nodes talk to each other. */
enum algorithm {
    ALGO_NONE,     /* one node: memory alone; and what has one way only: broadcast, barrier */
    ALGO_DOUBLING, /* whole vectors, each round with twice as distant nodes */
    ALGO_TREE,     /* whole vectors up and down a binomial tree */
    ALGO_HALVING,  /* Rabenseifner: halves of halves there, doubled back */
    ALGO_DIRECT,   /* slices straight to their owners, and from them */
    ALGO_RING,     /* slices from neighbour to neighbour */
    ALGO_BRUCK,    /* gathered in ever larger blocks */
    ALGO_COUNT
};

struct waiter { /* wait.c */
    struct tern_comm *c;
    uint64_t op, desc, record; /* what waits: the communicator's running call */
    uint64_t at;               /* how far it is, of one that is asked about */
    unsigned polls;
    int64_t start, looked, pinged;
    int64_t awake; /* when this rank last went on after it was stopped itself; 0: was not */
    int64_t life_asked;
    int64_t before_ns; /* how long a remote rank was waited for last */
    int64_t asked;     /* when all members showed life although the deadline was over */
    bool asking;       /* the deadline is over, and whose fault that is was asked */
    int seen_dead;     /* world rank + 1 whose end was noticed at the last look */
};

struct tern_fabric {
    int rank, size;
    int node, nodes, local, local_size;
    int share;          /* ranks taken for a node at most */
    size_t cache;       /* bytes that the node's ranks share (copy.h) */
    struct peer *peers; /* [size] */
    int64_t deadline_ns;
    unsigned spins;            /* polls before giving the core away */
    int64_t nap_ns;            /* longest sleep between two looks (wait.c); 0: not slept yet */
    bool lent;                 /* it gave its core away last, and did not sleep since */
    int64_t moved_ns;          /* when it last slept to be given another core */
    int64_t far_ns;            /* how long the last wait for a remote rank took so far */
    struct liveness *liveness; /* NULL: not to be had */
    int64_t liveness_ns;       /* that a rank may show none */
    struct tern_wire_shm own;
    struct tern_wire_transport *wire; /* NULL when all ranks share memory */
    struct model model;
    uint64_t staged_bytes; /* copied to a stage so far */
    uint64_t busy;         /* a bit for each communicator with an operation under way */
    uint64_t high_phase;   /* highest phase of any communicator so far */
    struct tern_comm *comms[TERN_WIRE_SHM_COMMS];
    bool broken;
    struct tern_err why; /* when broken */
    bool *spoke, *left;  /* [size] messages went between us; it has said that it is done */
    int64_t *heard_ns;   /* [size] when a remote rank last said that it is waiting itself */
    struct tern_wire_message *ping; /* the last question whether a silent peer lives */
    struct waiter asks;             /* for who asks whether operations are done, and never waits */
    struct suspect suspect, asked;  /* agree.c */
    uint64_t *called;               /* [size] answers to `asked` */
    struct tern_wire_chase caught;  /* cross.c; n 0: nothing */
    int *sorted;                    /* [size] scratch for naming ranks */
    struct tern_flight flight;
    struct tern_flight_rank *flight_ranks; /* [size] */
    char about[256];
};

/* What is to be done. */
struct task {
    enum tern_call call;
    enum tern_type type;
    enum tern_op op;
    int root;
    size_t count; /* as the caller counts: all_gather and reduce_scatter a rank; never 0 */
    const void *in;
    void *out;
    uint64_t desc;   /* of the call, packed by tern_call_pack */
    uint64_t record; /* recorder.h */
    /* settled when it starts */
    enum algorithm algorithm;
    bool direct; /* all mates have offered their buffers */
    bool past;   /* the caches cannot hold what the mates read and write (copy.h) */
    bool pushes; /* all_gather: each writes into all mates' results instead of reading their inputs
                  */
};

struct tern_comm {
    struct tern_fabric *f; /* NULL: only its shape is asked for */
    int id;                /* below TERN_WIRE_SHM_COMMS */
    int rank, size;
    int *world;              /* [size] world rank of a member */
    int *node_of, *local_of; /* [size] */
    int nodes, node;
    int *node_size;   /* [nodes] */
    int **node_ranks; /* [nodes][node_size] members in order */
    int p, local;     /* members in my node, my place among them */
    int *mates;       /* [p] members in my node: node_ranks[node] */
    bool mixed;       /* several nodes, some with several members */
    bool even;        /* all nodes have as many members */
    uint64_t phase;   /* meetings so far inside the node; never falls */
    unsigned half;    /* which half of the stage is in use */
    char *work;       /* [WORK_BYTES], from tern_fabric_alloc; NULL in one node */

    struct task queue[QUEUE];
    uint64_t begun, finished;         /* operations so far: [finished % QUEUE] is the running one */
    uint64_t ops, desc;               /* the running one's number, and what it is */
    uint64_t record;                  /* of the running one (recorder.h) */
    uint32_t serial, mark;            /* the recorder's names for this communicator */
    bool begun_one;                   /* it has a program */
    size_t at;                        /* elements of it that programs were made for */
    struct program *program;          /* the running one */
    size_t pc;                        /* its step */
    uint32_t slot;                    /* after the last step: messages that are over */
    uint32_t part;                    /* programs so far: what messages are matched by */
    bool announced;                   /* told the mates that we are here */
    bool owes;                        /* ...at a meeting that was left before they came */
    int met;                          /* mates who were seen here */
    int waits_for;                    /* member, when blocked... */
    int64_t waits_slot;               /* ...for this message; -1: at a meeting */
    struct tern_wire_message **slots; /* [max_slots] messages of the program */
    size_t max_slots;
    uint32_t *sent, *received; /* [size] messages of the program to and from a member */
    void **views;              /* [size] the mates' buffers */
    void **dst;                /* [size] scratch of a step */
    const void **src;          /* [size] */
    struct spot *scratch;      /* [2 size] of those who make programs */
};

/* ---- fabric.c */
/* As tern_fabric_alloc, of memory that is taken page by page as it is used. */
void *tern_fabric_alloc_sparse(struct tern_fabric *f, size_t bytes, struct tern_err *err);

/* ---- engine.c: arguments are checked */

/* Queue an operation: it becomes number c->begun.  Blocks only when QUEUE are under way. */
int tern_fabric_engine_begin(struct tern_comm *c, const struct task *t, struct tern_err *err);
/* Until operation `number` is finished. */
int tern_fabric_engine_wait(struct tern_comm *c, uint64_t number, struct tern_err *err);
/* Move on what can move. */
int tern_fabric_engine_poll(struct tern_fabric *f, struct tern_err *err);
/* This rank cannot go on because of `why`, a thing of its own: the fabric is broken, and all that
 * can be reached are told.  Fills `err`; returns -1. */
int tern_fabric_engine_fail(struct tern_fabric *f, const struct tern_err *why,
                            struct tern_err *err);

/* ---- wait.c: the one place where a rank is idle */
void tern_fabric_wait_begin(struct waiter *w, struct tern_comm *c);
/* Called between polls while `member` has not come; -1 when there is no more hope. */
int tern_fabric_wait_idle(struct waiter *w, int member, struct tern_err *err);
/* The same for a rank that only asks now and then, about whom its communicators are blocked by.
 * Does not wait; an operation must be under way. */
int tern_fabric_wait_glance(struct tern_fabric *f, struct tern_err *err);
/* Declare the fabric broken because of `world_rank`, tell everybody, fill `err`; returns -1. */
int tern_fabric_wait_blame(struct tern_comm *c, int world_rank, const char *what,
                           struct tern_err *err);
/* The same in these words alone. */
int tern_fabric_wait_blame_text(struct tern_fabric *f, int world_rank, const char *text,
                                struct tern_err *err);
/* Bad news: what a mate says, or came from elsewhere; -1 with its words, else 0. */
int tern_fabric_wait_heard(struct tern_fabric *f, struct tern_err *err);
/* What mate `world_rank` offered is not to be had: -1 when bad news was told in the node, or the
 * mate has ended, in words that say so; 0: it is not the mate. */
int tern_fabric_wait_gone(struct tern_comm *c, int world_rank, struct tern_err *err);
/* A rank is not reached any more.  It may have left because of another one: its last word, or a
 * third one's, is waited for, a tenth of a second.  -1 when somebody was blamed, 0 when not. */
int tern_fabric_wait_word(struct tern_fabric *f, struct tern_err *err);
/* A control message arrived. */
void tern_fabric_wait_control(void *fabric, const struct tern_wire_control *m);
/* Before the endpoint goes: what was sent may still be on a slow link, and would be lost.  Whoever
 * is done too has got it; they are waited for, a second at most. */
void tern_fabric_wait_leave(struct tern_fabric *f);
bool tern_fabric_wait_patient(void *fabric, int64_t since_ns);

/* ---- agree.c */
/* If members have called different things as operation `op` of `c` (or the one before), declare the
 * fabric broken in words that name them, and return -1; 0 when that cannot be seen. */
int tern_fabric_agree_blame(struct tern_comm *c, uint64_t op, struct tern_err *err);
/* Follow up what a ping said; -1 when somebody is to blame. */
int tern_fabric_agree_suspect(struct tern_fabric *f, struct tern_err *err);
/* PING, ASK and CALLED. */
void tern_fabric_agree_heard(struct tern_fabric *f, const struct tern_wire_control *m);

/* ---- cross.c */
/* A communicator begins, with its mark, or ends. */
void tern_fabric_cross_comm(struct tern_comm *c, bool ended);
/* This rank is in a call that ends when an operation of `c` has, and is blocked there; and it has
 * left that call. */
void tern_fabric_cross_wait(struct tern_comm *c);
void tern_fabric_cross_done(struct tern_fabric *f);
/* Do those that it waits for wait for this rank?  What is found is told by the next one: -1. */
void tern_fabric_cross_begin(struct tern_fabric *f);
int tern_fabric_cross_blame(struct tern_fabric *f, struct tern_err *err);
/* CHASE. */
void tern_fabric_cross_heard(struct tern_fabric *f, const struct tern_wire_control *m);

/* ---- comm.c */
/* Member i is world[i], this rank among them.  `id` is free here and no other communicator of any
 * member has it; `phase` is above every one that a member has shown (f->high_phase), and `id` and
 * `phase` are the same for all members.  Tells nobody.  Belongs to `f`: by
 * tern_fabric_comm_delete, else when `f` is closed. */
struct tern_comm *tern_fabric_comm_new(struct tern_fabric *f, int id, int size, const int *world,
                                       uint64_t phase, struct tern_err *err);
/* Rank `rank` of `size` in a cluster where member i is on node node_of[i]: to make programs for,
 * not to run them. */
struct tern_comm *tern_fabric_comm_shape(int size, int rank, const int *node_of,
                                         struct tern_err *err);
void tern_fabric_comm_delete(struct tern_comm *c);
int tern_fabric_comm_member(const struct tern_comm *c, int world_rank);

#endif
