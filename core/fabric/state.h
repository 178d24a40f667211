/* The parts of a fabric, for the files of this room.
 *
 *     open.c            joins the other ranks, and leaves them
 *     explain.c         a fabric in words, for people
 *     measure.c         the numbers by which core/coll chooses algorithms
 *     ops.c, comm.c     operations and communicators, as callers see them
 *     progress.c        runs the engine (core/coll) until an operation is finished
 *     wait.c            where a rank is idle: finds a rank that is dead, frozen or late
 *     mismatch.c        ranks that call different operations
 *     deadlock.c        ranks that wait for each other
 *     blame.c           the rank at fault: sent to all ranks, and heard from them
 *     fabric.c          what callers read of a fabric; its memory
 *     liveness.c        does a silent rank still run?
 *
 * Each calls those below it, and none above. */
#ifndef TERN_FABRIC_STATE_H
#define TERN_FABRIC_STATE_H

#include "core/coll/coll.h"
#include "core/fabric/fabric.h"
#include "core/fabric/liveness.h"

struct waiter {
    struct tern_comm *c;
    uint64_t op, desc, record; /* what waits: the communicator's running call */
    uint64_t at;               /* how far it is, of one that is only looked at */
    unsigned polls;
    int64_t start, looked, pinged;
    int64_t awake;      /* when this rank last went on after it was stopped itself; 0: was not */
    int life_of;        /* world rank + 1 that is asked whether it runs... */
    int64_t life_since; /* ...since then in this wait... */
    int64_t life_asked; /* ...and last */
    int64_t before_ns;  /* how long a remote rank was waited for last */
    int64_t asked;      /* when all members showed life although the deadline was over */
    bool asking;        /* the deadline is over, and the other ranks were asked */
    int seen_dead;      /* world rank + 1 whose end was noticed at the last look */
};

/* wait.c: how long, and how often this rank looks meanwhile. */
struct waiting {
    int64_t deadline_ns;
    bool deadline_set;         /* by a user: no rank is waited for shorter */
    unsigned spins;            /* polls before giving the core away */
    int64_t nap_ns;            /* longest sleep between two looks; 0: not slept yet */
    bool lent;                 /* it gave its core away last, and did not sleep since */
    int64_t slept_ns;          /* in all waits so far */
    int64_t moved_ns;          /* when it last slept to be given another core */
    int64_t far_ns;            /* how long the last wait for a remote rank took so far */
    struct liveness *liveness; /* NULL: not to be had */
    int64_t liveness_ns;       /* that a rank may show none */
    bool *left;                /* [size] it has said that it is done */
    int64_t *heard_ns;         /* [size] when a remote rank last said that it is waiting itself */
    struct tern_wire_message *ping; /* the last question whether a silent peer lives */
    struct waiter glance;           /* of a program that tests operations, and never waits */
};

/* A call that another rank may know as another one. */
struct suspect {
    uint32_t mark; /* of the communicator; 0: nothing */
    uint64_t op, desc;
    int rank; /* that said so */
};

struct mismatch { /* mismatch.c */
    struct suspect suspect, asked;
    uint64_t *called; /* [size] answers to `asked` */
    int *sorted;      /* [size] scratch for naming ranks */
};

struct tern_fabric {
    struct tern_wire_ranks wire; /* the ranks, and the ways to them */
    struct tern_coll coll;       /* communicators, and what runs on them */
    struct tern_flight flight;
    struct tern_flight_rank *flight_ranks; /* [size] */
    struct waiting wait;
    struct mismatch mismatch;
    struct tern_wire_chase deadlock; /* deadlock.c: what was found; n 0: nothing */
    bool broken;
    struct tern_err why; /* when broken */
    int share;           /* ranks taken for a node at most */
    char about[256];
};

static inline struct tern_fabric *fabric_of(const struct tern_comm *c)
{
    return c->coll->owner;
}

/* ---- progress.c: arguments are checked */

/* Queue an operation: it becomes number c->begun.  Waits only when TERN_COLL_QUEUE are under way.
 */
int tern_fabric_progress_begin(struct tern_comm *c, const struct tern_coll_task *t,
                               struct tern_err *err);
/* Until operation `number` is finished. */
int tern_fabric_progress_wait(struct tern_comm *c, uint64_t number, struct tern_err *err);
/* This rank cannot go on because of `why`, a reason of its own.  The fabric is broken, and all
 * ranks that can be reached learn it.  Fills `err`; returns -1. */
