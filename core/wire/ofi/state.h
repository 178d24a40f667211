/* The parts of the transport over libfabric, for its files:
 *
 *   ofi.c       opening, addresses, the table; what both modes share
 *   iface.c     which networks there are
 *   rail.c      which of them are used, their endpoints
 *   card.c      the cards on which ranks describe their rails
 *   try.c       which of them lead anywhere
 *   memory.c    registered memory; that of records which came early
 *   op.c        posting, completions, messages, the queue for what libfabric does not take yet
 *   tagged.c    messages as tagged messages
 *   rma.c       messages as records and writes
 *   rma_done.c  operations of these that ended
 *   peer.c      records from and to a peer: credits, probes, a rail that is lost
 *   record.c    what records look like
 *   seal.c      that they are the run's own */
#ifndef TERN_WIRE_OFI_STATE_H
#define TERN_WIRE_OFI_STATE_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "core/wire/ofi/ofi.h"
#include "core/wire/ofi/record.h"
#include "core/wire/wire.h"

enum {
    STRIPE_MIN = 128 << 10, /* from here a message uses all rails */
    TRY_SLOTS = 4,          /* of a rail while it is tried */
    MANY_RANKS = 64,    /* most of more wait for others: memory is cleared late, and less of it */
    SLOTS = 128,        /* records that may arrive between two looks... */
    SLOTS_STREAM = 32,  /* ...and from a stream, which holds further ones: 2 MiB */
    CONTROL_SLOTS = 16, /* the same of control messages in tagged mode */
    BUCKETS = 4096,
};

enum ofi_mode { OFI_TAGGED, OFI_RMA };
/* As TERN_FABRIC_RAILS says. */
enum rail_rule { RAILS_ALL, RAILS_ANY, RAILS_LIST };

/* Registered memory, with every rail. */
struct reg {
    char *base;
    struct fid_mr *mr[RAILS_TRIED];
};

enum op_kind { OP_SLOT, OP_RECORD, OP_WRITE, OP_TSEND, OP_TRECV };
/* Something that libfabric does for us. */
struct op {
    struct fi_context2 context;
    struct op *next, *prev; /* in its rail's `posted` or `queue`, a retained list, the free list */
    struct ofi_msg *m;      /* the message that ends with it, or NULL */
    const struct reg *home; /* of `data` */
    uint8_t *data;          /* [room] of its own, for SLOT and RECORD */
    size_t room;
    bool posted, queued;
    uint8_t kind, rail;
    int rank;
    size_t bytes;
    int64_t queued_ns;
    /* WRITE, TSEND, TRECV; `buf` also of a RECORD whose payload is not in `data`: */
    void *buf, *desc;
    uint64_t address, key, tag; /* key: of the memory written to */
    uint64_t immediate;         /* travels with it */
    uint32_t number;            /* of a retained EAGER */
    bool retained, control;
};
struct op_list {
    struct op *first, *last;
};
struct op_pool {
    struct op *free;
    size_t room, block, n_blocks, max_blocks;
    struct op **blocks;
    struct reg **regs; /* [n_blocks] of the blocks' data */
    uint8_t **data;
};

/* An entry that is looked up by the peer and a tag. */
enum node_kind { NODE_RECV, NODE_SEND, NODE_EARLY, NODE_READY };
struct node {
    struct node *next;
    uint64_t tag;
    int rank;
    uint8_t kind;
    bool in;
};
/* Room for a record that came before its call.  It is kept when given back: once as many have come
 * early as ever do at once, nothing is allocated. */
struct kept {
    struct kept *next; /* of those that are free */
    uint32_t size;     /* its place in `kept` */
    _Alignas(16) char room[];
};
enum { KEPT_MIN = 256, KEPT_SIZES = 10 }; /* bytes: 256, 512, ... 128 Ki */

struct early { /* a short message that came before its receive */
    struct node node;
    uint32_t bytes, call;
    char data[];
};
_Static_assert(sizeof(struct early) + EAGER_STREAM <= (size_t)KEPT_MIN << (KEPT_SIZES - 1),
               "there is room for any");
struct early_ready { /* a READY that came before its send */
    struct node node;
    struct record head;
    struct record_ready ready;
};

