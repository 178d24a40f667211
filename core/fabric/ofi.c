#include "core/fabric/ofi.h"

#include "core/base/clock.h"
#include "core/base/str.h"

#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONTROL_SLOTS = 16, /* control messages that may arrive between two looks */
    CONTROL_COMM = 255, /* no communicator has this number */
    READ = 16,          /* completions read at once */
};

/* An interface is up, but not yet running, for about a second after its link came. */
#define NETWORK_NS 5000000000ll

struct ofi_req {
    struct fi_context2 context; /* first: a completion's op_context is the request */
    enum ofi_state state;
    int rank;
    int code;          /* fi_errno when failed */
    struct fid_mr *mr; /* registered for this request alone */
    size_t due;        /* bytes that must come; of a receive */
    bool receives, dropped;
    struct ofi_req *next;        /* free list */
    struct ofi_control *control; /* owned, when it is a control message */
    bool is_slot;                /* a posted control receive */
};

struct ofi {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    fi_addr_t *peers; /* [size] */
    int rank, size;
    uint64_t next_key;
    bool closing;
    struct ofi_req slots[CONTROL_SLOTS];
    struct ofi_req *free, *all;
    size_t n_all, n_free;
    struct ofi_req **blocks; /* of the pool, for freeing */
    size_t n_blocks;
    void (*control)(void *arg, const struct ofi_control *m);
    void *arg;
    char about[160];
};

enum { POOL_BLOCK = 256, POOL_MAX = 65536 }; /* requests: 2 a peer for thousands of peers */

enum ofi_state tern_fabric_ofi_req_state(const struct ofi_req *r)
{
    return r->state;
}
int tern_fabric_ofi_req_rank(const struct ofi_req *r)
{
    return r->rank;
}
const char *tern_fabric_ofi_req_error(const struct ofi_req *r)
{
    return fi_strerror(r->code);
}
bool tern_fabric_ofi_req_wrong_size(const struct ofi_req *r)
{
    return r->code == FI_ETRUNC;
}

uint64_t tern_fabric_ofi_tag(int comm, uint32_t seq, uint32_t chunk, int sender)
{
    return (uint64_t)(comm & 0xff) << 56 | (uint64_t)(sender & 0xffff) << 40 |
           (uint64_t)(seq & 0xffffff) << 16 | (chunk & 0xffff);
}

static int fail(struct tern_err *err, const char *what, long rc)
{
    return tern_err_set(err, TERN_TEMPFAIL, "libfabric: %s: %s", what, fi_strerror((int)-rc));
}

/* Loopback and link-local addresses mean nothing on another node.  The provider's list is in no
 * order that one could rely on. */
static bool reaches_others(const struct fi_info *i)
{
    const struct sockaddr_in *in = i->src_addr;
    const struct sockaddr_in6 *in6 = i->src_addr;

    if (i->addr_format == FI_SOCKADDR_IN && in)
        return ntohl(in->sin_addr.s_addr) >> 24 != 127;
    if (i->addr_format == FI_SOCKADDR_IN6 && in6)
        return !IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) && !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
    return true;
}

/* The first such entry becomes the only one; the first of all when there is none. */
static bool keep_one(struct ofi *o)
{
    struct fi_info *i = o->info;

    while (i && !reaches_others(i))
        i = i->next;
    struct fi_info *one = i ? fi_dupinfo(i) : NULL;
    if (one) {
        fi_freeinfo(o->info);
        o->info = one;
    }
    return i != NULL;
}

static int choose(struct ofi *o, const char *provider, bool far, struct tern_err *err)
{
    struct fi_info *hints = fi_allocinfo();

    if (!hints)
        return tern_err_set(err, TERN_FAILED, "out of memory for libfabric");
    hints->caps = FI_TAGGED | FI_SEND | FI_RECV;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->fabric_attr->prov_name = strdup(provider);
    int64_t until = tern_clock_boot_ns() + NETWORK_NS;
    int rc = fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &o->info);
    bool reaches = rc == 0 && keep_one(o);
    while (rc == 0 && far && !reaches && tern_clock_boot_ns() < until) {
        fi_freeinfo(o->info);
        o->info = NULL;
        tern_clock_sleep_ns(100000000);
        rc = fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &o->info);
        reaches = rc == 0 && keep_one(o);
    }
    fi_freeinfo(hints);
    if (rc)
        return tern_err_set(err, TERN_FAILED,
                            "libfabric has no provider '%s' with reliable tagged messages here "
                            "(%s). `fi_info -l` lists what there is; set TERN_FABRIC_PROVIDER.",
                            provider, fi_strerror(-rc));
    if (far && !reaches)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "libfabric provider '%s' finds no network interface here that other "
                            "nodes can reach: is it up? (ip addr)",
                            provider);
    snprintf(o->about, sizeof o->about, "libfabric %s on %s (%s)", o->info->fabric_attr->prov_name,
             o->info->domain_attr->name, o->info->fabric_attr->name);
    return 0;
}

