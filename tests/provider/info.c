/* What libfabric loads: fi_getinfo, fabrics and domains. */
#include "tests/provider/srd.h"

#include <rdma/providers/fi_prov.h>
#include <stdlib.h>
#include <string.h>

#define CAPS                                                                                       \
    (FI_MSG | FI_TAGGED | FI_RMA | FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE | FI_SOURCE |    \
     FI_DIRECTED_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM)

/* Anything above what the provider has, or below what it demands. */
static bool suits(const struct fi_info *h, const struct srd_faults *f)
{
    const struct fi_domain_attr *d = h->domain_attr;
    const struct fi_ep_attr *e = h->ep_attr;
    const struct fi_tx_attr *t = h->tx_attr;
    const struct fi_rx_attr *r = h->rx_attr;

    if (h->caps & ~(uint64_t)CAPS || !(h->mode & FI_CONTEXT2))
        return false;
    if (e && ((e->type != FI_EP_UNSPEC && e->type != FI_EP_RDM) || e->max_msg_size > f->msg))
        return false;
    if (t && (t->msg_order || t->comp_order || t->inject_size > SRD_INJECT || t->iov_limit > 1 ||
              t->rma_iov_limit > 1))
        return false;
    if (r && (r->msg_order || r->comp_order || r->iov_limit > 1))
        return false;
    return d && (d->mr_mode & SRD_MR_MODE) == SRD_MR_MODE && d->cq_data_size <= 4 &&
           d->threading != FI_THREAD_SAFE && d->threading != FI_THREAD_FID &&
           d->data_progress != FI_PROGRESS_AUTO && d->control_progress != FI_PROGRESS_AUTO &&
           d->av_type != FI_AV_MAP;
}

static struct fi_info *describe(const struct fi_info *hints, const struct srd_faults *f,
                                uint32_t rail)
{
    struct fi_info *i = fi_allocinfo();
    char name[] = "ternsrd0";

    if (!i)
        return NULL;
    name[sizeof name - 2] = (char)('0' + rail);
    i->caps = hints && hints->caps ? hints->caps : CAPS;
    i->mode = FI_CONTEXT2;
    i->addr_format = SRD_FORMAT;
    *i->tx_attr = (struct fi_tx_attr){
        .caps = i->caps,
        .mode = FI_CONTEXT2,
        .op_flags = hints && hints->tx_attr ? hints->tx_attr->op_flags : 0,
        .inject_size = SRD_INJECT,
        .size = f->tx,
        .iov_limit = 1,
        .rma_iov_limit = 1,
    };
    *i->rx_attr = (struct fi_rx_attr){
        .caps = i->caps,
        .mode = FI_CONTEXT2,
        .op_flags = hints && hints->rx_attr ? hints->rx_attr->op_flags : 0,
        .size = f->rx,
        .iov_limit = 1,
    };
    *i->ep_attr = (struct fi_ep_attr){
        .type = FI_EP_RDM,
        .protocol = SRD_FORMAT,
        .protocol_version = 1,
        .max_msg_size = f->msg,
        .mem_tag_format = UINT64_MAX,
        .tx_ctx_cnt = 1,
        .rx_ctx_cnt = 1,
    };
    *i->domain_attr = (struct fi_domain_attr){
        .name = strdup(name),
        .threading = FI_THREAD_DOMAIN,
        .control_progress = FI_PROGRESS_MANUAL,
        .data_progress = FI_PROGRESS_MANUAL,
        .resource_mgmt = FI_RM_ENABLED,
        .av_type = FI_AV_TABLE,
        .mr_mode = SRD_MR_MODE,
        .mr_key_size = 4,
        .cq_data_size = 4,
        .cq_cnt = 64,
        .ep_cnt = 64,
        .tx_ctx_cnt = 64,
        .rx_ctx_cnt = 64,
        .max_ep_tx_ctx = 1,
        .max_ep_rx_ctx = 1,
        .mr_iov_limit = 1,
        .caps = FI_LOCAL_COMM | FI_REMOTE_COMM,
        .mode = FI_CONTEXT2,
        .mr_cnt = 1 << 16,
    };
    i->fabric_attr->name = strdup("ternsrd"); /* the rest is libfabric's to fill in */
    return i;
}

static int getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info)
{
    struct srd_faults f;

    (void)version, (void)node, (void)service, (void)flags;
    int rc = srd_faults_read(&f);
    if (rc)
        return rc;
    if (hints && !suits(hints, &f))
        return -FI_ENODATA;
    for (uint32_t r = 0; r < f.rails; r++, info = &(*info)->next)
        if (!(*info = describe(hints, &f, r)))
            return -FI_ENOMEM;
    return 0;
}

/* ---------------------------------------------------------------- fabric, domain */

static int close_domain(struct fid *fid)
{
    struct srd_domain *d = SRD_OF(fid, struct srd_domain, d.fid);

    if (d->children)
        return srd_refuse(-FI_EBUSY, "a domain is closed with %d objects open", d->children);
    d->fabric->children--;
    free(d);
    return 0;
}

static struct fi_ops domain_fid_ops = {
    sizeof domain_fid_ops, close_domain, srd_no_bind,    srd_no_control,
    srd_no_ops_open,       srd_no_tostr, srd_no_ops_set,
};

int srd_domain_open(struct fid_fabric *f, struct fi_info *info, struct fid_domain **out,
                    void *context)
{
    struct srd_domain *d = calloc(1, sizeof *d);

    if (!d)
        return -FI_ENOMEM;
    if ((info->domain_attr->mr_mode & SRD_MR_MODE) != SRD_MR_MODE || srd_faults_read(&d->faults)) {
        free(d);
        return srd_refuse(-FI_EINVAL, "a domain without the modes that fi_getinfo asked for");
    }
    if (d->faults.only && info->domain_attr->name[7] - '0' + 1 != (int)d->faults.only) {
        d->faults.fail = d->faults.lie = 0;
        d->faults.lose = -1;
    }
    d->d = (struct fid_domain){
        {FI_CLASS_DOMAIN, context, &domain_fid_ops}, &srd_domain_ops, &srd_mr_ops};
    d->fabric = SRD_OF(f, struct srd_fabric, f);
    d->fabric->children++;
    *out = &d->d;
    return 0;
}

static int close_fabric(struct fid *fid)
{
    struct srd_fabric *f = SRD_OF(fid, struct srd_fabric, f.fid);

    if (f->children)
        return srd_refuse(-FI_EBUSY, "a fabric is closed with %d domains open", f->children);
    free(f);
    return 0;
}

static struct fi_ops fabric_fid_ops = {
    sizeof fabric_fid_ops, close_fabric, srd_no_bind,    srd_no_control,
    srd_no_ops_open,       srd_no_tostr, srd_no_ops_set,
};

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
    struct srd_fabric *f = calloc(1, sizeof *f);

    if (!f)
        return -FI_ENOMEM;
    f->f = (struct fid_fabric){
        {FI_CLASS_FABRIC, context, &fabric_fid_ops}, &srd_fabric_ops, attr->api_version};
    *out = &f->f;
    return 0;
}

static void cleanup(void)
{
}

static struct fi_provider provider = {
    .version = FI_VERSION(1, 0),
    .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
    .name = "ternsrd",
    .getinfo = getinfo,
    .fabric = open_fabric,
    .cleanup = cleanup,
};

FI_EXT_INI;
FI_EXT_INI
{
    return &provider;
}
