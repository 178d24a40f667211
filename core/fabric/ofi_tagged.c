/* Messages as tagged messages: matching and the long ones' rendezvous are the provider's.  What is
 * longer than one of its operations goes in fragments, each with its own tag. */
#include "core/fabric/ofi_state.h"

#include <rdma/fi_errno.h>
#include <string.h>

static uint64_t control_tag(int sender)
{
    return transport_tag(TRANSPORT_CONTROL_COMM, sender, 0, 0);
}

int ofi_tagged_start(struct ofi *o, int n, struct tern_err *err)
{
    for (int i = 0; i < n * o->n_rails; i++) {
        struct op *op = ofi_op_take(o, RECORD_MAX, err);
        if (!op)
            return -1;
        op->kind = OP_SLOT;
        op->rail = (uint8_t)(i % o->n_rails);
        op->tag = control_tag(0);
        op->key = control_tag(0xffff) ^ control_tag(0); /* from anybody */
        ofi_op_post(o, op);
    }
    return 0;
}

/* The call, and how many fragments there are: else one that is a whole first fragment of another
 * would be taken for it. */
static uint32_t label(const struct ofi_msg *m)
{
    return m->call ^ (m->chunks - 1) << 24;
}

int ofi_tagged_message(struct ofi *o, struct ofi_msg *m, uint64_t tag, struct tern_err *err)
{
    size_t at = 0;

    m->chunks = m->bytes ? record_chunks(m->bytes, o->fragment) : 1;
    m->left = 1; /* this call's own */
    for (uint32_t i = 0; i < m->chunks && m->m.state == MESSAGE_PENDING; i++) {
        struct op *op = ofi_op_take(o, 0, err);
        if (!op) {
            m->dropped = true;
            ofi_msg_end(o, m, "out of memory for messages");
            ofi_msg_settle(o, m);
            return -1;
        }
        op->kind = m->receives ? OP_TRECV : OP_TSEND;
        op->m = m;
        op->rank = m->m.rank;
        op->buf = m->buf + at;
        op->bytes = m->bytes - at < o->fragment ? m->bytes - at : o->fragment;
        op->desc = ofi_desc(m->reg, 0);
        op->tag = tag + i;
        op->immediate = label(m);
        at += op->bytes;
        m->left++;
        ofi_op_post(o, op);
    }
    m->left--;
    return 0;
}

static void send_control(struct ofi *o, struct op *op, int rank, int rail, const struct control *c)
{
    memcpy(op->data, c, sizeof *c);
    op->kind = OP_TSEND;
    op->rank = rank;
    op->rail = (uint8_t)rail;
    op->buf = op->data;
    op->bytes = sizeof *c;
    op->desc = ofi_desc(op->home, rail);
    op->tag = control_tag(o->rank);
    ofi_op_post(o, op);
}

void ofi_tagged_tell(struct ofi *o, struct ofi_msg *m, struct op *op, const struct control *c)
{
    op->m = m;
    m->left = 1;
    m->chunks = 1;
    send_control(o, op, m->m.rank, 0, c);
}

void ofi_tagged_try(struct ofi *o, int rank, int rail, enum control_kind kind)
{
    struct control c = {.kind = (int32_t)kind, .sender = o->rank};
    struct op *op = ofi_op_take(o, sizeof c, NULL);

    if (op)
        send_control(o, op, rank, rail, &c);
}

static void slot_done(struct ofi *o, struct op *op, int code, size_t bytes)
{
    struct control c;

    if (o->closing || o->rails[op->rail].down)
        return;
    memcpy(&c, op->data, sizeof c);
    c.text[sizeof c.text - 1] = '\0';
    int rail = op->rail;
    ofi_op_later(o, op);
    if (code == 0 && bytes == sizeof c && c.sender >= 0 && c.sender < o->size && c.rank >= 0 &&
        c.rank < o->size) {
        if (c.kind == CONTROL_TRY)
            ofi_tagged_try(o, c.sender, rail, CONTROL_TRIED);
        else if (c.kind == CONTROL_TRIED)
            ofi_try_echoed(o, c.sender, rail);
        else
            o->owner.control(o->owner.arg, &c);
    } else
        o->refused++;
}

void ofi_tagged_done(struct ofi *o, struct op *op, int code, size_t bytes, uint64_t data)
{
    struct ofi_msg *m = op->m;

    if (op->kind == OP_SLOT) {
        slot_done(o, op, code, bytes);
        return;
    }
    if (!m) { /* a try: whether it is heard is what counts */
        ofi_op_give(o, op);
        return;
    }
    uint32_t theirs = (uint32_t)data ^ (m->chunks - 1) << 24;
    size_t came = code == FI_ETRUNC ? op->bytes + 1 : bytes;
    if (m->receives && (code == FI_ETRUNC || (code == 0 && came != op->bytes)))
        ofi_msg_wrong(o, m, m->bytes + 1, code ? m->call : theirs);
    else if (code)
        ofi_msg_end(o, m, fi_strerror(code));
    else if (m->receives && (theirs ^ m->call) << 8)
        ofi_msg_wrong(o, m, m->bytes, theirs);
    else if (m->receives && theirs != m->call)
        ofi_msg_wrong(o, m, m->bytes + 1, m->call);
    else if (++m->arrived == m->chunks)
        ofi_msg_end(o, m, NULL);
    if (op->control)
        o->controls[op->rank]--;
    ofi_op_give(o, op);
    ofi_msg_settle(o, m);
}
