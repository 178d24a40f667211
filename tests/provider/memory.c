#include "tests/provider/srd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* ---------------------------------------------------------------- regions */

void srd_mr_drop(struct srd_mr *mr)
{
    if (mr && --mr->uses == 0)
        free(mr);
}

static int close_mr(struct fid *fid)
{
    struct srd_mr *mr = SRD_OF(fid, struct srd_mr, m.fid);
    struct srd_mr **at = &mr->domain->mrs;

    while (*at && *at != mr)
        at = &(*at)->next;
    if (!*at)
        return srd_refuse(-FI_EINVAL, "a region is closed that is not open");
    *at = mr->next;
    mr->closed = true;
    mr->domain->regions--;
    mr->domain->children--;
    srd_mr_drop(mr);
    return 0;
}

static struct fi_ops mr_fid_ops = {
    sizeof mr_fid_ops, close_mr,     srd_no_bind,    srd_no_control,
    srd_no_ops_open,   srd_no_tostr, srd_no_ops_set,
};

/* FI_MR_ALLOCATED: the pages are there. */
static bool is_mapped(uint64_t base, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t first = base / page * page;
    size_t n = (base + bytes - first + page - 1) / page;
    unsigned char *vec = malloc(n ? n : 1);
    bool mapped = vec && mincore((void *)(uintptr_t)first, n * page, vec) == 0;

    free(vec);
    return mapped;
}

static struct srd_mr *by_key(const struct srd_domain *d, uint64_t key)
{
    struct srd_mr *mr = d->mrs;

    while (mr && mr->m.key != key)
        mr = mr->next;
    return mr;
}

static int reg(struct fid *fid, const void *buf, size_t bytes, uint64_t access, uint64_t offset,
               uint64_t requested_key, uint64_t flags, struct fid_mr **out, void *context)
{
    struct srd_domain *d = SRD_OF(fid, struct srd_domain, d.fid);
    uint32_t key;

    (void)requested_key; /* the provider's, by FI_MR_PROV_KEY */
    if (!buf || !bytes || offset || flags)
        return srd_refuse(-FI_EINVAL, "fi_mr_reg of %zu bytes, offset %llu, flags %llx", bytes,
                          (unsigned long long)offset, (unsigned long long)flags);
    if (!access || access & ~(uint64_t)(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |
                                        FI_REMOTE_WRITE))
        return srd_refuse(-FI_EINVAL, "fi_mr_reg for access %llx", (unsigned long long)access);
    if (!is_mapped((uintptr_t)buf, bytes))
        return srd_refuse(-FI_EINVAL, "fi_mr_reg of memory that is not there");
    struct srd_mr *mr = d->regions < d->faults.mr ? calloc(1, sizeof *mr) : NULL;
    if (!mr)
        return -FI_ENOMEM;
    do { /* never guessed from another, so that a wrong one is seen */
        if (getrandom(&key, sizeof key, 0) != sizeof key)
            key++;
    } while (!key || by_key(d, key));
    *mr = (struct srd_mr){
        .m = {{FI_CLASS_MR, context, &mr_fid_ops}, mr, key},
        .domain = d,
        .next = d->mrs,
        .base = (uintptr_t)buf,
        .bytes = bytes,
        .access = access,
        .uses = 1,
    };
    d->mrs = mr;
    d->regions++;
    d->children++;
    *out = &mr->m;
    return 0;
}

static int regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
                uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr,
                void *context)
{
    if (count != 1)
        return srd_refuse(-FI_EINVAL, "fi_mr_regv of %zu pieces", count);
    return reg(fid, iov->iov_base, iov->iov_len, access, offset, requested_key, flags, mr, context);
}

static int regattr(struct fid *fid, const struct fi_mr_attr *a, uint64_t flags, struct fid_mr **mr)
{
    if (a->iface != FI_HMEM_SYSTEM)
        return -FI_ENOSYS;
    return regv(fid, a->mr_iov, a->iov_count, a->access, a->offset, a->requested_key, flags, mr,
                a->context);
}

struct fi_ops_mr srd_mr_ops = {sizeof srd_mr_ops, reg, regv, regattr};

static bool holds(const struct srd_mr *mr, uint64_t addr, size_t bytes)
{
    return addr >= mr->base && addr - mr->base <= mr->bytes &&
           bytes <= mr->bytes - (addr - mr->base);
}

struct srd_mr *srd_mr_local(struct srd_domain *d, void *desc, const void *buf, size_t bytes,
                            uint64_t access, const char *what)
{
    struct srd_mr *mr = d->mrs;

    while (mr && mr != desc)
        mr = mr->next;
    if (!desc)
        srd_refuse(0, "%s of %zu bytes without a descriptor", what, bytes);
    else if (!mr)
        srd_refuse(0, "%s of %zu bytes with a descriptor of nothing open", what, bytes);
    else if (!holds(mr, (uintptr_t)buf, bytes))
        srd_refuse(0, "%s of %zu bytes outside of its region of %zu", what, bytes, mr->bytes);
    else if (!(mr->access & access))
        srd_refuse(0, "%s with a region registered for access %llx", what,
                   (unsigned long long)mr->access);
    else
        return mr;
    return NULL;
}