struct ofi_msg {
    struct tern_wire_message m; /* first */
    struct node node;
    bool receives, dropped, own_reg;
    bool listed, stalled; /* in `waiting`; there it waits for a credit, a number or a buffer */
    bool requested, ready_sent; /* a long receive: has an id; was announced */
    bool answered, fin;         /* a long send: is being written; the peer has all of it */
    uint32_t call;
    char *buf;
    size_t bytes;
    struct reg *reg;
    unsigned left; /* operations on their way */
    /* a long one */
    uint32_t id, number, chunk, chunks, arrived;
    uint32_t token;             /* a receive: what its writes carry; 0 where they cannot */
    uint64_t have[CHUNKS / 64]; /* a receive: chunks that came */
    uint8_t *via;               /* [CHUNKS] failover: the rail that a chunk was written by */
    int64_t since_ns, asked_ns, period_ns;
    struct ofi_msg *next, *prev; /* in `waiting`; `next`: free list */
};

struct peer_link {              /* this rank's view of another */
    uint32_t next_eager, limit; /* numbers of mine below `limit` may go */
    uint32_t acked;             /* all below have been seen there */
    struct window eager_in, ready_in, ready_done;
    uint32_t consumed, told;      /* of its EAGERs; the limit that it knows */
    uint32_t next_ready, readies; /* READYs of it that wait here */
    uint32_t early;
    struct op_list retained; /* sent, and to be sent again should a rail be lost */
    uint8_t down;            /* rails that it has given up */
    /* probing, with several rails */
    uint32_t round, answered;
    int64_t probed_ns;
    uint8_t miss[RAILS_TRIED], bad; /* rounds answered elsewhere; a bit for each with an error */
};

struct rail {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    fi_addr_t *peers; /* [size] */
    char name[64], where[64];
    char fault[200];     /* what is wrong with it, for `error` of messages */
    uint32_t net, place; /* hashes: of its network, of its address there */
    size_t inject, most; /* bytes of one operation */
    bool down;           /* given up, the others go on */
    bool lost;           /* the reason why this transport has failed */
    struct op_list posted, queue;
};

struct ofi {
    struct tern_wire_transport t; /* first */
    int rank, size;
    uint64_t machine;
    struct tern_wire_owner owner;
    int64_t deadline_ns;
    enum ofi_mode mode;
    enum rail_rule rule;
    bool far, closing;
    bool abandoned;      /* a receive failed that a peer may still write to */
    bool failover;       /* a lost rail is done without */
    struct trial *trial; /* from `connect` to `settle`: of the rails */
    struct rail rails[RAILS_TRIED];
    int n_rails, up; /* up: of them, those not given up */
    uint8_t down;
    unsigned turn;
    uint8_t secret[RECORD_SECRET];     /* this rank's */
    uint8_t (*secrets)[RECORD_SECRET]; /* [size] of all ranks */
    bool wide;                         /* immediates have 64 bits, with all ranks */
    size_t eager_max, fragment;
    struct op_pool small, big;
    struct ofi_msg *free;
    struct ofi_msg **blocks;
    size_t n_blocks;
    struct node **buckets;        /* [BUCKETS] */
    struct ofi_msg *first, *last; /* `waiting`: RMA mode's messages that are not over */
    struct {                      /* [REQUESTS] long receives */
        struct ofi_msg *m;
        uint32_t generation;
    } * requests;
    uint16_t *free_requests;
    int n_free_requests;
    struct peer_link *links; /* [size] RMA mode */
    struct kept *kept[KEPT_SIZES];
    uint32_t credits;         /* short messages that a peer may send ahead of their receives */
    uint8_t *controls;        /* [size] control messages that are under way to a rank */
    unsigned n_stalled, ends; /* messages that are; messages that ended so far */
    bool stalled;             /* what one of them waits for may be there now */
    unsigned polls;
    int64_t tick_ns;
    uint64_t refused, eagain; /* counted for explain */
    char asked[TERN_WIRE_PROVIDER_NAME];
    char mode_why[200], rails_why[400], about[200];
};

static inline struct ofi *ofi_of(const struct tern_wire_transport *t)
{
    return (struct ofi *)(uintptr_t)t;
}
int tern_wire_ofi_fail(struct tern_err *err, const char *what, long rc);
/* The room that any record needs. */
static inline size_t ofi_record_max(const struct ofi *o)
{
    return o->eager_max > EAGER_MAX ? sizeof(struct record) + o->eager_max : RECORD_MAX;
}

/* ---- iface.c */
enum { CANDIDATES = 64 };
/* NULL where its address is none of these. */
const struct sockaddr_in *tern_wire_ofi_ipv4(const struct fi_info *i);
const struct sockaddr_in6 *tern_wire_ofi_ipv6(const struct fi_info *i);
const char *tern_wire_ofi_name_of(const struct fi_info *i); /* of the interface */
long tern_wire_ofi_speed_of(const struct fi_info *i);
bool tern_wire_ofi_has_device(const struct fi_info *i);     /* not a bridge, a tunnel or such */
int tern_wire_ofi_by_network(const void *a, const void *b); /* for qsort of struct fi_info * */
/* Can one of the list's be reached from other nodes? */
bool tern_wire_ofi_any_reaches(const struct fi_info *i);
/* The interface that the environment names to `provider`, or NULL.  *var: the variable that names
 * it or would, as users write it; NULL where the provider has none. */
