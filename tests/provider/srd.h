/* ternsrd: a libfabric provider that behaves as badly as EFA's SRD may, between processes of one
 * machine.  For tests alone.
 *
 *     FI_PROVIDER_PATH=build/tests/provider TERN_FABRIC_PROVIDER=ternsrd
 *     TERNSRD=seed=7,reorder=64,dup=0.1,eagain=0.3,msg=8192
 *
 * Its traits are EFA's: reliable datagrams without any order, FI_MR_LOCAL, VIRT_ADDR, ALLOCATED and
 * PROV_KEY demanded, 32 bytes of inject, 4 bytes of remote completion data, progress by the caller.
 * Beyond that it asks for FI_CONTEXT2 and writes there, and overwrites receive buffers when they
 * are posted.  What a user may not do (send unregistered memory, use a wrong descriptor, write
 * outside of a region, change a context in flight, close in the wrong order) is answered with an
 * error and a line "ternsrd: refused: ..." on stderr: tests look for that.
 *
 * A message travels as packets over AF_UNIX sockets with abstract names; the receiver answers with
 * one acknowledgement, which completes it.  The faults are drawn here (fault.c).
 *
 * Calls on one domain belong to one thread at a time.  Objects are freed by fi_close. */
#ifndef TESTS_PROVIDER_SRD_H
#define TESTS_PROVIDER_SRD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

/* Of addresses: the range of formats that are a provider's own. */
#define SRD_FORMAT (1u << 31 | 0x53)

/* The object of which `ptr` is the member.  libfabric's headers had such a macro up to 1.17. */
#define SRD_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

enum {
    SRD_INJECT = 32,
    SRD_MSG_MAX = 16 << 20, /* highest msg= */
    SRD_MTU_MAX = 32 << 10,
    SRD_POOL = 256,     /* packets to one peer that may overtake each other: highest reorder= */
    SRD_WINDOW = 4096,  /* messages of one sender that may finish before an older one */
    SRD_STRANGERS = 64, /* peers that are in no address table */
    SRD_STRANGE_BYTES = 16 << 20, /* of theirs that wait for a receive */
};

#define SRD_MR_MODE (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)

/* ---------------------------------------------------------------- fault.c */

/* TERNSRD, a list of NAME=VALUE with commas between; the table in fault.c says what each does. */
struct srd_faults {
    uint64_t seed, lose_after;
    uint32_t msg, mtu, reorder, delay_us, shuffle, late_us, tx, rx, cq, mr, rails, only, job;
    double dup, dupdata, eagain, recv_eagain, fail, lie;
    int lose; /* the place in the address table of the one that is lost, or -1 */
    bool dies;
};
int srd_faults_read(struct srd_faults *f); /* 0, or -FI_EINVAL after a line on stderr */
uint64_t srd_random(uint64_t *state);
uint32_t srd_below(uint64_t *state, uint32_t n); /* 0 where n is 0 */
bool srd_chance(uint64_t *state, double p);
int64_t srd_now_ns(void);
/* A line on stderr; returns `code`. */
__attribute__((format(printf, 2, 3))) int srd_refuse(int code, const char *format, ...);

/* ---------------------------------------------------------------- objects */

struct srd_address { /* what fi_getname gives */
    uint32_t magic, job;
    uint64_t id;
};
enum { SRD_ADDRESS_MAGIC = 0x44525354 };

struct srd_fabric {
    struct fid_fabric f;
    int children;
};

struct srd_domain {
    struct fid_domain d;
    struct srd_fabric *fabric;
    struct srd_faults faults;
    int children;
    uint32_t regions; /* open ones */
    struct srd_mr *mrs;
    struct srd_ep *eps;
};

struct srd_mr {
    struct fid_mr m;
    struct srd_domain *domain;
    struct srd_mr *next;
    uint64_t base;
    size_t bytes;
    uint64_t access;
    int uses; /* operations that name it, and 1 while it is open */
    bool closed;
};

