#include "core/wire/ofi/ofi.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/rand.h"
#include "core/wire/ofi/libfabric.h"
#include "core/wire/ofi/state.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONTROLS = 8, /* under way to a rank at once: one that does not take them hears no more */
    CREDIT_BYTES = 32 << 20, /* short messages kept for calls to come, of all peers together */
    CREDITS_MIN = 4,
    CREDITS_MAX = 16,
    LINGER_NS = 1000000,
};

int tern_wire_ofi_fail(struct tern_err *err, const char *what, long rc)
{
    return tern_err_set(err, TERN_TEMPFAIL, "libfabric: %s: %s", what, fi_strerror((int)-rc));
}

/* ---------------------------------------------------------------- short messages */

static int64_t credits_of(const struct ofi *o, size_t eager_max)
{
    return CREDIT_BYTES / (int64_t)eager_max / (o->size > 1 ? o->size - 1 : 1);
}

/* tcp's own endpoints send a message as so many bytes and read it off the socket when there is
 * somewhere to put it.  So a longer one may be sent unasked too, which saves it a round.  Up to
 * EAGER_STREAM the copy at the receiver takes less than the round.  Measured: 64 KiB to one node
 * and as much from it take 31 us so and 37 when asked for, 16 KiB 15 and 29.  They are not copied
 * at the sender, so none can go again after a failure. */
static bool is_stream(const struct ofi *o)
{
    bool is = o->mode == OFI_RMA && credits_of(o, EAGER_STREAM) >= CREDITS_MIN;

    for (int i = 0; i < o->n_rails && is; i++) {
        const struct fi_info *info = o->rails[i].info;
        const char *provider = info->fabric_attr->prov_name;
        is = (strcmp(provider, "net") == 0 || strcmp(provider, "tcp") == 0) &&
             info->tx_attr->iov_limit >= 2 && !(info->domain_attr->mr_mode & FI_MR_LOCAL);
    }
    return is && o->fragment >= sizeof(struct record) + EAGER_STREAM;
}

static void limit_eager(struct ofi *o, size_t most)
{
    if (o->eager_max > most)
        o->eager_max = most;
    int64_t n = credits_of(o, o->eager_max > EAGER_MAX ? o->eager_max : EAGER_MAX);
    o->credits = (uint32_t)(n < CREDITS_MIN ? CREDITS_MIN : n > CREDITS_MAX ? CREDITS_MAX : n);
}

/* ---------------------------------------------------------------- open, connect, close */

static const struct tern_wire_ops ops;

struct tern_wire_transport *
tern_wire_ofi_open(const char *provider, const struct tern_wire_options *with, struct tern_err *err)
{
    struct ofi *o = NULL;

    if (tern_wire_libfabric_load(provider, err) < 0 ||
        !(o = tern_alloc(1, sizeof *o, "the endpoint", err)))
        return NULL;
    o->t.ops = &ops;
    o->rank = with->rank;
    o->size = with->size;
    o->machine = with->machine;
    o->owner = with->owner;
    o->far = with->far;
    o->deadline_ns = with->deadline_ns;
    snprintf(o->asked, sizeof o->asked, "%s", provider);
    o->buckets = tern_alloc(BUCKETS, sizeof *o->buckets, "messages", err);
    o->controls = tern_alloc((size_t)o->size, sizeof *o->controls, "peers", err);
    o->secrets = tern_alloc((size_t)o->size, sizeof *o->secrets, "peers", err);
    tern_rand_system(o->secret, sizeof o->secret);
    if (!o->buckets || !o->controls || !o->secrets ||
        tern_wire_ofi_rails_open(o, provider, err) < 0) {
        ops.close(&o->t);
        return NULL;
    }
    o->fragment = TERN_WIRE_CHUNK;
    for (int i = 0; i < o->n_rails; i++)
        if (o->rails[i].most < o->fragment)
            o->fragment = o->rails[i].most;
    if (o->fragment * TERN_WIRE_FRAGMENTS < TERN_WIRE_CHUNK ||
        o->fragment < sizeof(struct record) + sizeof(struct tern_wire_control)) {
        tern_err_set(err, TERN_FAILED, "libfabric provider '%s' sends %zu bytes at most: too few",
                     provider, o->fragment);
        ops.close(&o->t);
        return NULL;
    }
    o->eager_max = o->fragment < RECORD_MAX ? o->fragment - sizeof(struct record)
                   : is_stream(o)           ? EAGER_STREAM
                                            : EAGER_MAX;
    limit_eager(o, o->eager_max);
    return &o->t;
}