int tern_fabric_progress_fail(struct tern_fabric *f, const struct tern_err *why,
                              struct tern_err *err);

/* ---- measure.c: fill f->coll.model, load apart, with all ranks of the world */
int tern_fabric_measure(struct tern_fabric *f, struct tern_err *err);

/* ---- wait.c */

void tern_fabric_wait_begin(struct waiter *w, struct tern_comm *c);
/* Called between polls while `member` has not come; -1 when there is no more hope. */
int tern_fabric_wait_idle(struct waiter *w, int member, struct tern_err *err);
/* The same for a rank that only tests now and then, for the member that blocks its communicators.
 * Does not wait; an operation must be under way. */
int tern_fabric_wait_glance(struct tern_fabric *f, struct tern_err *err);
/* A control message arrived; for the transport, as is the next one. */
void tern_fabric_wait_control(void *fabric, const struct tern_wire_control *m);
bool tern_fabric_wait_patient(void *fabric, int64_t since_ns);
/* Before the endpoint goes: what was sent may still be on a slow link, and would be lost.  A rank
 * that is done too has got it; those are waited for, a second at most. */
void tern_fabric_wait_leave(struct tern_fabric *f);

/* ---- mismatch.c */

/* Have members called different things as operation `op` of `c` (or the one before)? If so, declare
 * the fabric broken in words that name them, and return -1. 0 when that cannot be seen. */
int tern_fabric_mismatch_blame(struct tern_comm *c, uint64_t op, struct tern_err *err);
/* Follow up what a ping said; -1 when a rank is to blame. */
int tern_fabric_mismatch_check(struct tern_fabric *f, struct tern_err *err);
/* A PING, ASK or CALLED came. */
void tern_fabric_mismatch_heard(struct tern_fabric *f, const struct tern_wire_control *m);

/* ---- deadlock.c */

/* This rank is in a call that ends when an operation of `c` has, and is blocked there; and it has
 * left that call. */
void tern_fabric_deadlock_publish(struct tern_comm *c);
void tern_fabric_deadlock_withdraw(struct tern_fabric *f);
/* Do those that this rank waits for wait for this rank?  The next call tells what was found: -1. */
void tern_fabric_deadlock_look(struct tern_fabric *f);
int tern_fabric_deadlock_blame(struct tern_fabric *f, struct tern_err *err);
/* A CHASE came. */
void tern_fabric_deadlock_heard(struct tern_fabric *f, const struct tern_wire_control *m);

/* ---- blame.c */

/* Declare the fabric broken because of `world_rank`, tell all ranks, fill `err`; returns -1. */
int tern_fabric_blame(struct tern_comm *c, int world_rank, const char *what, struct tern_err *err);
/* The same in these words alone. */
int tern_fabric_blame_text(struct tern_fabric *f, int world_rank, const char *text,
                           struct tern_err *err);
/* The same without telling the other ranks, unless the fabric is broken: `err` then becomes what
 * broke it. */
int tern_fabric_blame_keep(struct tern_fabric *f, int world_rank, const char *text,
                           struct tern_err *err);
/* A control message to every rank that shares no memory. */
void tern_fabric_blame_send_all(struct tern_fabric *f, const struct tern_wire_control *m);
/* Did a node peer or a remote rank report a failure? -1 with its words, else 0. */
int tern_fabric_blame_heard(struct tern_fabric *f, struct tern_err *err);
/* Has a node peer's process ended?  Waits up to `wait_ms` for it. */
bool tern_fabric_blame_ended(const struct tern_fabric *f, int world_rank, int wait_ms);
/* The buffer of node peer `world_rank` cannot be reached, or it left while its buffer was read. -1
 * in the words of a failure that the node reports, or when that rank has ended; 0: the rank is not
 * at fault. */
int tern_fabric_blame_peer(struct tern_comm *c, int world_rank, struct tern_err *err);
/* A rank cannot be reached any more, perhaps because it left on account of another one. Waits a
 * tenth of a second for a report of that.  -1 when a rank was blamed, 0 when not. */
int tern_fabric_blame_listen(struct tern_fabric *f, struct tern_err *err);

/* This rank is alive, for the node peers that wait for it. */
static inline void tern_fabric_heartbeat(struct tern_fabric *f, int64_t now)
{
    atomic_store_explicit(&f->wire.own.head->heartbeat_ns, now, memory_order_relaxed);
}

#endif
