/* Every call that the provider has not: -FI_ENOSYS, and no NULL in any table. */
#include "tests/provider/srd.h"

#include <string.h>

static int getname(fid_t fid, void *addr, size_t *len)
{
    struct srd_ep *ep = SRD_OF(fid, struct srd_ep, e.fid);
    size_t room = *len;

    *len = sizeof ep->address;
    memcpy(addr, &ep->address, room < *len ? room : *len);
    return room < *len ? -FI_ETOOSMALL : 0;
}

int srd_no_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
    (void)fid, (void)to, (void)flags;
    return -FI_ENOSYS;
}

int srd_no_control(struct fid *fid, int command, void *arg)
{
    (void)fid, (void)command, (void)arg;
    return -FI_ENOSYS;
}

int srd_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

int srd_no_tostr(const struct fid *fid, char *to, size_t n)
{
    (void)fid, (void)to, (void)n;
    return -FI_ENOSYS;
}

int srd_no_ops_set(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

/* ---------------------------------------------------------------- cm */

static int no_cm_setname(fid_t fid, void *addr, size_t addrlen)
{
    (void)fid, (void)addr, (void)addrlen;
    return -FI_ENOSYS;
}

static int no_cm_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen)
{
    (void)ep, (void)addr, (void)addrlen;
    return -FI_ENOSYS;
}

static int no_cm_connect(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen)
{
    (void)ep, (void)addr, (void)param, (void)paramlen;
    return -FI_ENOSYS;
}

static int no_cm_listen(struct fid_pep *pep)
{
    (void)pep;
    return -FI_ENOSYS;
}

static int no_cm_accept(struct fid_ep *ep, const void *param, size_t paramlen)
{
    (void)ep, (void)param, (void)paramlen;
    return -FI_ENOSYS;
}

static int no_cm_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen)
{
    (void)pep, (void)handle, (void)param, (void)paramlen;
    return -FI_ENOSYS;
}

static int no_cm_shutdown(struct fid_ep *ep, uint64_t flags)
{
    (void)ep, (void)flags;
    return -FI_ENOSYS;
}

static int no_cm_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc,
                      void *context)
{
    (void)ep, (void)addr, (void)flags, (void)mc, (void)context;
    return -FI_ENOSYS;
}

struct fi_ops_cm srd_cm_ops = {
    .size = sizeof srd_cm_ops,
    .setname = no_cm_setname,
    .getname = getname,
    .getpeer = no_cm_getpeer,
    .connect = no_cm_connect,
    .listen = no_cm_listen,
    .accept = no_cm_accept,
    .reject = no_cm_reject,
    .shutdown = no_cm_shutdown,
    .join = no_cm_join,
};

/* ---------------------------------------------------------------- fabric */

static int no_fabric_passive_ep(struct fid_fabric *fabric, struct fi_info *info,
                                struct fid_pep **pep, void *context)
{
    (void)fabric, (void)info, (void)pep, (void)context;
    return -FI_ENOSYS;
}

static int no_fabric_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq,
                             void *context)
{
    (void)fabric, (void)attr, (void)eq, (void)context;
    return -FI_ENOSYS;
}

static int no_fabric_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr,
                               struct fid_wait **waitset)
{
    (void)fabric, (void)attr, (void)waitset;
    return -FI_ENOSYS;
}

static int no_fabric_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    (void)fabric, (void)fids, (void)count;
    return -FI_ENOSYS;
}

static int no_fabric_domain2(struct fid_fabric *fabric, struct fi_info *info,
                             struct fid_domain **dom, uint64_t flags, void *context)
{
    (void)fabric, (void)info, (void)dom, (void)flags, (void)context;
    return -FI_ENOSYS;
}

struct fi_ops_fabric srd_fabric_ops = {
    .size = sizeof srd_fabric_ops,
    .domain = srd_domain_open,
    .passive_ep = no_fabric_passive_ep,
    .eq_open = no_fabric_eq_open,
    .wait_open = no_fabric_wait_open,
    .trywait = no_fabric_trywait,
    .domain2 = no_fabric_domain2,
};

/* ---------------------------------------------------------------- domain */

static int no_domain_scalable_ep(struct fid_domain *domain, struct fi_info *info,
                                 struct fid_ep **sep, void *context)
{
    (void)domain, (void)info, (void)sep, (void)context;
    return -FI_ENOSYS;
}

static int no_domain_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
                               struct fid_cntr **cntr, void *context)
{
    (void)domain, (void)attr, (void)cntr, (void)context;
    return -FI_ENOSYS;
}

static int no_domain_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
                               struct fid_poll **pollset)
{
    (void)domain, (void)attr, (void)pollset;
    return -FI_ENOSYS;
}

