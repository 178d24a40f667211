/* Messages between ranks that share no memory: the table that a transport fills.  There are two:
 * libfabric (ofi/) and MPI (mpi/).  Ranks of one node share memory instead (shm/shm.h).
 *
 * Every message carries a tag, and is matched by that alone: a transport may deliver messages in
 * any order.  A message is whole or failed, never cut. */
#ifndef TERN_WIRE_WIRE_H
#define TERN_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

enum {
    TERN_WIRE_ADDRESS = 480,       /* bytes in which a rank says how it is reached */
    TERN_WIRE_CHUNK = 1 << 20,     /* longest message */
    TERN_WIRE_CONTROL_COMM = 0x7f, /* no communicator has this number */
    TERN_WIRE_FRAGMENT_BITS = 8,   /* of a tag: the transport's own */
    TERN_WIRE_FRAGMENTS = 1 << TERN_WIRE_FRAGMENT_BITS,
};

/* Which communicator, which sender, which of the communicator's operations (or parts of one,
 * counted alike by all members). Also which of the messages to this receiver within it. */
static inline uint64_t tern_wire_tag(int comm, int sender, uint32_t op, uint32_t message)
{
    return (uint64_t)(comm & 0x7f) << 57 | (uint64_t)(sender & 0xffff) << 41 |
           (uint64_t)(op & 0xfffff) << 21 | (uint64_t)(message & 0x1fff) << 8;
}

enum tern_wire_state { TERN_WIRE_PENDING, TERN_WIRE_DONE, TERN_WIRE_FAILED };

/* On its way.  Every transport's own request begins with one; others only read it. */
struct tern_wire_message {
    enum tern_wire_state state;
    int rank;          /* the other side, in the world */
    const char *error; /* of a failed one: the transport's reason; static */
    bool wrong_size;   /* failed since another amount came */
    bool wrong_call;   /* failed since the sender was in another call: `their_call` */
    uint32_t their_call;
};

enum tern_wire_control_kind {
    TERN_WIRE_PING,    /* I wait for you in this call; whether it arrives tells whether you live */
    TERN_WIRE_STUCK,   /* my deadline is over; which ranks wait too? */
    TERN_WIRE_WAITING, /* I am waiting too */
    TERN_WIRE_BLAME,   /* I give up: `rank` is at fault, `text` says why */
    TERN_WIRE_ASK,     /* what did you call there? */
    TERN_WIRE_CALLED,  /* this; desc 0: nothing yet */
    TERN_WIRE_LEAVE,   /* I am done: nothing more comes from me */
    TERN_WIRE_CHASE, /* have you come to this operation, and else what do you wait in? (deadlock.c)
                      */
    TERN_WIRE_TRY,   /* a transport's own: does this rail lead to you? */
    TERN_WIRE_TRIED, /* it does */
};
enum { TERN_WIRE_CHASE_STEPS = 24 };
struct tern_wire_chase_step { /* a rank, and the operation it waits in */
    int32_t rank, comm;
    uint64_t op, desc;
};
struct tern_wire_chase {
    uint64_t serial; /* of the first rank's wait */
    int32_t root;    /* of a broadcast: no other rank is needed there */
    uint16_t hops, n;
    struct tern_wire_chase_step steps[TERN_WIRE_CHASE_STEPS];
};
struct tern_wire_control {
    int32_t kind, sender, rank;
    int32_t comm;      /* but of BLAME: tern_comm's `mark`, the operation's number there... */
    uint64_t op, desc; /* ...and what that is to the sender */
    union {
        char text[600];               /* of BLAME */
        struct tern_wire_chase chase; /* of CHASE; `rank` began it */
    };
};

/* Functions of the owner that a transport calls. */
struct tern_wire_owner {
    void *arg;
    /* A control message came; from the transport's `progress`. */
    void (*control)(void *arg, const struct tern_wire_control *m);
    /* Shall a message go on trying for its place in the queue, since boot time `since_ns`? */
    bool (*patient)(void *arg, int64_t since_ns);
};

