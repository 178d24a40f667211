/* Records from and to a peer: credits, probes of its rails, lost rails. */
#include "core/wire/ofi/state.h"

#include "core/base/log.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>

enum {
    ROUNDS = 5, /* probes that other rails answered until a silent one is given up */
    MS = 1000000,
};

/* ---------------------------------------------------------------- sending */

static uint32_t limit_for(const struct ofi *o, const struct peer_link *p)
{
    uint32_t credit = p->consumed + o->credits, window = p->eager_in.low + WINDOW;

    return window_ahead(credit, window) < 0 ? credit : window;
}

int tern_wire_ofi_peer_rail(struct ofi *o, int rank)
{
    const struct peer_link *p = &o->links[rank];

    for (int k = 0; k < o->n_rails; k++) {
        int i = (int)(o->turn++ % (unsigned)o->n_rails);
        if (!o->rails[i].down && !p->miss[i] && !(p->bad & 1 << i))
            return i;
    }
    for (int i = 0; i < o->n_rails; i++)
        if (!o->rails[i].down && !(p->bad & 1 << i))
            return i;
    for (int i = 0; i < o->n_rails - 1; i++)
        if (!o->rails[i].down)
            return i;
    return o->n_rails - 1;
}

bool tern_wire_ofi_peer_reached(const struct ofi *o, int rank)
{
    for (int i = 0; i < o->n_rails; i++)
        if (!o->rails[i].down && !(o->links[rank].bad & 1 << i))
            return true;
    return false;
}

struct op *tern_wire_ofi_record_new(struct ofi *o, enum record_kind kind, int rank, size_t more,
                                    struct record **head)
{
    struct op *op = tern_wire_ofi_op_take(o, sizeof **head + more, NULL);
    struct peer_link *p = &o->links[rank];

    if (!op)
        return NULL;
    op->kind = OP_RECORD;
    op->rank = rank;
    op->rail = (uint8_t)tern_wire_ofi_peer_rail(o, rank);
    op->bytes = sizeof **head + more;
    p->told = limit_for(o, p);
    *head = (struct record *)(void *)op->data;
    **head = (struct record){.magic = RECORD_MAGIC,
                             .kind = (uint8_t)kind,
                             .down = o->down,
                             .sender = (uint32_t)o->rank,
                             .limit = p->told,
                             .seen = p->eager_in.low};
    return op;
}

void tern_wire_ofi_peer_say_on(struct ofi *o, int rail, int rank, enum record_kind kind,
                               uint32_t number)
{
    struct record *head;
    struct op *op = tern_wire_ofi_record_new(o, kind, rank, 0, &head);

    if (!op)
        return;
    head->number = number;
    op->rail = (uint8_t)rail;
    tern_wire_ofi_op_post(o, op);
}

void tern_wire_ofi_peer_say(struct ofi *o, int rank, enum record_kind kind, uint32_t id,
                            uint64_t tag, uint32_t bytes, uint32_t call)
{
    struct record *head;
    struct op *op = tern_wire_ofi_record_new(o, kind, rank, 0, &head);

    if (!op)
        return;
    head->id = id;
    head->tag = tag;
    head->bytes = bytes;
    head->call = call;
    tern_wire_ofi_op_post(o, op);
}

void tern_wire_ofi_peer_credit(struct ofi *o, int rank)
{
    struct peer_link *p = &o->links[rank];

    if (window_ahead(limit_for(o, p), p->told) >= (int32_t)o->credits / 2)
        tern_wire_ofi_peer_say(o, rank, RECORD_CREDIT, 0, 0, 0, 0);
}

/* ---------------------------------------------------------------- rails that do not work */

/* Every message that waits for `rank`. */
static void fail_all(struct ofi *o, int rank, const char *error)
{
    struct ofi_msg *next;

    for (struct ofi_msg *m = o->first; m; m = next) {
        next = m->next; /* ending one ends no other */
        if (m->m.rank == rank)
            tern_wire_ofi_msg_end(o, m, error);
    }
}

static void both_lost(struct ofi *o, int rank, uint8_t before)
{
    uint8_t now = o->links[rank].down & o->down;

    if (now & ~before)
        tern_wire_ofi_rma_again(o, rank);
}

void tern_wire_ofi_rail_drop(struct ofi *o, int rail, const char *why)
{
    struct rail *l = &o->rails[rail];

    if (l->down)
        return;
    snprintf(l->fault, sizeof l->fault, "%s", why);
    tern_warn("rail %s (%s) is given up, %d left: %s", l->name, l->where, o->up - 1, why);
    uint8_t was = o->down;
    l->down = true;
    o->down |= (uint8_t)(1 << rail);
    o->up--;
    /* Whatever is still on its way to here must not arrive once it has been sent again. */
    tern_wire_ofi_rail_stop(l);
    tern_wire_ofi_op_flush(o, rail, FI_EHOSTDOWN);
    for (int r = 0; r < o->size; r++) {
        if (r == o->rank)
            continue;
        tern_wire_ofi_peer_say(o, r, RECORD_CREDIT, 0, 0, 0, 0);
        both_lost(o, r, o->links[r].down & was);
    }
}

