/* Operations of RMA mode that ended: their records, messages and faults. */
#include "core/wire/ofi/state.h"

#include <rdma/fi_errno.h>

static const char *words(struct ofi *o, const struct op *op, int code)
{
    return o->n_rails > 1 ? o->rails[op->rail].fault : fi_strerror(code);
}

static void record_done(struct ofi *o, struct op *op, int code)
{
    struct ofi_msg *m = op->m;
    bool kept = false;

    if (code && op->control && o->failover && !o->closing &&
        tern_wire_ofi_peer_reached(o, op->rank)) {
        op->rail = (uint8_t)tern_wire_ofi_peer_rail(o, op->rank); /* by another one */
        tern_wire_ofi_op_post(o, op);
        return;
    }
    if (o->failover && m && !m->receives && op->bytes >= sizeof(struct record) &&
        ((struct record *)(void *)op->data)->kind == RECORD_EAGER) {
        struct peer_link *p = &o->links[op->rank];
        kept = window_ahead(op->number, p->acked) >= 0;
        if (kept) {
            op->retained = true;
            op->m = NULL;
            tern_wire_ofi_list_add(&p->retained, op);
        }
    } else if (op->retained) {
        struct peer_link *p = &o->links[op->rank];
        kept = window_ahead(op->number, p->acked) >= 0;
        if (kept)
            tern_wire_ofi_list_add(&p->retained, op);
    }
    if (m && code && (!o->failover || op->control))
        tern_wire_ofi_msg_end(o, m, words(o, op, code));
    else if (m && !m->receives)
        tern_wire_ofi_msg_end(
            o, m, NULL); /* if with an error: it goes again, from the copy, or has come */
    if (op->control)
        o->controls[op->rank]--;
    if (!kept)
        tern_wire_ofi_op_give(o, op);
    if (m)
        tern_wire_ofi_msg_settle(o, m);
}

void tern_wire_ofi_rma_done(struct ofi *o, struct op *op, int code, size_t bytes)
{
    struct ofi_msg *m = op->m;

    if (op->kind == OP_SLOT) {
        if (!code && !o->closing)
            tern_wire_ofi_peer_slot(o, op, bytes);
        if (!o->closing && !o->rails[op->rail].down)
            tern_wire_ofi_op_later(o, op);
        return;
    }
    if (code && !o->closing)
        tern_wire_ofi_peer_fault(o, op->rank, op->rail, code);
    if (op->kind == OP_RECORD) {
        record_done(o, op, code);
        return;
    }
    if (code && !o->failover)
        tern_wire_ofi_msg_end(o, m, words(o, op, code));
    else if (!code && ++m->arrived == m->chunks && !o->failover)
        tern_wire_ofi_msg_end(o, m, NULL);
    else if (m->fin && m->left == 1)
        tern_wire_ofi_msg_end(o, m, NULL);
    tern_wire_ofi_op_give(o, op);
    tern_wire_ofi_msg_settle(o, m);
}