struct tern_wire_options {
    const char *carrier;  /* "ofi" or "mpi" */
    const char *provider; /* of libfabric; NULL: TERN_FABRIC_PROVIDER, else what FI_PROVIDER names
                             first, else efa where there is one, else tcp */
    int rank, size;
    bool far; /* there are ranks on other hosts, so loopback will not do */
    struct tern_wire_owner owner;
    int64_t deadline_ns; /* the longest wait of the owner */
    uint64_t machine;    /* the same for all ranks of one */
};

/* A message to be sent or received. */
struct tern_wire_transfer {
    int peer;      /* world rank */
    void *buf;     /* a send only reads it */
    size_t bytes;  /* up to TERN_WIRE_CHUNK; 0 is a message too */
    uint64_t tag;  /* tern_wire_tag */
    uint32_t call; /* tern_call_hash: both sides must be in the same call */
    void *mr;      /* from enroll, or NULL */
};

/* Asserts, before `rank` of `size` hands it to a transport, that every transport takes it. It goes
 * to another rank, has a length up to TERN_WIRE_CHUNK, and a tag whose fragment is the transport's.
 */
void tern_wire_transfer_check(const struct tern_wire_transfer *x, int rank, int size);

struct tern_wire_transport;
struct tern_wire_ops {
    void (*close)(struct tern_wire_transport *t); /* needs no peer */
    /* The data with which others reach this rank; its length, 0 on failure. */
    size_t (*address)(const struct tern_wire_transport *t, uint8_t to[TERN_WIRE_ADDRESS]);
    /* Addresses of all ranks, in rank order, `stride` bytes apart; to be kept until `settle`. */
    int (*connect)(struct tern_wire_transport *t, const uint8_t *addresses, size_t stride,
                   struct tern_err *err);
    /* Ways to other ranks are tried; then the owner collects what all ranks have found (progress
     * goes on meanwhile), and all ranks decide alike; NULL where there is nothing to try.  What
     * this rank has found; its length, 0 where that is so for all ranks: nothing is collected then.
     */
    size_t (*vote)(struct tern_wire_transport *t, uint8_t to[TERN_WIRE_ADDRESS]);
    int (*settle)(struct tern_wire_transport *t, const uint8_t *votes, size_t stride,
                  struct tern_err *err);
    /* Memory that will be sent from often; *mr may become NULL where that helps nothing. */
    int (*enroll)(struct tern_wire_transport *t, void *p, size_t bytes, void **mr,
                  struct tern_err *err);
    void (*dismiss)(struct tern_wire_transport *t, void *mr); /* NULL is fine */
    /* Post; NULL with `err` when that is impossible, a failed message when the peer is at fault.
     * `x` is copied; its `buf` stays with the transport until the message is over. */
    struct tern_wire_message *(*send)(struct tern_wire_transport *t,
                                      const struct tern_wire_transfer *x, struct tern_err *err);
    struct tern_wire_message *(*recv)(struct tern_wire_transport *t,
                                      const struct tern_wire_transfer *x, struct tern_err *err);
    /* Give a message back, when it is over or before: it then goes when it ends.  NULL is fine. */
    void (*release)(struct tern_wire_transport *t, struct tern_wire_message *m);
    /* Best effort; NULL when not even that. */
    struct tern_wire_message *(*tell)(struct tern_wire_transport *t, int to,
                                      const struct tern_wire_control *m);
    void (*progress)(struct tern_wire_transport *t);
    /* One line for people; and all that was chosen with the reasons, a line each. */
    const char *(*about)(const struct tern_wire_transport *t);
    void (*explain)(const struct tern_wire_transport *t, struct tern_buf *to);
};
struct tern_wire_transport { /* first in every transport's own */
    const struct tern_wire_ops *ops;
};

/* A transport for these ranks, not connected yet; to be closed by its table. */
struct tern_wire_transport *tern_wire_open(const struct tern_wire_options *o, struct tern_err *err);

/* Can libfabric offer `provider` (NULL: as tern_wire_open chooses) on this machine?  Opens nothing.
 * `about`, of `size` bytes: "libfabric 1.17: tcp"; untouched on error. */
int tern_wire_provider(const char *provider, char *about, size_t size, struct tern_err *err);

#endif