struct srd_av {
    struct fid_av a;
    struct srd_domain *domain;
    struct srd_address *at; /* [count]; magic 0: removed */
    size_t count;
    int users;
};

struct srd_event {
    struct fi_cq_err_entry e; /* a good one's fields too */
    fi_addr_t from;
    int64_t due;
};

struct srd_cq {
    struct fid_cq c;
    struct srd_domain *domain;
    size_t entry_bytes, size;
    struct srd_event *good; /* [n_good], oldest first */
    struct srd_event *bad;
    size_t n_good, room_good, n_bad, room_bad;
    uint64_t random;
    int users;
};

enum srd_kind { SRD_SEND, SRD_TSEND, SRD_WRITE, SRD_RECV, SRD_TRECV, SRD_ACK };

struct srd_op {
    struct srd_op *next;
    enum srd_kind kind;
    char *buf;
    size_t bytes;
    struct srd_mr *mr; /* NULL: none needed */
    void *context;     /* struct fi_context2, ours until the completion; NULL of an inject */
    uint64_t flags, tag, ignore, data, addr, key;
    fi_addr_t source; /* of a receive */
    bool quiet;       /* no completion when it went well */
    /* Of what is sent. */
    struct srd_peer *peer;
    uint64_t msg; /* its number among the messages to that peer */
    uint32_t cut, pieces;
    char inject[SRD_INJECT];
};

struct srd_packet {
    uint32_t magic, check; /* `check` over what follows it in this header */
    struct srd_address from;
    uint64_t msg, tag, data, addr, key;
    uint32_t kind, flags;
    uint32_t total, piece, at, bytes; /* of the message; of every packet but the last; this one's */
};
enum { SRD_HAS_DATA = 1, SRD_ON_DELIVERY = 2 };

struct srd_incoming {                  /* a message of which something came */
    struct srd_incoming *next, *later; /* of its peer, until it is whole; among the unexpected */
    struct srd_peer *peer;
    struct srd_packet head;
    struct srd_op *receive; /* NULL: unexpected */
    char *held;             /* its bytes, when unexpected */
    uint32_t got, pieces;
    bool whole;
    int code;
    uint8_t have[]; /* a bit a packet */
};

struct srd_piece {
    struct srd_op *op;
    uint32_t index;
    int64_t due;
};

struct srd_conn { /* what an epoll event points at */
    struct srd_conn *next;
    struct srd_peer *peer; /* NULL of an accepted one, which is read from */
    int fd;
};

struct srd_peer {
    struct srd_peer *next;
    struct srd_address address;
    fi_addr_t index; /* in the address table */
    size_t av_seen;  /* its length when `index` was looked up */
    struct srd_conn conn;
    bool gone, hung_up;
    /* to it */
    uint64_t next_msg;
    struct srd_op *ops, **end, *cutting;
    struct srd_piece pool[SRD_POOL];
    uint32_t n_pool;
    struct srd_packet *acks;
    size_t n_acks, room_acks;
    /* from it */
    uint64_t low; /* all messages below are here */
    uint8_t done[SRD_WINDOW / 8];
    struct srd_incoming *incoming;
};

struct srd_ep {
    struct fid_ep e;
    struct srd_domain *domain;
    struct srd_ep *next;
    struct srd_av *av;
    struct srd_cq *tx, *rx;
    bool tx_quiet, rx_quiet, enabled;
    uint64_t tx_flags, rx_flags; /* op_flags of the attributes */
    struct srd_address address;
    fi_addr_t index; /* own place in the address table */
    size_t av_seen;
    uint64_t random;
    uint64_t draws[2]; /* for what is sent, for receives: moved on by nothing else */
    uint64_t posted;   /* sends and writes so far */
    uint32_t n_tx, n_rx;
    struct srd_op *receives[2]; /* untagged, tagged; oldest first */
    struct srd_incoming *unexpected;
    size_t strange_bytes;
    struct srd_peer *peers;
    struct srd_conn *accepted;
    struct srd_conn listen;
    int epoll;
    char packet[sizeof(struct srd_packet) + SRD_MTU_MAX]; /* being read */
};

