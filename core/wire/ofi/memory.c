/* Memory registered with libfabric, and buffers kept for records that came early. */
#include "core/wire/ofi/state.h"

#include "core/base/rand.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>

/* A random key, as long as the provider allows.  With FI_MR_PROV_KEY the provider puts
 * its own in place of ours. */
static uint64_t random_key(const struct rail *l)
{
    size_t bytes = l->info->domain_attr->mr_key_size;
    uint64_t key;

    tern_rand_system(&key, sizeof key);
    return bytes && bytes < sizeof key ? key & (((uint64_t)1 << 8 * bytes) - 1) : key;
}

static int register_with(struct ofi *o, const struct rail *l, struct reg *r, int i, size_t bytes,
                         bool written)
{
    enum { TRIES = 10 }; /* should two of this rank be the same */
    uint64_t access = FI_SEND | FI_RECV;
    int rc = -FI_ENOKEY;

    if (o->mode == OFI_RMA)
        access |= written ? FI_WRITE | FI_REMOTE_WRITE : FI_WRITE;
    else if (!(l->info->domain_attr->mr_mode & FI_MR_LOCAL))
        return 0;
    for (int k = 0; k < TRIES && rc == -FI_ENOKEY; k++)
        rc = fi_mr_reg(l->domain, r->base, bytes, access, 0, random_key(l), 0, &r->mr[i], NULL);
    return rc;
}

struct reg *tern_wire_ofi_register(struct ofi *o, void *p, size_t bytes, bool written,
                                   struct tern_err *err)
{
    struct reg *r = tern_alloc(1, sizeof *r, "registered memory", err);

    if (!r)
        return NULL;
    r->base = p;
    for (int i = 0; i < o->n_rails; i++) {
        int rc = o->rails[i].down ? 0 : register_with(o, &o->rails[i], r, i, bytes, written);
        if (rc) {
            tern_wire_ofi_unregister(r);
            tern_err_set(err, TERN_FAILED,
                         "libfabric: cannot register %zu bytes: %s. Is the limit of locked memory "
                         "(ulimit -l) large enough?",
                         bytes, fi_strerror(-rc));
            return NULL;
        }
    }
    return r;
}

void tern_wire_ofi_unregister(struct reg *r)
{
    for (int i = 0; r && i < RAILS_TRIED; i++)
        if (r->mr[i])
            fi_close(&r->mr[i]->fid);
    free(r);
}

/* ---------------------------------------------------------------- records that came early */

void *tern_wire_ofi_kept_take(struct ofi *o, size_t bytes)
{
    uint32_t size = 0;

    while (size < KEPT_SIZES && (size_t)KEPT_MIN << size < bytes)
        size++;
    if (size == KEPT_SIZES) /* more than any record has */
        return NULL;
    struct kept *k = o->kept[size];
    if (k)
        o->kept[size] = k->next;
    else if (!(k = malloc(sizeof *k + ((size_t)KEPT_MIN << size))))
        return NULL;
    k->size = size;
    return k->room;
}

void tern_wire_ofi_kept_give(struct ofi *o, void *p)
{
    struct kept *k = OFI_OF(struct kept, room, p);

    k->next = o->kept[k->size];
    o->kept[k->size] = k;
}

void tern_wire_ofi_kept_free_all(struct ofi *o)
{
    for (int i = 0; i < KEPT_SIZES; i++) {
        for (struct kept *k = o->kept[i], *next; k; k = next) {
            next = k->next;
            free(k);
        }
        o->kept[i] = NULL;
    }
}

void tern_wire_ofi_memory_explain(const struct ofi *o, struct tern_buf *to)
{
    uint64_t bits = o->rails[0].info->domain_attr->mr_mode;
    static const struct {
        uint64_t bit;
        const char *name;
    } names[] = {{FI_MR_LOCAL, "local"},
                 {FI_MR_VIRT_ADDR, "virt_addr"},
                 {FI_MR_ALLOCATED, "allocated"},
                 {FI_MR_PROV_KEY, "prov_key"}};
    const char *sep = "";

    tern_buf_puts(to, "memory registration: ");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (bits & names[i].bit) {
            tern_buf_printf(to, "%s%s", sep, names[i].name);
            sep = ", ";
        }
    }
    tern_buf_puts(to, *sep ? "\n" : "none of local, virt_addr, allocated, prov_key\n");
    if (o->mode == OFI_TAGGED) {
        tern_buf_puts(to,
                      "strangers: unauthenticated: a tagged message does not name its sender\n");
        return;
    }
    tern_buf_printf(to,
                    "strangers: records begin with a seal of 128 bits; keys of memory "
                    "are %s",
                    bits & FI_MR_PROV_KEY ? "the provider's" : "random");
    tern_buf_puts(to, o->rails[0].info->domain_attr->cq_data_size >= sizeof(uint64_t)
                          ? "; writes carry a token of 32 bits\n"
                          : "; writes have no room for a token\n");
}