static int no_domain_stx_ctx(struct fid_domain *domain, struct fi_tx_attr *attr,
                             struct fid_stx **stx, void *context)
{
    (void)domain, (void)attr, (void)stx, (void)context;
    return -FI_ENOSYS;
}

static int no_domain_srx_ctx(struct fid_domain *domain, struct fi_rx_attr *attr,
                             struct fid_ep **rx_ep, void *context)
{
    (void)domain, (void)attr, (void)rx_ep, (void)context;
    return -FI_ENOSYS;
}

static int no_domain_query_atomic(struct fid_domain *domain, enum fi_datatype datatype,
                                  enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags)
{
    (void)domain, (void)datatype, (void)op, (void)attr, (void)flags;
    return -FI_ENOSYS;
}

static int no_domain_query_collective(struct fid_domain *domain, enum fi_collective_op coll,
                                      struct fi_collective_attr *attr, uint64_t flags)
{
    (void)domain, (void)coll, (void)attr, (void)flags;
    return -FI_ENOSYS;
}

static int no_domain_endpoint2(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                               uint64_t flags, void *context)
{
    (void)domain, (void)info, (void)ep, (void)flags, (void)context;
    return -FI_ENOSYS;
}

struct fi_ops_domain srd_domain_ops = {
    .size = sizeof srd_domain_ops,
    .av_open = srd_av_open,
    .cq_open = srd_cq_open,
    .endpoint = srd_endpoint,
    .scalable_ep = no_domain_scalable_ep,
    .cntr_open = no_domain_cntr_open,
    .poll_open = no_domain_poll_open,
    .stx_ctx = no_domain_stx_ctx,
    .srx_ctx = no_domain_srx_ctx,
    .query_atomic = no_domain_query_atomic,
    .query_collective = no_domain_query_collective,
    .endpoint2 = no_domain_endpoint2,
};

/* ---------------------------------------------------------------- atomic */

static ssize_t no_atomic_write(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                               fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                               enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)dest_addr, (void)addr, (void)key,
        (void)datatype, (void)op, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_atomic_writev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                size_t count, fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)dest_addr, (void)addr, (void)key,
        (void)datatype, (void)op, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_atomic_writemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                  uint64_t flags)
{
    (void)ep, (void)msg, (void)flags;
    return -FI_ENOSYS;
}

static ssize_t no_atomic_inject(struct fid_ep *ep, const void *buf, size_t count,
                                fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                enum fi_datatype datatype, enum fi_op op)
{
    (void)ep, (void)buf, (void)count, (void)dest_addr, (void)addr, (void)key, (void)datatype,
        (void)op;
    return -FI_ENOSYS;
}

static ssize_t no_atomic_readwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                   void *result, void *result_desc, fi_addr_t dest_addr,
                                   uint64_t addr, uint64_t key, enum fi_datatype datatype,
                                   enum fi_op op, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)dest_addr,
        (void)addr, (void)key, (void)datatype, (void)op, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_atomic_readwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                    size_t count, struct fi_ioc *resultv, void **result_desc,
                                    size_t result_count, fi_addr_t dest_addr, uint64_t addr,
                                    uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                    void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)resultv, (void)result_desc,
        (void)result_count, (void)dest_addr, (void)addr, (void)key, (void)datatype, (void)op,
        (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_atomic_readwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                      struct fi_ioc *resultv, void **result_desc,
                                      size_t result_count, uint64_t flags)
{
    (void)ep, (void)msg, (void)resultv, (void)result_desc, (void)result_count, (void)flags;
    return -FI_ENOSYS;
}

static ssize_t no_atomic_compwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                   const void *compare, void *compare_desc, void *result,
                                   void *result_desc, fi_addr_t dest_addr, uint64_t addr,
                                   uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                   void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)compare, (void)compare_desc, (void)result,
        (void)result_desc, (void)dest_addr, (void)addr, (void)key, (void)datatype, (void)op,
        (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_atomic_compwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                    size_t count, const struct fi_ioc *comparev,
                                    void **compare_desc, size_t compare_count,
                                    struct fi_ioc *resultv, void **result_desc, size_t result_count,
                                    fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                    enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)comparev, (void)compare_desc,
        (void)compare_count, (void)resultv, (void)result_desc, (void)result_count, (void)dest_addr,
        (void)addr, (void)key, (void)datatype, (void)op, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_atomic_compwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                      const struct fi_ioc *comparev, void **compare_desc,
                                      size_t compare_count, struct fi_ioc *resultv,
                                      void **result_desc, size_t result_count, uint64_t flags)
{
    (void)ep, (void)msg, (void)comparev, (void)compare_desc, (void)compare_count, (void)resultv,
        (void)result_desc, (void)result_count, (void)flags;
    return -FI_ENOSYS;
}