char *srd_mr_remote(struct srd_domain *d, uint64_t key, uint64_t addr, size_t bytes, bool stranger)
{
    struct srd_mr *mr = by_key(d, key);

    if (mr && holds(mr, addr, bytes) && mr->access & FI_REMOTE_WRITE)
        return (char *)(uintptr_t)addr;
    if (stranger)
        return NULL;
    if (!mr)
        srd_refuse(0, "a write with a key of nothing open");
    else if (!holds(mr, addr, bytes))
        srd_refuse(0, "a write of %zu bytes outside of its region of %zu", bytes, mr->bytes);
    else
        srd_refuse(0, "a write to a region registered for access %llx",
                   (unsigned long long)mr->access);
    return NULL;
}

/* ---------------------------------------------------------------- addresses */

static int av_insert(struct fid_av *a, const void *addr, size_t count, fi_addr_t *to,
                     uint64_t flags, void *context)
{
    struct srd_av *av = SRD_OF(a, struct srd_av, a);
    struct srd_address *more;
    int good = 0;

    (void)context;
    if (flags & ~(uint64_t)FI_MORE)
        return -FI_ENOSYS;
    more = realloc(av->at, (av->count + count + 1) * sizeof *more);
    if (!more)
        return -FI_ENOMEM;
    av->at = more;
    for (size_t i = 0; i < count; i++) {
        struct srd_address one;
        memcpy(&one, (const char *)addr + i * sizeof one, sizeof one);
        bool valid = one.magic == SRD_ADDRESS_MAGIC;
        good += valid;
        if (to)
            to[i] = valid ? av->count : FI_ADDR_NOTAVAIL;
        if (valid)
            av->at[av->count++] = one;
    }
    return good;
}

static int av_remove(struct fid_av *a, fi_addr_t *at, size_t count, uint64_t flags)
{
    struct srd_av *av = SRD_OF(a, struct srd_av, a);

    (void)flags;
    for (size_t i = 0; i < count; i++) {
        if (at[i] >= av->count || !av->at[at[i]].magic)
            return srd_refuse(-FI_EINVAL, "fi_av_remove of what is not there");
        av->at[at[i]].magic = 0;
    }
    return 0;
}

static int av_lookup(struct fid_av *a, fi_addr_t at, void *addr, size_t *len)
{
    struct srd_av *av = SRD_OF(a, struct srd_av, a);

    if (at >= av->count || !av->at[at].magic)
        return -FI_EINVAL;
    memcpy(addr, &av->at[at], *len < sizeof *av->at ? *len : sizeof *av->at);
    *len = sizeof *av->at;
    return 0;
}

static const char *av_straddr(struct fid_av *a, const void *addr, char *buf, size_t *len)
{
    struct srd_address one;

    (void)a;
    memcpy(&one, addr, sizeof one);
    *len = 1 +
           (size_t)snprintf(buf, *len, "ternsrd-%08x-%016llx", one.job, (unsigned long long)one.id);
    return buf;
}

static int no_insertsvc(struct fid_av *av, const char *node, const char *service, fi_addr_t *to,
                        uint64_t flags, void *context)
{
    (void)av, (void)node, (void)service, (void)to, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static int no_insertsym(struct fid_av *av, const char *node, size_t nodes, const char *service,
                        size_t services, fi_addr_t *to, uint64_t flags, void *context)
{
    (void)av, (void)node, (void)nodes, (void)service, (void)services, (void)to, (void)flags;
    (void)context;
    return -FI_ENOSYS;
}

static int no_set(struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **set,
                  void *context)
{
    (void)av, (void)attr, (void)set, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops_av av_ops = {
    .size = sizeof av_ops,
    .insert = av_insert,
    .insertsvc = no_insertsvc,
    .insertsym = no_insertsym,
    .remove = av_remove,
    .lookup = av_lookup,
    .straddr = av_straddr,
    .av_set = no_set,
};

static int close_av(struct fid *fid)
{
    struct srd_av *av = SRD_OF(fid, struct srd_av, a.fid);

    if (av->users)
        return srd_refuse(-FI_EBUSY, "an address table is closed before its endpoints");
    av->domain->children--;
    free(av->at);
    free(av);
    return 0;
}

static struct fi_ops av_fid_ops = {
    sizeof av_fid_ops, close_av,     srd_no_bind,    srd_no_control,
    srd_no_ops_open,   srd_no_tostr, srd_no_ops_set,
};

int srd_av_open(struct fid_domain *d, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
    struct srd_domain *domain = SRD_OF(d, struct srd_domain, d);

    if (attr && attr->type != FI_AV_TABLE && attr->type != FI_AV_UNSPEC)
        return -FI_ENOSYS;
    if (attr && (attr->name || attr->flags))
        return -FI_ENOSYS;
    struct srd_av *av = calloc(1, sizeof *av);
    if (!av)
        return -FI_ENOMEM;
    av->a = (struct fid_av){{FI_CLASS_AV, context, &av_fid_ops}, &av_ops};
    av->domain = domain;
    domain->children++;
    *out = &av->a;
    return 0;
}