/* ---------------------------------------------------------------- memory.c */
int srd_av_open(struct fid_domain *d, struct fi_av_attr *attr, struct fid_av **av, void *context);
extern struct fi_ops_mr srd_mr_ops;
/* The region that `desc` names, when it holds [buf, buf + bytes) and may be used for `access`;
 * else NULL, after a refusal. */
struct srd_mr *srd_mr_local(struct srd_domain *d, void *desc, const void *buf, size_t bytes,
                            uint64_t access, const char *what);
/* Where a peer's write may go; NULL after a refusal, without a word to a stranger. */
char *srd_mr_remote(struct srd_domain *d, uint64_t key, uint64_t addr, size_t bytes, bool stranger);
void srd_mr_drop(struct srd_mr *mr); /* a use ends; NULL is fine */

/* ---------------------------------------------------------------- queue.c */
int srd_cq_open(struct fid_domain *d, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
bool srd_cq_full(const struct srd_cq *cq);
/* `delay_us` on top of what the faults draw. */
void srd_cq_add(struct srd_cq *cq, const struct fi_cq_err_entry *e, fi_addr_t from,
                uint32_t delay_us);

/* ---------------------------------------------------------------- endpoint.c, post.c, match.c */
int srd_endpoint(struct fid_domain *d, struct fi_info *info, struct fid_ep **ep, void *context);
extern struct fi_ops_msg srd_msg_ops;
extern struct fi_ops_tagged srd_tag_ops;
extern struct fi_ops_rma srd_rma_ops;
/* Ends an operation: a completion, with `code` an error one; frees it. */
void srd_finish(struct srd_ep *ep, struct srd_op *op, int code, size_t came, fi_addr_t from);
void srd_receive(struct srd_ep *ep, struct srd_op *op);
/* A message's first packet came: it finds its receive, or memory of its own; false for no room. */
bool srd_match(struct srd_ep *ep, struct srd_incoming *in);
void srd_place(struct srd_ep *ep, struct srd_incoming *in, const struct srd_packet *p,
               const char *bytes);
void srd_arrived(struct srd_ep *ep, struct srd_incoming *in);
void srd_incoming_free(struct srd_incoming *in);

/* ---------------------------------------------------------------- wire.c */
int srd_wire_open(struct srd_ep *ep);
void srd_wire_close(struct srd_ep *ep);
void srd_progress(struct srd_ep *ep);
struct srd_peer *srd_peer_at(struct srd_ep *ep, fi_addr_t index); /* NULL: not in the table */
fi_addr_t srd_peer_index(struct srd_ep *ep, struct srd_peer *p);
/* Its own place; when it has one, its random numbers begin. */
fi_addr_t srd_own_index(struct srd_ep *ep);
/* Nothing reaches this one, or comes from it, any more: a fault. */
bool srd_lost(struct srd_ep *ep);
void srd_send(struct srd_ep *ep, struct srd_op *op);
void srd_ack(struct srd_ep *ep, struct srd_peer *to, uint64_t msg, int code);

/* ---------------------------------------------------------------- nosys.c */
extern struct fi_ops_atomic srd_no_atomic;
extern struct fi_ops_collective srd_no_collective;
extern struct fi_ops_cm srd_cm_ops;
int srd_no_bind(struct fid *fid, struct fid *to, uint64_t flags);
int srd_no_control(struct fid *fid, int command, void *arg);
int srd_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
int srd_no_tostr(const struct fid *fid, char *to, size_t n);
int srd_no_ops_set(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context);
extern struct fi_ops_fabric srd_fabric_ops;
extern struct fi_ops_domain srd_domain_ops;
int srd_domain_open(struct fid_fabric *f, struct fi_info *info, struct fid_domain **d,
                    void *context);

#endif