static void tell_about(struct ofi *o)
{
    const struct fi_info *i = o->rails[0].info;
    int n = snprintf(o->about, sizeof o->about, "libfabric %s (%s) on %s (%s)",
                     i->fabric_attr->prov_name, o->mode == OFI_RMA ? "rma" : "tagged",
                     o->rails[0].name, i->fabric_attr->name);
    for (int k = 1; k < o->n_rails && n > 0 && (size_t)n < sizeof o->about; k++)
        n += snprintf(o->about + n, sizeof o->about - (size_t)n, ", %s (%s)", o->rails[k].name,
                      o->rails[k].info->fabric_attr->name);
    if (o->mode == OFI_TAGGED && o->rank == 0)
        tern_info(
            "messages between nodes are unauthenticated: a tagged message does not name its sender "
            "(TERN_FABRIC_MODE)");
}

static int connect_all(struct tern_wire_transport *t, const uint8_t *addresses, size_t stride,
                       struct tern_err *err)
{
    struct ofi *o = ofi_of(t);
    struct ways ways = {0};

    if (tern_wire_ofi_rails_connect(o, addresses, stride, &ways, err) < 0 ||
        (o->far && tern_wire_ofi_try_open(o, &ways, err) < 0)) {
        tern_wire_ofi_ways_free(&ways);
        return -1;
    }
    if (!o->trial)
        tern_wire_ofi_ways_free(&ways);
    o->failover = o->rule == RAILS_ANY && o->n_rails > 1;
    limit_eager(o, o->failover ? EAGER_MAX : o->eager_max); /* which is agreed on now */
    if (!o->trial)
        tell_about(o);
    return o->mode == OFI_RMA
               ? tern_wire_ofi_rma_start(o, err)
               : tern_wire_ofi_tagged_start(o, o->trial ? TRY_SLOTS : CONTROL_SLOTS, err);
}

static size_t vote(struct tern_wire_transport *t, uint8_t to[TERN_WIRE_ADDRESS])
{
    return ofi_of(t)->trial ? tern_wire_ofi_try_vote(ofi_of(t), to) : 0;
}

static int settle(struct tern_wire_transport *t, const uint8_t *votes, size_t stride,
                  struct tern_err *err)
{
    struct ofi *o = ofi_of(t);
    int rc = tern_wire_ofi_try_settle(o, votes, stride, err);

    tern_wire_ofi_try_close(o);
    if (rc < 0)
        return -1;
    o->failover = o->rule == RAILS_ANY && o->n_rails > 1;
    tell_about(o);
    return o->mode == OFI_RMA ? tern_wire_ofi_rma_slots(o, TRY_SLOTS, SLOTS, err)
                              : tern_wire_ofi_tagged_start(o, CONTROL_SLOTS - TRY_SLOTS, err);
}

/* What peers sent last is read, so that closing a connection does not throw away what we did.  Not
 * after an error: what is still under way moves from and to memory that its owner may have freed.
 */
static void linger(struct ofi *o)
{
    int64_t until = tern_clock_boot_ns() + LINGER_NS;

    if (o->mode != OFI_RMA || !o->links || o->closing || o->first || o->abandoned)
        return;
    do
        tern_wire_ofi_op_progress(o);
    while (tern_clock_boot_ns() < until);
}

static void ignore_control(void *arg, const struct tern_wire_control *m)
{
    (void)arg;
    (void)m;
}
static bool no_patience(void *arg, int64_t since_ns)
{
    (void)arg;
    (void)since_ns;
    return false;
}