static int open_endpoint(struct ofi *o, struct tern_err *err)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = (size_t)o->size};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    int rc;

    if ((rc = fi_fabric(o->info->fabric_attr, &o->fabric, NULL)))
        return fail(err, "cannot open the fabric", rc);
    if ((rc = fi_domain(o->fabric, o->info, &o->domain, NULL)))
        return fail(err, "cannot open the domain", rc);
    if ((rc = fi_av_open(o->domain, &av, &o->av, NULL)))
        return fail(err, "cannot open the address table", rc);
    if ((rc = fi_cq_open(o->domain, &cq, &o->cq, NULL)))
        return fail(err, "cannot open the completion queue", rc);
    if ((rc = fi_endpoint(o->domain, o->info, &o->ep, NULL)))
        return fail(err, "cannot open an endpoint", rc);
    if ((rc = fi_ep_bind(o->ep, &o->av->fid, 0)) ||
        (rc = fi_ep_bind(o->ep, &o->cq->fid, FI_TRANSMIT | FI_RECV)) || (rc = fi_enable(o->ep)))
        return fail(err, "cannot enable the endpoint", rc);
    return 0;
}

struct ofi *tern_fabric_ofi_open(const char *provider, int rank, int size, bool far,
                                 void (*control)(void *arg, const struct ofi_control *m), void *arg,
                                 struct tern_err *err)
{
    struct ofi *o = tern_alloc(1, sizeof *o, "the endpoint", err);

    if (!o)
        return NULL;
    o->rank = rank;
    o->size = size;
    o->control = control;
    o->arg = arg;
    o->peers = tern_alloc((size_t)size, sizeof *o->peers, "peer addresses", err);
    if (!o->peers || choose(o, provider, far, err) < 0 || open_endpoint(o, err) < 0) {
        tern_fabric_ofi_close(o);
        return NULL;
    }
    return o;
}

static void close_fid(struct fid *fid)
{
    if (fid)
        fi_close(fid);
}

void tern_fabric_ofi_close(struct ofi *o)
{
    if (!o)
        return;
    o->closing = true;
    close_fid(o->ep ? &o->ep->fid : NULL);
    for (size_t b = 0; b < o->n_blocks; b++) {
        for (int i = 0; i < POOL_BLOCK; i++) {
            tern_fabric_ofi_unregister(o->blocks[b][i].mr);
            free(o->blocks[b][i].control);
        }
        free(o->blocks[b]);
    }
    for (int i = 0; i < CONTROL_SLOTS; i++) {
        tern_fabric_ofi_unregister(o->slots[i].mr);
        free(o->slots[i].control);
    }
    close_fid(o->cq ? &o->cq->fid : NULL);
    close_fid(o->av ? &o->av->fid : NULL);
    close_fid(o->domain ? &o->domain->fid : NULL);
    close_fid(o->fabric ? &o->fabric->fid : NULL);
    if (o->info)
        fi_freeinfo(o->info);
    free(o->blocks);
    free(o->peers);
    free(o);
}

size_t tern_fabric_ofi_address(const struct ofi *o, uint8_t to[OFI_ADDRESS])
{
    size_t n = OFI_ADDRESS;

    memset(to, 0, OFI_ADDRESS);
    return fi_getname(&o->ep->fid, to, &n) == 0 ? n : 0;
}

const char *tern_fabric_ofi_about(const struct ofi *o)
{
    return o->about;
}

size_t tern_fabric_ofi_max_message(const struct ofi *o)
{
    return o->info->ep_attr->max_msg_size;
}

