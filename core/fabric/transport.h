/* Messages between ranks that share no memory: what a transport offers.  libfabric is one (ofi.h).
 *
 * Every message carries a tag, which says what it is, and is matched by that alone: a transport
 * may deliver messages in any order.  A message is whole or failed, never cut. */
#ifndef TERN_FABRIC_TRANSPORT_H
#define TERN_FABRIC_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

enum {
    TRANSPORT_ADDRESS = 480,       /* bytes in which a rank says how it is reached */
    TRANSPORT_CHUNK = 1 << 20,     /* longest message */
    TRANSPORT_CONTROL_COMM = 0x7f, /* no communicator has this number */
    TRANSPORT_FRAGMENT_BITS = 8,   /* of a tag: the transport's own */
    TRANSPORT_FRAGMENTS = 1 << TRANSPORT_FRAGMENT_BITS,
};

/* Which communicator, who sends, which of the communicator's operations (or parts of one, counted
 * alike by all members), and which of the messages to this receiver within it. */
static inline uint64_t transport_tag(int comm, int sender, uint32_t op, uint32_t message)
{
    return (uint64_t)(comm & 0x7f) << 57 | (uint64_t)(sender & 0xffff) << 41 |
           (uint64_t)(op & 0xfffff) << 21 | (uint64_t)(message & 0x1fff) << 8;
}

enum message_state { MESSAGE_PENDING, MESSAGE_DONE, MESSAGE_FAILED };

/* On its way.  Every transport's own request begins with one; others only read it. */
struct message {
    enum message_state state;
    int rank;          /* the other side, in the world */
    const char *error; /* of a failed one: what the transport says; static */
    bool wrong_size;   /* failed since another amount came */
    bool wrong_call;   /* failed since the sender was in another call: `their_call` */
    uint32_t their_call;
};

enum control_kind {
    CONTROL_PING,    /* I wait for you in this call; whether it arrives tells whether you live */
    CONTROL_STUCK,   /* my deadline is over; who else is waiting? */
    CONTROL_WAITING, /* I am waiting too */
    CONTROL_BLAME,   /* I give up: `rank` is at fault, `text` says why */
    CONTROL_ASK,     /* what did you call there? */
    CONTROL_CALLED,  /* this; desc 0: nothing yet */
    CONTROL_LEAVE,   /* I am done: nothing more comes from me */
    CONTROL_CHASE,   /* have you come to this operation, and else what do you wait in? (cross.c) */
    CONTROL_TRY,     /* a transport's own: does this rail lead to you? */
    CONTROL_TRIED,   /* it does */
};
enum { CHASE_STEPS = 24 };
struct chase_step { /* a rank, and the operation it waits in */
    int32_t rank, comm;
    uint64_t op, desc;
};
struct chase {
    uint64_t serial; /* of the first rank's wait */
    int32_t root;    /* of a broadcast: nobody else is needed there */
    uint16_t hops, n;
    struct chase_step steps[CHASE_STEPS];
};
struct control {
    int32_t kind, sender, rank;
    int32_t comm;      /* but of BLAME: tern_comm's `mark`, the operation's number there... */
    uint64_t op, desc; /* ...and what that is to the sender */
    union {
        char text[600];     /* of BLAME */
        struct chase chase; /* of CHASE; `rank` is who began it */
    };
};

/* What a transport asks of its owner. */
struct transport_owner {
    void *arg;
    /* A control message came; from transport_progress. */
    void (*control)(void *arg, const struct control *m);
    /* Shall a message go on trying for its place in the queue, since boot time `since_ns`? */
    bool (*patient)(void *arg, int64_t since_ns);
};

struct transport_options {
    int rank, size;
    bool far; /* there are ranks on other hosts, so loopback will not do */
    struct transport_owner owner;
    int64_t deadline_ns; /* the longest wait of the owner */
    uint64_t machine;    /* the same for all ranks of one */
};

struct transport;
struct transport_ops {
    void (*close)(struct transport *t); /* needs no peer */
    /* What others need to reach this rank; its length, 0 on failure. */
    size_t (*address)(const struct transport *t, uint8_t to[TRANSPORT_ADDRESS]);
    /* Addresses of all ranks, in rank order, `stride` bytes apart; to be kept until `settle`. */
    int (*connect)(struct transport *t, const uint8_t *addresses, size_t stride,
                   struct tern_err *err);
    /* Which ways lead to others is tried, then told to all ranks by whoever owns it (progress goes
     * on meanwhile), and all come to the same; NULL where there is nothing to try.  What this rank
     * has found; its length, 0 where that is so for all ranks: nothing is to be told then. */
    size_t (*vote)(struct transport *t, uint8_t to[TRANSPORT_ADDRESS]);
    int (*settle)(struct transport *t, const uint8_t *votes, size_t stride, struct tern_err *err);
    /* Memory that will be sent from often; *mr may become NULL where that helps nothing. */
    int (*enroll)(struct transport *t, void *p, size_t bytes, void **mr, struct tern_err *err);
    void (*dismiss)(struct transport *t, void *mr); /* NULL is fine */
    /* Post; NULL with `err` when that is impossible, a failed message when the peer is at fault.
     * `buf` stays with the transport until the message is over.  `bytes` up to TRANSPORT_CHUNK, 0
     * is a message too.  `call`: what both sides must agree on.  `mr` from enroll, or NULL. */
    struct message *(*send)(struct transport *t, int to, const void *buf, size_t bytes,
                            uint64_t tag, uint32_t call, void *mr, struct tern_err *err);
    struct message *(*recv)(struct transport *t, int from, void *buf, size_t bytes, uint64_t tag,
                            uint32_t call, void *mr, struct tern_err *err);
    /* Give a message back, when it is over or before: it then goes when it ends.  NULL is fine. */
    void (*release)(struct transport *t, struct message *m);
    /* Best effort; NULL when not even that. */
    struct message *(*tell)(struct transport *t, int to, const struct control *m);
    void (*progress)(struct transport *t);
    /* One line for people; and all that was chosen with the reasons, a line each. */
    const char *(*about)(const struct transport *t);
    void (*explain)(const struct transport *t, struct tern_buf *to);
};
struct transport { /* first in every transport's own */
    const struct transport_ops *ops;
};

#endif