const char *tern_wire_ofi_iface_asked(const char *provider, const char **var);
/* Take all others off the list. */
void tern_wire_ofi_heed_iface(struct fi_info **list);
int tern_wire_ofi_candidates(struct fi_info *list, bool reaching, const char *names,
                             struct fi_info *to[CANDIDATES]);

/* ---- rail.c */
struct fi_info *tern_wire_ofi_hints(const char *provider, enum ofi_mode mode);
/* Chooses mode and rails and opens their endpoints. */
int tern_wire_ofi_rails_open(struct ofi *o, const char *provider, struct tern_err *err);
/* Add to the words on why these rails are used: `fmt` has two %s. */
void tern_wire_ofi_rails_say(struct ofi *o, const char *fmt, const char *a, const char *b);
void tern_wire_ofi_rail_stop(struct rail *l); /* the endpoint: nothing arrives any more */
/* Close all but `n` of them, in this order. */
void tern_wire_ofi_rails_keep(struct ofi *o, const int *kept, int n);
void tern_wire_ofi_rail_close(struct rail *l); /* all of it; memory must have been unregistered */
void tern_wire_ofi_rails_explain(const struct ofi *o, struct tern_buf *to);

/* ---- card.c */
/* All ranks' rails, in the order in which they are used. */
struct way {
    long speed;     /* Mbit/s, 0: unknown */
    char where[48]; /* the address, empty where it is none of IP */
};
struct ways {
    bool apart;                     /* no network is common to all: of these rails one will do */
    uint64_t *host;                 /* [size] */
    struct way (*way)[RAILS_TRIED]; /* [size] */
};
void tern_wire_ofi_ways_free(struct ways *w);
size_t tern_wire_ofi_rails_address(const struct ofi *o, uint8_t to[TERN_WIRE_ADDRESS]);
/* Which rails all ranks have in common, and all ranks' addresses on them. */
int tern_wire_ofi_rails_connect(struct ofi *o, const uint8_t *addresses, size_t stride,
                                struct ways *w, struct tern_err *err);

/* ---- try.c */
/* Begin with rails of which all have been connected; takes `w`. */
int tern_wire_ofi_try_open(struct ofi *o, const struct ways *w, struct tern_err *err);
void tern_wire_ofi_try_close(struct ofi *o);
void tern_wire_ofi_try_echoed(struct ofi *o, int rank, int rail);
size_t tern_wire_ofi_try_vote(struct ofi *o, uint8_t to[TERN_WIRE_ADDRESS]);
/* Closes all rails on which some rank did not get through, or that are too many. */
int tern_wire_ofi_try_settle(struct ofi *o, const uint8_t *votes, size_t stride,
                             struct tern_err *err);

/* ---- memory.c */

/* NULL with `err` where that fails; needs no registration: a reg without any mr. */
struct reg *tern_wire_ofi_register(struct ofi *o, void *p, size_t bytes, bool written,
                                   struct tern_err *err);
void tern_wire_ofi_unregister(struct reg *r);
/* NULL where there is no memory. */
void *tern_wire_ofi_kept_take(struct ofi *o, size_t bytes);
void tern_wire_ofi_kept_give(struct ofi *o, void *p);
void tern_wire_ofi_kept_free_all(struct ofi *o); /* those that were given back */
void tern_wire_ofi_memory_explain(const struct ofi *o, struct tern_buf *to);
static inline void *ofi_desc(const struct reg *r, int rail)
{
    return r && r->mr[rail] ? fi_mr_desc(r->mr[rail]) : NULL;
}

/* ---- op.c */
struct op *tern_wire_ofi_op_take(struct ofi *o, size_t room,
                                 struct tern_err *err); /* NULL: none is free */
void tern_wire_ofi_op_give(struct ofi *o, struct op *op);
void tern_wire_ofi_op_free_all(struct ofi *o);
/* Post it or queue it; an error ends it as a completion would. */
void tern_wire_ofi_op_post(struct ofi *o, struct op *op);
void tern_wire_ofi_op_progress(struct ofi *o); /* completions of all rails, the queues */
/* Post it at the next look. */
void tern_wire_ofi_op_later(struct ofi *o, struct op *op);
/* Take everything off a lost rail; its operations end with `code`. */
void tern_wire_ofi_op_flush(struct ofi *o, int rail, int code);
void tern_wire_ofi_list_add(struct op_list *l, struct op *op);
void tern_wire_ofi_list_remove(struct op_list *l, struct op *op);