int tern_fabric_ofi_register(struct ofi *o, void *p, size_t bytes, void **mr, struct tern_err *err)
{
    struct fid_mr *m = NULL;

    *mr = NULL;
    if (!(o->info->domain_attr->mr_mode & FI_MR_LOCAL))
        return 0;
    int rc = fi_mr_reg(o->domain, p, bytes, FI_SEND | FI_RECV, 0, ++o->next_key, 0, &m, NULL);
    if (rc)
        return tern_err_set(err, TERN_FAILED,
                            "libfabric: cannot register %zu bytes: %s. Is the limit of locked "
                            "memory (ulimit -l) large enough?",
                            bytes, fi_strerror(-rc));
    *mr = m;
    return 0;
}

void tern_fabric_ofi_unregister(void *mr)
{
    if (mr)
        fi_close(&((struct fid_mr *)mr)->fid);
}

static struct ofi_req *take(struct ofi *o, struct tern_err *err)
{
    if (!o->free) {
        if (o->n_blocks * POOL_BLOCK >= POOL_MAX) {
            tern_err_set(err, TERN_FAILED, "more than %d messages on their way at once", POOL_MAX);
            return NULL;
        }
        struct ofi_req *block = tern_alloc(POOL_BLOCK, sizeof *block, "messages", err);
        struct ofi_req **list = block ? realloc(o->blocks, (o->n_blocks + 1) * sizeof *list) : NULL;
        if (!list) {
            free(block);
            tern_err_set(err, TERN_FAILED, "out of memory for messages");
            return NULL;
        }
        o->blocks = list;
        o->blocks[o->n_blocks++] = block;
        for (int i = 0; i < POOL_BLOCK; i++) {
            block[i].next = o->free;
            o->free = &block[i];
        }
    }
    struct ofi_req *r = o->free;
    o->free = r->next;
    memset(r, 0, sizeof *r);
    return r;
}

static void give(struct ofi *o, struct ofi_req *r)
{
    tern_fabric_ofi_unregister(r->mr);
    free(r->control);
    r->mr = NULL;
    r->control = NULL;
    r->next = o->free;
    o->free = r;
}

void tern_fabric_ofi_release(struct ofi *o, struct ofi_req *r)
{
    if (r && r->state == OFI_PENDING)
        r->dropped = true;
    else if (r)
        give(o, r);
}

/* With `mr` NULL, registers the buffer for this request alone where the provider asks for it. */
static int own_registration(struct ofi *o, struct ofi_req *r, const void *buf, size_t bytes,
                            void **mr, struct tern_err *err)
{
    void *own;

    if (*mr || !bytes)
        return 0;
    if (tern_fabric_ofi_register(o, (void *)(uintptr_t)buf, bytes, &own, err) < 0)
        return -1;
    *mr = r->mr = own;
    return 0;
}

static void *desc_of(void *mr)
{
    return mr ? fi_mr_desc(mr) : NULL;
}

/* The queue is full: what is on its way must move first.  Bounded, so that a dead peer, whose
 * connection never comes up, cannot keep us here: the request then fails and says so. */
static int post(struct ofi *o, struct ofi_req *r, bool send, const void *buf, size_t bytes,
                uint64_t tag, void *mr, int64_t tries)
{
    ssize_t rc;

    do {
        rc = send ? fi_tsend(o->ep, buf, bytes, desc_of(mr), o->peers[r->rank], tag, &r->context)
                  : fi_trecv(o->ep, (void *)(uintptr_t)buf, bytes, desc_of(mr), FI_ADDR_UNSPEC, tag,
                             0, &r->context);
        if (rc != -FI_EAGAIN)
            break;
        tern_fabric_ofi_progress(o);
    } while (--tries > 0);
    return (int)rc;
}

enum { POST_TRIES = 2000000 }; /* each at least a microsecond: some seconds */

static struct ofi_req *start(struct ofi *o, bool send, int rank, const void *buf, size_t bytes,
                             uint64_t tag, void *mr, struct tern_err *err)
{
    struct ofi_req *r = take(o, err);

    if (!r)
        return NULL;
    r->rank = rank;
    r->due = bytes;
    r->receives = !send;
    if (own_registration(o, r, buf, bytes, &mr, err) < 0) {
        give(o, r);
        return NULL;
    }
    int rc = post(o, r, send, buf, bytes, tag, mr, POST_TRIES);
    if (rc) {
        r->state = OFI_FAILED;
        r->code = -rc;
    }
    return r;
}

