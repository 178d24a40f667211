/* Posts: every one is checked here as the device would, and more loudly. */
#include "tests/provider/srd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [SRD_SEND] = "a send",    [SRD_TSEND] = "a tagged send",    [SRD_WRITE] = "a write",
    [SRD_RECV] = "a receive", [SRD_TRECV] = "a tagged receive",
};

/* ---------------------------------------------------------------- contexts */

/* FI_CONTEXT2: eight words of the user's are ours until the completion. */
static uint64_t mark_of(const struct srd_op *op, int i)
{
    return ((uint64_t)(uintptr_t)op ^ (uint64_t)i) * 0x9e3779b97f4a7c15u;
}

static void mark(struct srd_op *op)
{
    for (int i = 0; op->context && i < 8; i++) {
        uint64_t m = mark_of(op, i);
        memcpy((char *)op->context + (size_t)i * sizeof m, &m, sizeof m);
    }
}

static void check_mark(const struct srd_op *op)
{
    for (int i = 0; op->context && i < 8; i++) {
        uint64_t m = mark_of(op, i);
        if (memcmp((char *)op->context + (size_t)i * sizeof m, &m, sizeof m) != 0) {
            srd_refuse(0, "the context of %s was changed while it was on its way", names[op->kind]);
            return;
        }
    }
}

/* ---------------------------------------------------------------- posts */

void srd_finish(struct srd_ep *ep, struct srd_op *op, int code, size_t came, fi_addr_t from)
{
    bool receives = op->kind >= SRD_RECV;
    uint64_t own = op->kind == SRD_WRITE  ? FI_RMA | FI_WRITE
                   : op->kind == SRD_SEND ? FI_MSG | FI_SEND
                   : op->kind == SRD_RECV ? FI_MSG | FI_RECV
                                          : FI_TAGGED | (receives ? FI_RECV : FI_SEND);
    struct fi_cq_err_entry e = {
        .op_context = op->context,
        .flags = own | (receives ? op->flags & FI_REMOTE_CQ_DATA : 0),
        .len = receives && came > op->bytes ? op->bytes : came,
        .buf = receives ? op->buf : NULL,
        .data = receives ? op->data : 0,
        .tag = receives ? op->tag : 0,
        .olen = came > op->bytes ? came - op->bytes : 0,
        .err = code,
        .prov_errno = code,
    };

    check_mark(op);
    *(receives ? &ep->n_rx : &ep->n_tx) -= 1;
    if (code || (!op->quiet && op->context))
        srd_cq_add(receives ? ep->rx : ep->tx, &e, from, 0);
    srd_mr_drop(op->mr);
    free(op);
}

/* 0 and the region in want->mr, or the code of a refusal. */
static int check(struct srd_ep *ep, struct srd_op *want, void *desc, bool inject)
{
    static const uint64_t access[] = {FI_SEND, FI_SEND, FI_WRITE, FI_RECV, FI_RECV};
    const char *what = names[want->kind];
    size_t most = inject ? SRD_INJECT : ep->domain->faults.msg;

    if (!ep->enabled)
        return srd_refuse(-FI_EOPBADSTATE, "%s before fi_enable", what);
    if (want->bytes > most && want->kind < SRD_RECV)
        return srd_refuse(-FI_EMSGSIZE, "%s of %zu bytes; at most %zu", what, want->bytes, most);
    if (!inject && !want->context)
        return srd_refuse(-FI_EINVAL, "%s without a context (FI_CONTEXT2)", what);
    if (inject || !want->bytes)
        return 0;
    want->mr = srd_mr_local(ep->domain, desc, want->buf, want->bytes, access[want->kind], what);
    return want->mr ? 0 : -FI_EINVAL;
}

static ssize_t post_receive(struct srd_ep *ep, struct srd_op *op)
{
    ep->n_rx++;
    /* Nothing is there before it came. */
    if (op->bytes)
        memset(op->buf, 0xa5, op->bytes);
    srd_receive(ep, op);
    return 0;
}

static ssize_t post_send(struct srd_ep *ep, struct srd_op *op)
{
    struct srd_peer *p = op->peer;

    ep->n_tx++;
    ep->posted++;
    if (srd_chance(&ep->draws[0], ep->domain->faults.fail))
        srd_finish(ep, op, FI_EIO, 0, srd_peer_index(ep, p));
    else if (p->gone)
        srd_finish(ep, op, FI_EHOSTUNREACH, 0, srd_peer_index(ep, p));
    else
        srd_send(ep, op);
    return 0;
}