static void close_all(struct tern_wire_transport *t)
{
    struct ofi *o = ofi_of(t);

    o->owner = (struct tern_wire_owner){NULL, ignore_control, no_patience};
    linger(o);
    o->closing = true;
    for (int i = 0; i < o->n_rails; i++)
        tern_wire_ofi_rail_stop(&o->rails[i]);
    tern_wire_ofi_rma_free(o); /* before the messages, which its table links */
    tern_wire_ofi_op_free_all(o);
    for (int i = 0; i < o->n_rails; i++)
        tern_wire_ofi_rail_close(&o->rails[i]);
    tern_wire_ofi_try_close(o);
    free(o->buckets);
    free(o->controls);
    free(o->secrets);
    free(o);
}

static size_t address(const struct tern_wire_transport *t, uint8_t to[TERN_WIRE_ADDRESS])
{
    return tern_wire_ofi_rails_address(ofi_of(t), to);
}

/* ---------------------------------------------------------------- memory */

static int enroll(struct tern_wire_transport *t, void *p, size_t bytes, void **mr,
                  struct tern_err *err)
{
    struct reg *r = tern_wire_ofi_register(ofi_of(t), p, bytes, true, err);

    *mr = r;
    return r ? 0 : -1;
}

static bool in_use(const struct op_list *l, const struct reg *r)
{
    const struct op *op = l->first;

    while (op && !((op->kind >= OP_WRITE || op->buf) && op->m && op->m->reg == r))
        op = op->next;
    return op != NULL;
}

/* Does a rank or a device read from this memory, or write to it? */
static bool is_busy(const struct ofi *o, const struct reg *r)
{
    bool busy = o->abandoned;

    for (const struct ofi_msg *m = o->first; m && !busy; m = m->next)
        busy = m->ready_sent && m->reg == r;
    for (int i = 0; i < o->n_rails && !busy; i++)
        busy = in_use(&o->rails[i].posted, r) || in_use(&o->rails[i].queue, r);
    return busy;
}

/* After an error messages may still be under way from or to memory that is now to go. Only the end
 * of the endpoints ends them. */
static void dismiss(struct tern_wire_transport *t, void *mr)
{
    struct ofi *o = ofi_of(t);

    if (mr && !o->closing && is_busy(o, mr)) {
        o->closing = true;
        for (int i = 0; i < o->n_rails; i++) {
            if (o->rails[i].down)
                continue;
            o->rails[i].down = true;
            tern_wire_ofi_rail_stop(&o->rails[i]);
            tern_wire_ofi_op_flush(o, i, FI_ECANCELED);
        }
    }
    tern_wire_ofi_unregister(mr);
}

/* Of memory that was not enrolled.  No cache: what is unmapped behind its back would stay in it. */
static int register_for(struct ofi *o, struct ofi_msg *m, struct tern_err *err)
{
    bool local = o->rails[0].info->domain_attr->mr_mode & FI_MR_LOCAL;
    bool written = o->mode == OFI_RMA && m->bytes > o->eager_max && (m->receives || local);

    if (m->reg || !m->bytes || !(o->mode == OFI_RMA ? written : local))
        return 0;
    m->reg = tern_wire_ofi_register(o, m->buf, m->bytes, m->receives, err);
    m->own_reg = m->reg != NULL;
    return m->reg ? 0 : -1;
}

/* ---------------------------------------------------------------- messages */

static struct tern_wire_message *start(struct tern_wire_transport *t, bool receives,
                                       const struct tern_wire_transfer *x, struct tern_err *err)
{
    struct ofi *o = ofi_of(t);
    struct ofi_msg *m = tern_wire_ofi_msg_take(o, x->peer, receives, err);
    int rc = 0;

    if (!m)
        return NULL;
    m->buf = x->buf;
    m->bytes = x->bytes;
    m->call = x->call;
    m->reg = x->mr;
    if (register_for(o, m, err) < 0) {
        m->m.state = TERN_WIRE_FAILED;
        tern_wire_ofi_msg_release(t, &m->m);
        return NULL;
    }
    if (o->mode == OFI_TAGGED)
        rc = tern_wire_ofi_tagged_message(o, m, x->tag, err);
    else if (receives)
        rc = tern_wire_ofi_rma_recv(o, m, x->tag, err);
    else
        tern_wire_ofi_rma_send(o, m, x->tag);
    return rc < 0 ? NULL : &m->m;
}