struct ofi_req *tern_fabric_ofi_send(struct ofi *o, int to, const void *buf, size_t bytes,
                                     uint64_t tag, void *mr, struct tern_err *err)
{
    return start(o, true, to, buf, bytes, tag, mr, err);
}

struct ofi_req *tern_fabric_ofi_recv(struct ofi *o, int from, void *buf, size_t bytes, uint64_t tag,
                                     void *mr, struct tern_err *err)
{
    return start(o, false, from, buf, bytes, tag, mr, err);
}

struct ofi_req *tern_fabric_ofi_control_send(struct ofi *o, int to, const struct ofi_control *m)
{
    struct ofi_req *r = take(o, NULL);
    struct ofi_control *copy = r ? malloc(sizeof *copy) : NULL;
    void *mr = NULL;

    if (!copy) {
        if (r)
            give(o, r);
        return NULL;
    }
    *copy = *m;
    r->control = copy;
    r->rank = to;
    /* A few tries only: the connection to a rank never spoken to needs progress to come up. */
    if (own_registration(o, r, copy, sizeof *copy, &mr, NULL) < 0 ||
        post(o, r, true, copy, sizeof *copy, tern_fabric_ofi_tag(CONTROL_COMM, 0, 0, o->rank), mr,
             1000) != 0) {
        give(o, r);
        return NULL;
    }
    return r;
}

static int post_slot(struct ofi *o, struct ofi_req *r)
{
    uint64_t any_sender = (uint64_t)0xffff << 40;

    return (int)fi_trecv(o->ep, r->control, sizeof *r->control, desc_of(r->mr), FI_ADDR_UNSPEC,
                         tern_fabric_ofi_tag(CONTROL_COMM, 0, 0, 0), any_sender, &r->context);
}

int tern_fabric_ofi_connect(struct ofi *o, const uint8_t *addresses, size_t stride,
                            struct tern_err *err)
{
    for (int i = 0; i < o->size; i++) {
        int rc = fi_av_insert(o->av, addresses + (size_t)i * stride, 1, &o->peers[i], 0, NULL);
        if (rc != 1)
            return tern_err_set(err, TERN_TEMPFAIL, "libfabric: cannot use rank %d's address", i);
    }
    for (int i = 0; i < CONTROL_SLOTS; i++) {
        struct ofi_req *r = &o->slots[i];
        void *mr;
        r->is_slot = true;
        r->control = tern_alloc(1, sizeof *r->control, "control messages", err);
        if (!r->control ||
            tern_fabric_ofi_register(o, r->control, sizeof *r->control, &mr, err) < 0)
            return -1;
        r->mr = mr;
        int rc = post_slot(o, r);
        if (rc)
            return fail(err, "cannot post a receive", rc);
    }
    return 0;
}

static void finished(struct ofi *o, struct ofi_req *r, int code, size_t bytes)
{
    if (!r)
        return;
    if (r->is_slot) {
        struct ofi_control m = *r->control;
        m.text[sizeof m.text - 1] = '\0';
        if (o->closing)
            return;
        post_slot(o, r);
        if (code == 0 && bytes == sizeof m && m.sender >= 0 && m.sender < o->size && m.rank >= 0 &&
            m.rank < o->size)
            o->control(o->arg, &m);
        return;
    }
    if (code == 0 && r->receives && bytes != r->due)
        code = FI_ETRUNC;
    r->state = code ? OFI_FAILED : OFI_DONE;
    r->code = code;
    if (r->dropped)
        give(o, r);
}

void tern_fabric_ofi_progress(struct ofi *o)
{
    struct fi_cq_tagged_entry e[READ];

    for (;;) {
        ssize_t n = fi_cq_read(o->cq, e, READ);
        for (ssize_t i = 0; i < n; i++)
            finished(o, e[i].op_context, 0, e[i].len);
        if (n == -FI_EAVAIL) {
            struct fi_cq_err_entry bad = {0};
            if (fi_cq_readerr(o->cq, &bad, 0) > 0)
                finished(o, bad.op_context, bad.err ? bad.err : FI_EIO, 0);
        } else if (n < READ) {
            return;
        }
    }
}