/* All posts: `want` is copied. */
static ssize_t post(struct fid_ep *e, struct srd_op want, void *desc, fi_addr_t to)
{
    struct srd_ep *ep = SRD_OF(e, struct srd_ep, e);
    const struct srd_faults *f = &ep->domain->faults;
    bool receives = want.kind >= SRD_RECV, inject = want.flags & FI_INJECT;
    bool selective = receives ? ep->rx_quiet : ep->tx_quiet;
    struct srd_peer *p = NULL;

    int rc = check(ep, &want, desc, inject);
    if (rc)
        return rc;
    if (!receives && !(p = srd_peer_at(ep, to)))
        return srd_refuse(-FI_EINVAL, "%s to an address that is not in the table",
                          names[want.kind]);
    srd_own_index(ep);
    /* Refusals that depend on timing draw nothing. */
    if ((receives ? ep->n_rx >= f->rx : ep->n_tx >= f->tx) ||
        (p && p->ops && p->next_msg - p->ops->msg >= SRD_WINDOW / 2) ||
        srd_chance(&ep->draws[receives], receives ? f->recv_eagain : f->eagain))
        return -FI_EAGAIN;
    struct srd_op *op = malloc(sizeof *op);
    if (!op)
        return -FI_ENOMEM;
    *op = want;
    op->peer = p;
    op->quiet = selective && !(want.flags & FI_COMPLETION);
    if (op->mr)
        op->mr->uses++;
    if (inject && op->bytes) {
        memcpy(op->inject, op->buf, op->bytes);
        op->buf = op->inject;
    }
    mark(op);
    return receives ? post_receive(ep, op) : post_send(ep, op);
}

static char *plain(const void *buf)
{
    return (char *)(uintptr_t)buf;
}

static uint64_t tx_flags(struct fid_ep *e)
{
    return SRD_OF(e, struct srd_ep, e)->tx_flags;
}

static uint64_t rx_flags(struct fid_ep *e)
{
    return SRD_OF(e, struct srd_ep, e)->rx_flags;
}

/* One piece of memory: EFA takes a few, a user does well not to count on them. */
static bool one_piece(size_t count, const struct iovec *iov, void **desc, struct srd_op *to,
                      void **first)
{
    if (count > 1) {
        srd_refuse(0, "%s of %zu pieces", names[to->kind], count);
        return false;
    }
    to->buf = count ? iov->iov_base : NULL;
    to->bytes = count ? iov->iov_len : 0;
    *first = count && desc ? desc[0] : NULL;
    return true;
}

/* ---------------------------------------------------------------- the tables */

static ssize_t msg_recv(struct fid_ep *e, void *buf, size_t len, void *desc, fi_addr_t from,
                        void *context)
{
    return post(e,
                (struct srd_op){.kind = SRD_RECV,
                                .buf = buf,
                                .bytes = len,
                                .context = context,
                                .flags = rx_flags(e),
                                .source = from},
                desc, 0);
}

static ssize_t msg_recvmsg(struct fid_ep *e, const struct fi_msg *m, uint64_t flags)
{
    struct srd_op op = {.kind = SRD_RECV, .context = m->context, .flags = flags, .source = m->addr};
    void *desc;

    if (flags & ~(uint64_t)(FI_COMPLETION | FI_MORE))
        return -FI_ENOSYS;
    return one_piece(m->iov_count, m->msg_iov, m->desc, &op, &desc) ? post(e, op, desc, 0)
                                                                    : -FI_EINVAL;
}

static ssize_t msg_recvv(struct fid_ep *e, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t from, void *context)
{
    struct fi_msg m = {iov, desc, count, from, context, 0};

    return msg_recvmsg(e, &m, rx_flags(e));
}

static ssize_t msg_senddata(struct fid_ep *e, const void *buf, size_t len, void *desc,
                            uint64_t data, fi_addr_t to, void *context)
{
    return post(e,
                (struct srd_op){.kind = SRD_SEND,
                                .buf = plain(buf),
                                .bytes = len,
                                .context = context,
                                .data = (uint32_t)data,
                                .flags = tx_flags(e) | FI_REMOTE_CQ_DATA},
                desc, to);
}

static ssize_t msg_send(struct fid_ep *e, const void *buf, size_t len, void *desc, fi_addr_t to,
                        void *context)
{
    return post(e,
                (struct srd_op){.kind = SRD_SEND,
                                .buf = plain(buf),
                                .bytes = len,
                                .context = context,
                                .flags = tx_flags(e)},
                desc, to);
}

static ssize_t msg_sendmsg(struct fid_ep *e, const struct fi_msg *m, uint64_t flags)
{
    struct srd_op op = {
        .kind = SRD_SEND, .context = m->context, .flags = flags, .data = (uint32_t)m->data};
    void *desc;

    return one_piece(m->iov_count, m->msg_iov, m->desc, &op, &desc) ? post(e, op, desc, m->addr)
                                                                    : -FI_EINVAL;
}