struct ofi_msg *tern_wire_ofi_msg_take(struct ofi *o, int rank, bool receives,
                                       struct tern_err *err);
/* It is over; with `error` it failed.  Harmless when it was over before. */
void tern_wire_ofi_msg_end(struct ofi *o, struct ofi_msg *m, const char *error);
void tern_wire_ofi_msg_wrong(struct ofi *o, struct ofi_msg *m, size_t their_bytes,
                             uint32_t their_call);
void tern_wire_ofi_msg_settle(struct ofi *o, struct ofi_msg *m); /* an operation of it came back */
void tern_wire_ofi_msg_release(struct tern_wire_transport *t, struct tern_wire_message *m);

void tern_wire_ofi_node_put(struct ofi *o, struct node *n, enum node_kind kind, int rank,
                            uint64_t tag);
struct node *tern_wire_ofi_node_find(struct ofi *o, enum node_kind kind, int rank, uint64_t tag);
void tern_wire_ofi_node_remove(struct ofi *o, struct node *n);
#define OFI_OF(type, member, p) ((type *)(void *)((char *)(p)-offsetof(type, member)))

/* ---- tagged.c */
/* With room for `n` control messages on each rail. */
int tern_wire_ofi_tagged_start(struct ofi *o, int n, struct tern_err *err);
void tern_wire_ofi_tagged_try(struct ofi *o, int rank, int rail, enum tern_wire_control_kind kind);
int tern_wire_ofi_tagged_message(struct ofi *o, struct ofi_msg *m, uint64_t tag,
                                 struct tern_err *err);
void tern_wire_ofi_tagged_tell(struct ofi *o, struct ofi_msg *m, struct op *op,
                               const struct tern_wire_control *c);
void tern_wire_ofi_tagged_done(struct ofi *o, struct op *op, int code, size_t bytes, uint64_t data);

/* ---- rma.c */
int tern_wire_ofi_rma_start(struct ofi *o, struct tern_err *err);
/* Room for records: so many more on each rail that it is `most`, or what the provider takes. */
int tern_wire_ofi_rma_slots(struct ofi *o, size_t from, size_t most, struct tern_err *err);
void tern_wire_ofi_rma_send(struct ofi *o, struct ofi_msg *m, uint64_t tag);
int tern_wire_ofi_rma_recv(struct ofi *o, struct ofi_msg *m, uint64_t tag, struct tern_err *err);
/* A message of RMA mode left the tables: what must follow. */
void tern_wire_ofi_rma_over(struct ofi *o, struct ofi_msg *m);
void tern_wire_ofi_rma_done(struct ofi *o, struct op *op, int code, size_t bytes);
void tern_wire_ofi_rma_written(struct ofi *o, int rail, uint64_t data);
void tern_wire_ofi_rma_record(struct ofi *o, const struct record_view *v);
void tern_wire_ofi_rma_again(struct ofi *o, int rank); /* both sides have lost a rail */
void tern_wire_ofi_rma_retry(struct ofi *o);
void tern_wire_ofi_rma_tick(struct ofi *o, int64_t now);
void tern_wire_ofi_rma_free(struct ofi *o);

/* ---- peer.c */
struct op *tern_wire_ofi_record_new(struct ofi *o, enum record_kind kind, int rank, size_t more,
                                    struct record **head);
/* Which rail the next short thing to `rank` takes. */
int tern_wire_ofi_peer_rail(struct ofi *o, int rank);
/* Is there a rail to it that has not failed? */
bool tern_wire_ofi_peer_reached(const struct ofi *o, int rank);
/* On a rail of one's choice. */
void tern_wire_ofi_peer_say_on(struct ofi *o, int rail, int rank, enum record_kind kind,
                               uint32_t number);
void tern_wire_ofi_peer_say(struct ofi *o, int rank, enum record_kind kind, uint32_t id,
                            uint64_t tag, uint32_t bytes, uint32_t call);
void tern_wire_ofi_peer_credit(struct ofi *o, int rank);
void tern_wire_ofi_peer_heard(struct ofi *o, int rank, int rail);
void tern_wire_ofi_peer_slot(struct ofi *o, struct op *slot, size_t bytes);
void tern_wire_ofi_peer_fault(struct ofi *o, int rank, int rail, int code);
void tern_wire_ofi_peer_tick(struct ofi *o, int64_t now);
void tern_wire_ofi_rail_drop(struct ofi *o, int rail, const char *why);

#endif