static struct tern_wire_message *post_send(struct tern_wire_transport *t,
                                           const struct tern_wire_transfer *x, struct tern_err *err)
{
    return start(t, /* receives= */ false, x, err);
}

static struct tern_wire_message *post_recv(struct tern_wire_transport *t,
                                           const struct tern_wire_transfer *x, struct tern_err *err)
{
    return start(t, /* receives= */ true, x, err);
}

static struct tern_wire_message *tell(struct tern_wire_transport *t, int to,
                                      const struct tern_wire_control *c)
{
    struct ofi *o = ofi_of(t);
    struct record *head;
    struct op *op = NULL;
    struct ofi_msg *m =
        o->controls[to] < CONTROLS ? tern_wire_ofi_msg_take(o, to, false, NULL) : NULL;

    if (m)
        op = o->mode == OFI_RMA ? tern_wire_ofi_record_new(o, RECORD_CONTROL, to, sizeof *c, &head)
                                : tern_wire_ofi_op_take(o, sizeof *c, NULL);
    if (!op) {
        if (m)
            m->m.state = TERN_WIRE_FAILED;
        tern_wire_ofi_msg_release(t, m ? &m->m : NULL);
        return NULL;
    }
    o->controls[to]++;
    op->control = true;
    if (o->mode == OFI_TAGGED) {
        tern_wire_ofi_tagged_tell(o, m, op, c);
        return &m->m;
    }
    memcpy(head + 1, c, sizeof *c);
    op->m = m;
    m->left = 1;
    tern_wire_ofi_op_post(o, op);
    return &m->m;
}

static void progress(struct tern_wire_transport *t)
{
    tern_wire_ofi_op_progress(ofi_of(t));
}

/* ---------------------------------------------------------------- words */

static const char *about(const struct tern_wire_transport *t)
{
    return ofi_of(t)->about;
}

static void explain(const struct tern_wire_transport *t, struct tern_buf *to)
{
    const struct ofi *o = ofi_of(t);
    const struct fi_fabric_attr *f = o->rails[0].info->fabric_attr;

    tern_buf_printf(to, "libfabric %u.%u, provider %s %u.%u\n", FI_MAJOR(fi_version()),
                    FI_MINOR(fi_version()), f->prov_name, FI_MAJOR(f->prov_version),
                    FI_MINOR(f->prov_version));
    bool own = strcmp(o->asked, "tcp") == 0 && strcmp(f->prov_name, "net") == 0;
    tern_buf_printf(to, "provider: %s: %s%s\n", o->asked, tern_wire_ofi_provider_why(o->asked),
                    own ? "; as net it has endpoints of its own" : "");
    tern_buf_printf(to, "mode: %s: %s\n", o->mode == OFI_RMA ? "rma" : "tagged", o->mode_why);
    if (o->mode == OFI_RMA)
        tern_buf_printf(to,
                        "up to %zu bytes: sent at once, %u ahead of their receives from a peer; "
                        "longer: written when the receive is ready, over all rails from %d KiB\n",
                        o->eager_max, o->credits, STRIPE_MIN >> 10);
    else
        tern_buf_printf(to, "up to %zu bytes: one tagged message; longer: fragments\n",
                        o->fragment);
    tern_wire_ofi_rails_explain(o, to);
    if (o->rule == RAILS_ANY && o->n_rails > 1)
        tern_buf_puts(to, "a rail that fails is given up, once, by all ranks\n");
    tern_buf_printf(to, "so far: %llu times libfabric's queue was full, %llu messages dropped\n",
                    (unsigned long long)o->eagain, (unsigned long long)o->refused);
}

static const struct tern_wire_ops ops = {
    .close = close_all,
    .address = address,
    .connect = connect_all,
    .vote = vote,
    .settle = settle,
    .enroll = enroll,
    .dismiss = dismiss,
    .send = post_send,
    .recv = post_recv,
    .release = tern_wire_ofi_msg_release,
    .tell = tell,
    .progress = progress,
    .about = about,
    .explain = explain,
};