static ssize_t msg_sendv(struct fid_ep *e, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t to, void *context)
{
    struct fi_msg m = {iov, desc, count, to, context, 0};

    return msg_sendmsg(e, &m, tx_flags(e));
}

static ssize_t msg_injectdata(struct fid_ep *e, const void *buf, size_t len, uint64_t data,
                              fi_addr_t to)
{
    return post(e,
                (struct srd_op){.kind = SRD_SEND,
                                .buf = plain(buf),
                                .bytes = len,
                                .data = (uint32_t)data,
                                .flags = FI_INJECT | FI_REMOTE_CQ_DATA},
                NULL, to);
}

static ssize_t msg_inject(struct fid_ep *e, const void *buf, size_t len, fi_addr_t to)
{
    return post(
        e, (struct srd_op){.kind = SRD_SEND, .buf = plain(buf), .bytes = len, .flags = FI_INJECT},
        NULL, to);
}

struct fi_ops_msg srd_msg_ops = {
    sizeof srd_msg_ops, msg_recv,    msg_recvv,  msg_recvmsg,  msg_send,
    msg_sendv,          msg_sendmsg, msg_inject, msg_senddata, msg_injectdata,
};

static ssize_t tag_recv(struct fid_ep *e, void *buf, size_t len, void *desc, fi_addr_t from,
                        uint64_t tag, uint64_t ignore, void *context)
{
    return post(e,
                (struct srd_op){.kind = SRD_TRECV,
                                .buf = buf,
                                .bytes = len,
                                .context = context,
                                .flags = rx_flags(e),
                                .source = from,
                                .tag = tag,
                                .ignore = ignore},
                desc, 0);
}

static ssize_t tag_recvmsg(struct fid_ep *e, const struct fi_msg_tagged *m, uint64_t flags)
{
    struct srd_op op = {.kind = SRD_TRECV,
                        .context = m->context,
                        .flags = flags,
                        .source = m->addr,
                        .tag = m->tag,
                        .ignore = m->ignore};
    void *desc;

    if (flags & ~(uint64_t)(FI_COMPLETION | FI_MORE))
        return -FI_ENOSYS;
    return one_piece(m->iov_count, m->msg_iov, m->desc, &op, &desc) ? post(e, op, desc, 0)
                                                                    : -FI_EINVAL;
}

static ssize_t tag_recvv(struct fid_ep *e, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t from, uint64_t tag, uint64_t ignore, void *context)
{
    struct fi_msg_tagged m = {iov, desc, count, from, tag, ignore, context, 0};

    return tag_recvmsg(e, &m, rx_flags(e));
}

static ssize_t tag_sendmsg(struct fid_ep *e, const struct fi_msg_tagged *m, uint64_t flags)
{
    struct srd_op op = {.kind = SRD_TSEND,
                        .context = m->context,
                        .flags = flags,
                        .data = (uint32_t)m->data,
                        .tag = m->tag};
    void *desc;

    return one_piece(m->iov_count, m->msg_iov, m->desc, &op, &desc) ? post(e, op, desc, m->addr)
                                                                    : -FI_EINVAL;
}

static ssize_t tag_sendv(struct fid_ep *e, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t to, uint64_t tag, void *context)
{
    struct fi_msg_tagged m = {iov, desc, count, to, tag, 0, context, 0};

    return tag_sendmsg(e, &m, tx_flags(e));
}

static ssize_t tag_send(struct fid_ep *e, const void *buf, size_t len, void *desc, fi_addr_t to,
                        uint64_t tag, void *context)
{
    struct iovec iov = {plain(buf), len};

    return tag_sendv(e, &iov, &desc, 1, to, tag, context);
}

static ssize_t tag_senddata(struct fid_ep *e, const void *buf, size_t len, void *desc,
                            uint64_t data, fi_addr_t to, uint64_t tag, void *context)
{
    struct iovec iov = {plain(buf), len};
    struct fi_msg_tagged m = {&iov, &desc, 1, to, tag, 0, context, data};

    return tag_sendmsg(e, &m, tx_flags(e) | FI_REMOTE_CQ_DATA);
}

static ssize_t tag_injectdata(struct fid_ep *e, const void *buf, size_t len, uint64_t data,
                              fi_addr_t to, uint64_t tag)
{
    struct iovec iov = {plain(buf), len};
    struct fi_msg_tagged m = {&iov, NULL, 1, to, tag, 0, NULL, data};

    return tag_sendmsg(e, &m, FI_INJECT | FI_REMOTE_CQ_DATA);
}

