/* One rank's part of a collective, as a list of steps.
 *
 * Steps are begun in order.  RECV and SEND only post a message; WAIT holds the list up until it is
 * over, MEET until every member in the node is there.  All posted transfers go on meanwhile, so the
 * order of the steps says what overlaps.  Lists are made by the algorithms (algo_*.c), printed by
 * tern_coll_program_print, and run by the engine. */
#ifndef TERN_COLL_PROGRAM_H
#define TERN_COLL_PROGRAM_H

#include "core/coll/coll.h"
#include "core/coll/reduce.h"

enum {
    /* Up to here every rank of a node combines the whole vector itself: one meeting instead of two
     * beats the saved work. */
    SMALL_BYTES = 8 << 10,
    /* Of a stage, used in one node: both halves of two ranks fit a cache of 2 MiB. */
    STAGE_CACHED = 512 << 10,
};

/* Where data lies: a byte offset into one of these. */
enum place {
    PLACE_IN,    /* the caller's input */
    PLACE_OUT,   /* the caller's output */
    PLACE_WORK,  /* this rank's own space for data from and to other nodes */
    PLACE_STAGE, /* the stage of the node peer with local rank `peer` */
    PLACE_PEER,  /* the buffer that this node peer has offered */
    PLACE_LINE,  /* what this node peer has handed over at the last meeting */
};
struct tern_coll_spot {
    size_t at;
    int32_t peer;
    enum place place;
};

/* TELL: come to a meeting, and go on before the others are there: until the next operation. */
enum step_kind { STEP_MEET, STEP_TELL, STEP_RECV, STEP_SEND, STEP_WAIT, STEP_REDUCE, STEP_COPY };

struct step {
    enum step_kind kind;
    int member;    /* RECV, SEND: the other side */
    uint32_t slot; /* RECV, SEND, WAIT: which message of this list */
    uint32_t spot; /* into program.spots: the destination or buffer, then the sources; MEET: what
                      is handed over, `n` bytes */
    int n_dst;     /* REDUCE, COPY: destinations, all written alike */
    int n_src;     /* REDUCE: sources, combined in a tree over their order */
    size_t n;      /* REDUCE: elements; else bytes */
    struct tern_coll_reduce reduce;
};

struct tern_coll_program {
    struct step *steps;
    size_t n, max;
    struct tern_coll_spot *spots;
    size_t n_spots, max_spots;
    uint32_t n_slots;
    size_t work;              /* bytes of PLACE_WORK in use */
    bool failed;              /* out of memory while it was made */
    struct tern_coll_task of; /* whose elements from `from` on it does, `did` of them (engine.c);
                       TERN_CALL_NONE: not known */
    size_t from, did;
};

void tern_coll_program_clear(struct tern_coll_program *p);
void tern_coll_program_free(struct tern_coll_program *p);

/* ---- making one: a failure is remembered in `failed`; arguments of no list are asserted against
 */

static inline struct tern_coll_spot spot(enum place place, int peer, size_t at)
{
    return (struct tern_coll_spot){at, peer, place};
}
static inline struct tern_coll_spot spot_plus(struct tern_coll_spot s, size_t bytes)
{
    s.at += bytes;
    return s;
}

/* Messages [first, first + n) of a list: a transfer is cut into as many as it needs. */
struct span {
    uint32_t first, n;
};
void tern_coll_program_meet(struct tern_coll_program *p);
/* The last step of a list: this rank has done its part, and no other rank does anything for it. */
void tern_coll_program_tell(struct tern_coll_program *p);
/* A meeting at which this rank hands over up to TERN_WIRE_SHM_INLINE bytes; 0 of them is fine. */
void tern_coll_program_hand(struct tern_coll_program *p, struct tern_coll_spot from, size_t bytes);
struct span tern_coll_program_recv(struct tern_coll_program *p, int member,
                                   struct tern_coll_spot to, size_t bytes);
struct span tern_coll_program_send(struct tern_coll_program *p, int member,
                                   struct tern_coll_spot from, size_t bytes);
void tern_coll_program_wait(struct tern_coll_program *p, struct span s);
void tern_coll_program_copy(struct tern_coll_program *p, struct tern_coll_spot to,
                            struct tern_coll_spot from, size_t bytes);
/* The same to several places, none of which overlaps `from`; they are copied. */
void tern_coll_program_spread(struct tern_coll_program *p, const struct tern_coll_spot *to, int n,
                              struct tern_coll_spot from, size_t bytes);
/* dst and src are copied. */
void tern_coll_program_reduce(struct tern_coll_program *p, const struct tern_coll_reduce *r,
                              const struct tern_coll_spot *dst, int n_dst,
                              const struct tern_coll_spot *src, int n_src, size_t count);
/* `bytes` of PLACE_WORK that nothing else in this list uses, on a cache line. */
struct tern_coll_spot tern_coll_program_work(struct tern_coll_program *p, size_t bytes);

/* Asserts, before the engine runs it, that the list for `t` names only members, messages and bytes
 * that there are (check.c).  A list that was made well passes. */
void tern_coll_program_check(const struct tern_coll_program *p, const struct tern_coll_shape *c,
                             const struct tern_coll_task *t);

/* A line a step. */
void tern_coll_program_print(const struct tern_coll_program *p, const struct tern_coll_shape *c,
                             struct tern_buf *to);

/* ---- the algorithms (algo_*.c) */

/* How much of half a stage a list of several nodes uses. */
size_t tern_coll_stage_bytes(const struct tern_coll_shape *c);
/* How many lists the algorithms on slices make of a task between nodes, one after the other. */
size_t tern_coll_slices_lists(const struct tern_coll_shape *c, const struct tern_coll_task *t);

/* Do the node peers read and write more than a cache of so many bytes holds, which they share? */
bool tern_coll_task_past(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                         size_t cache);
/* The buffers that this rank offers in the meeting with which the task begins; returns how many, 0
 * where it begins with none. The task uses the last one that all node peers can offer: where there
 * are two, they read the first and write to the second.  `offers` may be NULL. */
struct offer {
    const void *buf;
    size_t bytes;
};
int tern_coll_task_offers(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                          struct offer offers[TERN_WIRE_SHM_OFFERS]);
/* The list for the elements from `at` on; how many of them it does, 0 at the end.  One call after
 * the other gives the whole task; every member gets as many lists. */
size_t tern_coll_task_program(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                              size_t at, struct tern_coll_program *p);

size_t tern_coll_algo_all_reduce(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                                 size_t at, struct tern_coll_program *p);
size_t tern_coll_algo_reduce_scatter(const struct tern_coll_shape *c,
                                     const struct tern_coll_task *t, size_t at,
                                     struct tern_coll_program *p);
size_t tern_coll_algo_all_gather(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                                 size_t at, struct tern_coll_program *p);
size_t tern_coll_algo_broadcast(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                                size_t at, struct tern_coll_program *p);
size_t tern_coll_algo_barrier(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                              size_t at, struct tern_coll_program *p);

/* Whole vectors between the nodes, for small ones (algo_small.c).  `own` is this node's vector in
 * t's partial type; the result, divided and in the result's type, arrives at `to`.  By this rank,
 * as the one that speaks for its node. */
void tern_coll_algo_combine_nodes(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                                  struct tern_coll_spot own, struct tern_coll_spot to, size_t count,
                                  struct tern_coll_program *p);
/* `buf` of member `root` reaches, along a binomial tree, the speaker of every node. */
void tern_coll_algo_broadcast_nodes(const struct tern_coll_shape *c, int root,
                                    struct tern_coll_spot buf, size_t bytes,
                                    struct tern_coll_program *p);

#endif
