/* Packets over AF_UNIX sockets: one connection a direction, so that a peer that does not read stops
 * no other peer's messages, and so that the kernel tells when it is gone. */
#include "tests/provider/srd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    MAGIC = 0x31445253,
    EVENTS = 32,
    BURST = 64, /* packets read from one connection before others' turn */
    SOCKET_BYTES = 1 << 20,
    ACCEPTED = 1024,
    FAREWELL_MS = 200, /* to bring acknowledgements out at the end */
};

/* ---------------------------------------------------------------- addresses */

static socklen_t name_of(const struct srd_address *a, struct sockaddr_un *to)
{
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(to->sun_path + 1, sizeof to->sun_path - 1, "ternsrd-%08x-%016llx", a->job,
                     (unsigned long long)a->id);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool same(const struct srd_address *a, const struct srd_address *b)
{
    return a->magic == b->magic && a->job == b->job && a->id == b->id;
}

static fi_addr_t index_of(const struct srd_av *av, const struct srd_address *a)
{
    for (size_t i = 0; av && i < av->count; i++)
        if (same(&av->at[i], a))
            return i;
    return FI_ADDR_NOTAVAIL;
}

fi_addr_t srd_peer_index(struct srd_ep *ep, struct srd_peer *p)
{
    if (p->index == FI_ADDR_NOTAVAIL && p->av_seen != ep->av->count) {
        p->index = index_of(ep->av, &p->address);
        p->av_seen = ep->av->count;
    }
    return p->index;
}

fi_addr_t srd_own_index(struct srd_ep *ep)
{
    if (ep->index == FI_ADDR_NOTAVAIL && ep->av && ep->av_seen != ep->av->count) {
        ep->index = index_of(ep->av, &ep->address);
        ep->av_seen = ep->av->count;
        if (ep->index != FI_ADDR_NOTAVAIL) {
            ep->random = ep->domain->faults.seed * 1000003 + ep->index;
            ep->rx->random = ep->tx->random = srd_random(&ep->random);
            for (int k = 0; k < 2; k++)
                ep->draws[k] = srd_random(&ep->random);
        }
    }
    return ep->index;
}

/* Makes it when it is new; NULL when there are too many unknown ones. */
static struct srd_peer *peer_of(struct srd_ep *ep, const struct srd_address *a)
{
    struct srd_peer **at = &ep->peers;
    int strangers = 0;

    for (; *at; at = &(*at)->next) {
        if (same(&(*at)->address, a))
            return *at;
        strangers += srd_peer_index(ep, *at) == FI_ADDR_NOTAVAIL;
    }
    fi_addr_t index = index_of(ep->av, a);
    if (index == FI_ADDR_NOTAVAIL && strangers >= SRD_STRANGERS)
        return NULL;
    struct srd_peer *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->address = *a;
    p->index = index;
    p->av_seen = ep->av->count;
    p->conn = (struct srd_conn){NULL, p, -1};
    p->end = &p->ops;
    *at = p;
    return p;
}

struct srd_peer *srd_peer_at(struct srd_ep *ep, fi_addr_t index)
{
    srd_own_index(ep);
    if (index >= ep->av->count || !ep->av->at[index].magic)
        return NULL;
    return peer_of(ep, &ep->av->at[index]);
}

bool srd_lost(struct srd_ep *ep)
{
    const struct srd_faults *f = &ep->domain->faults;

    return f->lose >= 0 && ep->posted >= f->lose_after && srd_own_index(ep) == (fi_addr_t)f->lose;
}

/* ---------------------------------------------------------------- sending */

/* Takes it from its peer's lists. */
static void unlink_op(struct srd_peer *p, struct srd_op *op)
{
    struct srd_op **at = &p->ops;
    uint32_t kept = 0;

    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    if (p->end == &op->next)
        p->end = at;
    if (p->cutting == op)
        p->cutting = op->next;
    for (uint32_t i = 0; i < p->n_pool; i++)
        if (p->pool[i].op != op)
            p->pool[kept++] = p->pool[i];
    p->n_pool = kept;
}

static void peer_gone(struct srd_ep *ep, struct srd_peer *p)
{
    if (p->conn.fd >= 0)
        close(p->conn.fd);
    p->conn.fd = -1;
    p->gone = true;
    p->n_acks = 0;
    while (p->ops) {
        struct srd_op *op = p->ops;
        unlink_op(p, op);
        srd_finish(ep, op, FI_EHOSTUNREACH, 0, srd_peer_index(ep, p));
    }
}

/* 1 connected, 0 not yet, -1 no peer is there. */
static int connect_to(struct srd_ep *ep, struct srd_peer *p)
{
    const int bytes = SOCKET_BYTES;
    struct sockaddr_un to;
    socklen_t n = name_of(&p->address, &to);
    struct epoll_event e = {.data.ptr = &p->conn}; /* of a hang-up */

    if (p->conn.fd >= 0)
        return 1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (connect(fd, (struct sockaddr *)&to, n) < 0 ||
        epoll_ctl(ep->epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
        int saved = errno;
        close(fd);
        return saved == ECONNREFUSED ? -1 : 0;
    }
    p->conn.fd = fd;
    return 1;
}

static uint32_t check_of(const struct srd_packet *h)
{
    const unsigned char *at = (const unsigned char *)&h->from;
    uint32_t sum = 2166136261u;

    for (size_t i = 0; i < sizeof *h - offsetof(struct srd_packet, from); i++)
        sum = (sum ^ at[i]) * 16777619u;
    return sum;
}

/* 1 sent, 0 not now, -1 the peer has gone. */
static int send_packet(struct srd_peer *p, struct srd_packet *h, const char *bytes)
{
    h->magic = MAGIC;
    h->check = check_of(h);
    struct iovec iov[2] = {{h, sizeof *h}, {(void *)(uintptr_t)bytes, h->bytes}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = h->bytes ? 2 : 1};
    if (sendmsg(p->conn.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return 1;
    return errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM ? 0 : -1;
}

static int send_piece(struct srd_ep *ep, struct srd_peer *p, const struct srd_piece *s)
{
    const struct srd_op *op = s->op;
    uint32_t mtu = ep->domain->faults.mtu, at = s->index * mtu, left = (uint32_t)op->bytes - at;
    struct srd_packet h = {
        .from = ep->address,
        .msg = op->msg,
        .tag = op->tag,
        .data = op->data,
        .addr = op->addr,
        .key = op->key,
        .kind = op->kind,
        .flags = (op->flags & FI_REMOTE_CQ_DATA ? SRD_HAS_DATA : 0u) |
                 (op->flags & FI_DELIVERY_COMPLETE ? SRD_ON_DELIVERY : 0u),
        .total = (uint32_t)op->bytes,
        .piece = mtu,
        .at = at,
        .bytes = left < mtu ? left : mtu,
    };

    if (op->mr && op->mr->closed)
        return srd_refuse(-2, "a region was closed under a message being sent");
    return send_packet(p, &h, op->buf + at);
}

/* Packets of the messages posted first become the ones that may overtake each other. */
static void fill_pool(struct srd_ep *ep, struct srd_peer *p)
{
    const struct srd_faults *f = &ep->domain->faults;

    while (p->cutting && p->n_pool < f->reorder) {
        struct srd_op *op = p->cutting;
        uint32_t us = srd_below(&ep->random, f->delay_us);
        p->pool[p->n_pool++] = (struct srd_piece){op, op->cut, us ? srd_now_ns() + 1000ll * us : 0};
        if (++op->cut == op->pieces)
            p->cutting = op->next;
    }
}

/* Its place in the pool, or -1. */
static int pick(struct srd_ep *ep, const struct srd_peer *p, int64_t now)
{
    uint32_t first = srd_below(&ep->random, p->n_pool);

    for (uint32_t i = 0; i < p->n_pool; i++)
        if (p->pool[(first + i) % p->n_pool].due <= now)
            return (int)((first + i) % p->n_pool);
    return -1;
}

/* 1 all sent, 0 not now, -1 the peer has gone. */
static int push_acks(struct srd_peer *p)
{
    size_t told = 0;
    int rc = 1;

    while (told < p->n_acks && (rc = send_packet(p, &p->acks[told], NULL)) > 0)
        told++;
    p->n_acks -= told;
    if (told && p->n_acks)
        memmove(p->acks, p->acks + told, p->n_acks * sizeof *p->acks);
    return rc;
}

static void push(struct srd_ep *ep, struct srd_peer *p)
{
    const struct srd_faults *f = &ep->domain->faults;
    int rc, at;

    if (p->gone || (!p->n_acks && !p->ops))
        return;
    if (srd_lost(ep)) {
        p->n_acks = p->n_pool = 0;
        p->cutting = NULL;
        if (f->dies)
            peer_gone(ep, p);
        return;
    }
    rc = connect_to(ep, p);
    rc = rc > 0 ? push_acks(p) : rc;
    int64_t now = srd_now_ns();
    while (rc > 0) {
        fill_pool(ep, p);
        /* What stays behind mixes with what is posted next. */
        if ((at = pick(ep, p, now)) < 0 || (f->reorder > 1 && srd_chance(&ep->random, 0.05)))
            return;
        struct srd_piece s = p->pool[at];
        if ((rc = send_piece(ep, p, &s)) == -2) {
            unlink_op(p, s.op);
            srd_finish(ep, s.op, FI_EINVAL, 0, srd_peer_index(ep, p));
            rc = 1;
        } else if (rc > 0 && !srd_chance(&ep->random, f->dup)) {
            p->pool[at] = p->pool[--p->n_pool]; /* else it goes again, at another time */
        }
    }
    if (rc < 0)
        peer_gone(ep, p);
}

void srd_send(struct srd_ep *ep, struct srd_op *op)
{
    struct srd_peer *p = op->peer;
    uint32_t mtu = ep->domain->faults.mtu;

    op->msg = p->next_msg++;
    op->pieces = op->bytes ? (uint32_t)((op->bytes + mtu - 1) / mtu) : 1;
    *p->end = op;
    p->end = &op->next;
    if (!p->cutting)
        p->cutting = op;
    if (ep->domain->faults.reorder == 1)
        push(ep, p); /* else later ones must be there to overtake it */
}

void srd_ack(struct srd_ep *ep, struct srd_peer *to, uint64_t msg, int code)
{
    if (to->gone)
        return;
    if (to->n_acks == to->room_acks) {
        struct srd_packet *more = realloc(to->acks, (2 * to->room_acks + 16) * sizeof *more);
        if (!more)
            return;
        to->acks = more;
        to->room_acks = 2 * to->room_acks + 16;
    }
    to->acks[to->n_acks++] = (struct srd_packet){
        .from = ep->address, .kind = SRD_ACK, .msg = msg, .data = (uint64_t)code};
}

/* ---------------------------------------------------------------- receiving */

static void acknowledged(struct srd_ep *ep, struct srd_peer *p, const struct srd_packet *h)
{
    struct srd_op *op = p->ops;

    while (op && op->msg != h->msg)
        op = op->next;
    if (!op)
        return;
    unlink_op(p, op);
    int code = srd_chance(&ep->random, ep->domain->faults.lie) ? FI_EIO : (int)h->data;
    srd_finish(ep, op, code, op->bytes, srd_peer_index(ep, p));
}

static bool is_done(const struct srd_peer *p, uint64_t msg)
{
    return msg < p->low || msg - p->low >= SRD_WINDOW ||
           p->done[msg % SRD_WINDOW / 8] >> msg % 8 & 1;
}

static void set_done(struct srd_peer *p, uint64_t msg)
{
    p->done[msg % SRD_WINDOW / 8] |= (uint8_t)(1u << msg % 8);
    while (p->done[p->low % SRD_WINDOW / 8] >> p->low % 8 & 1) {
        p->done[p->low % SRD_WINDOW / 8] &= (uint8_t) ~(1u << p->low % 8);
        p->low++;
    }
}

/* The message that a packet is of; NULL when there is no room for it, or it contradicts itself. */
static struct srd_incoming **find(struct srd_ep *ep, struct srd_peer *p, const struct srd_packet *h)
{
    struct srd_incoming **at = &p->incoming, *in;
    uint32_t pieces = h->total ? (h->total - 1) / h->piece + 1 : 1;

    while ((in = *at) && in->head.msg != h->msg)
        at = &in->next;
    if (in)
        return in->head.kind == h->kind && in->head.total == h->total && in->head.piece == h->piece
                   ? at
                   : NULL;
    in = calloc(1, sizeof *in + pieces / 8 + 1);
    if (!in)
        return NULL;
    in->peer = p;
    in->head = *h;
    in->pieces = pieces;
    if (h->kind != SRD_WRITE && !srd_match(ep, in)) {
        srd_incoming_free(in);
        return NULL;
    }
    *at = in;
    return at;
}

static void take_packet(struct srd_ep *ep, const struct srd_packet *h, const char *bytes, size_t n)
{
    struct srd_peer *p;

    if (h->magic != MAGIC || h->check != check_of(h) || h->from.magic != SRD_ADDRESS_MAGIC ||
        h->from.job != ep->address.job || n != h->bytes || !(p = peer_of(ep, &h->from)) ||
        srd_lost(ep))
        return;
    if (h->kind == SRD_ACK) {
        acknowledged(ep, p, h);
        return;
    }
    if (h->kind > SRD_WRITE || h->piece < 16 || h->total > SRD_MSG_MAX || h->at % h->piece ||
        h->at > h->total || (h->total && h->at == h->total) ||
        h->bytes != (h->total - h->at < h->piece ? h->total - h->at : h->piece) ||
        is_done(p, h->msg))
        return;
    uint32_t index = h->at / h->piece;
    struct srd_incoming **at = find(ep, p, h), *in = at ? *at : NULL;
    if (!in || in->have[index / 8] >> index % 8 & 1)
        return; /* a packet that came twice */
    in->have[index / 8] |= (uint8_t)(1u << index % 8);
    srd_place(ep, in, h, bytes);
    if (++in->got < in->pieces)
        return;
    *at = in->next;
    set_done(p, h->msg);
    srd_arrived(ep, in);
}

/* Whether anything came. */
static bool read_from(struct srd_ep *ep, struct srd_conn *c)
{
    struct srd_packet h;

    for (int i = 0; i < BURST; i++) {
        if (srd_cq_full(ep->rx) || srd_cq_full(ep->tx))
            return true;
        ssize_t n = recv(c->fd, ep->packet, sizeof ep->packet, MSG_DONTWAIT);
        if (n < 0)
            return i > 0;
        if (n == 0) {
            close(c->fd);
            c->fd = -1;
            return true;
        }
        if ((size_t)n < sizeof h)
            continue;
        memcpy(&h, ep->packet, sizeof h);
        take_packet(ep, &h, ep->packet + sizeof h, (size_t)n - sizeof h);
    }
    return true;
}

static void welcome(struct srd_ep *ep)
{
    int fd, n = 0;

    /* Closed ones go here, and not while events may still point at them. */
    for (struct srd_conn **at = &ep->accepted; *at;) {
        struct srd_conn *c = *at;
        if (c->fd < 0) {
            *at = c->next;
            free(c);
        } else {
            at = &c->next;
            n++;
        }
    }
    while ((fd = accept4(ep->listen.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct srd_conn *c = n < ACCEPTED ? calloc(1, sizeof *c) : NULL;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        if (!c || epoll_ctl(ep->epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
            close(fd);
            free(c);
            continue;
        }
        *c = (struct srd_conn){ep->accepted, NULL, fd};
        ep->accepted = c;
        n++;
    }
}

/* As the kernel does for a process that ends; `accepted` stays, since events may point there. */
static void hang_up(struct srd_ep *ep)
{
    for (struct srd_conn *c = ep->accepted; c; c = c->next) {
        if (c->fd >= 0)
            close(c->fd);
        c->fd = -1;
    }
    if (ep->listen.fd >= 0)
        close(ep->listen.fd);
    ep->listen.fd = -1;
}

void srd_progress(struct srd_ep *ep)
{
    struct epoll_event e[EVENTS];
    bool came = false, knocked = false;

    if (!ep->enabled || srd_cq_full(ep->rx) || srd_cq_full(ep->tx))
        return;
    int n = epoll_wait(ep->epoll, e, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct srd_conn *c = e[i].data.ptr;
        if (c == &ep->listen)
            knocked = true;
        else if (c->peer)
            c->peer->hung_up = true;
        else
            came |= read_from(ep, c);
    }
    if (srd_lost(ep) && ep->domain->faults.dies)
        hang_up(ep);
    else if (knocked)
        welcome(ep);
    for (struct srd_peer *p = ep->peers; p; p = p->next) {
        /* What it said before it went is heard first. */
        if (p->hung_up && !came && !knocked && !p->gone)
            peer_gone(ep, p);
        push(ep, p);
    }
}

/* ---------------------------------------------------------------- open, close */

int srd_wire_open(struct srd_ep *ep)
{
    struct sockaddr_un here;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &ep->listen};

    ep->address = (struct srd_address){SRD_ADDRESS_MAGIC, ep->domain->faults.job, 0};
    if (getrandom(&ep->address.id, sizeof ep->address.id, 0) != sizeof ep->address.id)
        return -FI_EIO;
    socklen_t n = name_of(&ep->address, &here);
    ep->epoll = epoll_create1(EPOLL_CLOEXEC);
    ep->listen.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (ep->epoll < 0 || ep->listen.fd < 0 ||
        bind(ep->listen.fd, (struct sockaddr *)&here, n) < 0 || listen(ep->listen.fd, 4096) < 0 ||
        epoll_ctl(ep->epoll, EPOLL_CTL_ADD, ep->listen.fd, &e) < 0)
        return -errno;
    return 0;
}

/* A device acknowledges whatever its program does; so what came is acknowledged before this one
 * goes. */
static void last_words(struct srd_ep *ep)
{
    for (int ms = 0; ms < FAREWELL_MS; ms++) {
        bool left = false;
        for (struct srd_peer *p = ep->peers; p; p = p->next) {
            if (p->gone || !p->n_acks || srd_lost(ep))
                continue;
            int rc = connect_to(ep, p);
            rc = rc > 0 ? push_acks(p) : rc;
            left |= rc >= 0 && p->n_acks > 0;
        }
        if (!left)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

void srd_wire_close(struct srd_ep *ep)
{
    if (ep->enabled)
        last_words(ep);
    for (struct srd_peer *p = ep->peers, *next; p; p = next) {
        next = p->next;
        if (p->conn.fd >= 0)
            close(p->conn.fd);
        for (struct srd_op *op = p->ops, *after; op; op = after) {
            after = op->next;
            srd_mr_drop(op->mr);
            free(op);
        }
        for (struct srd_incoming *in = p->incoming, *after; in; in = after) {
            after = in->next;
            if (in->receive)
                srd_mr_drop(in->receive->mr);
            free(in->receive);
            /* The unexpected ones are freed with the endpoint's. */
            if (in->receive || in->head.kind == SRD_WRITE)
                srd_incoming_free(in);
        }
        free(p->acks);
        free(p);
    }
    for (struct srd_conn *c = ep->accepted, *next; c; c = next) {
        next = c->next;
        if (c->fd >= 0)
            close(c->fd);
        free(c);
    }
    if (ep->listen.fd >= 0)
        close(ep->listen.fd);
    if (ep->epoll >= 0)
        close(ep->epoll);
}