static ssize_t tag_inject(struct fid_ep *e, const void *buf, size_t len, fi_addr_t to, uint64_t tag)
{
    struct iovec iov = {plain(buf), len};
    struct fi_msg_tagged m = {&iov, NULL, 1, to, tag, 0, NULL, 0};

    return tag_sendmsg(e, &m, FI_INJECT);
}

struct fi_ops_tagged srd_tag_ops = {
    sizeof srd_tag_ops, tag_recv,    tag_recvv,  tag_recvmsg,  tag_send,
    tag_sendv,          tag_sendmsg, tag_inject, tag_senddata, tag_injectdata,
};

static ssize_t rma_writemsg(struct fid_ep *e, const struct fi_msg_rma *m, uint64_t flags)
{
    struct srd_op op = {
        .kind = SRD_WRITE, .context = m->context, .flags = flags, .data = (uint32_t)m->data};
    void *desc;

    if (m->rma_iov_count > 1)
        return srd_refuse(-FI_EINVAL, "a write to %zu places", m->rma_iov_count);
    if (!one_piece(m->iov_count, m->msg_iov, m->desc, &op, &desc))
        return -FI_EINVAL;
    if (m->rma_iov_count) {
        op.addr = m->rma_iov->addr;
        op.key = m->rma_iov->key;
        if (m->rma_iov->len != op.bytes)
            return srd_refuse(-FI_EINVAL, "a write of %zu bytes to %zu", op.bytes, m->rma_iov->len);
    }
    return post(e, op, desc, m->addr);
}

static ssize_t rma_put(struct fid_ep *e, const void *buf, size_t len, void *desc, fi_addr_t to,
                       uint64_t addr, uint64_t key, uint64_t data, uint64_t flags, void *context)
{
    struct iovec iov = {plain(buf), len};
    struct fi_rma_iov there = {addr, len, key};
    struct fi_msg_rma m = {&iov, &desc, 1, to, &there, 1, context, data};

    return rma_writemsg(e, &m, flags);
}

static ssize_t rma_write(struct fid_ep *e, const void *buf, size_t len, void *desc, fi_addr_t to,
                         uint64_t addr, uint64_t key, void *context)
{
    return rma_put(e, buf, len, desc, to, addr, key, 0, tx_flags(e), context);
}

static ssize_t rma_writev(struct fid_ep *e, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
    struct fi_rma_iov there = {addr, count ? iov->iov_len : 0, key};
    struct fi_msg_rma m = {iov, desc, count, to, &there, 1, context, 0};

    return rma_writemsg(e, &m, tx_flags(e));
}

static ssize_t rma_writedata(struct fid_ep *e, const void *buf, size_t len, void *desc,
                             uint64_t data, fi_addr_t to, uint64_t addr, uint64_t key,
                             void *context)
{
    return rma_put(e, buf, len, desc, to, addr, key, data, tx_flags(e) | FI_REMOTE_CQ_DATA,
                   context);
}

static ssize_t rma_inject(struct fid_ep *e, const void *buf, size_t len, fi_addr_t to,
                          uint64_t addr, uint64_t key)
{
    return rma_put(e, buf, len, NULL, to, addr, key, 0, FI_INJECT, NULL);
}

static ssize_t rma_injectdata(struct fid_ep *e, const void *buf, size_t len, uint64_t data,
                              fi_addr_t to, uint64_t addr, uint64_t key)
{
    return rma_put(e, buf, len, NULL, to, addr, key, data, FI_INJECT | FI_REMOTE_CQ_DATA, NULL);
}

static ssize_t no_read(struct fid_ep *e, void *buf, size_t len, void *desc, fi_addr_t from,
                       uint64_t addr, uint64_t key, void *context)
{
    (void)e, (void)buf, (void)len, (void)desc, (void)from, (void)addr, (void)key, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_readv(struct fid_ep *e, const struct iovec *iov, void **desc, size_t count,
                        fi_addr_t from, uint64_t addr, uint64_t key, void *context)
{
    (void)e, (void)iov, (void)desc, (void)count, (void)from, (void)addr, (void)key, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_readmsg(struct fid_ep *e, const struct fi_msg_rma *m, uint64_t flags)
{
    (void)e, (void)m, (void)flags;
    return -FI_ENOSYS;
}

struct fi_ops_rma srd_rma_ops = {
    sizeof srd_rma_ops, no_read,      no_readv,   no_readmsg,    rma_write,
    rma_writev,         rma_writemsg, rma_inject, rma_writedata, rma_injectdata,
};