static void lost(struct ofi *o, int rank, int rail)
{
    struct rail *l = &o->rails[rail];
    char why[sizeof l->fault];

    if (o->links[rank].bad & 1 << rail)
        snprintf(why, sizeof why, "%s", l->fault);
    else if (o->failover)
        snprintf(why, sizeof why, "rail %s (%s) does not reach rank %d, which answers on others",
                 l->name, l->where, rank);
    else /* the messages' errors share this text, and name their ranks */
        snprintf(why, sizeof why, "rail %s (%s) does not reach it, which answers on others",
                 l->name, l->where);
    if (o->failover) {
        tern_wire_ofi_rail_drop(o, rail, why);
        return;
    }
    snprintf(l->fault, sizeof l->fault, "%s", why);
    l->lost = true;
    fail_all(o, rank, l->fault);
}

void tern_wire_ofi_peer_fault(struct ofi *o, int rank, int rail, int code)
{
    struct peer_link *p = &o->links[rank];
    struct rail *l = &o->rails[rail];

    if (l->down)
        return;
    p->bad |= (uint8_t)(1 << rail);
    char text[sizeof l->fault];
    if (o->n_rails > 1)
        snprintf(text, sizeof text, "rail %s (%s): %s", l->name, l->where, fi_strerror(code));
    else
        snprintf(text, sizeof text, "%s", fi_strerror(code));
    memcpy(l->fault, text, sizeof text);
    if (o->failover && tern_wire_ofi_peer_reached(o, rank))
        return; /* the next probe tells whether it is the rail or the peer */
    fail_all(o, rank, l->fault);
}

void tern_wire_ofi_peer_heard(struct ofi *o, int rank, int rail)
{
    o->links[rank].miss[rail] = 0;
}

static void echoed(struct ofi *o, int rank, int rail, uint32_t round)
{
    struct peer_link *p = &o->links[rank];

    /* A rank that was busy answers old rounds in a bunch, rail by rail. */
    if (round != p->round || round == p->answered)
        return;
    p->answered = round;
    for (int i = 0; i < o->n_rails && o->up > 1; i++) {
        if (i == rail || o->rails[i].down)
            continue;
        if (p->bad & 1 << i || ++p->miss[i] >= ROUNDS)
            lost(o, rank, i);
    }
}

void tern_wire_ofi_peer_tick(struct ofi *o, int64_t now)
{
    int64_t most = o->deadline_ns / 4, every;

    if (o->up < 2)
        return;
    most = most < 1000ll * MS ? 1000ll * MS : most > 5000ll * MS ? 5000ll * MS : most;
    every = most / ROUNDS;
    for (struct ofi_msg *m = o->first; m; m = m->next) {
        struct peer_link *p = &o->links[m->m.rank];
        if (!m->since_ns || now - m->since_ns < every || now - p->probed_ns < every)
            continue;
        p->probed_ns = now;
        p->round++;
        unsigned ends = o->ends;
        for (int i = 0; i < o->n_rails; i++)
            if (!o->rails[i].down && !(p->bad & 1 << i))
                tern_wire_ofi_peer_say_on(o, i, m->m.rank, RECORD_PROBE, p->round);
        if (o->ends != ends)
            return; /* the list has changed */
    }
}

/* ---------------------------------------------------------------- receiving */

static void trim_retained(struct ofi *o, struct peer_link *p)
{
    struct op *next;

    for (struct op *op = p->retained.first; op; op = next) {
        next = op->next;
        if (window_ahead(op->number, p->acked) >= 0)
            continue;
        tern_wire_ofi_list_remove(&p->retained, op);
        op->retained = false;
        tern_wire_ofi_op_give(o, op);
    }
}

static void learn(struct ofi *o, const struct record *h)
{
    struct peer_link *p = &o->links[h->sender];
    uint8_t known = p->down & o->down;

    if (window_ahead(h->limit, p->limit) > 0) {
        p->limit = h->limit;
        o->stalled = true;
    }
    if (window_ahead(h->seen, p->acked) > 0 && window_ahead(h->seen, p->next_eager) <= 0) {
        p->acked = h->seen;
        trim_retained(o, p);
    }
    if (!o->failover || !(h->down & ~p->down))
        return;
    p->down |= h->down;
    for (int i = 0; i < o->n_rails; i++)
        if (h->down & 1 << i && !o->rails[i].down && o->up > 1)
            tern_wire_ofi_rail_drop(o, i, "another rank has given it up");
    both_lost(o, (int)h->sender, known);
}

void tern_wire_ofi_peer_slot(struct ofi *o, struct op *slot, size_t bytes)
{
    struct record_reader reader = {o->secret, o->rank, o->size, o->eager_max,
                                   (const uint8_t(*)[RECORD_SECRET])o->secrets};
    struct record_view v;
    const char *why;

    if (tern_wire_ofi_record_read(&reader, slot->data, bytes, &v, &why) < 0) {
        if (!o->refused++)
            tern_warn("libfabric: a message was dropped: it is %s", why);
        return;
    }
    int rank = (int)v.head.sender, rail = slot->rail;
    tern_wire_ofi_peer_heard(o, rank, rail);
    learn(o, &v.head);
    if (v.head.kind == RECORD_PROBE)
        tern_wire_ofi_peer_say_on(o, rail, rank, RECORD_ECHO, v.head.number);
    else if (v.head.kind == RECORD_ECHO && o->trial)
        tern_wire_ofi_try_echoed(o, rank, rail);
    else if (v.head.kind == RECORD_ECHO)
        echoed(o, rank, rail, v.head.number);
    else if (v.head.kind == RECORD_CONTROL)
        o->owner.control(o->owner.arg, &v.control);
    else
        tern_wire_ofi_rma_record(o, &v);
}
