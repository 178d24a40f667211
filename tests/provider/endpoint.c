/* Endpoints: what they are bound to, and their ends. */
#include "tests/provider/srd.h"

#include <stdlib.h>

static ssize_t cancel(fid_t fid, void *context)
{
    struct srd_ep *ep = SRD_OF(fid, struct srd_ep, e.fid);

    for (int k = 0; k < 2; k++) {
        struct srd_op **at = &ep->receives[k], *op;
        while ((op = *at) && op->context != context)
            at = &op->next;
        if (op) {
            *at = op->next;
            srd_finish(ep, op, FI_ECANCELED, 0, FI_ADDR_NOTAVAIL);
            return 0;
        }
    }
    return -FI_ENOENT;
}

static int no_getopt(fid_t fid, int level, int name, void *value, size_t *len)
{
    (void)fid, (void)level, (void)name, (void)value, (void)len;
    return -FI_ENOPROTOOPT;
}

static int no_setopt(fid_t fid, int level, int name, const void *value, size_t len)
{
    (void)fid, (void)level, (void)name, (void)value, (void)len;
    return -FI_ENOPROTOOPT;
}

static int no_tx_ctx(struct fid_ep *e, int index, struct fi_tx_attr *attr, struct fid_ep **tx,
                     void *context)
{
    (void)e, (void)index, (void)attr, (void)tx, (void)context;
    return -FI_ENOSYS;
}

static int no_rx_ctx(struct fid_ep *e, int index, struct fi_rx_attr *attr, struct fid_ep **rx,
                     void *context)
{
    (void)e, (void)index, (void)attr, (void)rx, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_size_left(struct fid_ep *e)
{
    (void)e;
    return -FI_ENOSYS;
}

static struct fi_ops_ep ep_ops = {
    sizeof ep_ops, cancel, no_getopt, no_setopt, no_tx_ctx, no_rx_ctx, no_size_left, no_size_left,
};

static int bind_ep(struct fid *fid, struct fid *to, uint64_t flags)
{
    struct srd_ep *ep = SRD_OF(fid, struct srd_ep, e.fid);

    if (to->fclass == FI_CLASS_AV && !ep->av) {
        ep->av = SRD_OF(to, struct srd_av, a.fid);
        ep->av->users++;
        return 0;
    }
    if (to->fclass != FI_CLASS_CQ || !(flags & (FI_TRANSMIT | FI_RECV)))
        return -FI_ENOSYS;
    struct srd_cq *cq = SRD_OF(to, struct srd_cq, c.fid);
    if ((flags & FI_TRANSMIT && ep->tx) || (flags & FI_RECV && ep->rx))
        return srd_refuse(-FI_EINVAL, "a second completion queue");
    if (flags & FI_TRANSMIT) {
        ep->tx = cq;
        ep->tx_quiet = flags & FI_SELECTIVE_COMPLETION;
        cq->users++;
    }
    if (flags & FI_RECV) {
        ep->rx = cq;
        ep->rx_quiet = flags & FI_SELECTIVE_COMPLETION;
        cq->users++;
    }
    return 0;
}

static int control_ep(struct fid *fid, int command, void *arg)
{
    struct srd_ep *ep = SRD_OF(fid, struct srd_ep, e.fid);

    (void)arg;
    if (command != FI_ENABLE)
        return -FI_ENOSYS;
    if (!ep->av)
        return -FI_ENOAV;
    if (!ep->tx || !ep->rx)
        return -FI_ENOCQ;
    ep->enabled = true;
    return 0;
}

static void free_ops(struct srd_op *op)
{
    while (op) {
        struct srd_op *next = op->next;
        srd_mr_drop(op->mr);
        free(op);
        op = next;
    }
}

static int close_ep(struct fid *fid)
{
    struct srd_ep *ep = SRD_OF(fid, struct srd_ep, e.fid), **at = &ep->domain->eps;

    srd_wire_close(ep);
    for (struct srd_incoming *in = ep->unexpected, *later; in; in = later) {
        later = in->later;
        srd_incoming_free(in);
    }
    free_ops(ep->receives[0]);
    free_ops(ep->receives[1]);
    if (ep->av)
        ep->av->users--;
    if (ep->tx)
        ep->tx->users--;
    if (ep->rx)
        ep->rx->users--;
    while (*at != ep)
        at = &(*at)->next;
    *at = ep->next;
    ep->domain->children--;
    free(ep);
    return 0;
}

static struct fi_ops ep_fid_ops = {
    sizeof ep_fid_ops, close_ep, bind_ep, control_ep, srd_no_ops_open, srd_no_tostr, srd_no_ops_set,
};

int srd_endpoint(struct fid_domain *d, struct fi_info *info, struct fid_ep **out, void *context)
{
    struct srd_domain *domain = SRD_OF(d, struct srd_domain, d);
    struct srd_ep *ep = calloc(1, sizeof *ep);

    if (!ep)
        return -FI_ENOMEM;
    ep->e = (struct fid_ep){{FI_CLASS_EP, context, &ep_fid_ops},
                            &ep_ops,
                            &srd_cm_ops,
                            &srd_msg_ops,
                            &srd_rma_ops,
                            &srd_tag_ops,
                            &srd_no_atomic,
                            &srd_no_collective};
    ep->domain = domain;
    ep->index = FI_ADDR_NOTAVAIL;
    ep->epoll = ep->listen.fd = -1;
    ep->tx_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
    ep->rx_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
    ep->next = domain->eps;
    domain->eps = ep;
    domain->children++;
    int rc = srd_wire_open(ep);
    if (rc) {
        close_ep(&ep->e.fid);
        return rc;
    }
    *out = &ep->e;
    return 0;
}