static int no_atomic_writevalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                size_t *count)
{
    (void)ep, (void)datatype, (void)op, (void)count;
    return -FI_ENOSYS;
}

static int no_atomic_readwritevalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                    size_t *count)
{
    (void)ep, (void)datatype, (void)op, (void)count;
    return -FI_ENOSYS;
}

static int no_atomic_compwritevalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                    size_t *count)
{
    (void)ep, (void)datatype, (void)op, (void)count;
    return -FI_ENOSYS;
}

struct fi_ops_atomic srd_no_atomic = {
    .size = sizeof srd_no_atomic,
    .write = no_atomic_write,
    .writev = no_atomic_writev,
    .writemsg = no_atomic_writemsg,
    .inject = no_atomic_inject,
    .readwrite = no_atomic_readwrite,
    .readwritev = no_atomic_readwritev,
    .readwritemsg = no_atomic_readwritemsg,
    .compwrite = no_atomic_compwrite,
    .compwritev = no_atomic_compwritev,
    .compwritemsg = no_atomic_compwritemsg,
    .writevalid = no_atomic_writevalid,
    .readwritevalid = no_atomic_readwritevalid,
    .compwritevalid = no_atomic_compwritevalid,
};

/* ---------------------------------------------------------------- collective */

static ssize_t no_coll_barrier(struct fid_ep *ep, fi_addr_t coll_addr, void *context)
{
    (void)ep, (void)coll_addr, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_coll_broadcast(struct fid_ep *ep, void *buf, size_t count, void *desc,
                                 fi_addr_t coll_addr, fi_addr_t root_addr,
                                 enum fi_datatype datatype, uint64_t flags, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)coll_addr, (void)root_addr, (void)datatype,
        (void)flags, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_coll_alltoall(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                void *result, void *result_desc, fi_addr_t coll_addr,
                                enum fi_datatype datatype, uint64_t flags, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)coll_addr,
        (void)datatype, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_coll_allreduce(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                 void *result, void *result_desc, fi_addr_t coll_addr,
                                 enum fi_datatype datatype, enum fi_op op, uint64_t flags,
                                 void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)coll_addr,
        (void)datatype, (void)op, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_coll_allgather(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                 void *result, void *result_desc, fi_addr_t coll_addr,
                                 enum fi_datatype datatype, uint64_t flags, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)coll_addr,
        (void)datatype, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_coll_reduce_scatter(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                      void *result, void *result_desc, fi_addr_t coll_addr,
                                      enum fi_datatype datatype, enum fi_op op, uint64_t flags,
                                      void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)coll_addr,
        (void)datatype, (void)op, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_coll_reduce(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                              void *result, void *result_desc, fi_addr_t coll_addr,
                              fi_addr_t root_addr, enum fi_datatype datatype, enum fi_op op,
                              uint64_t flags, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)coll_addr,
        (void)root_addr, (void)datatype, (void)op, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_coll_scatter(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                               void *result, void *result_desc, fi_addr_t coll_addr,
                               fi_addr_t root_addr, enum fi_datatype datatype, uint64_t flags,
                               void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)coll_addr,
        (void)root_addr, (void)datatype, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_coll_gather(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                              void *result, void *result_desc, fi_addr_t coll_addr,
                              fi_addr_t root_addr, enum fi_datatype datatype, uint64_t flags,
                              void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)coll_addr,
        (void)root_addr, (void)datatype, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_coll_msg(struct fid_ep *ep, const struct fi_msg_collective *msg,
                           struct fi_ioc *resultv, void **result_desc, size_t result_count,
                           uint64_t flags)
{
    (void)ep, (void)msg, (void)resultv, (void)result_desc, (void)result_count, (void)flags;
    return -FI_ENOSYS;
}

static ssize_t no_coll_barrier2(struct fid_ep *ep, fi_addr_t coll_addr, uint64_t flags,
                                void *context)
{
    (void)ep, (void)coll_addr, (void)flags, (void)context;
    return -FI_ENOSYS;
}

struct fi_ops_collective srd_no_collective = {
    .size = sizeof srd_no_collective,
    .barrier = no_coll_barrier,
    .broadcast = no_coll_broadcast,
    .alltoall = no_coll_alltoall,
    .allreduce = no_coll_allreduce,
    .allgather = no_coll_allgather,
    .reduce_scatter = no_coll_reduce_scatter,
    .reduce = no_coll_reduce,
    .scatter = no_coll_scatter,
    .gather = no_coll_gather,
    .msg = no_coll_msg,
    .barrier2 = no_coll_barrier2,
};
