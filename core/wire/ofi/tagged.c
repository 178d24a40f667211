/* Messages as tagged messages: matching and the long ones' rendezvous are the provider's.  What is
 * longer than one of its operations goes in fragments, each with its own tag. */
#include "core/wire/ofi/state.h"

#include <rdma/fi_errno.h>
#include <string.h>

static uint64_t control_tag(int sender)
{
    return tern_wire_tag(TERN_WIRE_CONTROL_COMM, sender, 0, 0);
}

int tern_wire_ofi_tagged_start(struct ofi *o, int n, struct tern_err *err)
{
    for (int i = 0; i < n * o->n_rails; i++) {
        struct op *op = tern_wire_ofi_op_take(o, RECORD_MAX, err);
        if (!op)
            return -1;
        op->kind = OP_SLOT;
        op->rail = (uint8_t)(i % o->n_rails);
        op->tag = control_tag(0);
        op->key = control_tag(0xffff) ^ control_tag(0); /* from any rank */
        tern_wire_ofi_op_post(o, op);
    }
    return 0;
}

/* The call, and how many fragments there are: else one that is a whole first fragment of another
 * would be taken for it. */
static uint32_t label(const struct ofi_msg *m)
{
    return m->call ^ (m->chunks - 1) << 24;
}

int tern_wire_ofi_tagged_message(struct ofi *o, struct ofi_msg *m, uint64_t tag,
                                 struct tern_err *err)
{
    size_t at = 0;

    m->chunks = m->bytes ? record_chunks(m->bytes, o->fragment) : 1;
    m->left = 1; /* this call's own */
    for (uint32_t i = 0; i < m->chunks && m->m.state == TERN_WIRE_PENDING; i++) {
        struct op *op = tern_wire_ofi_op_take(o, 0, err);
        if (!op) {
            m->dropped = true;
            tern_wire_ofi_msg_end(o, m, "out of memory for messages");
            tern_wire_ofi_msg_settle(o, m);
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
        tern_wire_ofi_op_post(o, op);
    }
    m->left--;
    return 0;
}

static void send_control(struct ofi *o, struct op *op, int rank, int rail,
                         const struct tern_wire_control *c)
{
    memcpy(op->data, c, sizeof *c);
    op->kind = OP_TSEND;
    op->rank = rank;
    op->rail = (uint8_t)rail;
    op->buf = op->data;
    op->bytes = sizeof *c;
    op->desc = ofi_desc(op->home, rail);
    op->tag = control_tag(o->rank);
    tern_wire_ofi_op_post(o, op);
}

void tern_wire_ofi_tagged_tell(struct ofi *o, struct ofi_msg *m, struct op *op,
                               const struct tern_wire_control *c)
{
    op->m = m;
    m->left = 1;
    m->chunks = 1;
    send_control(o, op, m->m.rank, 0, c);
}

void tern_wire_ofi_tagged_try(struct ofi *o, int rank, int rail, enum tern_wire_control_kind kind)
{
    struct tern_wire_control c = {.kind = (int32_t)kind, .sender = o->rank};
    struct op *op = tern_wire_ofi_op_take(o, sizeof c, NULL);

    if (op)
        send_control(o, op, rank, rail, &c);
}

static void slot_done(struct ofi *o, struct op *op, int code, size_t bytes)
{
    struct tern_wire_control c;

    if (o->closing || o->rails[op->rail].down)
        return;
    memcpy(&c, op->data, sizeof c);
    c.text[sizeof c.text - 1] = '\0';
    int rail = op->rail;
    tern_wire_ofi_op_later(o, op);
    if (code == 0 && bytes == sizeof c && c.sender >= 0 && c.sender < o->size && c.rank >= 0 &&
        c.rank < o->size) {
        if (c.kind == TERN_WIRE_TRY)
            tern_wire_ofi_tagged_try(o, c.sender, rail, TERN_WIRE_TRIED);
        else if (c.kind == TERN_WIRE_TRIED)
            tern_wire_ofi_try_echoed(o, c.sender, rail);
        else
            o->owner.control(o->owner.arg, &c);
    } else
        o->refused++;
}

void tern_wire_ofi_tagged_done(struct ofi *o, struct op *op, int code, size_t bytes, uint64_t data)
{
    struct ofi_msg *m = op->m;

    if (op->kind == OP_SLOT) {
        slot_done(o, op, code, bytes);
        return;
    }
    if (!m) { /* a try: whether it is heard is what counts */
        tern_wire_ofi_op_give(o, op);
        return;
    }
    uint32_t theirs = (uint32_t)data ^ (m->chunks - 1) << 24;
    size_t came = code == FI_ETRUNC ? op->bytes + 1 : bytes;
    if (m->receives && (code == FI_ETRUNC || (code == 0 && came != op->bytes)))
        tern_wire_ofi_msg_wrong(o, m, m->bytes + 1, code ? m->call : theirs);
    else if (code)
        tern_wire_ofi_msg_end(o, m, fi_strerror(code));
    else if (m->receives && (theirs ^ m->call) << 8)
        tern_wire_ofi_msg_wrong(o, m, m->bytes, theirs);
    else if (m->receives && theirs != m->call)
        tern_wire_ofi_msg_wrong(o, m, m->bytes + 1, m->call);
    else if (++m->arrived == m->chunks)
        tern_wire_ofi_msg_end(o, m, NULL);
    if (op->control)
        o->controls[op->rank]--;
    tern_wire_ofi_op_give(o, op);
    tern_wire_ofi_msg_settle(o, m);
}
