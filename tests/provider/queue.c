#include "tests/provider/srd.h"

#include <stdlib.h>
#include <string.h>

bool srd_cq_full(const struct srd_cq *cq)
{
    return cq && cq->n_good + cq->n_bad >= cq->size;
}

static struct srd_event *grow(struct srd_event **list, size_t *n, size_t *room)
{
    if (*n == *room) {
        struct srd_event *more = realloc(*list, (2 * *room + 64) * sizeof *more);
        if (!more)
            abort(); /* a test's machine has the memory */
        *list = more;
        *room = 2 * *room + 64;
    }
    return &(*list)[(*n)++];
}

void srd_cq_add(struct srd_cq *cq, const struct fi_cq_err_entry *e, fi_addr_t from,
                uint32_t delay_us)
{
    const struct srd_faults *f = &cq->domain->faults;
    struct srd_event *to = e->err ? grow(&cq->bad, &cq->n_bad, &cq->room_bad)
                                  : grow(&cq->good, &cq->n_good, &cq->room_good);
    uint32_t us = delay_us + srd_below(&cq->random, f->late_us);

    *to = (struct srd_event){*e, from, us ? srd_now_ns() + 1000ll * us : 0};
}

/* Any one of the oldest that are due; false for none. */
static bool take(struct srd_cq *cq, int64_t now, struct srd_event *to)
{
    size_t most = cq->domain->faults.shuffle;

    most = most < cq->n_good ? most : cq->n_good;
    size_t first = srd_below(&cq->random, (uint32_t)most);
    for (size_t i = 0; i < most; i++) {
        size_t at = (first + i) % most;
        if (cq->good[at].due > now)
            continue;
        *to = cq->good[at];
        memmove(cq->good + at, cq->good + at + 1, (--cq->n_good - at) * sizeof *cq->good);
        return true;
    }
    return false;
}

static ssize_t readfrom(struct fid_cq *c, void *buf, size_t count, fi_addr_t *from)
{
    struct srd_cq *cq = SRD_OF(c, struct srd_cq, c);
    struct srd_event one;
    size_t n = 0;

    for (struct srd_ep *ep = cq->domain->eps; ep; ep = ep->next)
        srd_progress(ep);
    int64_t now = srd_now_ns();
    if (cq->n_bad && cq->bad[0].due <= now)
        return -FI_EAVAIL;
    for (; n < count && take(cq, now, &one); n++) {
        /* The formats are beginnings of one another. */
        memcpy((char *)buf + n * cq->entry_bytes, &one.e, cq->entry_bytes);
        if (from)
            from[n] = one.from;
    }
    return n ? (ssize_t)n : -FI_EAGAIN;
}

static ssize_t read_good(struct fid_cq *c, void *buf, size_t count)
{
    return readfrom(c, buf, count, NULL);
}

static ssize_t readerr(struct fid_cq *c, struct fi_cq_err_entry *to, uint64_t flags)
{
    struct srd_cq *cq = SRD_OF(c, struct srd_cq, c);

    (void)flags;
    if (!cq->n_bad)
        return -FI_EAGAIN;
    *to = cq->bad[0].e;
    memmove(cq->bad, cq->bad + 1, --cq->n_bad * sizeof *cq->bad);
    return 1;
}

static ssize_t no_sread(struct fid_cq *c, void *buf, size_t count, const void *cond, int timeout)
{
    (void)c, (void)buf, (void)count, (void)cond, (void)timeout;
    return -FI_ENOSYS;
}

static ssize_t no_sreadfrom(struct fid_cq *c, void *buf, size_t count, fi_addr_t *from,
                            const void *cond, int timeout)
{
    (void)c, (void)buf, (void)count, (void)from, (void)cond, (void)timeout;
    return -FI_ENOSYS;
}

static int no_signal(struct fid_cq *c)
{
    (void)c;
    return -FI_ENOSYS;
}

static const char *describe(struct fid_cq *c, int prov_errno, const void *data, char *buf,
                            size_t len)
{
    (void)c, (void)data;
    const char *text = fi_strerror(prov_errno);
    if (buf && len) {
        buf[len - 1] = '\0';
        strncpy(buf, text, len - 1);
    }
    return text;
}

static struct fi_ops_cq cq_ops = {
    sizeof cq_ops, read_good, readfrom, readerr, no_sread, no_sreadfrom, no_signal, describe,
};

static int close_cq(struct fid *fid)
{
    struct srd_cq *cq = SRD_OF(fid, struct srd_cq, c.fid);

    if (cq->users)
        return srd_refuse(-FI_EBUSY, "a completion queue is closed before its endpoints");
    cq->domain->children--;
    free(cq->good);
    free(cq->bad);
    free(cq);
    return 0;
}

static struct fi_ops cq_fid_ops = {
    sizeof cq_fid_ops, close_cq,     srd_no_bind,    srd_no_control,
    srd_no_ops_open,   srd_no_tostr, srd_no_ops_set,
};

int srd_cq_open(struct fid_domain *d, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
    static const size_t bytes[] = {
        [FI_CQ_FORMAT_UNSPEC] = sizeof(struct fi_cq_entry),
        [FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
        [FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
        [FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
        [FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
    };
    struct srd_domain *domain = SRD_OF(d, struct srd_domain, d);

    if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
        return -FI_ENOSYS;
    if ((size_t)attr->format >= sizeof bytes / sizeof *bytes)
        return -FI_EINVAL;
    struct srd_cq *cq = calloc(1, sizeof *cq);
    if (!cq)
        return -FI_ENOMEM;
    cq->c = (struct fid_cq){{FI_CLASS_CQ, context, &cq_fid_ops}, &cq_ops};
    cq->domain = domain;
    cq->entry_bytes = bytes[attr->format];
    cq->size = attr->size && attr->size < domain->faults.cq ? attr->size : domain->faults.cq;
    cq->random = domain->faults.seed ^ 0xc0;
    domain->children++;
    *out = &cq->c;
    return 0;
}
