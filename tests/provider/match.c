/* Receives and the messages that they are for. */
#include "tests/provider/srd.h"

#include <stdlib.h>
#include <string.h>

static bool fits(struct srd_ep *ep, const struct srd_op *op, struct srd_incoming *in)
{
    if (op->source != FI_ADDR_UNSPEC && op->source != srd_peer_index(ep, in->peer))
        return false;
    return op->kind == SRD_RECV ? in->head.kind == SRD_SEND
                                : in->head.kind == SRD_TSEND &&
                                      (in->head.tag | op->ignore) == (op->tag | op->ignore);
}

void srd_incoming_free(struct srd_incoming *in)
{
    free(in->held);
    free(in);
}

static bool is_strange(struct srd_ep *ep, struct srd_incoming *in)
{
    return srd_peer_index(ep, in->peer) == FI_ADDR_NOTAVAIL;
}

/* All of it is in the receive's buffer. */
static void deliver(struct srd_ep *ep, struct srd_incoming *in)
{
    struct srd_op *op = in->receive;
    int code = in->code ? in->code : in->head.total > op->bytes ? FI_ETRUNC : 0;

    if (in->head.flags & SRD_ON_DELIVERY)
        srd_ack(ep, in->peer, in->head.msg, 0);
    op->flags |= in->head.flags & SRD_HAS_DATA ? FI_REMOTE_CQ_DATA : 0;
    op->data = in->head.data;
    op->tag = in->head.tag;
    srd_finish(ep, op, code, in->head.total, srd_peer_index(ep, in->peer));
    srd_incoming_free(in);
}

static void put(struct srd_incoming *in, size_t at, const char *bytes, size_t n)
{
    struct srd_op *op = in->receive;

    if (op->mr && op->mr->closed && n) {
        in->code = -srd_refuse(-FI_EINVAL, "a region was closed under a posted receive");
        return;
    }
    if (at < op->bytes)
        memcpy(op->buf + at, bytes, n < op->bytes - at ? n : op->bytes - at);
}

void srd_receive(struct srd_ep *ep, struct srd_op *op)
{
    struct srd_incoming **at = &ep->unexpected, *in;
    struct srd_op **end = &ep->receives[op->kind == SRD_TRECV];

    while ((in = *at) && !fits(ep, op, in))
        at = &in->later;
    if (!in) {
        while (*end)
            end = &(*end)->next;
        *end = op;
        return;
    }
    *at = in->later;
    if (is_strange(ep, in))
        ep->strange_bytes -= in->head.total;
    in->receive = op;
    /* What is not there yet is garbage, and comes. */
    put(in, 0, in->held, in->head.total);
    free(in->held);
    in->held = NULL;
    if (in->whole)
        deliver(ep, in);
}

bool srd_match(struct srd_ep *ep, struct srd_incoming *in)
{
    struct srd_op **at = &ep->receives[in->head.kind == SRD_TSEND];
    struct srd_incoming **end = &ep->unexpected;

    while (*at && !fits(ep, *at, in))
        at = &(*at)->next;
    if (*at) {
        in->receive = *at;
        *at = in->receive->next;
        return true;
    }
    if (is_strange(ep, in)) {
        if (ep->strange_bytes + in->head.total > SRD_STRANGE_BYTES)
            return false;
        ep->strange_bytes += in->head.total;
    }
    in->held = malloc(in->head.total + 1);
    if (!in->held)
        return false;
    memset(in->held, 0x5a, in->head.total);
    while (*end)
        end = &(*end)->later;
    *end = in;
    in->later = NULL;
    return true;
}

void srd_place(struct srd_ep *ep, struct srd_incoming *in, const struct srd_packet *p,
               const char *bytes)
{
    if (in->head.kind == SRD_WRITE) {
        /* Of every packet: a region may be closed while a write comes in. */
        char *to = p->total
                       ? srd_mr_remote(ep->domain, p->key, p->addr, p->total, is_strange(ep, in))
                       : NULL;
        if (to)
            memcpy(to + p->at, bytes, p->bytes);
        else if (p->total)
            in->code = FI_EACCES;
    } else if (in->receive) {
        put(in, p->at, bytes, p->bytes);
    } else {
        memcpy(in->held + p->at, bytes, p->bytes);
    }
}

/* A write is whole. */
static void written(struct srd_ep *ep, struct srd_incoming *in)
{
    const struct srd_faults *f = &ep->domain->faults;
    struct fi_cq_err_entry e = {
        .flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
        .len = in->head.total,
        .data = in->head.data,
    };

    srd_ack(ep, in->peer, in->head.msg, in->code);
    if (in->head.flags & SRD_HAS_DATA && !in->code) {
        srd_cq_add(ep->rx, &e, srd_peer_index(ep, in->peer), 0);
        if (srd_chance(&ep->random, f->dupdata))
            srd_cq_add(ep->rx, &e, srd_peer_index(ep, in->peer), 1 + srd_below(&ep->random, 3000));
    }
    srd_incoming_free(in);
}

void srd_arrived(struct srd_ep *ep, struct srd_incoming *in)
{
    if (in->head.kind == SRD_WRITE) {
        written(ep, in);
        return;
    }
    in->whole = true;
    if (!(in->head.flags & SRD_ON_DELIVERY))
        srd_ack(ep, in->peer, in->head.msg, 0);
    if (in->receive)
        deliver(ep, in);
}
